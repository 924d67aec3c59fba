package wire

// KVSlice carries part of the cache that one layer made for one chunk: its rows,
// canonical as runtime exports them in the grant's KV type, and behind them the layer's tail after the
// chunk, where it has one. Both are Total bytes; slices come in order and at most
// MaxSlice bytes each, so that a seam never waits long behind them.
type KVSlice struct {
	Head
	Layer  uint32
	Start  uint32 // first position of the chunk
	Count  uint32 // positions of the chunk
	Prefix Prefix // as announced with the chunk
	Total  uint32 // bytes of all Count rows and the tail
	Offset uint32 // of Rows among them
	Rows   []byte
}

// Type implements Message.
func (*KVSlice) Type() Type { return TypeKVSlice }

func (m *KVSlice) encode(e *Encoder) {
	m.Head.encode(e)
	e.U32(m.Layer)
	e.U32(m.Start)
	e.U32(m.Count)
	e.Hash(m.Prefix)
	e.U32(m.Total)
	e.U32(m.Offset)
	e.Raw(m.Rows)
}

func (m *KVSlice) decode(d *Decoder) {
	m.Head.decode(d)
	m.Layer = d.U32()
	m.Start = d.U32()
	m.Count = d.U32()
	m.Prefix = d.Hash()
	m.Total = d.U32()
	m.Offset = d.U32()
	m.Rows = d.Rest()
	if n := uint64(len(m.Rows)); n == 0 || n > MaxSlice || uint64(m.Offset)+n > uint64(m.Total) || m.Count == 0 {
		d.Fail("KV slice of %d bytes at %d of %d, %d rows", n, m.Offset, m.Total, m.Count)
	}
}

// KVAck says that the decoder holds the rows of all the sender's layers before
// position Upto.
type KVAck struct {
	Head
	Upto uint32
}

// Type implements Message.
func (*KVAck) Type() Type { return TypeKVAck }

func (m *KVAck) encode(e *Encoder) { m.Head.encode(e); e.U32(m.Upto) }
func (m *KVAck) decode(d *Decoder) { m.Head.decode(d); m.Upto = d.U32() }
