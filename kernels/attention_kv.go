package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
)

// KVTile is how many positions a tile of keys has.
const KVTile = 16

// KVBlock is what one KV head of Dim values stores of AttnBlock positions, in one of two number formats. First come the
// keys, in tiles of 16 positions, [AttnBlock/16][Dim][16], so that lanes are positions in scores; then the values,
// [AttnBlock][Dim], so that lanes are dimensions in outputs.
type KVBlock struct {
	Dim  int
	Half []uint16  // binary16, or
	Full []float32 // float32: KVBlockLen(Dim) of either
}

// KVBlockLen returns the number of stored values of a block of one head.
func KVBlockLen(dim int) int { return 2 * AttnBlock * dim }

// KeyAt returns where the key of a position begins in a block; its values are KVTile apart.
func KeyAt(dim, pos int) int { return pos/KVTile*KVTile*dim + pos%KVTile }

// ValueAt returns where the value row of a position begins in a block; its values are adjacent.
func ValueAt(dim, pos int) int { return AttnBlock*dim + pos*dim }

func (b KVBlock) check() {
	if b.Dim < 1 || len(b.Half)+len(b.Full) != KVBlockLen(b.Dim) || len(b.Half) > 0 && len(b.Full) > 0 {
		panic(fmt.Sprintf("kernels: a KV block of %d dimensions with %d and %d values", b.Dim, len(b.Half), len(b.Full)))
	}
}

// Store writes key k and value v, each [Dim], of a position; clampF16 of them where the block holds halves.
func (b KVBlock) Store(pos int, k, v []float32) {
	at, to := KeyAt(b.Dim, pos), ValueAt(b.Dim, pos)
	k, v = k[:b.Dim], v[:b.Dim]
	if b.Full != nil {
		for d, x := range k {
			b.Full[at+d*KVTile] = x
		}
		copy(b.Full[to:to+b.Dim], v)
		return
	}
	row := b.Half[to : to+b.Dim]
	clampF16s(row, k)
	keys := b.Half[at:]
	for d, x := range row {
		keys[d*KVTile] = x
	}
	clampF16s(row, v)
}

// PutRows writes n stored positions from pos on, which lie in one tile, to rows, size bytes each: their keys at offset k
// of a row and their values at v, little endian, in the block's number format.
func (b KVBlock) PutRows(pos, n int, rows []byte, size, k, v int) {
	for i := range n {
		at, to := KeyAt(b.Dim, pos+i), ValueAt(b.Dim, pos+i)
		keys, values := rows[i*size+k:], rows[i*size+v:]
		d := 0
		if b.Full != nil {
			for ; d < b.Dim; d++ {
				binary.LittleEndian.PutUint32(keys[4*d:], math.Float32bits(b.Full[at+d*KVTile]))
				binary.LittleEndian.PutUint32(values[4*d:], math.Float32bits(b.Full[to+d]))
			}
			continue
		}
		for ; d+4 <= b.Dim; d += 4 { // one store for four
			x, y := (*[3*KVTile + 1]uint16)(b.Half[at+d*KVTile:]), (*[4]uint16)(b.Half[to+d:])
			binary.LittleEndian.PutUint64(keys[2*d:], uint64(x[0])|uint64(x[KVTile])<<16|uint64(x[2*KVTile])<<32|uint64(x[3*KVTile])<<48)
			binary.LittleEndian.PutUint64(values[2*d:], uint64(y[0])|uint64(y[1])<<16|uint64(y[2])<<32|uint64(y[3])<<48)
		}
		for ; d < b.Dim; d++ {
			binary.LittleEndian.PutUint16(keys[2*d:], b.Half[at+d*KVTile])
			binary.LittleEndian.PutUint16(values[2*d:], b.Half[to+d])
		}
	}
}

// SetRows is the reverse of [KVBlock.PutRows]: it stores n positions. The caller has checked that they are finite.
func (b KVBlock) SetRows(pos, n int, rows []byte, size, k, v int) {
	for i := range n {
		at, to := KeyAt(b.Dim, pos+i), ValueAt(b.Dim, pos+i)
		keys, values := rows[i*size+k:], rows[i*size+v:]
		d := 0
		if b.Full != nil {
			for ; d < b.Dim; d++ {
				b.Full[at+d*KVTile] = math.Float32frombits(binary.LittleEndian.Uint32(keys[4*d:]))
				b.Full[to+d] = math.Float32frombits(binary.LittleEndian.Uint32(values[4*d:]))
			}
			continue
		}
		for ; d+4 <= b.Dim; d += 4 { // one load for four
			x, y := (*[3*KVTile + 1]uint16)(b.Half[at+d*KVTile:]), (*[4]uint16)(b.Half[to+d:])
			key, value := binary.LittleEndian.Uint64(keys[2*d:]), binary.LittleEndian.Uint64(values[2*d:])
			x[0], x[KVTile], x[2*KVTile], x[3*KVTile] = uint16(key), uint16(key>>16), uint16(key>>32), uint16(key>>48)
			y[0], y[1], y[2], y[3] = uint16(value), uint16(value>>16), uint16(value>>32), uint16(value>>48)
		}
		for ; d < b.Dim; d++ {
			b.Half[at+d*KVTile] = binary.LittleEndian.Uint16(keys[2*d:])
			b.Half[to+d] = binary.LittleEndian.Uint16(values[2*d:])
		}
	}
}

// stored is a run of stored values in one of the two formats, up to the end of its block.
type stored struct {
	half []uint16
	full []float32
}

func (b KVBlock) from(at int) stored {
	if b.Full != nil {
		return stored{full: b.Full[at:]}
	}
	return stored{half: b.Half[at:]}
}

// keys returns the keys from a tile on.
func (b KVBlock) keys(tile int) stored { return b.from(tile * KVTile * b.Dim) }

// values returns the values from a position on.
func (b KVBlock) values(pos int) stored { return b.from(ValueAt(b.Dim, pos)) }

// widen sets dst[:n] to values [at, at+n) as float32.
func (s stored) widen(dst []float32, at, n int) {
	if s.full != nil {
		copy(dst[:n], s.full[at:at+n])
		return
	}
	widenF16(dst, s.half[at:at+n])
}
