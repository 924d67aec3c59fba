package runtime

import (
	"encoding/binary"
	"fmt"
	"slices"

	"lukechampine.com/blake3"

	"github.com/starling-swarm/starling/kernels"
)

// Cache rows as bytes, in the canonical order of Sequence.RowBytes; pages keep them in another (see page), so they are
// converted a tile of keys at a time; rows of KVQ8 by way of the same rows in halves.

// ExportKV implements Sequence.
func (s *sequence) ExportKV(dst []byte, layer, first, last int) ([]byte, error) {
	if !s.layers.Contains(layer) {
		return dst, &LayerError{Layer: layer, Have: s.layers}
	}
	if first < 0 || last < first {
		return dst, fmt.Errorf("runtime: rows [%d, %d) of layer %d asked for: not a range", first, last, layer)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return dst, ErrClosed
	}
	if held := s.lens[layer-s.layers.First]; last > held {
		return dst, &PositionError{Layer: layer, Pos: last, Held: held}
	}
	i, c := layer-s.layers.First, s.shape(layer)
	values, ok := s.tails[i].find(last)
	first = c.seen(first, last)
	if c.State > 0 && !ok || c.Window > 0 && !s.windows[i].holds(first, last) {
		return dst, &TailError{Layer: layer, Pos: last, Held: s.lens[i]}
	}
	return appendFloats(s.appendRowsRLocked(dst, layer, first, last), values, c.State), nil
}

func (s *sequence) appendRowsRLocked(dst []byte, layer, first, last int) []byte {
	size, c := s.memoryBytes(layer), s.shape(layer)
	var tile []byte
	if s.profile.KV == KVQ8 {
		tile = make([]byte, min(kernels.KVTile, last-first)*size)
	}
	dst = slices.Grow(dst, (last-first)*s.rowBytes(layer))
	for pos := first; pos < last; {
		n := tileRun(pos, last)
		rows := tile
		if tile == nil {
			at := len(dst)
			dst = dst[:at+n*size]
			rows = dst[at:]
		}
		for h := range c.Heads {
			s.block(layer, pos/pageRows, h).PutRows(pos%pageRows, n, rows, size, s.keyAt(c, h), s.valueAt(c, h))
		}
		if tile != nil {
			dst = c.appendQ8(dst, tile[:n*size])
		}
		pos += n
	}
	return dst
}

// keyAt and valueAt are where a head's key and value begin in a row as memory has it, in bytes.
func (s *sequence) keyAt(c LayerCache, head int) int { return head * c.Key * s.profile.KV.size() }
func (s *sequence) valueAt(c LayerCache, head int) int {
	return (c.Heads*c.Key + head*c.Value) * s.profile.KV.size()
}

// vectors lists the elements of the keys and values of a row, in its order.
func (c LayerCache) vectors() []int {
	list := slices.Repeat([]int{c.Key}, c.Heads)
	if !c.Latent {
		list = append(list, slices.Repeat([]int{c.Value}, c.Heads)...)
	}
	return list
}

// appendQ8 appends rows of halves in the type of KVQ8.
func (c LayerCache) appendQ8(dst, halves []byte) []byte {
	for vectors := c.vectors(); len(halves) > 0; {
		for _, n := range vectors {
			at := len(dst)
			dst = dst[:at+KVQ8.Bytes(n)]
			kernels.NarrowHalves(dst[at:], halves[:2*n])
			halves = halves[2*n:]
		}
	}
	return dst
}

// halvesOf is appendQ8's inverse; a row with a scale that is not finite ends it: its number is returned, −1 if there is none.
func (c LayerCache) halvesOf(rows []byte) (halves []byte, bad int) {
	vectors := c.vectors()
	halves = make([]byte, len(rows)/c.rowBytes(KVQ8)*2*c.RowElems())
	for r, rest := 0, halves; len(rest) > 0; r++ {
		for _, n := range vectors {
			if !kernels.WidenHalves(rest, rows, n) {
				return nil, r
			}
			rest, rows = rest[2*n:], rows[KVQ8.Bytes(n):]
		}
	}
	return halves, -1
}

// tileRun returns how many positions from pos on, below last, lie in one tile of keys.
func tileRun(pos, last int) int { return min(last, (pos/kernels.KVTile+1)*kernels.KVTile) - pos }

