package node

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm/wire"
)

const (
	// minPrefix is how many tokens are worth keeping or reusing.
	minPrefix = 32
	// prefixLife is how long the cache of an ended session is kept for the next turn.
	prefixLife = time.Hour
)

// prefixes keeps the caches of a model's ended sessions, so that what begins like one of them (the next turn of a conversation, an
// answer made again, an edited question) is computed only from where it differs. Nobody but the client whose session it was is ever
// given one: how long an answer takes would tell what others have asked.
//
// Memory that sessions need is taken from the caches, and disk from those that have files, by GreedyDual-Size (Cao, Irani 1997): the one
// of least value goes, where
//
//	value = age when last used + operations to compute it again / bytes
//	age   = the value of the last one that went
//
// so that what nobody uses goes in time, and what takes long to compute later.
type prefixes struct {
	exec  runtime.Executor
	model [32]byte
	limit int64   // bytes that sessions and caches may take
	flops float64 // operations a second; 0: not known
	disk  *spill  // nil: there is none
	count func(place string, rows int)

	mu    sync.Mutex
	kept  []*keptPrefix // longest unused first
	age   float64
	files []*spilled
}

// known says whose tokens a cache holds or a session begins with, and what is known of them. A decoder knows the tokens themselves; a stage
// only marks, whose hashes are salted by the client.
type known struct {
	client  string
	profile [32]byte       // by which it is computed
	makers  string         // of a stage's cache: who else it rests on (makers)
	session wire.SessionID // of a stage's cache: in which it was made; its peers have a part in the answer, whoever takes their places
	layers  runtime.Range
	tokens  []int32     // nil: not known
	marks   []wire.Mark // ascending; of a cache the last is at its end
}

// keptPrefix is the cache of a sequence of tokens. Nobody runs it any more; seq is only forked.
type keptPrefix struct {
	known
	seq      runtime.Sequence
	capacity int // of the session
	used     time.Time
	value    float64
	spilled  bool // or tried to
}

// end returns how many tokens they are.
func (k *known) end() int {
	if k.tokens != nil {
		return len(k.tokens)
	}
	if n := len(k.marks); n > 0 {
		return int(k.marks[n-1].Position)
	}
	return 0
}

// common returns how many tokens two begin with alike, as far as both know, and the marks of those. What is of other clients or layers
// has nothing in common.
func (k *known) common(o *known) (n int, marks []wire.Mark) {
	switch {
	case k.client != o.client || k.profile != o.profile || k.layers != o.layers || (k.tokens == nil) != (o.tokens == nil),
		k.makers != o.makers && (k.session != o.session || k.session == wire.SessionID{}):
		return 0, nil
	case k.tokens == nil:
		marks = both(k.marks, o.marks)
		if len(marks) > 0 {
			n = int(marks[len(marks)-1].Position)
		}
		return n, marks
	}
	n = common(k.tokens, o.tokens)
	return n, upTo(k.marks, n)
}

// cutTo forgets all tokens but the first n, or what is known of fewer.
func (k *known) cutTo(n int) {
	k.marks = upTo(k.marks, n)
	if k.tokens != nil {
		k.tokens = k.tokens[:min(n, len(k.tokens))]
	}
}

