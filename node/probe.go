package node

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm/wire"
)

// maxRows is about how many bytes of rows travel to a client together; one row goes in any case.
const maxRows = 1 << 20

// maxRowsHeld bounds what the probes of a node's sessions may ask for together: rows wait in memory for whoever reads them.
const maxRowsHeld = 4 * wire.MaxProbe

// probeRefusalLocked refuses a session whose probe asks for so many bytes while those of others ask for much. n.sessions is locked.
func (n *Node) probeRefusalLocked(asked uint64) *wire.Refusal {
	held := uint64(0)
	for _, d := range n.sessions.decoders {
		held += d.m.probed.bytes()
	}
	for _, s := range n.sessions.stages {
		held += s.m.probeBytes()
	}
	if asked == 0 || held+asked <= maxRowsHeld {
		return nil
	}
	r := wire.Refuse(wire.CodeBusy, "the probes of this node's sessions ask for %d bytes of rows, at most %d together", held+asked, maxRowsHeld)
	r.RetryAfter = leastRetry
	return r
}

// probeBytes returns what a stage's probe asks of it at most.
func (s *staging) probeBytes() uint64 { return s.probe.Bytes(s.width, 0) }

// probed follows what a session has told of a probe: the rows of each boundary, and of logits, in ascending order, each once.
// The zero value is of a probe that asks for nothing.
type probed struct {
	asked        wire.Probe
	width, vocab int
	upto         map[uint32]uint32 // by boundary: the rows of positions before are told
}

// newProbed checks what is asked for of a prompt of so many tokens.
func newProbed(asked wire.Probe, layers, width, vocab, prompt int) (probed, *wire.Refusal) {
	p := probed{asked: asked, width: width, vocab: vocab, upto: map[uint32]uint32{}}
	if n := len(asked.Layers); n > 0 && int64(asked.Layers[n-1]) > int64(layers) {
		return p, wire.Refuse(wire.CodeBadRequest, "the rows of boundary %d are asked for, the model has boundaries 0 to %d", asked.Layers[n-1], layers)
	}
	if int64(asked.Last) > int64(prompt) {
		return p, wire.Refuse(wire.CodeBadRequest, "rows of positions [%d, %d) are asked for, the prompt has %d", asked.First, asked.Last, prompt)
	}
	if n := p.bytes(); n > wire.MaxProbe {
		return p, wire.Refuse(wire.CodeBadRequest, "%d bytes of rows are asked for, at most %d at once: ask for fewer positions or boundaries", n, wire.MaxProbe)
	}
	for _, l := range asked.Layers {
		p.upto[l] = asked.First
	}
	if asked.Logits {
		p.upto[wire.LogitRows] = asked.First
	}
	return p, nil
}

// bytes returns the size of all that is asked for.
func (p *probed) bytes() uint64 { return p.asked.Bytes(p.width, p.vocab) }

// rowBytes returns the size of a row.
func (p *probed) rowBytes(layer uint32) int {
	if layer == wire.LogitRows {
		return 4 * p.vocab
	}
	return 4 * p.width
}

// take notes rows that have come and returns what of them is new, nil if nothing is. A refusal means that they can't be an honest
// peer's; the sender is told.
func (p *probed) take(m *wire.Rows) (*wire.Rows, *wire.Refusal) {
	upto, asked := p.upto[m.Layer]
	size := p.rowBytes(m.Layer)
	end := uint64(m.Start) + uint64(m.Count)
	switch {
	case !asked:
		return nil, wire.Refuse(wire.CodeBadFrame, "nobody asked for rows of boundary %d", m.Layer)
	case m.Start < p.asked.First || m.Start > upto || end > uint64(p.asked.Last):
		return nil, wire.Refuse(wire.CodeBadFrame, "rows of boundary %d from position %d to %d, expected %d", m.Layer, m.Start, end, upto)
	case uint64(len(m.Rows)) != uint64(m.Count)*uint64(size):
		return nil, wire.Refuse(wire.CodeBadFrame, "%d rows of boundary %d in %d bytes, a row has %d", m.Count, m.Layer, len(m.Rows), size)
	}
	for at := 0; at < len(m.Rows); at += 4 {
		if x := math.Float32frombits(binary.LittleEndian.Uint32(m.Rows[at:])); x-x != 0 {
			return nil, wire.Refuse(wire.CodeNonFinite, "a row of boundary %d has a number that is not finite", m.Layer)
		}
	}
	if end <= uint64(upto) {
		return nil, nil
	}
	p.upto[m.Layer] = uint32(end)
	return &wire.Rows{Head: m.Head, Layer: m.Layer, Start: upto, Count: uint32(end) - upto, Rows: m.Rows[int(upto-m.Start)*size:]}, nil
}

// all is beyond every boundary, and logits.
const all = 1 << 32

// due returns the first position of which rows of a boundary before limit are still to come; the end of what is asked for if none
// are.
func (p *probed) due(limit uint64) uint32 {
	first := p.asked.Last
	for l, upto := range p.upto {
		if uint64(l) < limit {
			first = min(first, upto)
		}
	}
	return first
}

// done reports whether all rows of boundaries before limit are told.
func (p *probed) done(limit uint64) bool { return p.due(limit) == p.asked.Last }

// probeOf lists the boundaries from first to last whose rows a step of n positions keeps for a probe.
func probeOf(p *wire.Probe, first, last uint32, start, n int) (list []int) {
	if start >= int(p.Last) || start+n <= int(p.First) {
		return nil
	}
	for _, l := range p.Layers {
		if l >= first && l <= last {
			list = append(list, int(l))
		}
	}
	return list
}

