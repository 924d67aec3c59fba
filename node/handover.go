package node

import (
	"slices"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm/wire"
)

// What a lost stage's layers had cached up to the checkpoint, the decoder holds, if the plan had its rows pushed. So another route begins
// there: stages of the old one go back to it, and who is new is handed what it lacks. A decoder that leaves hands what it holds to the next one
// (inherit.go). First the giver's side, then the taker's.

// kvPart is what goes of a layer in one KV import.
type kvPart struct{ layer, start, count int }

// handover is what one peer is handed, as the giver or it sees it, in runs of wire.HandRows positions.
type handover struct {
	layers runtime.Range
	from   int
	upto   int
	step   int      // positions of a run; but for the last all have as many
	sent   []uint32 // ends of the runs on their way, in order
	next   int      // where the next run begins
}

// newHandover plans a handover of positions [from, upto) of layers. Layers that don't keep every row go with the last run.
func newHandover(seq runtime.Sequence, layers runtime.Range, from, upto int) *handover {
	h := &handover{layers: layers, from: from, upto: upto, step: upto - from, next: from}
	for l := layers.First; l < layers.Last; l++ {
		if !forgets(seq, runtime.Range{First: l, Last: l + 1}) {
			h.step = min(upto-from, wire.HandRows)
		}
	}
	return h
}

// give returns the next runs, at most maxAhead of them unacknowledged.
func (h *handover) give(to string, head wire.Head, prefix wire.Prefix) (acts []action) {
	for len(h.sent) < maxAhead && h.next < h.upto {
		last := min(h.next+h.step, h.upto)
		acts = append(acts, give{to, head, h.layers, h.next, last, h.from, h.upto, prefix})
		h.sent, h.next = append(h.sent, uint32(last)), last
	}
	return acts
}

// kvParts lists what goes of layers with the run [first, last) of a handover of positions [from, upto), in order.
func kvParts(seq runtime.Sequence, layers runtime.Range, first, last, from, upto int) (list []kvPart) {
	for l := layers.First; l < layers.Last; l++ {
		switch {
		case !forgets(seq, runtime.Range{First: l, Last: l + 1}):
			list = append(list, kvPart{l, first, last - first})
		case last == upto:
			list = append(list, kvPart{l, from, upto - from})
		}
	}
	return list
}

// inSlices writes rows as slices of at most that many bytes, m saying what they are.
func inSlices(m wire.KVSlice, rows []byte, size int, write func(wire.Message) error) error {
	m.Total = uint32(len(rows))
	for off := 0; off < len(rows); off += size {
		slice := m
		slice.Offset, slice.Rows = uint32(off), rows[off:min(off+size, len(rows))]
		if err := write(&slice); err != nil {
			return err
		}
	}
	return nil
}

// write exports what a names and writes it in slices of at most that many bytes, the first run behind the word that it comes. Rows of a
// session that has ended meanwhile are nobody's loss.
func (a give) write(seq runtime.Sequence, size int, write func(wire.Message) error) error {
	if a.First == a.From {
		m := &wire.Handover{Head: a.Head, From: uint32(a.From), Upto: uint32(a.Upto), Prefix: a.Prefix}
		for l := a.Layers.First; l < a.Layers.Last; l++ {
			m.Digests = append(m.Digests, seq.Digest(l))
		}
		if err := write(m); err != nil {
			return err
		}
	}
	var rows []byte
	for _, p := range kvParts(seq, a.Layers, a.First, a.Last, a.From, a.Upto) {
		var err error
		if rows, err = seq.ExportKV(rows[:0], p.layer, p.start, p.start+p.count); err != nil {
			return nil
		}
		m := wire.KVSlice{Head: a.Head, Layer: uint32(p.layer), Start: uint32(p.start), Count: uint32(p.count), Prefix: a.Prefix}
		if err := inSlices(m, rows, size, write); err != nil {
			return err
		}
	}
	return nil
}

// hands reports whether another route would go on from the checkpoint: the decoder can't absorb what is lost, but has everybody's rows.
func (d *decoding) hands() bool { return !d.local && d.plan != nil && d.plan.PushKV }

// mayHand reports whether the session wants the rows of layers that its model lacks here. What a layer keeps beside rows comes with the prompt's
// chunks, and of decoded tokens at snapshots (chunks.go): from the latest of these on a lost stage's successor computes.
func (s *decoderSession) mayHand() bool { return s.m.open.Route.PushKV }

