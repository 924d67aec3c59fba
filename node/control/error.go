package control

import "time"

// ErrorKind says for programs what an error is about; "" where nothing follows from it.
type ErrorKind string

// The kinds of errors.
const (
	BadRequest   ErrorKind = "bad_request"   // what is asked for makes no sense; asking again doesn't help
	Busy         ErrorKind = "busy"          // nobody who could do it has room
	TooLong      ErrorKind = "context"       // the prompt, or what is asked for behind it, doesn't fit into the model's context
	UnknownModel ErrorKind = "unknown_model" // no such model is held here or offered in the swarm
	Loading      ErrorKind = "loading"       // the node is fetching or loading the model
	NoRoute      ErrorKind = "no_route"      // the peers that offer the model can't compute it together, or not so
	PeerLost     ErrorKind = "peer_lost"     // peers were lost in the middle of it, and nobody is left who could go on
)

// Error is what a node says when it can't do what it is asked to. Its text is complete; the rest is the same for programs.
type Error struct {
	Kind       ErrorKind     `json:"kind"`
	Text       string        `json:"-"`                        // Event.Error has it
	Peer       string        `json:"peer,omitempty"`           // Busy: who has room first; PeerLost: who said so
	RetryAfter time.Duration `json:"retry_after_ns,omitempty"` // Busy: when that is expected
	Tokens     int           `json:"tokens,omitempty"`         // TooLong: what there is
	Context    int           `json:"context,omitempty"`        // TooLong: … of so many at most
	Near       []string      `json:"near,omitempty"`           // UnknownModel: known models with names like it, the nearest first
}

// Error is the text.
func (e *Error) Error() string { return e.Text }
