package node

import (
	"fmt"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm/wire"
)

// maxTraced bounds how many rows of each kind a trace has: the vocabulary may be large.
const maxTraced = 64

// trace gathers what a run's request asks for while this node decodes it. Its decoder's machine fills it in, under that one's lock;
// the client's side reads it when the session is done.
type trace struct {
	asked          control.Trace
	cut            int               // layer that reads the traced seam
	hidden, logits map[int][]float32 // by position, those that came
}

// newTrace checks what is asked for of a run of so many positions, prompt and answer together.
func newTrace(q control.Trace, positions int) (*trace, error) {
	for name, list := range map[string][]int{"hidden": q.Hidden, "logits": q.Logits} {
		if len(list) > maxTraced {
			return nil, fmt.Errorf("trace: %d positions of %s asked for, at most %d at once", len(list), name, maxTraced)
		}
		for _, pos := range list {
			if pos < 0 || pos >= positions {
				return nil, fmt.Errorf("trace: position %d of %s, the run has %d positions", pos, name, positions)
			}
		}
	}
	return &trace{asked: q, hidden: map[int][]float32{}, logits: map[int][]float32{}}, nil
}

// traceOf returns the trace that a client of this node asked for, or nil.
func (n *Node) traceOf(client string, id wire.SessionID) *trace {
	if client != n.ID() {
		return nil
	}
	n.sessions.Lock()
	defer n.sessions.Unlock()
	if s := n.sessions.clients[id]; s != nil {
		return s.trace
	}
	return nil
}

// step notes a step that the decoder runs on a seam; nil traces nothing.
func (t *trace) step(step *runtime.Step, width int) {
	if t == nil {
		return
	}
	t.cut = step.Layers.First
	for _, pos := range t.asked.Hidden {
		if r := pos - step.Start; r >= 0 && r < step.N {
			t.hidden[pos] = step.Seam[r*width : (r+1)*width]
		}
	}
}

// sampled notes the logits after a position; nil traces nothing.
func (t *trace) sampled(pos int, logits []float32) {
	if t == nil {
		return
	}
	for _, want := range t.asked.Logits {
		if want == pos {
			t.logits[pos] = append([]float32(nil), logits...)
		}
	}
}

// rows returns what has been traced, in the order asked for.
func (t *trace) rows() *control.Traced {
	if t == nil {
		return nil
	}
	r := &control.Traced{Cut: t.cut}
	for _, pos := range t.asked.Hidden {
		r.Hidden = append(r.Hidden, t.hidden[pos])
	}
	for _, pos := range t.asked.Logits {
		r.Logits = append(r.Logits, t.logits[pos])
	}
	return r
}
