package runtime

// passRows is how many rows pass through a layer together at most. Longer steps are cut, which changes no result: later rows
// find the keys and values of earlier ones in the cache either way.
const passRows = 512

// windowStart returns the first position that a row at pos sees.
func windowStart(pos, window int) int {
	if window == 0 {
		return 0
	}
	return max(pos+1-window, 0)
}

// seen returns from where on a row at last sees rows [first, last).
func (c LayerCache) seen(first, last int) int {
	if c.Window == 0 {
		return first
	}
	return max(first, windowStart(last, c.Window))
}

// Positions returns for how many positions, whole pages, a layer's rows take memory in a sequence of that capacity: all, or those
// around a window, twice (see window), and of a pass.
func (c LayerCache) Positions(capacity int) int {
	pages := (capacity + pageRows - 1) / pageRows
	if c.Window > 0 {
		touched := func(rows int) int { return (rows+pageRows-2)/pageRows + 1 } // pages that consecutive rows lie in, at most
		pages = min(pages, touched(c.Window-1)+touched(c.Window-1+passRows))
	}
	return pages * pageRows
}

// window is what a layer with LayerCache.Window holds: the rows that the next one sees, and those that the first row of the
// last Run or import saw, from which a failed Run starts again, a sender may still export, and Truncate may go on. Pages with
// neither are given up, so that the layer takes the same memory however long the sequence is.
type window struct {
	first  int    // rows [first, Len) are held
	before Range  // … and these, a gap below them, up to where the last Run or import began; empty where there is no gap
	low    int    // pages below this index have been given up
	spare  []page // given up, to be used again
}

// holds says whether rows [first, last) are there; last is at most Len.
func (w *window) holds(first, last int) bool {
	return first >= last || first >= w.first || first >= w.before.First && last <= w.before.Last
}

// reach returns the last position ≤ n at which a next row would find what it sees; 0 always is one.
func (w *window) reach(n, size int) int {
	if w.holds(windowStart(n, size), n) {
		return n
	}
	if at := min(n, w.before.Last); w.holds(windowStart(at, size), at) {
		return at
	}
	return 0
}

// keepFrom returns the first row of the page in which the window of a row at pos begins.
func (c LayerCache) keepFrom(pos int) int { return windowStart(pos, c.Window) / pageRows * pageRows }

// beginWindowLocked forgets what was held for going back, as rows are about to follow the held ones.
func (s *sequence) beginWindowLocked(layer int) {
	i := layer - s.layers.First
	w := &s.windows[i]
	w.before = Range{}
	w.first = max(w.first, s.cache[i].keepFrom(s.lens[i]))
	s.dropLocked(layer, Range{w.first, s.lens[i]})
}

// rollWindows makes room for rows in a layer, where it has a window.
func rollWindows(l int, rows []row) {
	for len(rows) > 0 {
		n, seq := 1, rows[0].seq
		for n < len(rows) && rows[n].seq == seq {
			n++
		}
		if seq.shape(l).Window > 0 {
			seq.rollWindow(l, rows[0].pos, rows[0].pos+n)
		}
		rows = rows[n:]
	}
}

// rollWindow makes room for rows [pos, end) of a claimed layer, at most passRows that follow others of the same Run, whose rows
// are given up where neither the new ones nor the Run's first one see them.
func (s *sequence) rollWindow(layer, pos, end int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := layer - s.layers.First
	s.dropLocked(layer, Range{s.windows[i].first, s.lens[i]}, Range{s.cache[i].keepFrom(pos), pos})
	s.growLocked(layer, pos, end)
}

// endWindowLocked says that rows [first, Len) have come, of which those before from were given up or never here; start is where the
// Run or import began.
func (s *sequence) endWindowLocked(layer, start, from int) {
	i := layer - s.layers.First
	w := &s.windows[i]
	if from = max(from, s.cache[i].keepFrom(s.lens[i])); from > start {
		w.before = Range{w.first, start}
		w.first = from
	}
	s.dropLocked(layer, w.before, Range{w.first, s.lens[i]})
}

// cutWindowLocked goes back to position n, one that reach has given.
func (s *sequence) cutWindowLocked(layer, n int) {
	w := &s.windows[layer-s.layers.First]
	switch size := s.shape(layer).Window; {
	case n == 0:
		*w = window{}
	case windowStart(n, size) < w.first:
		w.first, w.before = w.before.First, Range{}
	}
}

// dropLocked gives up the pages of a layer that have no row of what is kept.
func (s *sequence) dropLocked(layer int, kept ...Range) {
	i := layer - s.layers.First
	w := &s.windows[i]
	low := len(s.pages[i])
	for p := w.low; p < len(s.pages[i]); p++ {
		keep := false
		for _, r := range kept {
			keep = keep || r.First < (p+1)*pageRows && p*pageRows < r.Last
		}
		if at := &s.pages[i][p]; keep {
			low = min(low, p)
		} else if !at.empty() {
			w.spare = append(w.spare, *at)
			*at = page{}
		}
	}
	w.low = low
}
