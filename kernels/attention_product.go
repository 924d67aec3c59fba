package kernels

import "unsafe"

// Both products of attention, scores and outputs, are of one kind: rows of factors a (queries; weights) with stored
// values b, in tiles of 16 lanes (positions; dimensions), one fused chain per row and lane.

// attnProduct says what to multiply: for each row r and lane i,
//
//	dst[r·dstStride + i] = FMA(a[r·aStride + j], b[i/16·bNext + j·bStride + i%16], acc) over ascending j < n from +0, plus 0
type attnProduct struct {
	dst       []float32
	dstStride int
	a         []float32
	aStride   int
	rows, n   int
	b         stored
	bStride   int
	bNext     int
	lanes     int
	ahead     stored // what is read next: a hint
}

// The arguments of the assembly kernels. Strides and sizes are in bytes.
type (
	// attnProductArgs is an attnProduct whose lanes are a multiple of 8. Those of amd64 change rows, left and row.
	// attnFirst does six rows of one tile, of 16 lanes or 8, and leaves the tile in panel as float32, [n][16].
	attnProductArgs struct {
		dst       *float32
		dstStride int
		a         *float32
		aStride   int
		b         unsafe.Pointer
		bStride   int
		bNext     int
		ahead     unsafe.Pointer // prefetched from here, as much as is read of b
		groups    int            // 2: AVX2 does the rows in two groups, each of which prefetches half
		rows      int
		n         int
		lanes     int
		//lint:ignore U1000 scratch of the assembly: lanes left
		left int
		//lint:ignore U1000 scratch of the assembly: where the next row goes
		row   uintptr
		panel *float32
	}
	// attnSoftmaxArgs is AttnScratch.weigh.
	attnSoftmaxArgs struct {
		s       *float32
		visible *Span
		rows    int
		first   int
		last    int
		m, l    *float32
		scale   float32
	}
	// attnMergeArgs is Partial.Merge, dim a multiple of 8.
	attnMergeArgs struct {
		m, l, o    *float32
		bm, bl, bo *float32
		rows, dim  int
		//lint:ignore U1000 scratch of the assembly: of eight rows
		top, a, c [8]float32
	}
	// attnFinishArgs is Partial.Finish, dim a multiple of 8.
	attnFinishArgs struct {
		dst, o, l *float32
		rows, dim int
	}
)

// attnKernels are what a variant has for attention; products by number format.
type attnKernels struct {
	attnProduct [2]func(*attnProductArgs)
	attnFirst   [2]func(*attnProductArgs)
	attnSoftmax func(*attnSoftmaxArgs)
	attnMerge   func(*attnMergeArgs)
	attnFinish  func(*attnFinishArgs)
}

// The number formats of stored values.
const (
	attnHalf = iota
	attnFull
)

// attnStep is how many rows attnFirst does.
const attnStep = 6

// attnDirect is the most rows for which b is converted anew for every group of rows that a kernel does at once. For more
// it is converted once, to a panel.
const attnDirect = 8

// pointer returns the address and size of the first stored value.
func (s stored) pointer() (unsafe.Pointer, int) {
	if s.full != nil {
		return unsafe.Pointer(unsafe.SliceData(s.full)), 4
	}
	return unsafe.Pointer(unsafe.SliceData(s.half)), 2
}

// products computes p.
func (s *AttnScratch) products(p attnProduct) {
	format := attnHalf
	if p.b.full != nil {
		format = attnFull
	}
	kernel := active.attnProduct[format]
	if kernel == nil || p.lanes%8 != 0 {
		s.productsGo(&p)
		return
	}
	b, size := p.b.pointer()
	ahead, _ := p.ahead.pointer()
	args := &s.product
	*args = attnProductArgs{
		dst: &p.dst[0], dstStride: 4 * p.dstStride, a: &p.a[0], aStride: 4 * p.aStride,
		b: b, bStride: size * p.bStride, bNext: size * p.bNext, ahead: ahead, rows: p.rows, n: p.n, lanes: p.lanes,
	}
	args.groups = 1
	if p.rows <= attnDirect {
		if p.rows > attnStep {
			args.groups = 2
		}
		kernel(args)
		return
	}
	s.panel = sized(s.panel, KVTile*max(p.n, AttnBlock))
	args.panel = &s.panel[0]
	// The panel stays in the first cache, so its products fetch what comes next instead: a chunk of few units would wait for memory else.
	args.ahead = ahead
	for lane := 0; lane < p.lanes; lane += KVTile {
		args.dst, args.a, args.rows, args.lanes = &p.dst[lane], &p.a[0], p.rows, min(KVTile, p.lanes-lane)
		args.b, args.bStride = unsafe.Add(b, lane/KVTile*size*p.bNext), size*p.bStride
		active.attnFirst[format](args)
		args.dst, args.a, args.rows = &p.dst[lane+attnStep*p.dstStride], &p.a[attnStep*p.aStride], p.rows-attnStep
		args.b, args.bStride = unsafe.Pointer(args.panel), 4*KVTile
		active.attnProduct[attnFull](args)
	}
}

// productsGo is products, as specified.
func (s *AttnScratch) productsGo(p *attnProduct) {
	s.panel = sized(s.panel, KVTile*p.n)
	for lane := 0; lane < p.lanes; lane += KVTile {
		width := min(KVTile, p.lanes-lane)
		for j := range p.n {
			p.b.widen(s.panel[j*KVTile:], lane/KVTile*p.bNext+j*p.bStride, width)
		}
		for r := range p.rows {
			sumPanel(p.dst[r*p.dstStride+lane:][:width], p.a[r*p.aStride:][:p.n], s.panel)
		}
	}
}

// sumPanel sets dst[i] to the chain of a[j]·panel[j][i] over ascending j, plus 0, four lanes at a time with [FMA] written
// out.
func sumPanel(dst, a, panel []float32) {
	i := 0
	for ; i+4 <= len(dst); i += 4 {
		var a0, a1, a2, a3 float32
		for j, x := range a {
			b := panel[j*KVTile+i:][:4:4]
			p0, p1, p2, p3 := term(x, b[0]), term(x, b[1]), term(x, b[2]), term(x, b[3])
			s0, s1, s2, s3 := p0+float64(a0), p1+float64(a1), p2+float64(a2), p3+float64(a3)
			if hard4(s0, s1, s2, s3) {
				a0, a1, a2, a3 = fmaExact4(p0, p1, p2, p3, a0, a1, a2, a3)
				continue
			}
			a0, a1, a2, a3 = float32(s0), float32(s1), float32(s2), float32(s3)
		}
		dst[i], dst[i+1], dst[i+2], dst[i+3] = a0+0, a1+0, a2+0, a3+0
	}
	for ; i < len(dst); i++ {
		acc := float32(0)
		for j, x := range a {
			acc = FMA(x, panel[j*KVTile+i], acc)
		}
		dst[i] = acc + 0
	}
}
