package wire

// Handover says that a stage need not compute the tokens before Upto: what its
// layers' caches hold of them, other peers have made and the decoder has kept.
// KVSlices follow on the same stream, in runs of HandRows positions (the last one may have fewer),
// of each layer in turn. A layer that keeps a tail or the latest rows only goes
// as one piece, from position 0 on, with the last run, in which all is where no
// layer keeps every row. The stage answers each run with KVAck; the first chunk
// begins at Upto.
type Handover struct {
	Head
	Upto   uint32
	Prefix Prefix // hash of all tokens before Upto; the slices carry it, too
}

// Type implements Message.
func (*Handover) Type() Type { return TypeHandover }

func (m *Handover) encode(e *Encoder) {
	m.Head.encode(e)
	e.U32(m.Upto)
	e.Hash(m.Prefix)
}

func (m *Handover) decode(d *Decoder) {
	m.Head.decode(d)
	m.Upto = d.U32()
	m.Prefix = d.Hash()
	if m.Upto == 0 || m.Upto > MaxTokens {
		d.Fail("%d positions are handed over", m.Upto)
	}
}