// keep keeps what a session's sequence holds of tokens, which it has computed. What the caches hold that it continues makes room,
// unless its layers cannot go back to there.
func (p *prefixes) keep(k known, seq runtime.Sequence) {
	if k.end() < minPrefix {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fork, err := p.forkLocked(seq, k.end(), k.end()) // without memory for more
	if err == nil {
		k.profile = seq.Profile().ID()
		k.tokens, k.marks = slices.Clone(k.tokens), slices.Clone(k.marks)
		p.addLocked(&keptPrefix{known: k, seq: fork, capacity: seq.Capacity()})
	}
	p.disk.nudge()
}

// touchLocked notes that a cache is used.
func (p *prefixes) touchLocked(k *keptPrefix) {
	k.used = time.Now()
	k.value = p.age + p.operations(k.layers, 0, k.end())/float64(max(p.bytesOf(k), 1))
}

// operations returns about how many it takes to compute positions [from, n) of some layers.
func (p *prefixes) operations(layers runtime.Range, from, n int) float64 {
	c := p.exec.Config()
	each := c.AttnFlops * float64(layers.Len()) * float64(from+n) / 2
	for l := layers.First; l < min(layers.Last, len(c.LayerFlops)); l++ {
		each += c.LayerFlops[l]
	}
	return each * float64(n-from)
}

// used counts positions that need not be computed again.
func (p *prefixes) used(place string, rows int) {
	if p.count != nil {
		p.count(place, rows)
	}
}

// long reports whether sequences of that capacity have the rope factors of long ones.
func (p *prefixes) long(capacity int) bool {
	original := p.exec.Config().LongRope.Original
	return original > 0 && capacity > original
}

// addLocked files what a fork really holds, which may be less than was asked for.
func (p *prefixes) addLocked(k *keptPrefix) {
	if k.cutTo(held(k.seq, k.layers)); k.end() < minPrefix || k.seq.Reach(k.end()) < k.end() {
		k.seq.Close()
		return
	}
	for i := len(p.kept) - 1; i >= 0; i-- {
		old := p.kept[i]
		if n, _ := k.common(&old.known); n == old.end() && k.seq.Reach(n) == n {
			p.dropLocked(i)
		}
	}
	p.touchLocked(k)
	p.kept = append(p.kept, k)
}

// take returns a sequence of that capacity which holds as many of the tokens that a session begins with as the client's caches do, at most
// so many; how many, and the marks of those. It is nil where they are too few.
func (p *prefixes) take(w known, most, capacity int) (best runtime.Sequence, at int, marks []wire.Mark) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expireLocked(time.Now())
	at = minPrefix - 1
	for _, k := range slices.Backward(slices.Clone(p.kept)) {
		n, same := k.common(&w)
		n = min(n, most)
		if w.tokens == nil { // what is between marks is not known
			n = 0
			if same = reachable(k.seq, upTo(same, most)); len(same) > 0 {
				n = int(same[len(same)-1].Position)
			}
		}
		if n <= at {
			continue
		}
		seq, err := p.forkLocked(k.seq, n, capacity)
		if err != nil {
			continue
		}
		n = min(n, held(seq, k.layers))
		if same = upTo(same, n); n <= at || w.tokens == nil && (len(same) == 0 || int(same[len(same)-1].Position) < n) {
			seq.Close()
			continue
		}
		if best != nil {
			best.Close()
		}
		best, at, marks = seq, n, same
		p.touchLocked(k)
		if i := slices.Index(p.kept, k); i >= 0 {
			p.kept = append(slices.Delete(p.kept, i, i+1), k)
		}
	}
	if best == nil {
		return nil, 0, nil
	}
	p.used("memory", at)
	return best, at, marks
}

// begins returns at which of the marks that a session begins with the caches have all that a sequence needs to go on. Ascending.
func (p *prefixes) begins(w known) (marks []wire.Mark) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.kept {
		if n, same := k.common(&w); n >= minPrefix {
			marks = append(marks, reachable(k.seq, same)...)
		}
	}
	return sorted(marks)
}

// forkLocked forks a sequence at the expense of what is kept beside it.
func (p *prefixes) forkLocked(seq runtime.Sequence, n, capacity int) (runtime.Sequence, error) {
	for {
		fork, err := seq.Fork(n, capacity)
		var full *runtime.CapacityError
		if !errors.As(err, &full) {
			return fork, err
		}
		if !p.dropLeastLocked(seq) {
			return nil, err
		}
	}
}

// dropLeastLocked gives up the cache of least value, but for that of a sequence; false if there is none.
func (p *prefixes) dropLeastLocked(but runtime.Sequence) bool {
	least := -1
	for i, k := range p.kept {
		if k.seq != but && (least < 0 || k.value < p.kept[least].value) {
			least = i
		}
	}
	if least < 0 {
		return false
	}
	p.age = max(p.age, p.kept[least].value)
	p.dropLocked(least)
	return true
}

// reserve is Executor.NewSequenceFor at the expense of what is kept.
func (p *prefixes) reserve(profile runtime.Profile, capacity int, layers runtime.Range) (runtime.Sequence, error) {
	for {
		seq, err := p.exec.NewSequenceFor(profile, capacity, layers)
		var full *runtime.CapacityError
		if !errors.As(err, &full) || !p.dropLeast() {
			return seq, err
		}
	}
}

func (p *prefixes) dropLeast() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropLeastLocked(nil)
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
	p.files = slices.DeleteFunc(p.files, func(k *spilled) bool {
		if now.Sub(k.used) > prefixLife {
			p.disk.remove(k.file)
		}
		return p.disk.isGone(k.file)
	})
}

// clear gives everything up.
func (p *prefixes) clear() {
	for p.dropLeast() {
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.files {
		p.disk.remove(k.file)
	}
	p.files = nil
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
	held := max(limit-p.exec.FreeKVBytes(), 0)
	kept = min(p.bytesLocked(), held)
	return held - kept, kept
}

// bytesLocked returns how many bytes the caches take. Pages that several share count in each.
func (p *prefixes) bytesLocked() (sum int64) {
	for _, k := range p.kept {
		sum += p.bytesOf(k)
	}
	return sum
}

func (p *prefixes) bytesOf(k *keptPrefix) (sum int64) {
	c := p.exec.Config()
	cache, tails := c.Cache, c.Snapshots(k.seq.Profile().KV, k.seq.Capacity()).Tails()
	for l := k.layers.First; l < k.layers.Last; l++ {
		sum += int64(cache[l].Positions(k.end())*k.seq.RowBytes(l) + tails*k.seq.TailBytes(l))
	}
	return sum
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
