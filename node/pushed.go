package node

import (
	"errors"
	"slices"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm/wire"
)

// What the stages push of their layers' caches, as the decoder takes it.

// expect says that the stages push their rows of c.
func (d *decoding) expect(c *wire.Chunk) {
	if d.plan.PushKV {
		d.pushed = append(d.pushed, c)
		d.dropPushed() // of layers with tails alone there may be none
	}
	if c.Tails {
		d.tailed = int(c.Start + c.Count)
	}
}

// onSlice takes a slice of what a stage pushes.
func (d *decoding) onSlice(stage int, m *wire.KVSlice) ([]action, *wire.Refusal) {
	st := d.plan.Stages[stage]
	if m.Layer < st.First || m.Layer >= st.Last || !d.plan.PushKV {
		return nil, wire.Refuse(wire.CodeWrongPeer, "the plan has no KV of layer %d from this peer", m.Layer)
	}
	layer, have, end := int(m.Layer), d.seq.Len(int(m.Layer)), int(m.Start)+int(m.Count)
	i := slices.IndexFunc(d.pushed, func(c *wire.Chunk) bool { return int(c.Start+c.Count) > have && d.brings(c, layer) })
	switch {
	case i < 0 || int(m.Start) != have:
		return nil, wire.Refuse(wire.CodeBadFrame, "KV of layer %d at position %d, expected %d", layer, m.Start, have)
	case int(d.pushed[i].Start+d.pushed[i].Count) != end || int(m.Total) != d.seq.KVBytes(layer, have, end):
		return nil, wire.Refuse(wire.CodeBadFrame, "KV of %d positions in %d bytes", m.Count, m.Total)
	case d.pushed[i].Prefix != m.Prefix:
		return nil, wire.Refuse(wire.CodePrefix, "KV at position %d belongs to other tokens", m.Start)
	}
	held := d.rows[layer]
	if int(m.Offset) != len(held) {
		return nil, wire.Refuse(wire.CodeBadFrame, "KV slice at byte %d, expected %d", m.Offset, len(held))
	}
	if int(m.Offset)+len(m.Rows) == int(m.Total) {
		all := m.Rows // most come in one slice, which needs no other memory
		if len(held) > 0 {
			all = append(held, m.Rows...)
		}
		if err := d.seq.ImportKV(layer, int(m.Start), int(m.Count), all); err != nil {
			var nan *runtime.NonFiniteError
			if errors.As(err, &nan) { // an honest stage would have noticed
				return d.gone(st.Peer, err.Error()), nil
			}
			return nil, asRefusal(err)
		}
		delete(d.rows, layer)
		d.moved(stage)
		return d.onRows(stage), nil
	}
	d.rows[layer] = append(slices.Grow(held, int(m.Total)-len(held)), m.Rows...)
	return nil, nil
}

// brings reports whether a layer's rows come with a chunk: those of one with a tail wait for the tail.
func (d *decoding) brings(c *wire.Chunk, layer int) bool {
	return c.Tails || d.seq.TailBytes(layer) == 0
}

// lacks returns how many of a stage's layers lack rows that come with a chunk, of how many.
func (d *decoding) lacks(stage int, c *wire.Chunk) (lack, bring int) {
	st := d.plan.Stages[stage]
	for l := int(st.First); l < int(st.Last); l++ {
		if d.brings(c, l) {
			if bring++; d.seq.Len(l) < int(c.Start+c.Count) {
				lack++
			}
		}
	}
	return lack, bring
}

// onRows acknowledges what is complete of one stage and goes on if that was
// what local decoding waited for.
func (d *decoding) onRows(stage int) []action {
	var acts []action
	for _, c := range d.pushed {
		end := c.Start + c.Count
		if lack, bring := d.lacks(stage, c); lack == 0 && bring > 0 && end > d.acked[stage] {
			d.acked[stage] = end
			acts = append(acts, send{d.plan.Stages[stage].Peer, &wire.KVAck{Head: d.head, Upto: end}})
		}
	}
	d.dropPushed()
	return append(acts, d.next()...)
}

// dropPushed forgets the chunks whose rows are here.
func (d *decoding) dropPushed() {
	for len(d.pushed) > 0 {
		for i := range d.plan.Stages {
			if lack, _ := d.lacks(i, d.pushed[0]); lack > 0 {
				return
			}
		}
		d.pushed = d.pushed[1:]
	}
}
