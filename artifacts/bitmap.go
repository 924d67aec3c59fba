package artifacts

import "math/bits"

// bitmap is a set of piece numbers below n. Bit i is bit i%8 of byte i/8; bits from n on are zero.
type bitmap struct {
	b []byte
	n int
}

func newBitmap(n int) bitmap { return bitmap{b: make([]byte, (n+7)/8), n: n} }

// bitmapFrom makes a set of n pieces from stored bytes, or says that they do not fit.
func bitmapFrom(b []byte, n int) (bitmap, bool) {
	if len(b) != (n+7)/8 || n%8 != 0 && b[len(b)-1]>>(n%8) != 0 {
		return bitmap{}, false
	}
	return bitmap{b: append([]byte(nil), b...), n: n}, true
}

func (m bitmap) has(i int) bool { return m.b[i/8]>>(i%8)&1 == 1 }
func (m bitmap) set(i int)      { m.b[i/8] |= 1 << (i % 8) }
func (m bitmap) clear(i int)    { m.b[i/8] &^= 1 << (i % 8) }

func (m bitmap) clone() bitmap { return bitmap{b: append([]byte(nil), m.b...), n: m.n} }

// fill sets all n bits.
func (m bitmap) fill() {
	for i := range m.n {
		m.set(i)
	}
}

// count returns the size of the set.
func (m bitmap) count() int {
	n := 0
	for _, b := range m.b {
		n += bits.OnesCount8(b)
	}
	return n
}
