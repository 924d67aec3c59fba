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

// KeyAt returns where the key of a position begins in a block, and the distance from one of its values to the next.
func KeyAt(dim, pos int) (at, stride int) { return pos/KVTile*KVTile*dim + pos%KVTile, KVTile }

// ValueAt returns where the value row of a position begins in a block; its values are adjacent.
func ValueAt(dim, pos int) int { return AttnBlock*dim + pos*dim }

func (b KVBlock) check() {
	if b.Dim < 1 || len(b.Half)+len(b.Full) != KVBlockLen(b.Dim) || len(b.Half) > 0 && len(b.Full) > 0 {
		panic(fmt.Sprintf("kernels: a KV block of %d dimensions with %d and %d values", b.Dim, len(b.Half), len(b.Full)))
	}
}

// Store writes key k and value v, each [Dim], of a position; ClampF16 of them where the block holds halves.
func (b KVBlock) Store(pos int, k, v []float32) {
	at, stride := KeyAt(b.Dim, pos)
	to := ValueAt(b.Dim, pos)
	k, v = k[:b.Dim], v[:b.Dim]
	if b.Full != nil {
		for d, x := range k {
			b.Full[at+d*stride] = x
		}
		copy(b.Full[to:to+b.Dim], v)
		return
	}
	for d, x := range k {
		b.Half[at+d*stride] = ClampF16(x)
	}
	values := b.Half[to : to+b.Dim]
	for d, x := range v {
		values[d] = ClampF16(x)
	}
}

// PutRows writes n stored positions from pos on, which lie in one tile, to rows, size bytes each: their keys at offset k
// of a row and their values at v, little endian, in the block's number format.
func (b KVBlock) PutRows(pos, n int, rows []byte, size, k, v int) {
	at, stride := KeyAt(b.Dim, pos)
	to := ValueAt(b.Dim, pos)
	for d := range b.Dim {
		if b.Full != nil {
			for i, x := range b.Full[at+d*stride:][:n] {
				binary.LittleEndian.PutUint32(rows[i*size+k+4*d:], math.Float32bits(x))
			}
			continue
		}
		for i, x := range b.Half[at+d*stride:][:n] {
			binary.LittleEndian.PutUint16(rows[i*size+k+2*d:], x)
		}
	}
	for i := range n {
		row := rows[i*size+v:]
		if b.Full != nil {
			row = row[:4*b.Dim]
			for d, x := range b.Full[to+i*b.Dim:][:b.Dim] {
				binary.LittleEndian.PutUint32(row[4*d:], math.Float32bits(x))
			}
			continue
		}
		row = row[:2*b.Dim]
		for d, x := range b.Half[to+i*b.Dim:][:b.Dim] {
			binary.LittleEndian.PutUint16(row[2*d:], x)
		}
	}
}

// SetRows is the reverse of [KVBlock.PutRows]: it stores n positions. The caller has checked that they are finite.
func (b KVBlock) SetRows(pos, n int, rows []byte, size, k, v int) {
	at, stride := KeyAt(b.Dim, pos)
	to := ValueAt(b.Dim, pos)
	for d := range b.Dim {
		if b.Full != nil {
			tile := b.Full[at+d*stride:][:n]
			for i := range tile {
				tile[i] = math.Float32frombits(binary.LittleEndian.Uint32(rows[i*size+k+4*d:]))
			}
			continue
		}
		tile := b.Half[at+d*stride:][:n]
		for i := range tile {
			tile[i] = binary.LittleEndian.Uint16(rows[i*size+k+2*d:])
		}
	}
	for i := range n {
		row := rows[i*size+v:]
		if b.Full != nil {
			row = row[:4*b.Dim]
			values := b.Full[to+i*b.Dim:][:b.Dim]
			for d := range values {
				values[d] = math.Float32frombits(binary.LittleEndian.Uint32(row[4*d:]))
			}
			continue
		}
		row = row[:2*b.Dim]
		values := b.Half[to+i*b.Dim:][:b.Dim]
		for d := range values {
			values[d] = binary.LittleEndian.Uint16(row[2*d:])
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
	WidenF16(dst, s.half[at:at+n])
}
