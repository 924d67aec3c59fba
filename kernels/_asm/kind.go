package main

import (
	"math/bits"
	"strings"
)

// What the Go side knows, too, in kernels/matmul_group.go and kernels/records.go; TestConstants compares.
const (
	panelBytes = 2 * 6656
	fewRows    = 8 // of activations, multiplied straight from packed blocks: with more, unpacking once costs less than once for every four

	recK, recKSum16, recKSum32, recKD = 320, 256, 288, 304
	rec32, rec32D, rec32Dsum, rec32S  = 352, 256, 288, 320
)

// Offsets into the panel of AVX2: codes of 256 columns by 16 rows come first.
const (
	panelScale  = 4096 // K: pairs of scales; others: d, then m, [8][16]float32 each
	panelM      = panelScale + 512
	panelMin    = 5120 // pairs of minimums, or, for types with a centre, of scales: [4][16], with scales per 16 columns [8][16]
	panelD      = 5632 // K: d [16]float32
	panelDmin   = 5696 // K: dmin [16]float32
	panelTotal  = 5760 // scratch: [4][2] registers
	panelBlocks = 6016 // not K: blocks in this superblock, an int64
)

// Panels fit panelBytes, or this doesn't compile: AVX2's, AVX-512's two, and arm64's, which is the largest of one group.
// 6,656 is AVX2's size and some lines of the cache.
const (
	_ = uint(panelBytes - (panelBlocks + 8))
	_ = uint(panelBytes - (wide512 + dmin512 + 64))
	_ = uint(panelBytes - (neonDmin + 64))
	_ = uint(wide512 - (dmin512 + 64))
)

// kind describes one quantised weight type to the generator.
type kind struct {
	name   string
	scale  int    // bytes of a row's scale at the start of a packed block, see kernels/pack.go
	dwords int    // dword columns after them: [dwords][16]
	k      bool   // blocks of 256 columns
	quads  int    // quads of 4 columns whose 16-bit pair sums may be added
	centre int    // subtracted from every code: 4, 8, 16, 32, 128
	min    bool   // has minimums
	sub16  bool   // scales per 16 columns (Q2_K, Q3_K, Q6_K, grids)
	signed bool   // codes are signed bytes (Q8_0, IQ4_NL, IQ4_XS)
	book   []int8 // what 4-bit codes stand for
	grid   bool   // 4-bit codes stand for groupArgs.values; packed blocks are gridBlocks

	flipped bool // codes are signed bytes, taken as unsigned ones around 128
}

// five reports whether codes have a fifth bit apart from the low four.
func (k kind) five() bool { return strings.HasPrefix(k.name, "Q5") }

// three reports whether codes have a third bit apart from the low two, and two whether they have those two.
func (k kind) three() bool { return k.name == "Q3_K" }
func (k kind) two() bool   { return k.name == "Q2_K" || k.three() }

// plain reports whether packed blocks have the codes as they are used.
func (k kind) plain() bool { return k.signed && k.book == nil }

// table returns the bytes that codes of a codebook stand for: with the centre, which makes them unsigned.
func (k kind) table() []byte {
	var p []byte
	for _, v := range k.book {
		p = append(p, byte(int(v)+k.centre))
	}
	return p
}

// coded reports whether codes stand for values of a table.
func (k kind) coded() bool { return k.book != nil || k.grid }

// What is where in a packed block of a grid: codes come first.
const (
	gridScales = 32 * 64
	gridD      = 36 * 64
)

// centreBits returns which power of two the centre is.
func (k kind) centreBits() int { return bits.TrailingZeros(uint(k.centre)) }

func (k kind) bytes() int { return 16*k.scale + 64*k.dwords }

// The codebooks are those of kernels/block_codebook.go.
var (
	codesIQ4 = []int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	codesMX  = []int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
)

var kinds = []kind{
	{name: "Q4_0", scale: 2, dwords: 4, quads: 8, centre: 8},
	{name: "Q4_1", scale: 4, dwords: 4, quads: 8, min: true},
	{name: "Q5_0", scale: 2, dwords: 5, quads: 4, centre: 16},
	{name: "Q5_1", scale: 4, dwords: 5, quads: 4, min: true},
	{name: "Q8_0", scale: 2, dwords: 8, quads: 1, signed: true},
	{name: "Q2_K", dwords: 21, k: true, quads: 4, min: true, sub16: true},
	{name: "Q3_K", scale: 2, dwords: 27, k: true, quads: 4, centre: 4, sub16: true},
	{name: "Q4_K", scale: 4, dwords: 35, k: true, quads: 8, min: true},
	{name: "Q5_K", scale: 4, dwords: 43, k: true, quads: 4, min: true},
	{name: "Q6_K", scale: 2, dwords: 52, k: true, quads: 2, centre: 32, sub16: true},
	{name: "IQ4_NL", scale: 2, dwords: 4, quads: 1, signed: true, book: codesIQ4},
	{name: "IQ4_XS", scale: 4, dwords: 33, k: true, quads: 1, signed: true, book: codesIQ4},
	{name: "MXFP4", scale: 1, dwords: 4, quads: 4, centre: 16, book: codesMX},
	{name: "Grid6", dwords: 37, k: true, quads: 2, centre: 32, sub16: true, grid: true}, // values within ±31
	{name: "Grid7", dwords: 37, k: true, quads: 1, centre: 64, sub16: true, grid: true}, // values within ±63
}

// K types repeat the same steps in parts of a superblock, except for which of Q5_K's fifth bits they take. parts is their
// number.
func (k kind) parts() int {
	if k.sub16 && !k.grid {
		return 2
	}
	return 4
}

// partBlocks is the number of blocks of 32 columns in a part.
func (k kind) partBlocks() int { return 8 / k.parts() }
