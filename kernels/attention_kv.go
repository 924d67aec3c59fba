package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
)

// KVTile is how many positions a tile of keys has.
const KVTile = 16

// KVBlock is what one KV head stores of AttnBlock positions, keys of Key elements and values of Value, in one of two number
// formats. First come the keys, in tiles of 16 positions, [AttnBlock/16][Key][16], so that lanes are positions in scores;
// then the values, [AttnBlock][Value], so that lanes are dimensions in outputs. In a Latent block, as multi-head latent
// attention has it, a value is the first Value elements of the key, and there is nothing beside the keys.
type KVBlock struct {
	Key, Value int
	Latent     bool
	Half       []uint16  // binary16, or
	Full       []float32 // float32: Len of either
}

// Len returns the number of stored elements of a block of this shape.
func (b KVBlock) Len() int {
	if b.Latent {
		return AttnBlock * b.Key
	}
	return AttnBlock * (b.Key + b.Value)
}

// KeyAt returns where the key of a position begins in a block; its elements are KVTile apart.
func (b KVBlock) KeyAt(pos int) int { return pos/KVTile*KVTile*b.Key + pos%KVTile }

// ValueAt returns where the value row of a position begins in a block; its elements are adjacent. Latent blocks have none.
func (b KVBlock) ValueAt(pos int) int { return AttnBlock*b.Key + pos*b.Value }

func (b KVBlock) check() {
	if b.Key < 1 || b.Value < 1 || b.Latent && b.Value > b.Key || len(b.Half)+len(b.Full) != b.Len() || len(b.Half) > 0 && len(b.Full) > 0 {
		panic(fmt.Sprintf("kernels: a KV block for keys of %d and values of %d elements has %d and %d", b.Key, b.Value, len(b.Half), len(b.Full)))
	}
}

// Store writes key k, [Key], and value v, [Value], of a position; clampF16 of them where the block holds halves. It is not for
// Latent blocks.
func (b KVBlock) Store(pos int, k, v []float32) {
	to := b.ValueAt(pos)
	if b.Full != nil {
		b.storeKey(pos, k, nil)
		copy(b.Full[to:][:b.Value], v[:b.Value])
		return
	}
	b.storeKey(pos, k, b.Half[to:][:b.Value])
	clampF16s(b.Half[to:][:b.Value], v[:b.Value])
}

// StoreLatent is Store for Latent blocks. scratch, [Key], is overwritten where the block holds halves.
func (b KVBlock) StoreLatent(pos int, k []float32, scratch []uint16) { b.storeKey(pos, k, scratch) }

// storeKey writes a key, by way of scratch where the block holds halves.
func (b KVBlock) storeKey(pos int, k []float32, scratch []uint16) {
	at := b.KeyAt(pos)
	if b.Full != nil {
		for d, x := range k[:b.Key] {
			b.Full[at+d*KVTile] = x
		}
		return
	}
	for from := 0; from < b.Key; from += len(scratch) {
		part := scratch[:min(len(scratch), b.Key-from)]
		clampF16s(part, k[from:from+len(part)])
		keys := b.Half[at+from*KVTile:]
		for d, x := range part {
			keys[d*KVTile] = x
		}
	}
}

// PutRows writes n stored positions from pos on, which lie in one tile, to rows, size bytes each: their keys at offset k
// of a row and, unless the block is Latent, their values at v, little endian, in the block's number format.
func (b KVBlock) PutRows(pos, n int, rows []byte, size, k, v int) {
	for i := range n {
		b.putKey(pos+i, rows[i*size+k:])
		if !b.Latent {
			b.putValue(pos+i, rows[i*size+v:])
		}
	}
}