// rowsOf returns what a step has kept for a probe.
func rowsOf(p *wire.Probe, h wire.Head, step *runtime.Step) (list []*wire.Rows) {
	first, last := max(step.Start, int(p.First)), min(step.Start+step.N, int(p.Last))
	for i, l := range step.Probe {
		width := len(step.Probed[i]) / step.N
		list = append(list, &wire.Rows{Head: h, Layer: uint32(l), Start: uint32(first), Count: uint32(last - first),
			Rows: encodeRows(step.Probed[i][(first-step.Start)*width : (last-step.Start)*width])})
	}
	return list
}

// tell passes rows on to the client, what is new of them.
func (d *decoding) tell(m *wire.Rows) ([]action, *wire.Refusal) {
	m, r := d.probed.take(m)
	if m == nil {
		return nil, r
	}
	var acts []action
	size := d.probed.rowBytes(m.Layer)
	for at, n := 0, max(1, maxRows/size); at < int(m.Count); at += n {
		end := min(at+n, int(m.Count))
		acts = append(acts, emit{&wire.Rows{Head: d.head, Layer: m.Layer, Start: m.Start + uint32(at), Count: uint32(end - at), Rows: m.Rows[at*size : end*size]}})
	}
	return acts, nil
}

// onProbe takes a stage's part of a probe.
func (d *decoding) onProbe(stage int, m *wire.Rows) ([]action, *wire.Refusal) {
	st := d.plan.Stages[stage]
	if m.Layer < st.First || m.Layer >= st.Last {
		return nil, wire.Refuse(wire.CodeWrongPeer, "the plan has no rows of boundary %d from this peer", m.Layer)
	}
	acts, r := d.tell(m)
	switch {
	case r != nil && r.Code == wire.CodeNonFinite: // an honest stage would have noticed
		return d.gone(st.Peer, r.Text), nil
	case r != nil:
		return nil, r
	}
	d.moved(stage)
	return append(acts, d.next()...), nil
}

// owed reports whether stages are yet to send rows of boundaries before limit, of positions that walk the route.
func (d *decoding) owed(limit uint32) bool {
	return int(d.probed.due(uint64(limit))) < min(int(d.probed.asked.Last), d.routeEnd)
}

// found tells what a step of the decoder's own has made for the probe, and returns the logits of its other rows.
func (d *decoding) found(step *runtime.Step) (acts []action, sampled [][]float32, r *wire.Refusal) {
	p := &d.probed.asked
	rows := rowsOf(p, d.head, step)
	sampled = step.Logits
	for i, row := range step.LogitRows {
		if pos := step.Start + row; d.wantsLogits(pos) {
			rows = append(rows, &wire.Rows{Head: d.head, Layer: wire.LogitRows, Start: uint32(pos), Count: 1, Rows: encodeRows(step.Logits[i])})
		}
		if !d.samples(step.Start + row) {
			sampled = step.Logits[i+1:]
		}
	}
	for _, m := range rows {
		told, r := d.tell(m)
		if r != nil {
			return nil, nil, r
		}
		acts = append(acts, told...)
	}
	return acts, sampled, nil
}

// wantsLogits reports whether the probe asks for the logits of a position.
func (d *decoding) wantsLogits(pos int) bool {
	p := &d.probed.asked
	return p.Logits && pos >= int(p.First) && pos < int(p.Last)
}

// samples reports whether a token is sampled after a position.
func (d *decoding) samples(pos int) bool { return d.reason == "" && pos >= len(d.tokens)-1 }

// askedRows checks what a request asks for of a prompt of so many tokens.
func askedRows(q *control.Probe, card *artifacts.Card, prompt int) (probed, error) {
	if q == nil {
		return probed{}, nil
	}
	if q.First < 0 || q.Last <= q.First || q.Last > prompt || len(q.Layers) == 0 && !q.Logits || len(q.Layers) > wire.MaxProbeLayers {
		return probed{}, fmt.Errorf("probe of %d boundaries at positions [%d, %d) of a prompt of %d: ask for at least one position, and at least one boundary or logits",
			len(q.Layers), q.First, q.Last, prompt)
	}
	asked := wire.Probe{First: uint32(q.First), Last: uint32(q.Last), Logits: q.Logits}
	for i, l := range q.Layers {
		if l < 0 || l > card.Layers || i > 0 && l <= q.Layers[i-1] {
			return probed{}, fmt.Errorf("probe of boundaries %v: the model has boundaries 0 to %d; name each once, ascending", q.Layers, card.Layers)
		}
		asked.Layers = append(asked.Layers, uint32(l))
	}
	p, r := newProbed(asked, card.Layers, card.Width, card.Vocab, prompt)
	if r != nil {
		return probed{}, fmt.Errorf("probe: %s", r.Text)
	}
	return p, nil
}

// takeRows passes on what is new of a decoder's rows. Another decoder begins again.
func (s *clientSession) takeRows(m *wire.Rows) error {
	m, r := s.probed.take(m)
	switch {
	case r != nil:
		return r
	case m == nil:
		return nil
	}
	ev := control.Rows{Layer: int(m.Layer), First: int(m.Start), Count: int(m.Count), Data: m.Rows}
	if m.Layer == wire.LogitRows {
		ev.Layer, ev.Logits = 0, true
	}
	return s.emit(control.Event{Kind: "rows", Rows: &ev})
}
