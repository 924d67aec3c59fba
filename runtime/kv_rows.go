package runtime

import (
	"encoding/binary"
	"fmt"
	"math"

	"lukechampine.com/blake3"
)

// Cache rows as bytes, in the canonical order of Sequence.RowBytes; pages keep them in another (see page).

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
	return s.appendRowsRLocked(dst, layer, first, last), nil
}

func (s *sequence) appendRowsRLocked(dst []byte, layer, first, last int) []byte {
	for pos := first; pos < last; pos++ {
		p := s.pages[layer-s.layers.First][pos/pageRows]
		for part := range 2 {
			for h := range s.kvHeads {
				at := s.offset(h, part, pos)
				if s.kv == KVF32 {
					for _, x := range p.full[at : at+s.headDim] {
						dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(x))
					}
					continue
				}
				for _, x := range p.half[at : at+s.headDim] {
					dst = binary.LittleEndian.AppendUint16(dst, x)
				}
			}
		}
	}
	return dst
}

// ImportKV implements Sequence.
func (s *sequence) ImportKV(layer, first int, rows []byte) error {
	if !s.layers.Contains(layer) {
		return &LayerError{Layer: layer, Have: s.layers}
	}
	if len(rows)%s.rowBytes() != 0 {
		return fmt.Errorf("runtime: %d bytes of KV for layer %d: not a multiple of %d, the bytes of a row", len(rows), layer, s.rowBytes())
	}
	if bad := s.firstNonFinite(rows); bad >= 0 {
		return &NonFiniteError{What: "KV row", Layer: layer, Pos: first + bad}
	}
	n := len(rows) / s.rowBytes()
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
	s.growLocked(layer, first+n)
	for pos := first; pos < first+n; pos++ {
		p := s.pages[i][pos/pageRows]
		for part := range 2 {
			for h := range s.kvHeads {
				at := s.offset(h, part, pos)
				if s.kv == KVF32 {
					for d := range p.full[at : at+s.headDim] {
						p.full[at+d] = math.Float32frombits(binary.LittleEndian.Uint32(rows[4*d:]))
					}
				} else {
					for d := range p.half[at : at+s.headDim] {
						p.half[at+d] = binary.LittleEndian.Uint16(rows[2*d:])
					}
				}
				rows = rows[s.headDim*s.kv.Size():]
			}
		}
	}
	s.lens[i] += n
	return nil
}

// firstNonFinite returns the first row of canonical rows that holds a NaN or infinity (all exponent bits set), or −1.
func (s *sequence) firstNonFinite(rows []byte) int {
	if s.kv == KVF32 {
		for i := 0; i < len(rows); i += 4 {
			if binary.LittleEndian.Uint32(rows[i:])&0x7f800000 == 0x7f800000 {
				return i / s.rowBytes()
			}
		}
		return -1
	}
	for i := 0; i < len(rows); i += 2 {
		if binary.LittleEndian.Uint16(rows[i:])&0x7c00 == 0x7c00 {
			return i / s.rowBytes()
		}
	}
	return -1
}

// Digest implements Sequence. It hashes a page at a time.
func (s *sequence) Digest(layer int) [32]byte {
	h := blake3.New(32, nil)
	if s.layers.Contains(layer) {
		s.mu.RLock()
		defer s.mu.RUnlock()
		held := s.lens[layer-s.layers.First]
		var buf []byte
		for first := 0; first < held; first += pageRows {
			buf = s.appendRowsRLocked(buf[:0], layer, first, min(first+pageRows, held))
			h.Write(buf)
		}
	}
	return [32]byte(h.Sum(nil))
}
