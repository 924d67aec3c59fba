package kernels

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// The reference: written straight from docs/numerics.md and the block formats, one number at a time, sharing nothing
// with the product but FMA (which fma_test.go checks against math/big).

// refBlock is one unpacked block of a quantised row.
type refBlock struct {
	d, m   float32 // scale; minimum (Q4_1, Q5_1: added, K: subtracted)
	q      []int   // centred, as they are multiplied
	sc, mn []int   // K types: per sub-block
}

// refIQ4 is the codebook of IQ4_NL and IQ4_XS, refMX the values of MXFP4's codes: sign, two bits of exponent, one of fraction.
var (
	refIQ4 = []int{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	refMX  = []float64{0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6}
)

func refHalf(lo, hi byte) float32 { return float32(halfValue(uint16(lo) | uint16(hi)<<8)) }

func refUnpack(t Type, b []byte) (r refBlock) {
	if gridTypes[t].expand != nil {
		return refUnpackGrid(t, b)
	}
	bit := func(b []byte, i int) int { return int(b[i/8]>>(i%8)) & 1 }
	nibble := func(b []byte, i int) int { // the legacy order
		if i < 16 {
			return int(b[i] % 16)
		}
		return int(b[i-16] / 16)
	}
	if g := t.geometry(); g.halves > 0 {
		r.d = refHalf(b[g.half], b[g.half+1])
		if g.halves > 1 {
			r.m = refHalf(b[g.half+2], b[g.half+3])
		}
	}
	switch t {
	case Q4_0:
		for i := range 32 {
			r.q = append(r.q, nibble(b[2:], i)-8)
		}
	case Q4_1:
		for i := range 32 {
			r.q = append(r.q, nibble(b[4:], i))
		}
	case Q5_0:
		for i := range 32 {
			r.q = append(r.q, nibble(b[6:], i)+16*bit(b[2:], i)-16)
		}
	case Q5_1:
		for i := range 32 {
			r.q = append(r.q, nibble(b[8:], i)+16*bit(b[4:], i))
		}
	case Q8_0:
		for i := range 32 {
			r.q = append(r.q, int(int8(b[2+i])))
		}
	case Q2_K:
		for j := range 16 {
			r.sc = append(r.sc, int(b[j]%16))
			r.mn = append(r.mn, int(b[j]/16))
		}
		for i := range 256 {
			r.q = append(r.q, int(b[16+i/128*32+i%32]>>(2*(i%128/32)))%4)
		}
	case Q3_K:
		for j := range 16 {
			s := b[96:108]
			low, high := int(s[j%8]%16), int(s[8+j%4]>>(2*(j/4)))%4
			if j >= 8 {
				low = int(s[j-8] / 16)
			}
			r.sc = append(r.sc, low+16*high-32)
		}
		for i := range 256 {
			r.q = append(r.q, int(b[32+i/128*32+i%32]>>(2*(i%128/32)))%4+4*bit(b[i%32:], i/32)-4)
		}
	case IQ4_NL:
		for i := range 32 {
			r.q = append(r.q, refIQ4[nibble(b[2:], i)])
		}
	case IQ4_XS:
		for j := range 8 {
			low, high := int(b[4+j/2]%16), (int(b[2])+256*int(b[3]))>>(2*j)%4
			if j%2 == 1 {
				low = int(b[4+j/2] / 16)
			}
			r.sc = append(r.sc, low+16*high-32)
			for i := range 32 {
				r.q = append(r.q, refIQ4[nibble(b[8+16*j:], i)])
			}
		}
	case MXFP4:
		r.d = float32(math.Ldexp(1, int(b[0])-128))
		for i := range 32 {
			r.q = append(r.q, int(2*refMX[nibble(b[1:], i)]))
		}
	case Q4_K, Q5_K:
		s := b[4:16]
		for j := range 8 {
			if j < 4 {
				r.sc = append(r.sc, int(s[j]%64))
				r.mn = append(r.mn, int(s[j+4]%64))
			} else {
				r.sc = append(r.sc, int(s[j+4]%16)+int(s[j-4]/64)*16)
				r.mn = append(r.mn, int(s[j+4]/16)+int(s[j]/64)*16)
			}
		}
		qs := b[16:]
		if t == Q5_K {
			qs = b[48:]
		}
		for i := range 256 {
			sub, l := i/32, i%32
			v := int(qs[sub/2*32+l])
			if sub%2 == 0 {
				v %= 16
			} else {
				v /= 16
			}
			if t == Q5_K {
				v += 16 * bit(b[16+l:], sub)
			}
			r.q = append(r.q, v)
		}
	case Q6_K:
		for j := range 16 {
			r.sc = append(r.sc, int(int8(b[192+j])))
		}
		for i := range 256 {
			h, part, l := i/128, i/32%4, i%32
			var lo int
			switch part {
			case 0:
				lo = int(b[64*h+l] % 16)
			case 1:
				lo = int(b[64*h+32+l] % 16)
			case 2:
				lo = int(b[64*h+l] / 16)
			case 3:
				lo = int(b[64*h+32+l] / 16)
			}
			hi := int(b[128+32*h+l]>>(2*part)) % 4
			r.q = append(r.q, lo+16*hi-32)
		}
	}
	return r
}

// refQuantise quantises one block of activations.
func refQuantise(x []float32) (d float32, q []int) {
	amax := float32(0)
	for _, v := range x {
		if float32(math.Abs(float64(v))) > amax {
			amax = float32(math.Abs(float64(v)))
		}
	}
	q = make([]int, len(x))
	if amax < 0x1p-100 {
		return 0, q
	}
	id := 127 / amax
	for i, v := range x {
		y := float32(v * id)
		q[i] = int(math.RoundToEven(float64(y)))
	}
	return amax / 127, q
}

func refDense(t Type, b []byte, k int) float32 {
	switch t {
	case F32:
		return math.Float32frombits(binary.LittleEndian.Uint32(b[4*k:]))
	case F16:
		return refHalf(b[2*k], b[2*k+1])
	}
	return math.Float32frombits(uint32(b[2*k])<<16 | uint32(b[2*k+1])<<24)
}

// refDot is one output.
func refDot(t Type, row []byte, x []float32) float32 {
	if t.Form() == Dense {
		var lane [16]float32
		for k, v := range x {
			lane[k%16] = FMA(refDense(t, row, k), v, lane[k%16])
		}
		for n := 8; n > 0; n /= 2 {
			for j := range n {
				lane[j] += lane[j+n]
			}
		}
		return lane[0]
	}
	elems, bytes := t.Block()
	acc := float32(0)
	for i := 0; i < len(x)/elems; i++ {
		w := refUnpack(t, row[i*bytes:(i+1)*bytes])
		d, q := refQuantise(x[i*elems : (i+1)*elems])
		isum, imin, s := 0, 0, 0
		for k := range q {
			scale := 1
			if len(w.sc) > 0 {
				scale = w.sc[k*len(w.sc)/elems]
			}
			isum += scale * w.q[k] * q[k]
			if len(w.mn) > 0 {
				imin += w.mn[k*len(w.mn)/elems] * q[k]
			}
			s += q[k]
		}
		dd := float32(w.d * d)
		acc = FMA(dd, float32(isum), acc)
		switch t {
		case Q2_K, Q4_K, Q5_K:
			dm := float32(w.m * d)
			acc = FMA(-dm, float32(imin), acc)
		case Q4_1, Q5_1:
			ds := float32(d * float32(s))
			acc = FMA(w.m, ds, acc)
		}
	}
	return acc
}

var allTypes = func() (list []Type) {
	for t, g := range geometries {
		if g.elems > 0 {
			list = append(list, Type(t))
		}
	}
	return list
}()

// testScale returns halves that matter: ordinary, zero, negative zero, denormal, largest.
func testScale(r *rand.Rand) uint16 {
	switch r.IntN(10) {
	case 0:
		return 0
	case 1:
		return 0x8000
	case 2:
		return uint16(r.IntN(1024)) // denormal
	case 3:
		return 0x7bff | uint16(r.IntN(2))<<15
	}
	return F32ToF16(float32(r.NormFloat64() * 0.05))
}

// testMatrix returns random blocks; some are all zeros or all ones, or made of extreme weights only.
func testMatrix(r *rand.Rand, t Type, rows, cols int) Matrix {
	elems, bytes := t.Block()
	data := make([]byte, rows*cols/elems*bytes)
	for at := 0; at < len(data); at += bytes {
		b := data[at : at+bytes]
		fill := r.IntN(8)
		for i := range b {
			switch fill {
			case 0:
				b[i] = 0
			case 1:
				b[i] = 0xff
			case 2:
				b[i] = []byte{0, 0x0f, 0xf0, 0xff, 0x80, 0x7f}[r.IntN(6)]
			default:
				b[i] = byte(r.Uint32())
			}
		}
		switch t {
		case F32:
			binary.LittleEndian.PutUint32(b, math.Float32bits(float32(r.NormFloat64())))
		case BF16:
			binary.LittleEndian.PutUint16(b, uint16(math.Float32bits(float32(r.NormFloat64()))>>16))
		case IQ1_M:
			putHalfIQ1_M(b, testScale(r))
		case MXFP4:
			b[0] = []byte{0, 1, 2, 100, 127, 128, 129, 200, 254, byte(110 + r.IntN(20))}[r.IntN(10)]
		}
		g := t.geometry()
		for i := range g.halves {
			binary.LittleEndian.PutUint16(b[g.half+2*i:], testScale(r))
		}
	}
	return Matrix{Type: t, Rows: rows, Cols: cols, Data: data}
}

// testActivations returns rows of several kinds: ordinary, zero, tiny, huge, and those that quantise to ±127 only.
func testActivations(r *rand.Rand, rows, cols int) []float32 {
	x := make([]float32, rows*cols)
	for at := 0; at < len(x); at += 32 {
		kind := r.IntN(9)
		for i := at; i < min(at+32, len(x)); i++ {
			v := float32(r.NormFloat64())
			switch kind {
			case 0:
				v = 0
			case 1:
				v *= 1e-38
			case 2:
				v *= 1e30
			case 3:
				v = 1
			case 4:
				v = -1
			case 5:
				v = float32(1 - 2*r.IntN(2))
			}
			x[i] = v
		}
	}
	return x
}
