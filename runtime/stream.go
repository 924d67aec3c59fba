package runtime

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// stream brings the weights that are used from the mapped file into memory before they are needed, unit by unit: the
// layers, then the head. A page fault reads 128 KiB; asked for a whole layer, the system keeps the disk busy.
//
// All units of a model that fits memory are asked for when it is opened, and mapped as they come: a fault for every 64 KiB
// takes as long as the first token.
//
// A model that does not fit memory has its first units, as many as fit, resident. The others pass through: while one
// computes the next ones, in the cyclic order in which tokens need them, are read, and each is dropped after use, so that
// the system has no reason to drop a page that is needed sooner. (Left alone it drops the least recently used, which
// in a cycle is the next one needed.)
//
//	unit      0 … resident−1 │ resident … len−1
//	          stay           │ read ahead, used, dropped
type stream struct {
	units     [][]*weight
	resident  int
	depth     int      // units read ahead
	requested []bool   // by unit; a dropped one is false again
	requests  chan int // units for routineRead
	closing   atomic.Bool
	joined    sync.WaitGroup
}

// Shares of the available memory, for a model that exceeds fits of it: resident weights, and KV memory where Options
// leave it open. What remains is for units on their way and for everybody else.
const (
	streamFits     = 0.9
	streamResident = 0.5
	streamKV       = 0.2
	streamAhead    = 0.1
)

// newStream makes the stream of n layers and a head, of those of all weights that are used from the file. It is nil where
// reading ahead has no effect.
func newStream(n, firstLayer int, output *weight, mapped []*weight, available int64) *stream {
	if !streams || len(mapped) == 0 {
		return nil
	}
	s := &stream{units: make([][]*weight, n+1)}
	total, largest := int64(0), int64(0)
	for _, w := range mapped {
		unit := layerOf(w.name) - firstLayer
		if w == output {
			unit = n
		}
		if unit < 0 || unit > n { // the embedding: rows here and there
			continue
		}
		s.units[unit] = append(s.units[unit], w)
		total += int64(len(w.Data))
	}
	for u := range s.units {
		largest = max(largest, s.bytes(u))
	}
	s.resident, s.depth = len(s.units), 1
	if total > int64(streamFits*float64(available)) {
		s.resident = 0
		for sum := int64(0); ; s.resident++ {
			if sum += s.bytes(s.resident); sum > int64(streamResident*float64(available)) {
				break
			}
		}
		s.depth = int(min(max(int64(streamAhead*float64(available))/max(largest, 1), 1), int64(len(s.units)-s.resident)))
	}
	s.requested = make([]bool, len(s.units))
	s.requests = make(chan int, len(s.units))
	for u := 0; !s.larger() && u < len(s.units); u++ {
		s.requested[u] = true
		s.requests <- u
	}
	s.joined.Go(s.routineRead)
	return s
}

// layerOf is the layer that a tensor's name ("blk.N.…") says, −1 for none.
func layerOf(tensor string) int {
	number, _, ok := strings.Cut(strings.TrimPrefix(tensor, "blk."), ".")
	if l, err := strconv.Atoi(number); ok && err == nil && strings.HasPrefix(tensor, "blk.") {
		return l
	}
	return -1
}

// larger reports whether the model exceeds the memory.
func (s *stream) larger() bool { return s != nil && s.resident < len(s.units) }

// bytes is the size of a unit.
func (s *stream) bytes(unit int) (n int64) {
	for _, w := range s.units[unit] {
		n += int64(len(w.Data))
	}
	return n
}

// before is called when a unit is about to be used. It has that unit and what comes next read.
func (s *stream) before(unit int) {
	if s == nil {
		return
	}
	for i, passing := 0, 0; i < len(s.units) && passing <= s.depth; i++ {
		u := (unit + i) % len(s.units)
		if u >= s.resident || !s.requested[u] {
			passing++
		}
		if !s.requested[u] {
			s.requested[u] = true
			s.requests <- u // waits only for a reader that is a whole cycle late
		}
	}
}

// after is called when a unit has been used.
func (s *stream) after(unit int) {
	if s == nil || unit < s.resident {
		return
	}
	for _, w := range s.units[unit] {
		w.source.drop(w.Data, true)
	}
	s.requested[unit] = false
}

// routineRead has units read from the disk until close.
func (s *stream) routineRead() {
	for u := range s.requests {
		for _, w := range s.units[u] {
			if s.closing.Load() {
				return
			}
			w.source.ahead(w.Data)
			if !s.larger() {
				w.source.touch(w.Data)
			}
		}
	}
}

// close ends the reading.
func (s *stream) close() {
	if s != nil {
		s.closing.Store(true)
		close(s.requests)
		s.joined.Wait()
	}
}
