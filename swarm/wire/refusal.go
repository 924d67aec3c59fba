package wire

import (
	"fmt"
	"math"
	"time"
)

// Code says why something was refused; it survives hops unchanged.
type Code uint16

// The refusal codes.
const (
	CodeInternal       Code = iota // the peer failed; Text says how
	CodeBadFrame                   // malformed or out of order
	CodeUnknownSession             // no such session here (any more)
	CodeStaleEpoch                 // an older plan's frame
	CodeWrongPeer                  // the plan names another sender
	CodePrefix                     // token prefix differs
	CodeBadGrant                   // grant or plan signature, budget, expiry
	CodeBusy                       // no room for KV or sessions
	CodeUnknownModel               // model or layers not held here
	CodeProfile                    // numerics profile differs
	CodeContext                    // longer than the model's context
	CodeNonFinite                  // NaN or infinity arose (DESIGN §4.9)
	CodeCancelled                  // the client went away or cancelled
	CodePeerLost                   // a peer of the route was lost
	CodeBadRequest                 // the request itself is wrong
	CodeLeaving                    // the node is paused or about to close
	numCodes
)

var codeNames = [numCodes]string{"internal error", "bad frame", "unknown session", "stale epoch", "wrong peer",
	"prefix mismatch", "bad grant", "busy", "unknown model", "profile mismatch", "context exceeded",
	"not a finite number", "cancelled", "peer lost", "bad request", "leaving"}

// String returns the code's name.
func (c Code) String() string {
	if c.Known() {
		return codeNames[c]
	}
	return fmt.Sprintf("code %d", uint16(c))
}

// Known reports whether this build has a name for the code.
func (c Code) Known() bool { return c < numCodes }

// Refusal is a typed error that crosses the wire with its text. It implements
// error; errors.As finds it after any number of hops.
type Refusal struct {
	Head
	Code Code
	Peer string // whose error it is
	Text string

	// RetryAfter is when asking again may help, in whole milliseconds; 0: it won't, or nobody knows.
	RetryAfter time.Duration
}

// Refuse returns a refusal; the sender fills in Head and Peer.
func Refuse(c Code, format string, args ...any) *Refusal {
	return &Refusal{Code: c, Text: fmt.Sprintf(format, args...)}
}

// Error returns the code's name and the text.
func (r *Refusal) Error() string { return r.Code.String() + ": " + r.Text }

// Type implements Message.
func (*Refusal) Type() Type { return TypeRefusal }

func (r *Refusal) encode(e *Encoder) {
	r.Head.encode(e)
	e.U16(uint16(r.Code))
	e.String(cut(r.Peer, MaxPeerID))
	e.String(cut(r.Text, MaxText))
	e.U32(uint32(min(max(r.RetryAfter.Milliseconds(), 0), math.MaxUint32)))
}

func (r *Refusal) decode(d *Decoder) {
	r.Head.decode(d)
	r.Code = Code(d.U16())
	r.Peer = d.String(MaxPeerID)
	r.Text = d.String(MaxText)
	r.RetryAfter = time.Duration(d.U32()) * time.Millisecond
}

// cut shortens s to at most n bytes without splitting a rune.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}
