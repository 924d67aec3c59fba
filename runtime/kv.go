package runtime

import (
	"sync"

	"github.com/starling-swarm/starling/kernels"
)

// pageRows is the number of positions of a KV page. A page starts at a multiple of it, so a page is a softmax block.
const pageRows = kernels.AttnBlock

// fallbackMemory stands for the available memory where the system does not say how much there is. Half of it is the
// default KV limit.
const fallbackMemory = 4 << 30

// kvBudget counts reserved KV memory of one model.
type kvBudget struct {
	mu    sync.Mutex
	limit int64
	used  int64
}

// free returns the bytes that can still be reserved.
func (b *kvBudget) free() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit - b.used
}

// reserve takes n bytes or fails with *CapacityError.
func (b *kvBudget) reserve(n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.limit-b.used {
		return &CapacityError{Asked: n, Free: b.limit - b.used}
	}
	b.used += n
	return nil
}

// release gives n bytes back.
func (b *kvBudget) release(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
}

// page holds pageRows positions of one layer in exactly one of two formats: one kernels.KVBlock after the other, a KV head
// each, so that attention reads straight runs.
type page struct {
	half   []uint16  // KVF16, KVQ8
	full   []float32 // KVF32
	shared *shared   // nil: the page is one sequence's
}

// empty says that there is no page.
func (p page) empty() bool { return p.full == nil && p.half == nil }

// block returns a head's part of the page, which has that shape.
func (p page) block(head int, shape kernels.KVBlock) kernels.KVBlock {
	size := shape.Len()
	if p.full != nil {
		shape.Full = p.full[head*size : (head+1)*size]
	} else {
		shape.Half = p.half[head*size : (head+1)*size]
	}
	return shape
}

// sequence is the Go engine's Sequence.
type sequence struct {
	layers   Range // immutable, as all fields of this group
	profile  Profile
	cache    []LayerCache // [layer − layers.First]
	capacity int
	context  int // Config.Context
	longFrom int // LongRope.Original
	budget   *kvBudget

	snapshots    Snapshots                    // of tails
	snapshotsFor func(capacity int) Snapshots // … of forks

	mu       sync.RWMutex // Run holds it only to claim and to commit
	idle     *sync.Cond   // on mu: running changed
	reserved int64        // without shared pages
	lens     []int        // [layer − layers.First] rows held
	tails    []tail       // [layer − layers.First]
	windows  []window     // [layer − layers.First]
	pages    [][]page     // [layer − layers.First], grown as rows arrive; of layers with a window some are empty
	running  Range        // layers that a Run appends to, beyond lens; guarded, but stable for that Run itself
	claimed  bool         // a Run uses the sequence
	closed   bool
}

// newSequence reserves a sequence for a range of the layers whose caches have these shapes, but for bytes of shared pages.
func newSequence(layers Range, profile Profile, cache []LayerCache, snapshots Snapshots, capacity int, common int64, budget *kvBudget) (*sequence, error) {
	s := &sequence{
		layers: layers, profile: profile, cache: cache, snapshots: snapshots, capacity: capacity, budget: budget,
		lens: make([]int, layers.Len()), pages: make([][]page, layers.Len()), tails: make([]tail, layers.Len()), windows: make([]window, layers.Len()),
	}
	for i := range s.tails {
		s.tails[i].cut(0)
	}
	s.idle = sync.NewCond(&s.mu)
	const most = 1 << 62 // more than any machine has, for headers whose sizes multiply to nonsense
	for l := layers.First; l < layers.Last; l++ {
		rows, each := int64(s.shape(l).Positions(capacity)), int64(s.memoryBytes(l))
		if each > 0 && rows > (most-s.reserved)/each {
			s.reserved = most
			break
		}
		s.reserved += rows*each + int64(snapshots.Tails()*s.shape(l).TailBytes())
	}
	s.reserved -= common
	if err := budget.reserve(s.reserved); err != nil {
		return nil, err
	}
	return s, nil
}

// shape returns what a layer of the sequence keeps.
func (s *sequence) shape(layer int) LayerCache { return s.cache[layer-s.layers.First] }

