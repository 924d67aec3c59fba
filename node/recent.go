package node

import (
	"slices"
	"sync"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
)

// maxRecent is how many answers a client remembers the decoders of.
const maxRecent = 64

// recent remembers which decoder has which conversation's cache. The zero value remembers nothing.
type recent struct {
	mu   sync.Mutex
	list []recentAnswer // oldest first
}

type recentAnswer struct {
	model   artifacts.ID
	tokens  []int32 // prompt and answer
	decoder string

	kv, seam string // how it was computed, as in control.Constraints
}

// fits reports whether an answer was computed as a request wants it.
func (a *recentAnswer) fits(k control.Constraints) bool {
	asked, err := readNumerics(k)
	had, bad := readNumerics(control.Constraints{KV: a.kv, Seam: a.seam})
	return err == nil && bad == nil && (asked.autoKV || asked.kv == had.kv) && (asked.autoSeam || asked.seam == had.seam && (asked.cuts == nil || slices.Equal(asked.cuts, had.cuts)))
}

// add notes an answer; one that it continues is forgotten.
func (r *recent) add(a recentAnswer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = slices.DeleteFunc(r.list, func(old recentAnswer) bool {
		return old.model == a.model && old.kv == a.kv && old.seam == a.seam && common(old.tokens, a.tokens) == len(old.tokens)
	})
	r.list = append(r.list, a)
	r.list = r.list[max(0, len(r.list)-maxRecent):]
}

// answer returns the answer that most of tokens begin like, of those that were computed as k wants it; none where that is less than
// half of them.
func (r *recent) answer(model artifacts.ID, tokens []int32, k control.Constraints) (best recentAnswer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	most := max(minPrefix, len(tokens)/2) - 1
	for _, a := range r.list {
		if n := common(a.tokens, tokens); a.model == model && n > most && a.fits(k) {
			most, best = n, a
		}
	}
	return best
}
