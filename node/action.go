package node

import (
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm/wire"
)

// action is something that a session's state machine wants done. Drivers do
// them in order.
type action any

// send asks for m to reach peer To; a seam goes before anything bulky.
type send struct {
	To  string
	Msg wire.Message
}

// pushKV asks for rows to reach To in slices (DESIGN §3.4), those of a chunk
// that begins at Start. They are exported when their turn comes.
type pushKV struct {
	To     string
	Head   wire.Head
	Start  int
	Parts  []kvPart
	Prefix wire.Prefix
}

// give asks for what a decoder's cache holds of Layers to reach To:
// a run of a handover, positions [First, Last) of [From, Upto).
type give struct {
	To          string
	Head        wire.Head
	Layers      runtime.Range
	First, Last int
	From, Upto  int
	Prefix      wire.Prefix
}

// run asks for Step to be computed, in one piece if Whole; the result goes to
// the machine's ran.
type run struct {
	Step  *runtime.Step
	Whole bool
}

// forgets reports whether any of layers doesn't keep every row, but a tail or a
// window. A sequence can go back, and export, only to where such a layer was
// before its last Run; so a chunk that may be taken back or exported is run in
// one piece.
func forgets(seq runtime.Sequence, layers runtime.Range) bool {
	for l := layers.First; l < layers.Last; l++ {
		if n := seq.Capacity(); seq.KVBytes(l, 0, n) != n*seq.RowBytes(l) {
			return true
		}
	}
	return false
}

// emit tells the client something.
type emit struct{ Msg wire.Message }

// replan asks the driver for another route that avoids Lost; the answer goes
// to the machine's replanned.
type replan struct{ Lost []string }

// finish ends the session; with Err it failed.
type finish struct {
	Reason string
	Err    *wire.Refusal
}

// fence checks a frame's head against the epoch that a session is in (DESIGN
// §3, Fencing).
func fence(have, got wire.Head) *wire.Refusal {
	switch got.Epoch.Compare(have.Epoch) {
	case -1:
		return wire.Refuse(wire.CodeStaleEpoch, "epoch %v is over, the session is in %v", got.Epoch, have.Epoch)
	case 1:
		return wire.Refuse(wire.CodeBadGrant, "epoch %v has not been opened, the session is in %v", got.Epoch, have.Epoch)
	}
	return nil
}