// survives reports whether a stage of the old plan has the same part in a route.
func (d *decoding) survives(s wire.PlanStage, r *wire.Route) bool {
	return slices.ContainsFunc(r.Stages, func(o wire.PlanStage) bool { return o.Peer == s.Peer && o.First == s.First && o.Last == s.Last })
}

// handOver begins to hand what they lack to stages that don't hold the tokens before the position at which the route is to begin.
func (d *decoding) handOver() (acts []action) {
	d.giving = make([]*handover, len(d.plan.Stages))
	for i, s := range d.plan.Stages {
		if d.resume.Position == 0 || slices.Contains(d.begins[i], d.resume.Position) {
			continue
		}
		d.giving[i] = newHandover(d.seq, layersOf(s), 0, int(d.resume.Position))
		acts = append(acts, d.giving[i].give(s.Peer, d.head, d.resume.Prefix)...)
	}
	return acts
}

// onGiven takes a stage's word that it holds what it was handed before a position. When nobody lacks anything the route begins.
func (d *decoding) onGiven(stage int, m *wire.KVAck) ([]action, *wire.Refusal) {
	if d.released {
		return nil, nil
	}
	if !d.opensOrGives(stage) || d.giving[stage] == nil || !upto(&d.giving[stage].sent, m.Upto) {
		return nil, wire.Refuse(wire.CodeBadFrame, "rows acknowledged to %d, none that end there are on their way", m.Upto)
	}
	d.moved(stage)
	if int(m.Upto) < d.giving[stage].upto {
		return d.giving[stage].give(d.plan.Stages[stage].Peer, d.head, d.resume.Prefix), nil
	}
	d.giving[stage] = nil
	d.begins[stage] = append(d.begins[stage], m.Upto)
	return d.ready(), nil
}

// opensOrGives reports whether a stage of the plan isn't where the route begins yet.
func (d *decoding) opensOrGives(stage int) bool {
	return !d.opened[stage] || d.giving != nil && d.giving[stage] != nil
}

// waitsForStages reports whether some stage must open, or be handed something, before the first chunk.
func (d *decoding) waitsForStages() bool {
	return d.giving == nil || slices.Contains(d.opened, false) || slices.ContainsFunc(d.giving, func(h *handover) bool { return h != nil })
}

// ready begins the route as soon as nothing is in its way.
func (d *decoding) ready() []action {
	if d.waitsForStages() {
		return nil
	}
	d.begin()
	return d.next()
}

// layersOf returns a stage's layers.
func layersOf(s wire.PlanStage) runtime.Range {
	return runtime.Range{First: int(s.First), Last: int(s.Last)}
}

// goBack goes to where the opening of the session's next epoch wants to begin, and reports whether the stage could: it keeps its layers
// and its decoder, and no token before there is another one.
func (s *staging) goBack(m *wire.StageOpen) bool {
	st := m.Plan.Stages[m.Index]
	if len(m.Marks) == 0 || !s.begun || s.failed || m.Plan.Decoder != s.plan.Decoder || layersOf(st) != s.layers ||
		m.Plan.Profile != s.plan.Profile || m.Plan.Capacity != s.plan.Capacity {
		return false
	}
	to := m.Marks[len(m.Marks)-1]
	for _, k := range append(slices.Clone(s.marks), s.tip) {
		if k.Position == to.Position && k.Prefix != to.Prefix {
			return false
		}
	}
	n := int(to.Position)
	return held(s.seq, s.layers) >= n && s.seq.Reach(n) == n && s.seq.Truncate(n) == n
}

// follows makes the stage, which is new, the next epoch's of another one that has gone back to where it begins. Its account goes on.
func (s *staging) follows(old *staging, m *wire.StageOpen) {
	to := m.Marks[len(m.Marks)-1]
	s.begins, s.fork = []wire.Mark{to}, func(int) runtime.Sequence { return nil }
	s.stats, s.seamHash, s.mixed = old.stats, old.seamHash, true
}

// taking is a handover as its taker sees it.
type taking struct {
	handover
	seq     runtime.Sequence
	to      wire.Mark      // where it ends
	digests [][32]byte     // of the layers then
	rows    map[int][]byte // by layer: the slices of one piece so far
}

