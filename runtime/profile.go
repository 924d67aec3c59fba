package runtime

import (
	"fmt"
	"slices"
	"strings"

	"github.com/starling-swarm/starling/kernels"
	"lukechampine.com/blake3"
)

// RulesVersion numbers the arithmetic rules of docs/design.md §4. It changes whenever some result changes a bit.
const RulesVersion = 1

// Profile is a numerics profile: two sequences with equal profiles get equal bits from equal inputs, and numbers
// of unequal ones are never mixed.
type Profile struct {
	Rules int    // RulesVersion; 0 and below are for other arithmetics (fakes, tolerance profiles)
	KV    KVType // cache rows
	// Seam is what the residual stream is rounded to before each layer of Cuts, wherever those layers run: whether it
	// travels there or not. Cuts ascend; the model's layer count stands for the head. There are none with SeamF32.
	Seam      SeamType
	Cuts      []int
	AttnBlock int // positions per softmax block
}

// NewProfile returns the Go engine's profile for a KV type.
func NewProfile(kv KVType) Profile {
	return Profile{Rules: RulesVersion, KV: kv, AttnBlock: kernels.AttnBlock}
}

// Rounding returns p with another KV type and other seams.
func (p Profile) Rounding(kv KVType, seam SeamType, cuts []int) Profile {
	p.KV, p.Seam, p.Cuts = kv, SeamF32, nil
	if seam != SeamF32 && len(cuts) > 0 {
		p.Seam, p.Cuts = seam, slices.Clone(cuts)
	}
	return p
}

// SeamAt returns the type in which the residual stream passes from layer cut−1 to layer cut.
func (p Profile) SeamAt(cut int) SeamType {
	if slices.Contains(p.Cuts, cut) {
		return p.Seam
	}
	return SeamF32
}

// check says why p can't be computed by an executor whose own profile is have, of a model of so many layers: a *ProfileError.
func (p Profile) check(have Profile, layers int) error {
	bad := func(why string) error { return &ProfileError{Asked: p, Reason: why} }
	switch {
	case p.Rules != have.Rules || p.AttnBlock != have.AttnBlock:
		return bad(fmt.Sprintf("this executor computes with %v", have))
	case p.KV > KVQ8:
		return bad("the KV type is not known")
	case int(p.Seam) >= len(seamNames) || (p.Seam == SeamF32) != (len(p.Cuts) == 0):
		return bad("the seam type is not known, or has no cuts")
	}
	for i, c := range p.Cuts {
		if c < 1 || c > layers || i > 0 && c <= p.Cuts[i-1] {
			return bad(fmt.Sprintf("seams are rounded before layers that ascend, of 1 to %d", layers))
		}
	}
	return nil
}

// SeamText is Seam and Cuts as ParseSeam reads them: "f32", "q8_0@10,20".
func (p Profile) SeamText() string {
	if len(p.Cuts) == 0 {
		return p.Seam.String()
	}
	return p.Seam.String() + "@" + strings.ReplaceAll(strings.Trim(fmt.Sprint(p.Cuts), "[]"), " ", ",")
}

// String is the canonical text of p, which ID hashes: "rules 1, kv f16, seam f32, block 256", with rounded seams
// "rules 1, kv f16, seam q8_0@10,20, block 256".
func (p Profile) String() string {
	return fmt.Sprintf("rules %d, kv %v, seam %s, block %d", p.Rules, p.KV, p.SeamText(), p.AttnBlock)
}

// ID is the BLAKE3-256 hash of "starling numerics profile: " and String.
func (p Profile) ID() [32]byte {
	return blake3.Sum256([]byte("starling numerics profile: " + p.String()))
}
