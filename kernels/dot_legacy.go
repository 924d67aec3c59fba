package kernels

import "encoding/binary"

// The dot functions return one output for one row of activations, in the order that MatMul documents. w is a weight
// row, a its activations: one packed per 32 columns.

func dotQ4_0(w []byte, a []packed) float32 {
	acc := float32(0)
	for i := range a {
		p, b := &a[i], (*[bytesQ4_0]byte)(w[i*bytesQ4_0:])
		isum := top(halves32(u64(b[2:]), u64(b[10:]), p, p.base))
		acc = FMA(float32(halfAt(b[:])*p.d), float32(isum), acc)
	}
	return acc
}

func dotQ4_1(w []byte, a []packed) float32 {
	acc := float32(0)
	for i := range a {
		p, b := &a[i], (*[bytesQ4_1]byte)(w[i*bytesQ4_1:])
		isum := top(halves32(u64(b[4:]), u64(b[12:]), p, p.base)) + 8*p.sum
		acc = FMA(float32(halfAt(b[:])*p.d), float32(isum), acc)
		acc = FMA(halfAt(b[2:]), p.dsum, acc)
	}
	return acc
}

// dot5 returns the sum of (w-16)·a over 32 five-bit weights with fifth bits high.
func dot5(x0, x1 uint64, high uint32, p *packed) int32 {
	h0, h1, h2, h3 := high&255, high>>8&255, high>>16&255, high>>24
	t0 := half - 16*(p.corr[0]+p.corr[1]) +
		(x0&nibbles|fifth[h0])*p.pairs[0] + (x0>>8&nibbles|fifth[h0>>1])*p.pairs[1] +
		(x1&nibbles|fifth[h1])*p.pairs[2] + (x1>>8&nibbles|fifth[h1>>1])*p.pairs[3]
	t1 := half - 16*(p.corr[2]+p.corr[3]) +
		(x0>>4&nibbles|fifth[h2])*p.pairs[4] + (x0>>12&nibbles|fifth[h2>>1])*p.pairs[5] +
		(x1>>4&nibbles|fifth[h3])*p.pairs[6] + (x1>>12&nibbles|fifth[h3>>1])*p.pairs[7]
	return top(t0) + top(t1)
}

func dotQ5_0(w []byte, a []packed) float32 {
	acc := float32(0)
	for i := range a {
		p, b := &a[i], (*[bytesQ5_0]byte)(w[i*bytesQ5_0:])
		isum := dot5(u64(b[6:]), u64(b[14:]), binary.LittleEndian.Uint32(b[2:]), p)
		acc = FMA(float32(halfAt(b[:])*p.d), float32(isum), acc)
	}
	return acc
}

func dotQ5_1(w []byte, a []packed) float32 {
	acc := float32(0)
	for i := range a {
		p, b := &a[i], (*[bytesQ5_1]byte)(w[i*bytesQ5_1:])
		isum := dot5(u64(b[8:]), u64(b[16:]), binary.LittleEndian.Uint32(b[4:]), p) + 16*p.sum
		acc = FMA(float32(halfAt(b[:])*p.d), float32(isum), acc)
		acc = FMA(halfAt(b[2:]), p.dsum, acc)
	}
	return acc
}

// dotQ8_0 splits a byte w = 16·(h-8) + (l-8) + 8, where h and l are the halves of w+128.
func dotQ8_0(w []byte, a []packed) float32 {
	const flip = 0x8080808080808080
	acc := float32(0)
	for i := range a {
		p, b := &a[i], (*[bytesQ8_0]byte)(w[i*bytesQ8_0:])
		x0, x1, x2, x3 := u64(b[2:])^flip, u64(b[10:])^flip, u64(b[18:])^flip, u64(b[26:])^flip
		lo := top(low32(x0, x1, x2, x3, p, p.base))
		hi := top(low32(x0>>4, x1>>4, x2>>4, x3>>4, p, p.base))
		acc = FMA(float32(halfAt(b[:])*p.d), float32(16*hi+lo+8*p.sum), acc)
	}
	return acc
}
