package kernels

import "encoding/binary"

// These functions fill in the terms of one output and one row of activations, see termsOf and MatMul.

func termsQ4_0(t *terms, w []byte, a []actBlock) int {
	for i := range a {
		p, b := &a[i], (*[bytesQ4_0]byte)(w[i*bytesQ4_0:])
		x0, x1 := u64(b[2:]), u64(b[10:])
		isum := top(p.base + eight(x0, p, 0) + eight(x1, p, 1) + eight(x0>>4, p, 2) + eight(x1>>4, p, 3))
		t[i] = term(float32(halfAt(b[:])*p.d), float32(isum))
	}
	return len(a)
}

func termsQ4_1(t *terms, w []byte, a []actBlock) int {
	for i := range a {
		p, b := &a[i], (*[bytesQ4_1]byte)(w[i*bytesQ4_1:])
		x0, x1 := u64(b[4:]), u64(b[12:])
		isum := top(p.base+eight(x0, p, 0)+eight(x1, p, 1)+eight(x0>>4, p, 2)+eight(x1>>4, p, 3)) + 8*p.sum
		t[2*i] = term(float32(halfAt(b[:])*p.d), float32(isum))
		t[2*i+1] = term(halfAt(b[2:]), p.dsum)
	}
	return 2 * len(a)
}

// dot5 returns the sum of (w-16)·a over 32 five-bit weights with fifth bits high.
func dot5(x0, x1 uint64, high uint32, p *actBlock) int32 {
	h0, h1, h2, h3 := high&255, high>>8&255, high>>16&255, high>>24
	t0 := half - 16*(p.corr[0]+p.corr[1]) + eight5(x0, fifth[h0], fifth[h0>>1], p, 0) + eight5(x1, fifth[h1], fifth[h1>>1], p, 1)
	t1 := half - 16*(p.corr[2]+p.corr[3]) + eight5(x0>>4, fifth[h2], fifth[h2>>1], p, 2) + eight5(x1>>4, fifth[h3], fifth[h3>>1], p, 3)
	return top(t0) + top(t1)
}

func termsQ5_0(t *terms, w []byte, a []actBlock) int {
	for i := range a {
		p, b := &a[i], (*[bytesQ5_0]byte)(w[i*bytesQ5_0:])
		isum := dot5(u64(b[6:]), u64(b[14:]), binary.LittleEndian.Uint32(b[2:]), p)
		t[i] = term(float32(halfAt(b[:])*p.d), float32(isum))
	}
	return len(a)
}

func termsQ5_1(t *terms, w []byte, a []actBlock) int {
	for i := range a {
		p, b := &a[i], (*[bytesQ5_1]byte)(w[i*bytesQ5_1:])
		isum := dot5(u64(b[8:]), u64(b[16:]), binary.LittleEndian.Uint32(b[4:]), p) + 16*p.sum
		t[2*i] = term(float32(halfAt(b[:])*p.d), float32(isum))
		t[2*i+1] = term(halfAt(b[2:]), p.dsum)
	}
	return 2 * len(a)
}

func termsQ8_0(t *terms, w []byte, a []actBlock) int {
	const flip = 0x8080808080808080
	for i := range a {
		p, b := &a[i], (*[bytesQ8_0]byte)(w[i*bytesQ8_0:])
		isum := dot8(u64(b[2:])^flip, u64(b[10:])^flip, u64(b[18:])^flip, u64(b[26:])^flip, p)
		t[i] = term(float32(halfAt(b[:])*p.d), float32(isum))
	}
	return len(a)
}

// dot8 returns the sum of w·a over 32 weights of eight bits, stored as w+128. It splits w = 16·(h-8) + (l-8) + 8, where h and
// l are the halves of a byte.
func dot8(x0, x1, x2, x3 uint64, p *actBlock) int32 {
	lo := top(p.base + eight(x0, p, 0) + eight(x1, p, 1) + eight(x2, p, 2) + eight(x3, p, 3))
	hi := top(p.base + eight(x0>>4, p, 0) + eight(x1>>4, p, 1) + eight(x2>>4, p, 2) + eight(x3>>4, p, 3))
	return 16*hi + lo + 8*p.sum
}