// rowBytes returns the bytes of a canonical row, memoryBytes those that it takes here.
func (s *sequence) rowBytes(layer int) int    { return s.shape(layer).rowBytes(s.profile.KV) }
func (s *sequence) memoryBytes(layer int) int { return s.shape(layer).RowElems() * s.profile.KV.size() }

// Len implements Sequence.
func (s *sequence) Len(layer int) int {
	if !s.layers.Contains(layer) {
		return 0
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.lens[layer-s.layers.First]
}

// Capacity implements Sequence.
func (s *sequence) Capacity() int { return s.capacity }

// Profile implements Sequence.
func (s *sequence) Profile() Profile { return s.profile }

// RowBytes implements Sequence.
func (s *sequence) RowBytes(layer int) int {
	if !s.layers.Contains(layer) {
		return 0
	}
	return s.rowBytes(layer)
}

// TailBytes implements Sequence.
func (s *sequence) TailBytes(layer int) int {
	if !s.layers.Contains(layer) {
		return 0
	}
	return s.shape(layer).TailBytes()
}

// KVBytes implements Sequence.
func (s *sequence) KVBytes(layer, first, last int) int {
	if !s.layers.Contains(layer) {
		return 0
	}
	c := s.shape(layer)
	return (last-c.seen(first, last))*s.rowBytes(layer) + c.TailBytes()
}

// Truncate implements Sequence.
func (s *sequence) Truncate(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.claimed {
		s.idle.Wait()
	}
	n = s.reachRLocked(n)
	for l := range s.lens {
		switch c := &s.cache[l]; {
		case s.lens[l] <= n:
		case c.State > 0:
			s.tails[l].cut(n)
		case c.Window > 0:
			s.cutWindowLocked(s.layers.First+l, n)
		}
		s.lens[l] = min(s.lens[l], n)
		for p := n / pageRows; p < len(s.pages[l]); p++ {
			s.ownLocked(s.layers.First+l, p, p*pageRows < n)
		}
		s.pages[l] = s.pages[l][:min(len(s.pages[l]), (n+pageRows-1)/pageRows)]
		clear(s.pages[l][len(s.pages[l]):cap(s.pages[l])])
	}
	return n
}

// Reach implements Sequence.
func (s *sequence) Reach(n int) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.reachRLocked(n)
}

// reachRLocked returns the largest position ≤ n to which all layers can go back, those that hold fewer as they are.
func (s *sequence) reachRLocked(n int) int {
	n = max(n, 0)
	for l := 0; l < len(s.lens); l++ { // from the first again after each that makes it less
		if at := s.reachLayerRLocked(l, n); at < n {
			n, l = at, -1
		}
	}
	return n
}

// reachLayerRLocked returns to where layer layers.First+l can go back, if all rows from n on are dropped.
func (s *sequence) reachLayerRLocked(l, n int) int {
	switch c := &s.cache[l]; {
	case s.lens[l] <= n:
	case c.State > 0:
		return s.tails[l].reach(n)
	case c.Window > 0:
		return s.windows[l].reach(n, c.Window)
	}
	return n
}

// Close implements Sequence.
func (s *sequence) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.claimed {
		s.idle.Wait()
	}
	if s.closed {
		return
	}
	s.closed = true
	for _, pages := range s.pages {
		for _, p := range pages {
			if p.shared != nil {
				s.budget.letGo(p.shared)
			}
		}
	}
	clear(s.lens)
	clear(s.pages)
	clear(s.tails)
	clear(s.windows)
	s.budget.release(s.reserved)
}

// claim checks that rows [start, start+n) may be appended to the layers of r, makes room for them and marks the
// sequence as used by a Run. release ends that.
func (s *sequence) claim(r Range, start, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case r.Len() > 0 && !s.layers.Covers(r):
		return CheckLayers(r, s.layers)
	case r.Len() > 0 && n > s.capacity-start:
		return &FullError{Asked: start + n, Capacity: s.capacity}
	}
	for l := r.First; l < r.Last; l++ {
		if held := s.lens[l-s.layers.First]; held != start {
			return &PositionError{Layer: l, Pos: start, Held: held}
		}
	}
	for l := r.First; l < r.Last; l++ {
		switch c := s.shape(l); {
		case c.State > 0:
			t := &s.tails[l-s.layers.First]
			t.spare(c.State)
			t.coming = s.snapshots.coming(start, start+n, c.State)
		case c.Window > 0:
			s.beginWindowLocked(l) // rollWindow makes room
		default:
			s.growLocked(l, start, start+n)
		}
	}
	s.claimed, s.running = true, r
	return nil
}