// newTaking takes up what is handed of layers to a sequence, which holds the positions before.
func newTaking(seq runtime.Sequence, layers runtime.Range, m *wire.Handover) (*taking, *wire.Refusal) {
	if len(m.Digests) != layers.Len() || layers.Len() == 0 {
		return nil, wire.Refuse(wire.CodeBadFrame, "a handover with digests of %d layers, not of %d", len(m.Digests), layers.Len())
	}
	return &taking{handover: *newHandover(seq, layers, int(m.From), int(m.Upto)), seq: seq, to: wire.Mark{Position: m.Upto, Prefix: m.Prefix},
		digests: m.Digests, rows: map[int][]byte{}}, nil
}

// done reports whether all is here.
func (t *taking) done() bool { return t.next == t.upto }

// take takes a slice. Behind the last one of a run it returns where that ends, to be acknowledged, else 0.
func (t *taking) take(m *wire.KVSlice) (ack uint32, r *wire.Refusal) {
	end := min(t.next+t.step, t.upto)
	list := kvParts(t.seq, t.layers, t.next, end, t.from, t.upto)
	at := slices.IndexFunc(list, func(p kvPart) bool { return t.seq.Len(p.layer) < p.start+p.count }) // the others of the run are here
	p := list[at]
	rows := t.rows[p.layer]
	switch {
	case int(m.Layer) != p.layer || int(m.Start) != p.start || int(m.Count) != p.count:
		return 0, wire.Refuse(wire.CodeBadFrame, "KV of %d positions from %d on of layer %d, expected %d from %d on of layer %d", m.Count, m.Start, m.Layer, p.count, p.start, p.layer)
	case int(m.Total) != t.seq.KVBytes(p.layer, p.start, p.start+p.count) || int(m.Offset) != len(rows):
		return 0, wire.Refuse(wire.CodeBadFrame, "KV slice at byte %d of %d, expected %d", m.Offset, m.Total, len(rows))
	case m.Prefix != t.to.Prefix:
		return 0, wire.Refuse(wire.CodePrefix, "KV at position %d belongs to other tokens", m.Start)
	}
	if len(rows)+len(m.Rows) < int(m.Total) {
		t.rows[p.layer] = append(slices.Grow(rows, int(m.Total)-len(rows)), m.Rows...)
		return 0, nil
	}
	all := m.Rows
	if len(rows) > 0 {
		all = append(rows, m.Rows...)
	}
	if err := t.seq.ImportKV(p.layer, p.start, p.count, all); err != nil {
		return 0, asRefusal(err)
	}
	delete(t.rows, p.layer)
	if at+1 < len(list) {
		return 0, nil
	}
	if end == t.upto {
		for i, want := range t.digests {
			if l := t.layers.First + i; t.seq.Digest(l) != want {
				return 0, wire.Refuse(wire.CodeBadFrame, "what was handed over of layer %d has another digest", l)
			}
		}
	}
	t.next = end
	return uint32(end), nil
}

// onHandover makes room for what the decoder hands over.
func (s *staging) onHandover(m *wire.Handover) ([]action, *wire.Refusal) {
	switch {
	case s.begun || s.given != nil || len(s.seams) > 0:
		return nil, wire.Refuse(wire.CodeBadFrame, "a handover to a stage that has begun")
	case m.From > 0:
		return nil, wire.Refuse(wire.CodeBadFrame, "a stage is handed all, not what is from position %d on", m.From)
	case m.Upto > s.plan.Capacity:
		return nil, wire.Refuse(wire.CodeBadGrant, "a handover of %d positions, reserved are %d", m.Upto, s.plan.Capacity)
	}
	given, r := newTaking(s.seq, s.layers, m)
	if r != nil {
		return nil, r
	}
	s.seq.Truncate(0)
	s.begins, s.mixed, s.given = nil, true, given
	return nil, nil
}

// onGiven takes a slice of what the decoder hands over. With the last one of a run it is acknowledged.
func (s *staging) onGiven(m *wire.KVSlice) ([]action, *wire.Refusal) {
	if s.given == nil {
		return nil, wire.Refuse(wire.CodeBadFrame, "KV of layer %d, and no handover was announced", m.Layer)
	}
	ack, r := s.given.take(m)
	if r != nil || ack == 0 {
		return nil, r
	}
	if s.given.done() {
		s.begins, s.given = []wire.Mark{s.given.to}, nil
	}
	return []action{send{s.plan.Decoder, &wire.KVAck{Head: s.head, Upto: ack}}}, nil
}
