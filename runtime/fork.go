package runtime

import "slices"

// shared is a page that several sequences have. It is full and never changes, and its memory is reserved by itself, once, until
// the last of them lets it go.
type shared struct {
	holders int // guarded by the budget's mutex
	bytes   int64
}

// share makes a page of s, whose reservation it leaves, one that another sequence has too.
func (b *kvBudget) share(s *sequence, p *page, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.shared == nil {
		p.shared = &shared{holders: 1, bytes: bytes}
		s.reserved -= bytes
	}
	p.shared.holders++
}

// letGo ends a sequence's hold on a shared page. The last one's gives its memory back.
func (b *kvBudget) letGo(p *shared) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.holders--; p.holders == 0 {
		b.used -= p.bytes
	}
}

// force takes n bytes, whether they are free or not.
func (b *kvBudget) force(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += n
}

// Fork implements Sequence.
func (s *sequence) Fork(n, capacity int) (Sequence, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.claimed {
		s.idle.Wait()
	}
	switch {
	case s.closed:
		return nil, ErrClosed
	case capacity > s.context:
		return nil, &ContextError{Asked: capacity, Limit: s.context}
	}
	n = s.forkAtRLocked(n, capacity)
	if n > capacity {
		return nil, &FullError{Asked: n, Capacity: capacity}
	}
	common := int64(0) // bytes of pages that both will have
	for l := s.layers.First; l < s.layers.Last; l++ {
		if s.shape(l).Window == 0 {
			common += int64(n/pageRows) * s.pageBytes(l)
		}
	}
	f, err := newSequence(s.layers, s.profile, s.cache, s.snapshotsFor(capacity), capacity, common, s.budget)
	if err != nil {
		return nil, err
	}
	f.context, f.longFrom, f.snapshotsFor = s.context, s.longFrom, s.snapshotsFor
	for l := s.layers.First; l < s.layers.Last; l++ {
		s.forkLayerLocked(f, l, n)
	}
	return f, nil
}

// forkAtRLocked returns the largest position ≤ n that all layers hold and can go back to.
func (s *sequence) forkAtRLocked(n, capacity int) int {
	if s.longFrom > 0 && (s.capacity > s.longFrom) != (capacity > s.longFrom) {
		return 0 // the other rope factors
	}
	for _, held := range s.lens {
		n = min(n, held)
	}
	return s.reachRLocked(n)
}

// forkLayerLocked gives f, which is empty and known to nobody yet, the first n positions of a layer: full pages themselves, copies of
// what may change.
func (s *sequence) forkLayerLocked(f *sequence, layer, n int) {
	i, c := layer-s.layers.First, s.shape(layer)
	f.lens[i] = n
	if c.State > 0 {
		f.tails[i] = s.tails[i].fork(n, c.State, f.snapshots)
	}
	if s.rowBytes(layer) == 0 || n == 0 {
		return
	}
	first := 0
	if c.Window > 0 {
		first = c.keepFrom(n)
		if w := &s.windows[i]; !w.holds(first, n) { // rows of the page that nobody has to see
			first = windowStart(n, c.Window)
		}
		f.windows[i] = window{first: first, low: first / pageRows}
	}
	f.pages[i] = make([]page, (n+pageRows-1)/pageRows)
	for p := first / pageRows; p < len(f.pages[i]); p++ {
		from := &s.pages[i][p]
		if c.Window > 0 || (p+1)*pageRows > n {
			f.pages[i][p] = from.copied()
			continue
		}
		s.budget.share(s, from, s.pageBytes(layer))
		f.pages[i][p] = *from
	}
}

// copied returns a page of its own with what p holds.
func (p page) copied() page {
	return page{half: slices.Clone(p.half), full: slices.Clone(p.full)}
}

// ownLocked takes page p of a layer out of the sharing: with its rows where it stays to be written to, else to be dropped. Memory for it
// is reserved again, even beyond the limit: a sequence that goes back behind its fork must be able to go on.
func (s *sequence) ownLocked(layer, p int, keep bool) {
	at := &s.pages[layer-s.layers.First][p]
	if at.shared == nil {
		return
	}
	s.budget.force(at.shared.bytes)
	s.reserved += at.shared.bytes
	s.budget.letGo(at.shared)
	if keep {
		*at = at.copied()
	}
}

// pageBytes is what a page of a layer takes.
func (s *sequence) pageBytes(layer int) int64 { return int64(pageRows * s.memoryBytes(layer)) }
