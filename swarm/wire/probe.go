package wire

import "math"

// Probe asks for numbers that a prompt makes on its way, of its positions
// [First, Last): the residual stream at boundaries between layers, and logits.
// The zero Probe asks for nothing.
type Probe struct {
	First, Last uint32
	Layers      []uint32 // boundaries, ascending: l is the stream that layer l reads, the model's layer count what the last layer leaves
	Logits      bool
}

// Bytes returns how many bytes of rows the probe asks for, of a model of that
// width and vocabulary.
func (p *Probe) Bytes(width, vocab int) uint64 {
	row := uint64(len(p.Layers)) * uint64(width)
	if p.Logits {
		row += uint64(vocab)
	}
	return uint64(p.Last-p.First) * row * 4
}

func (p *Probe) encode(e *Encoder) {
	e.U32(p.First)
	e.U32(p.Last)
	e.U32(uint32(len(p.Layers)))
	for _, l := range p.Layers {
		e.U32(l)
	}
	e.Bool(p.Logits)
}

func (p *Probe) decode(d *Decoder) {
	p.First = d.U32()
	p.Last = d.U32()
	for i := range d.Count(MaxProbeLayers, 4) {
		p.Layers = append(p.Layers, d.U32())
		if i > 0 && p.Layers[i] <= p.Layers[i-1] {
			d.Fail("probe of boundary %d after %d", p.Layers[i], p.Layers[i-1])
		}
	}
	p.Logits = d.Bool()
	if none := len(p.Layers) == 0 && !p.Logits; p.Last < p.First || none != (p.Last == p.First) {
		d.Fail("probe of %d boundaries at positions [%d,%d)", len(p.Layers), p.First, p.Last)
	}
}

// LogitRows is the Layer of Rows that are logits.
const LogitRows = math.MaxUint32

// Rows carries some of what a Probe asks for: rows of f32, little endian, of
// Count positions from Start on. A boundary's rows come in ascending order.
type Rows struct {
	Head
	Layer uint32 // the boundary, or LogitRows
	Start uint32
	Count uint32
	Rows  []byte
}

// Type implements Message.
func (*Rows) Type() Type { return TypeRows }

func (m *Rows) encode(e *Encoder) {
	m.Head.encode(e)
	e.U32(m.Layer)
	e.U32(m.Start)
	e.U32(m.Count)
	e.Raw(m.Rows)
}

func (m *Rows) decode(d *Decoder) {
	m.Head.decode(d)
	m.Layer = d.U32()
	m.Start = d.U32()
	m.Count = d.U32()
	m.Rows = d.Rest()
	if m.Count == 0 || m.Count > MaxTokens || len(m.Rows) == 0 || len(m.Rows)%(4*int(m.Count)) != 0 {
		d.Fail("%d rows in %d bytes", m.Count, len(m.Rows))
	}
}
