package node

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/starling-swarm/starling/runtime"
)

const (
	// minPrefix is how many tokens are worth keeping or reusing.
	minPrefix = 32
	// prefixLife is how long the cache of an ended session is kept for the next turn.
	prefixLife = time.Hour
)

// prefixes keeps the caches of a model's ended sessions, so that what begins like one of them (the next turn of a conversation, an
// answer made again, an edited question) is computed only from where it differs. Nobody but the client whose session it was is ever
// given one: how long an answer takes would tell what others have asked. Memory that sessions need is taken from the caches, the
// longest unused first. All the same per token, they cost alike to compute again.
type prefixes struct {
	exec runtime.Executor

	mu   sync.Mutex
	kept []*keptPrefix // longest unused first
}

// keptPrefix is the cache of a sequence of tokens, in all layers of seq. Nobody runs it any more; seq is only forked.
type keptPrefix struct {
	client  string
	profile [32]byte // by which it was computed
	tokens  []int32
	seq     runtime.Sequence
	used    time.Time
}

// keep keeps what a session's sequence holds of tokens, which it has computed. What the caches hold that it continues makes room,
// unless its layers cannot go back to there.
func (p *prefixes) keep(client string, tokens []int32, seq runtime.Sequence) {
	if len(tokens) < minPrefix {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fork, err := p.forkLocked(seq, len(tokens), len(tokens)) // without memory for more
	if err == nil {
		p.addLocked(&keptPrefix{client: client, profile: seq.Profile().ID(), tokens: slices.Clone(tokens), seq: fork, used: time.Now()})
	}
}

// mark is keep for a session in progress, if its layers could not go back to there later.
func (p *prefixes) mark(client string, tokens []int32, seq runtime.Sequence) {
	if !p.rewinds() {
		p.keep(client, tokens, seq)
	}
}

// addLocked files what a fork really holds, which may be less than was asked for.
func (p *prefixes) addLocked(k *keptPrefix) {
	k.tokens = k.tokens[:held(k.seq, p.exec.Layers())]
	if len(k.tokens) < minPrefix {
		k.seq.Close()
		return
	}
	rewinds := p.rewinds()
	for i := len(p.kept) - 1; i >= 0; i-- {
		old := p.kept[i]
		n := common(old.tokens, k.tokens)
		if old.client == k.client && old.profile == k.profile && n == len(old.tokens) && (rewinds || n == len(k.tokens)) {
			p.dropLocked(i)
		}
	}
	p.kept = append(p.kept, k)
}

// take returns a sequence of that capacity which holds as many of tokens as the client's caches of a profile do; nil if those are fewer
// than least.
func (p *prefixes) take(client string, profile [32]byte, tokens []int32, capacity, least int) runtime.Sequence {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expireLocked(time.Now())
	var best runtime.Sequence
	most := max(minPrefix, least) - 1
	for _, k := range slices.Backward(slices.Clone(p.kept)) {
		n := common(k.tokens, tokens)
		if k.client != client || k.profile != profile || n <= most {
			continue
		}
		seq, err := p.forkLocked(k.seq, n, capacity)
		if err != nil {
			continue
		}
		if n = held(seq, p.exec.Layers()); n <= most {
			seq.Close()
			continue
		}
		if best != nil {
			best.Close()
		}
		best, most, k.used = seq, n, time.Now()
		if i := slices.Index(p.kept, k); i >= 0 {
			p.kept = append(slices.Delete(p.kept, i, i+1), k)
		}
	}
	return best
}

// forkLocked forks a sequence at the expense of what is kept beside it.
func (p *prefixes) forkLocked(seq runtime.Sequence, n, capacity int) (runtime.Sequence, error) {
	for {
		fork, err := seq.Fork(n, capacity)
		var full *runtime.CapacityError
		if !errors.As(err, &full) {
			return fork, err
		}
		other := slices.IndexFunc(p.kept, func(o *keptPrefix) bool { return o.seq != seq })
		if other < 0 {
			return nil, err
		}
		p.dropLocked(other)
	}
}

// reserve is Executor.NewSequenceFor at the expense of what is kept.
func (p *prefixes) reserve(profile runtime.Profile, capacity int, layers runtime.Range) (runtime.Sequence, error) {
	for {
		seq, err := p.exec.NewSequenceFor(profile, capacity, layers)
		var full *runtime.CapacityError
		if !errors.As(err, &full) || !p.dropOldest() {
			return seq, err
		}
	}
}

func (p *prefixes) dropOldest() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.kept) == 0 {
		return false
	}
	p.dropLocked(0)
	return true
}

func (p *prefixes) dropLocked(i int) {
	p.kept[i].seq.Close()
	p.kept = slices.Delete(p.kept, i, i+1)
}

// expire gives up what nobody has asked for in a long time.
func (p *prefixes) expire(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expireLocked(now)
}

func (p *prefixes) expireLocked(now time.Time) {
	for len(p.kept) > 0 && now.Sub(p.kept[0].used) > prefixLife {
		p.dropLocked(0)
	}
}

// clear gives everything up.
func (p *prefixes) clear() {
	for p.dropOldest() {
	}
}

// freeBytes returns the KV memory that a session could have: what is free, and what is kept.
func (p *prefixes) freeBytes(limit int64) int64 {
	sessions, _ := p.heldBytes(limit)
	return limit - sessions
}

// heldBytes returns what sessions hold of the limit, and what is kept beside it. Pages that several share count as kept, those that
// several kept caches share more than once, but no more than there is.
func (p *prefixes) heldBytes(limit int64) (sessions, kept int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held, cache, layers := max(limit-p.exec.FreeKVBytes(), 0), p.exec.Config().Cache, p.exec.Layers()
	for _, k := range p.kept {
		for l := layers.First; l < layers.Last; l++ {
			kept += int64(cache[l].Positions(len(k.tokens))*k.seq.RowBytes(l) + k.seq.TailBytes(l))
		}
	}
	kept = min(kept, held)
	return held - kept, kept
}

// rewinds reports whether all layers can go back to any position.
func (p *prefixes) rewinds() bool {
	c := p.exec.Config()
	return !slices.ContainsFunc(c.Cache, func(l runtime.LayerCache) bool { return l.State > 0 || l.Window > 0 })
}

// held returns how many positions all of some layers hold.
func held(seq runtime.Sequence, layers runtime.Range) int {
	n := seq.Capacity()
	for l := layers.First; l < layers.Last; l++ {
		n = min(n, seq.Len(l))
	}
	return n
}

// common returns how many tokens two sequences begin with alike.
func common(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
