package runtime

import (
	"fmt"

	"github.com/starling-swarm/starling/kernels"
	"lukechampine.com/blake3"
)

// RulesVersion numbers the arithmetic rules of docs/design.md §4. It changes whenever some result changes a bit.
const RulesVersion = 1

// Profile is a numerics profile: two executors with equal profiles compute equal bits from equal inputs, and numbers
// of unequal ones are never mixed.
type Profile struct {
	Rules     int    // RulesVersion; 0 and below are for other arithmetics (fakes, tolerance profiles)
	KV        KVType // cache rows
	Seam      string // number format of the residual stream between machines: "f32"
	AttnBlock int    // positions per softmax block
}

// NewProfile returns the Go engine's profile for a KV type.
func NewProfile(kv KVType) Profile {
	return Profile{Rules: RulesVersion, KV: kv, Seam: "f32", AttnBlock: kernels.AttnBlock}
}

// String is the canonical text of p, which ID hashes: "rules 1, kv f16, seam f32, block 256".
func (p Profile) String() string {
	return fmt.Sprintf("rules %d, kv %v, seam %s, block %d", p.Rules, p.KV, p.Seam, p.AttnBlock)
}

// ID is the BLAKE3-256 hash of "starling numerics profile: " and String.
func (p Profile) ID() [32]byte {
	return blake3.Sum256([]byte("starling numerics profile: " + p.String()))
}
