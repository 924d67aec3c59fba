package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"
)

// groupRows is how many rows of a weight matrix are interleaved in the packed layout, and computed together by the
// assembly kernels.
const groupRows = 16

// The packed layout of quantised weights keeps every bit of the file's blocks and only changes their order: sixteen rows
// are interleaved, so that vector lanes are rows, and a whole group is one run of memory. For each block, ascending:
//
//	the scales d of the 16 rows, then, where the type has them, their minimums m or dmin
//	the rest of the block in dwords of its bytes in file order: dword 0 of the 16 rows, dword 1 of the 16 rows, …
//
// For Q2_K, d and dmin are the last dword of the latter; for IQ4_XS the high bits of scales are in the place of minimums.
//
// A packed group has 16 times the bytes of a row. Rows that the last group lacks are zero.
//
// Blocks of grid types are looked up as they are packed, and their codes interleaved (packGrid): kernels have no grids. That
// takes more memory than the file, and no bit is lost.

// packing says where a type's block keeps its scale and the bytes that are interleaved as dwords.
type packing struct {
	scale  int // bytes: 1, 2; 4 for two of 16 bits; or 0
	at     int // offset in the block
	dwords int // dwords from byte first on
	first  int
}

var packings = [len(geometries)]packing{
	Q4_0:   {2, 0, 4, 2},
	Q4_1:   {4, 0, 4, 4},
	Q5_0:   {2, 0, 5, 2},
	Q5_1:   {4, 0, 5, 4},
	Q8_0:   {2, 0, 8, 2},
	Q2_K:   {0, 0, 21, 0},
	Q3_K:   {2, 108, 27, 0},
	Q4_K:   {4, 0, 35, 4},
	Q5_K:   {4, 0, 43, 4},
	Q6_K:   {2, 208, 52, 0},
	IQ4_NL: {2, 0, 4, 2},
	IQ4_XS: {4, 0, 33, 4},
	MXFP4:  {1, 0, 4, 1},
}

// Groups returns the number of groups of 16 rows in which packing and the fast kernels work.
func (m *Matrix) Groups() int { return (m.Rows + groupRows - 1) / groupRows }

// PackedBytes returns the size of the packed copy of m, or 0 for dense types, which are used as they are.
func (m *Matrix) PackedBytes() int {
	if m.Type.Form() == Dense {
		return 0
	}
	return m.Groups() * m.groupBytes()
}

// groupBytes is the size of a packed group.
func (m *Matrix) groupBytes() int {
	return m.Cols / m.Type.geometry().elems * groupRows * m.Type.packedBlock()
}

// PackGroups writes groups [first, last) of the packed copy of m to their places in dst, which has PackedBytes bytes.
// Disjoint groups may be packed at once.
func (m *Matrix) PackGroups(dst []byte, first, last int) {
	m.check()
	if first < 0 || first > last || last > m.Groups() || len(dst) != m.PackedBytes() {
		panic(fmt.Sprintf("kernels: packing groups [%d,%d) of %d into %d bytes of %d", first, last, m.Groups(), len(dst), m.PackedBytes()))
	}
	size := m.groupBytes()
	var s packScratch
	for g := first; g < last; g++ {
		m.packBlocks(dst[g*size:(g+1)*size], g, 0, m.Cols/m.Type.geometry().elems, &s)
	}
}

// UsePacked makes products with m read packed, its packed copy, which m keeps. m.Data must stay: rows are still
// dequantised from it. Nil goes back to m.Data. Results don't change.
func (m *Matrix) UsePacked(packed []byte) {
	if packed != nil && len(packed) != m.PackedBytes() {
		panic(fmt.Sprintf("kernels: %d packed bytes, want %d", len(packed), m.PackedBytes()))
	}
	m.packed = packed
}

// packArgs tells an assembly kernel to interleave blocks of 16 rows.
type packArgs struct {
	dst    *byte
	src    *byte // the first block of row 0
	stride int   // bytes from a row to the next
	blocks int
	bytes  int // of a block in a row
	scale  int // bytes of a block's scale: 0, 1, 2; or 4, which are at its start
	at     int // offset of the scale in a block
	first  int // offset of the dwords
	dwords int
}

// packScratch is what packing needs memory for.
type packScratch struct {
	args   packArgs
	blocks [groupRows]gridBlock // of sixteen rows
}

// packBlocks interleaves blocks [block, block+n) of group g.
func (m *Matrix) packBlocks(dst []byte, g, block, n int, s *packScratch) {
	if gridTypes[m.Type].expand != nil {
		m.packGrid(dst, g, block, n, s)
		return
	}
	p, size, rb := &packings[m.Type], m.Type.geometry().bytes, m.rowBytes()
	at := g*groupRows*rb + block*size
	if active.pack != nil && (g+1)*groupRows <= m.Rows {
		s.args = packArgs{&dst[0], &m.Data[at], rb, n, size, p.scale, p.at, p.first, p.dwords}
		active.pack(&s.args)
		return
	}
	rows := min(groupRows, m.Rows-g*groupRows)
	if rows < groupRows {
		clear(dst[:n*size*groupRows])
	}
	for b := range n {
		out := dst[b*size*groupRows : (b+1)*size*groupRows]
		for r := range rows {
			src := m.Data[at+r*rb+b*size:][:size]
			for i := 0; i < p.scale; i += 2 {
				n := min(p.scale, 2)
				copy(out[16*i+n*r:][:n], src[p.at+i:])
			}
			for d := range p.dwords {
				v := binary.LittleEndian.Uint32(src[p.first+4*d:])
				binary.LittleEndian.PutUint32(out[16*p.scale+64*d+4*r:], v)
			}
		}
	}
}

// packedGrid is how many dwords a row has in a packed block of a grid type: all of a gridBlock.
const packedGrid = 32 + 4 + 1

// packedBlock returns how many bytes a row has in a packed block.
func (t Type) packedBlock() int {
	if gridTypes[t].expand != nil {
		return 4 * packedGrid
	}
	return t.geometry().bytes
}

// packGrid is packBlocks for grid types.
func (m *Matrix) packGrid(dst []byte, g, block, n int, s *packScratch) {
	of, size, rb := &gridTypes[m.Type], m.Type.geometry().bytes, m.rowBytes()
	rows := min(groupRows, m.Rows-g*groupRows)
	clear(s.blocks[rows:])
	for i := range n {
		for r := range rows {
			of.expand(&s.blocks[r], m.Data[(g*groupRows+r)*rb+(block+i)*size:])
		}
		out := dst[i*4*packedGrid*groupRows:][:4*packedGrid*groupRows]
		if active.pack != nil { // processors that are little-endian
			each := int(unsafe.Sizeof(gridBlock{}))
			s.args = packArgs{&out[0], (*byte)(unsafe.Pointer(&s.blocks)), each, 1, each, 0, 0, 0, packedGrid}
			active.pack(&s.args)
			continue
		}
		for r := range s.blocks {
			b := &s.blocks[r]
			put := func(column int, v uint32) { binary.LittleEndian.PutUint32(out[64*column+4*r:], v) }
			for c, codes := range b.codes {
				put(2*c, uint32(codes))
				put(2*c+1, uint32(codes>>32))
			}
			for c := range 4 {
				s := b.scales[4*c : 4*c+4]
				put(32+c, uint32(uint8(s[0]))|uint32(uint8(s[1]))<<8|uint32(uint8(s[2]))<<16|uint32(uint8(s[3]))<<24)
			}
			put(36, math.Float32bits(b.d))
		}
	}
}
