package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// SessionID names one session; the client draws it at random.
type SessionID [16]byte

// String returns the ID in hexadecimal.
func (s SessionID) String() string { return hex.EncodeToString(s[:]) }

// Epoch orders the plans of a session (DESIGN §3, Fencing): Client counts the
// decoders that the client has used, Plan the plans that the decoder has made.
type Epoch struct{ Client, Plan uint32 }

// Compare returns −1, 0 or +1 as e is older than, equal to or newer than o.
func (e Epoch) Compare(o Epoch) int {
	switch {
	case e == o:
		return 0
	case e.Client < o.Client || e.Client == o.Client && e.Plan < o.Plan:
		return -1
	default:
		return 1
	}
}

// String returns "client.plan".
func (e Epoch) String() string { return fmt.Sprintf("%d.%d", e.Client, e.Plan) }

// Head begins every frame that belongs to a session.
type Head struct {
	Session SessionID
	Epoch   Epoch
}

func (h *Head) encode(e *Encoder) {
	e.Raw(h.Session[:])
	e.U32(h.Epoch.Client)
	e.U32(h.Epoch.Plan)
}

func (h *Head) decode(d *Decoder) {
	copy(h.Session[:], d.take(16))
	h.Epoch = Epoch{d.U32(), d.U32()}
}

// Prefix is the chained, salted hash of the tokens before a position
// (DESIGN §4.11). It fences frames and keys reusable prefixes.
type Prefix [32]byte

// NewPrefix starts the chain at position 0: SHA-256 over a label, the model
// ID, the numerics profile and the client's salt.
func NewPrefix(model, profile, salt [32]byte) Prefix {
	h := sha256.New()
	h.Write([]byte("starling/prefix/1"))
	h.Write(model[:])
	h.Write(profile[:])
	h.Write(salt[:])
	return Prefix(h.Sum(nil))
}

// Extend returns the hash after tokens. The chain runs token by token, so it
// doesn't depend on how they are cut into chunks.
func (p Prefix) Extend(tokens []int32) Prefix {
	var b [36]byte
	for _, t := range tokens {
		copy(b[:], p[:])
		b[32], b[33], b[34], b[35] = byte(t), byte(t>>8), byte(t>>16), byte(t>>24)
		p = sha256.Sum256(b[:])
	}
	return p
}
