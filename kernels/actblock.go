package kernels

import "encoding/binary"

// Integer dot products, four at a time in one 64-bit multiplication.
//
// Read four small weights w0..w3 as the polynomial W = w0 + w1·X + w2·X² + w3·X³ with X = 2^16, and four activations in
// reverse, A = a3 + a2·X + a1·X² + a0·X³ (signed, so higher lanes borrow; everything is modulo 2^64). The coefficient of
// X³ in W·A is w0·a0 + w1·a1 + w2·a2 + w3·a3. Sums of such products add dot products in the top 16 bits, as long as each
// coefficient fits 16 signed bits: |w| <= 8 over 32 elements (8·127·32 = 32,512), |w| <= 16 over 16, |w| <= 32 over 8.
// Lower coefficients then are below 2^15, too, so adding 2^47 before shifting right by 48 undoes their borrow.
//
// Weights are stored unsigned. Centring them by b (8, 16 or 32) subtracts b·(1 + X + X² + X³)·A from the sum, which
// depends on the activations only and is kept: that is corr, and base for the most frequent use.
//
// All of this is exact integer arithmetic: it equals the plain loop over w·a, and tests compare it with that.

// actBlock is 32 quantised activations of one row, ready for such products. Group g of eight elements has elements
// 8g, 8g+2, 8g+4, 8g+6 in pairs[2g] and 8g+1, 8g+3, 8g+5, 8g+7 in pairs[2g+1], since masking every other byte
// of eight consecutive weight bytes yields just those.
type actBlock struct {
	pairs [8]uint64
	corr  [4]uint64 // per group: (1+X+X²+X³)·(pairs[2g] + pairs[2g+1])
	base  uint64    // 2^47 - 8·Σ corr
	sum   int32     // S: the sum of the 32
	d     float32   // scale of the block
	dsum  float32   // round(d·float(S))
}

const (
	ones    = 0x0001000100010001 // 1 + X + X² + X³
	nibbles = 0x000f000f000f000f
	half    = 1 << 47
)

// pack stores q, which must be within ±127.
func (p *actBlock) pack(q *[32]int64) {
	total := uint64(0)
	for g := 0; g < 4; g++ {
		e := q[8*g : 8*g+8 : 8*g+8]
		even := uint64(e[6] + e[4]<<16 + e[2]<<32 + e[0]<<48)
		odd := uint64(e[7] + e[5]<<16 + e[3]<<32 + e[1]<<48)
		p.pairs[2*g], p.pairs[2*g+1] = even, odd
		p.corr[g] = ones * (even + odd)
		total += p.corr[g]
	}
	p.base = half - 8*total
}

// top returns the signed coefficient of X³ of a sum that started with 2^47.
func top(t uint64) int32 { return int32(int64(t) >> 48) }

// eight returns the products of the low halves of eight weight bytes with group g.
func eight(x uint64, p *actBlock, g int) uint64 {
	return x&nibbles*p.pairs[2*g] + x>>8&nibbles*p.pairs[2*g+1]
}

// eight5 is eight with a fifth bit for each weight: bits 0, 2, 4 and 6 of a byte in even, 1, 3, 5 and 7 in odd, at bit 4
// of the lanes.
func eight5(x, even, odd uint64, p *actBlock, g int) uint64 {
	return (x&nibbles|even)*p.pairs[2*g] + (x>>8&nibbles|odd)*p.pairs[2*g+1]
}

// u64 reads eight bytes, little endian.
func u64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// fifth spreads the bits of a byte over lanes: bits 0, 2, 4 and 6 of i go to bit 4 of the four lanes of fifth[i], so
// fifth[i>>1] has bits 1, 3, 5 and 7.
var fifth = func() (t [256]uint64) {
	for i := range t {
		u := uint64(i)
		t[i] = u&1<<4 | u>>2&1<<20 | u>>4&1<<36 | u>>6&1<<52
	}
	return t
}()
