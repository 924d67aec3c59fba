package wire

// Handover says that its receiver need not compute the tokens before Upto, but for those before From, which it holds: what its
// layers' caches hold of them, other peers have made and the sender has kept.
// KVSlices follow on the same stream, in runs of HandRows positions (the last one may have fewer),
// of each layer in turn. A layer that keeps a tail or the latest rows only goes
// as one piece, from position From on, with the last run, in which all is where no
// layer keeps every row. The receiver answers each run with KVAck; a stage's first chunk
// begins at Upto.
type Handover struct {
	Head
	From    uint32 // 0 for a stage
	Upto    uint32
	Prefix  Prefix     // hash of all tokens before Upto; the slices carry it, too
	Digests [][32]byte // of each layer's cache then, all positions before Upto
}

// Type implements Message.
func (*Handover) Type() Type { return TypeHandover }

func (m *Handover) encode(e *Encoder) {
	m.Head.encode(e)
	e.U32(m.From)
	e.U32(m.Upto)
	e.Hash(m.Prefix)
	e.U32(uint32(len(m.Digests)))
	for _, h := range m.Digests {
		e.Hash(h)
	}
}

func (m *Handover) decode(d *Decoder) {
	m.Head.decode(d)
	m.From = d.U32()
	m.Upto = d.U32()
	m.Prefix = d.Hash()
	for range d.Count(1<<14, 32) {
		m.Digests = append(m.Digests, d.Hash())
	}
	if m.Upto <= m.From || m.Upto > MaxTokens {
		d.Fail("positions %d to %d are handed over", m.From, m.Upto)
	}
}

// Inherit asks the decoder that a session had before, and that leaves, for what its cache holds of positions [From, Upto) in layers
// [First, Last). The grant shows that the client wants it. The answer is a Handover, which may end before Upto, or a Refusal.
type Inherit struct {
	Head
	Grant       Grant
	First, Last uint32
	From, Upto  uint32
}

// Type implements Message.
func (*Inherit) Type() Type { return TypeInherit }

func (m *Inherit) encode(e *Encoder) {
	m.Head.encode(e)
	m.Grant.encode(e)
	e.U32(m.First)
	e.U32(m.Last)
	e.U32(m.From)
	e.U32(m.Upto)
}

func (m *Inherit) decode(d *Decoder) {
	m.Head.decode(d)
	m.Grant.decode(d)
	m.First = d.U32()
	m.Last = d.U32()
	m.From = d.U32()
	m.Upto = d.U32()
	if m.Last <= m.First || m.Upto <= m.From || m.Upto > MaxTokens {
		d.Fail("positions %d to %d of layers [%d, %d) are asked for", m.From, m.Upto, m.First, m.Last)
	}
}