// ImportKV implements Sequence.
func (s *sequence) ImportKV(layer, first, n int, data []byte) error {
	if !s.layers.Contains(layer) {
		return &LayerError{Layer: layer, Have: s.layers}
	}
	size, c := s.rowBytes(layer), s.shape(layer)
	if n < 0 || len(data) != s.KVBytes(layer, first, first+n) {
		return fmt.Errorf("runtime: %d bytes for %d positions of layer %d: not rows of %d bytes and %d after them", len(data), n, layer, size, c.TailBytes())
	}
	from := c.seen(first, first+n)
	rows := data[:(first+n-from)*size]
	values := make([]float32, c.State)
	if !readFloats(values, data[len(rows):]) {
		return &NonFiniteError{What: "state", Layer: layer, Pos: first + n}
	}
	bad := -1
	if s.profile.KV == KVQ8 && size > 0 {
		rows, bad = c.halvesOf(rows)
		size = s.memoryBytes(layer)
	} else {
		bad = s.firstNonFinite(rows, size)
	}
	if bad >= 0 {
		return &NonFiniteError{What: "KV row", Layer: layer, Pos: from + bad}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.claimed && s.running.Contains(layer) {
		s.idle.Wait()
	}
	i := layer - s.layers.First
	switch held := s.lens[i]; {
	case s.closed:
		return ErrClosed
	case first != held:
		return &PositionError{Layer: layer, Pos: first, Held: held}
	case n > s.capacity-first:
		return &FullError{Asked: first + n, Capacity: s.capacity}
	}
	if c.Window > 0 && n > 0 {
		s.beginWindowLocked(layer)
	}
	s.growLocked(layer, from, first+n)
	for pos := from; pos < first+n; {
		run := tileRun(pos, first+n)
		for h := range c.Heads {
			s.block(layer, pos/pageRows, h).SetRows(pos%pageRows, run, rows, size, s.keyAt(c, h), s.valueAt(c, h))
		}
		rows = rows[run*size:]
		pos += run
	}
	s.lens[i] += n
	switch {
	case n == 0:
	case c.State > 0:
		t := &s.tails[i]
		copy(t.spare(c.State), values)
		t.turn(s.lens[i])
		if t.kept = s.snapshots.thin(t.kept, s.lens[i]); s.snapshots.keeps(s.lens[i], s.lens[i]) {
			t.kept = append(t.kept, snapshot{s.lens[i], values})
		}
	case c.Window > 0:
		s.endWindowLocked(layer, first, from)
	}
	return nil
}

// firstNonFinite returns the first of canonical rows of size bytes that holds a NaN or infinity (all exponent bits set), or −1.
func (s *sequence) firstNonFinite(rows []byte, size int) int {
	exponents, one := uint64(0x7c007c007c007c00), uint64(0x0400040004000400) // of four halves; their lowest bits
	if s.profile.KV == KVF32 {
		exponents, one = 0x7f8000007f800000, 0x0080000000800000
	}
	// Where all bits of an exponent are set, one more carries into the place of the sign.
	bad := func(x uint64) bool { return (x&exponents+one)&(exponents+one) != 0 }
	i := 0
	for ; i+8 <= len(rows); i += 8 {
		if bad(binary.LittleEndian.Uint64(rows[i:])) {
			break
		}
	}
	for ; i < len(rows); i += s.profile.KV.size() {
		var last [8]byte
		copy(last[:s.profile.KV.size()], rows[i:])
		if bad(binary.LittleEndian.Uint64(last[:])) {
			return i / size
		}
	}
	return -1
}

// Digest implements Sequence. It hashes a page at a time, the tail last.
func (s *sequence) Digest(layer int) [32]byte {
	h := blake3.New(32, nil)
	if s.layers.Contains(layer) {
		s.mu.RLock()
		defer s.mu.RUnlock()
		held := s.lens[layer-s.layers.First]
		var buf []byte
		for first := s.shape(layer).seen(0, held); first < held; {
			last := min(first/pageRows*pageRows+pageRows, held)
			buf = s.appendRowsRLocked(buf[:0], layer, first, last)
			h.Write(buf)
			first = last
		}
		values, _ := s.tails[layer-s.layers.First].find(held)
		h.Write(appendFloats(buf[:0], values, s.shape(layer).State))
	}
	return [32]byte(h.Sum(nil))
}
