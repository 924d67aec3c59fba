package node

import (
	"slices"
	"time"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm/wire"
)

// timing is what the driver of a session's machine sees of each chunk, if the
// client asks for it; of a nil timing every method does nothing and reads no
// clock. Times count from zero on this node's clock. Its session's lock guards it.
//
//	stage      zero is when the stage was opened
//	decoder    zero is when the first chunk went out; the times of stages, which
//	           count from their opening, are moved by when that was heard of here
type timing struct {
	zero     time.Time
	chunks   []wire.ChunkTimes
	openings map[stageKey]time.Duration // decoder: when each stage was opened
	imports  map[importKey]uint64       // decoder: when it held the rows of each chunk
}

type stageKey struct {
	peer  string
	epoch wire.Epoch
}

type importKey struct {
	stageKey
	upto uint32 // the chunk's end
}

// newTiming starts a session's clock if times are asked for.
func newTiming(asked bool) *timing {
	if !asked {
		return nil
	}
	return &timing{zero: time.Now(), openings: map[stageKey]time.Duration{}, imports: map[importKey]uint64{}}
}

func (t *timing) since(at time.Time) uint64 { return uint64(max(at.Sub(t.zero), 0)) }

// chunk returns the times of the latest chunk that starts there; nil beyond
// what an account may hold.
func (t *timing) chunk(start, count uint32) *wire.ChunkTimes {
	for i := range slices.Backward(t.chunks) {
		if t.chunks[i].Start == start && t.chunks[i].Ended == 0 {
			return &t.chunks[i]
		}
	}
	if len(t.chunks) >= wire.MaxTimes {
		return nil
	}
	t.chunks = append(t.chunks, wire.ChunkTimes{Start: start, Count: count})
	return &t.chunks[len(t.chunks)-1]
}

// arrived notes that a chunk's input is here.
func (t *timing) arrived(m wire.Message) {
	if t == nil {
		return
	}
	var c *wire.ChunkTimes
	switch m := m.(type) {
	case *wire.Seam:
		c = t.chunk(m.Start, m.Count)
	case *wire.Chunk:
		if len(m.Tokens) > 0 { // the first stage's input
			c = t.chunk(m.Start, m.Count)
		}
	}
	if c != nil {
		c.Ready = t.since(time.Now())
	}
}

// computed notes that a step has just ended, and how long it took. What it waited
// for other sessions' steps, perhaps between its own rows, counts as before it.
// Of a decoder that computes alone, only the prompt's chunks count.
func (t *timing) computed(step *runtime.Step, prompt int, took time.Duration) {
	if t == nil || step.Seam == nil && step.Start >= prompt {
		return
	}
	if c := t.chunk(uint32(step.Start), uint32(step.N)); c != nil {
		now := time.Now()
		c.Began, c.Ended = t.since(now.Add(-took)), max(t.since(now), 1)
		if c.Ready == 0 {
			c.Ready = c.Began
		}
	}
}

// pushed notes that the rows of a chunk have been written to the decoder.
func (t *timing) pushed(start int) {
	if t == nil {
		return
	}
	for i := range slices.Backward(t.chunks) {
		if t.chunks[i].Start == uint32(start) {
			t.chunks[i].Pushed = t.since(time.Now())
			return
		}
	}
}

// opened notes that a stage says that it is open; the word took half a round trip.
func (t *timing) opened(peer string, e wire.Epoch, rtt time.Duration) {
	if t != nil {
		t.openings[stageKey{peer, e}] = max(time.Since(t.zero)-rtt/2, 0) // no stage opens before it is asked to
	}
}

// imported notes that a stage's rows before upto are held.
func (t *timing) imported(peer string, m *wire.KVAck) {
	if t != nil && len(t.imports) < wire.MaxStages*wire.MaxTimes {
		t.imports[importKey{stageKey{peer, m.Epoch}, m.Upto}] = t.since(time.Now())
	}
}

// align moves a stage's times to this node's clock and adds when its rows were
// imported. The word of its opening may have come late: no rows are imported before
// they have been computed.
func (t *timing) align(peer string, e wire.Epoch, chunks []wire.ChunkTimes) {
	if t == nil {
		return
	}
	key := stageKey{peer, e}
	offset := int64(t.openings[key])
	for _, c := range chunks {
		if held := t.imports[importKey{key, c.Start + c.Count}]; held > 0 && c.Ended > 0 {
			offset = min(offset, int64(held)-int64(min(c.Ended, 1<<62)))
		}
	}
	offset = max(offset, 0)
	for i := range chunks {
		c := &chunks[i]
		for _, x := range []*uint64{&c.Ready, &c.Began, &c.Ended, &c.Pushed} {
			if *x > 0 {
				*x = uint64(int64(min(*x, 1<<62)) + offset)
			}
		}
		c.Imported = t.imports[importKey{key, c.Start + c.Count}]
	}
}
