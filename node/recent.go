package node

import (
	"slices"
	"sync"

	"github.com/starling-swarm/starling/artifacts"
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
}

// add notes an answer; one that it continues is forgotten.
func (r *recent) add(a recentAnswer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = slices.DeleteFunc(r.list, func(old recentAnswer) bool {
		return old.model == a.model && common(old.tokens, a.tokens) == len(old.tokens)
	})
	r.list = append(r.list, a)
	r.list = r.list[max(0, len(r.list)-maxRecent):]
}

// decoder returns the decoder of the answer that most of tokens begin like, "" where that is less than half of them.
func (r *recent) decoder(model artifacts.ID, tokens []int32) (peer string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	most := max(minPrefix, len(tokens)/2) - 1
	for _, a := range r.list {
		if n := common(a.tokens, tokens); a.model == model && n > most {
			most, peer = n, a.decoder
		}
	}
	return peer
}
