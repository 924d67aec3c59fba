package runtimetest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/starling-swarm/starling/runtime"
	"lukechampine.com/blake3"
)

// sequence is Fake's runtime.Sequence. Cache rows are kept as their canonical bytes.
type sequence struct {
	exec     *executor
	profile  runtime.Profile
	layers   runtime.Range
	capacity int
	reserved int64

	mu      sync.Mutex
	idle    *sync.Cond    // on mu: claimed changed
	rows    [][]byte      // [layer − layers.First]
	running runtime.Range // layers that a Run appends to
	visible int           // rows of those layers that others may see
	claimed bool
	closed  bool
}

func (s *sequence) rowBytes() int { return s.exec.cfg.KVRowBytes(0, s.profile.KV) }

func (s *sequence) Capacity() int { return s.capacity }

func (s *sequence) Profile() runtime.Profile { return s.profile }

func (s *sequence) RowBytes(layer int) int {
	if !s.layers.Contains(layer) {
		return 0
	}
	return s.rowBytes()
}

// TailBytes is what Fake.Config says. The toy's layers look at all rows, of which their tails are but a digest.
func (s *sequence) TailBytes(layer int) int {
	if !s.layers.Contains(layer) {
		return 0
	}
	return s.exec.cfg.Cache[layer].TailBytes()
}

// appendTail appends a layer's tail behind rows: finite numbers.
func (s *sequence) appendTail(dst []byte, layer int, rows []byte) []byte {
	digest := blake3.Sum256(rows)
	for i := range s.TailBytes(layer) / 4 {
		bits := binary.LittleEndian.Uint32(digest[i%8*4:])
		dst = binary.LittleEndian.AppendUint32(dst, bits>>2)
	}
	return dst
}

func (s *sequence) KVBytes(layer, first, last int) int {
	return (last-first)*s.RowBytes(layer) + s.TailBytes(layer)
}

func (s *sequence) Len(layer int) int {
	if !s.layers.Contains(layer) {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lenLocked(layer)
}

// lenLocked leaves out rows of a Run in progress.
func (s *sequence) lenLocked(layer int) int {
	if s.claimed && s.running.Contains(layer) {
		return s.visible
	}
	return len(s.rows[layer-s.layers.First]) / s.rowBytes()
}

func (s *sequence) Truncate(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.claimed {
		s.idle.Wait()
	}
	s.cutLocked(s.layers, n)
	return max(n, 0)
}

func (s *sequence) Reach(n int) int { return max(n, 0) }

func (s *sequence) cutLocked(r runtime.Range, n int) {
	for l := r.First; l < r.Last; l++ {
		rows := &s.rows[l-s.layers.First]
		*rows = (*rows)[:min(len(*rows), max(n, 0)*s.rowBytes())]
	}
}

// Fork copies everything: the toy shares no memory.
func (s *sequence) Fork(n, capacity int) (runtime.Sequence, error) {
	s.mu.Lock()
	for s.claimed {
		s.idle.Wait()
	}
	closed := s.closed
	n = max(n, 0)
	rows := make([][]byte, len(s.rows))
	for i, r := range s.rows {
		n = min(n, len(r)/s.rowBytes())
		rows[i] = slices.Clone(r)
	}
	s.mu.Unlock()
	switch {
	case closed:
		return nil, runtime.ErrClosed
	case n > capacity:
		return nil, &runtime.FullError{Asked: n, Capacity: capacity}
	}
	fork, err := s.exec.NewSequenceFor(s.profile, capacity, s.layers)
	if err != nil {
		return nil, err
	}
	f := fork.(*sequence)
	f.rows = rows
	f.cutLocked(f.layers, n)
	return f, nil
}

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
	clear(s.rows)
	s.exec.mu.Lock()
	s.exec.free += s.reserved
	s.exec.mu.Unlock()
}

func (s *sequence) claim(r runtime.Range, start, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return runtime.ErrClosed
	case r.Len() > 0 && !s.layers.Covers(r):
		return runtime.CheckLayers(r, s.layers)
	case r.Len() > 0 && n > s.capacity-start:
		return &runtime.FullError{Asked: start + n, Capacity: s.capacity}
	}
	for l := r.First; l < r.Last; l++ {
		if held := s.lenLocked(l); held != start {
			return &runtime.PositionError{Layer: l, Pos: start, Held: held}
		}
	}
	s.claimed, s.running, s.visible = true, r, start
	return nil
}

func (s *sequence) release(start int, keep bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !keep {
		s.cutLocked(s.running, start)
	}
	s.claimed, s.running = false, runtime.Range{}
	s.idle.Broadcast()
}

// add appends a row to a claimed layer.
func (s *sequence) add(layer int, row []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := layer - s.layers.First
	s.rows[i] = append(s.rows[i], row...)
}

// until returns the first n rows of a claimed layer.
func (s *sequence) until(layer, n int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows[layer-s.layers.First][:n*s.rowBytes()]
}

func (s *sequence) ExportKV(dst []byte, layer, first, last int) ([]byte, error) {
	if !s.layers.Contains(layer) {
		return dst, &runtime.LayerError{Layer: layer, Have: s.layers}
	}
	if first < 0 || last < first {
		return dst, fmt.Errorf("runtimetest: rows [%d, %d) of layer %d asked for: not a range", first, last, layer)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return dst, runtime.ErrClosed
	}
	if held := s.lenLocked(layer); last > held {
		return dst, &runtime.PositionError{Layer: layer, Pos: last, Held: held}
	}
	rows := s.rows[layer-s.layers.First][:last*s.rowBytes()]
	return s.appendTail(append(dst, rows[first*s.rowBytes():]...), layer, rows), nil
}

func (s *sequence) ImportKV(layer, first, n int, data []byte) error {
	if !s.layers.Contains(layer) {
		return &runtime.LayerError{Layer: layer, Have: s.layers}
	}
	if n < 0 || len(data) != s.KVBytes(layer, first, first+n) {
		return fmt.Errorf("runtimetest: %d bytes of KV for %d positions of layer %d, whose rows have %d", len(data), n, layer, s.rowBytes())
	}
	rows := data[:n*s.rowBytes()]
	for i := 0; i < len(rows); i += wordBytes(s.profile.KV) {
		bad := binary.LittleEndian.Uint16(rows[i:])&0x7c00 == 0x7c00
		if s.profile.KV == runtime.KVF32 {
			bad = binary.LittleEndian.Uint32(rows[i:])&0x7f800000 == 0x7f800000
		}
		if bad {
			return &runtime.NonFiniteError{What: "KV row", Layer: layer, Pos: first + i/s.rowBytes()}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.claimed && s.running.Contains(layer) {
		s.idle.Wait()
	}
	switch held := s.lenLocked(layer); {
	case s.closed:
		return runtime.ErrClosed
	case first != held:
		return &runtime.PositionError{Layer: layer, Pos: first, Held: held}
	case n > s.capacity-first:
		return &runtime.FullError{Asked: first + n, Capacity: s.capacity}
	}
	i := layer - s.layers.First
	all := slices.Concat(s.rows[i], rows)
	if !bytes.Equal(s.appendTail(nil, layer, all), data[len(rows):]) {
		return fmt.Errorf("runtimetest: the tail of layer %d at position %d is one of other rows", layer, first+n)
	}
	s.rows[i] = all
	return nil
}

func (s *sequence) Digest(layer int) [32]byte {
	if !s.layers.Contains(layer) {
		return blake3.Sum256(nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := s.rows[layer-s.layers.First][:s.lenLocked(layer)*s.rowBytes()]
	return blake3.Sum256(s.appendTail(slices.Clone(rows), layer, rows))
}