// release ends a claim; n rows of the claimed layers become visible (0 after a failure).
func (s *sequence) release(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := s.running.First; l < s.running.Last; l++ {
		i := l - s.layers.First
		s.lens[i] += n
		switch c := &s.cache[i]; {
		case n == 0:
			s.tails[i].coming = nil
		case c.State > 0:
			t := &s.tails[i]
			t.turn(s.lens[i])
			t.kept, t.coming = append(s.snapshots.thin(t.kept, s.lens[i]), t.coming...), nil
		case c.Window > 0:
			s.endWindowLocked(l, s.lens[i]-n, 0)
		}
	}
	s.claimed, s.running = false, Range{}
	s.idle.Broadcast()
}

// growLocked makes sure that the pages of rows [first, last) of a layer exist.
func (s *sequence) growLocked(layer, first, last int) {
	if s.rowBytes(layer) == 0 || first >= last {
		return
	}
	i := layer - s.layers.First
	end := (last + pageRows - 1) / pageRows
	for len(s.pages[i]) < end {
		s.pages[i] = append(s.pages[i], page{})
	}
	for p := first / pageRows; p < end; p++ {
		if s.pages[i][p].empty() {
			s.pages[i][p] = s.newPageLocked(layer)
		}
	}
}

// newPageLocked returns a page for a layer; what it holds is of no meaning.
func (s *sequence) newPageLocked(layer int) (p page) {
	w := &s.windows[layer-s.layers.First]
	if n := len(w.spare); n > 0 {
		p, w.spare = w.spare[n-1], w.spare[:n-1]
		return p
	}
	elems := pageRows * s.shape(layer).RowElems()
	if s.profile.KV == KVF32 {
		p.full = make([]float32, elems)
	} else {
		p.half = make([]uint16, elems)
	}
	return p
}

// store writes position pos of a claimed layer: k is [Heads×Key] and v [Heads×Value] of its shape, finite; they may be
// rounded in place. Half precision rounds to nearest even and clamps to ±65504. Different positions may be stored at once.
func (s *sequence) store(layer, pos int, k, v []float32) {
	c := s.shape(layer)
	for h := range c.Heads {
		if s.profile.KV == KVQ8 {
			kernels.RoundQ8_0(k[h*c.Key : (h+1)*c.Key])
			kernels.RoundQ8_0(v[h*c.Value : (h+1)*c.Value])
		}
		s.block(layer, pos/pageRows, h).Store(pos%pageRows, k[h*c.Key:], v[h*c.Value:])
	}
}

// storeLatent is store for a layer that keeps latents: kv is [Key]. scratch, as long, is overwritten.
func (s *sequence) storeLatent(layer, pos int, kv []float32, scratch []uint16) {
	if s.profile.KV == KVQ8 {
		kernels.RoundQ8_0(kv)
	}
	s.block(layer, pos/pageRows, 0).StoreLatent(pos%pageRows, kv, scratch)
}

// block returns a page's part of one head. Only for layers of a claim, whose pages hold still.
func (s *sequence) block(layer, index, head int) kernels.KVBlock {
	return s.pages[layer-s.layers.First][index].block(head, s.shape(layer).block())
}

// past returns a claimed layer's tail as a row at pos finds it, that of the Run's first row or one that an earlier part of the
// same Run has left; nil for zeros.
func (s *sequence) past(layer, pos int) []float32 {
	i := layer - s.layers.First
	if pos == s.lens[i] {
		return s.tails[i].values[s.tails[i].now]
	}
	return s.next(layer)
}

// next returns where a Run leaves a claimed layer's tail.
func (s *sequence) next(layer int) []float32 {
	t := &s.tails[layer-s.layers.First]
	return t.values[1-t.now]
}

// snapshot returns where a Run leaves a claimed layer's tail as it is behind n positions; nil if nobody wants it.
func (s *sequence) snapshot(layer, n int) []float32 {
	for _, k := range s.tails[layer-s.layers.First].coming {
		if k.at == n {
			return k.values
		}
	}
	return nil
}