func (b KVBlock) putKey(pos int, row []byte) {
	at, d := b.KeyAt(pos), 0
	if b.Full != nil {
		for ; d < b.Key; d++ {
			binary.LittleEndian.PutUint32(row[4*d:], math.Float32bits(b.Full[at+d*KVTile]))
		}
		return
	}
	for ; d+4 <= b.Key; d += 4 { // one store for four
		x := (*[3*KVTile + 1]uint16)(b.Half[at+d*KVTile:])
		binary.LittleEndian.PutUint64(row[2*d:], uint64(x[0])|uint64(x[KVTile])<<16|uint64(x[2*KVTile])<<32|uint64(x[3*KVTile])<<48)
	}
	for ; d < b.Key; d++ {
		binary.LittleEndian.PutUint16(row[2*d:], b.Half[at+d*KVTile])
	}
}

func (b KVBlock) putValue(pos int, row []byte) {
	to, d := b.ValueAt(pos), 0
	if b.Full != nil {
		for ; d < b.Value; d++ {
			binary.LittleEndian.PutUint32(row[4*d:], math.Float32bits(b.Full[to+d]))
		}
		return
	}
	for ; d+4 <= b.Value; d += 4 {
		y := (*[4]uint16)(b.Half[to+d:])
		binary.LittleEndian.PutUint64(row[2*d:], uint64(y[0])|uint64(y[1])<<16|uint64(y[2])<<32|uint64(y[3])<<48)
	}
	for ; d < b.Value; d++ {
		binary.LittleEndian.PutUint16(row[2*d:], b.Half[to+d])
	}
}

// SetRows is the reverse of [KVBlock.PutRows]: it stores n positions. The caller has checked that they are finite.
func (b KVBlock) SetRows(pos, n int, rows []byte, size, k, v int) {
	for i := range n {
		b.setKey(pos+i, rows[i*size+k:])
		if !b.Latent {
			b.setValue(pos+i, rows[i*size+v:])
		}
	}
}

func (b KVBlock) setKey(pos int, row []byte) {
	at, d := b.KeyAt(pos), 0
	if b.Full != nil {
		for ; d < b.Key; d++ {
			b.Full[at+d*KVTile] = math.Float32frombits(binary.LittleEndian.Uint32(row[4*d:]))
		}
		return
	}
	for ; d+4 <= b.Key; d += 4 { // one load for four
		x := (*[3*KVTile + 1]uint16)(b.Half[at+d*KVTile:])
		key := binary.LittleEndian.Uint64(row[2*d:])
		x[0], x[KVTile], x[2*KVTile], x[3*KVTile] = uint16(key), uint16(key>>16), uint16(key>>32), uint16(key>>48)
	}
	for ; d < b.Key; d++ {
		b.Half[at+d*KVTile] = binary.LittleEndian.Uint16(row[2*d:])
	}
}

func (b KVBlock) setValue(pos int, row []byte) {
	to, d := b.ValueAt(pos), 0
	if b.Full != nil {
		for ; d < b.Value; d++ {
			b.Full[to+d] = math.Float32frombits(binary.LittleEndian.Uint32(row[4*d:]))
		}
		return
	}
	for ; d+4 <= b.Value; d += 4 {
		y := (*[4]uint16)(b.Half[to+d:])
		value := binary.LittleEndian.Uint64(row[2*d:])
		y[0], y[1], y[2], y[3] = uint16(value), uint16(value>>16), uint16(value>>32), uint16(value>>48)
	}
	for ; d < b.Value; d++ {
		b.Half[to+d] = binary.LittleEndian.Uint16(row[2*d:])
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
func (b KVBlock) keys(tile int) stored { return b.from(tile * KVTile * b.Key) }

// values returns the values from a position on; of a Latent block, in which they are elsewhere, nothing.
func (b KVBlock) values(pos int) stored { return b.from(min(b.ValueAt(pos), b.Len())) }

// widen sets dst[:n] to values [at, at+n) as float32.
func (s stored) widen(dst []float32, at, n int) {
	if s.full != nil {
		copy(dst[:n], s.full[at:at+n])
		return
	}
	widenF16(dst, s.half[at:at+n])
}
