package kernels

// These are the terms of K types, like those of the legacy types. A block of 256 has eight actBlocks, whose d is the same.

func termsQ2_K(t *terms, w []byte, a []actBlock) int {
	for i := range len(a) / 8 {
		b := (*[bytesQ2_K]byte)(w[i*bytesQ2_K:])
		p8 := (*[8]actBlock)(a[8*i:])
		isum, imin := int32(0), int32(0)
		for s, sc := range b[:16] {
			p, g, shift := &p8[s/2], s%2*2, uint(s/2%4*2)
			qs := b[16+s/8*32+8*g:]
			dot := two(u64(qs)>>shift, 0, p, g) + two(u64(qs[8:])>>shift, 0, p, g+1)
			isum += int32(sc&15) * top(half+dot)
			imin += int32(sc>>4) * top(half+p.corr[g]+p.corr[g+1])
		}
		t[2*i] = term(float32(halfAt(b[80:])*p8[0].d), float32(isum))
		t[2*i+1] = term(-float32(halfAt(b[82:])*p8[0].d), float32(imin))
	}
	return 2 * len(a) / 8
}

func termsQ3_K(t *terms, w []byte, a []actBlock) int {
	for i := range len(a) / 8 {
		b := (*[bytesQ3_K]byte)(w[i*bytesQ3_K:])
		p8 := (*[8]actBlock)(a[8*i:])
		isum := int32(0)
		for s, sc := range unpackScales3(b[96:]) {
			p, g, shift, bit := &p8[s/2], s%2*2, uint(s/2%4*2), uint(s/2)
			qh, qs := b[8*g:], b[32+s/8*32+8*g:]
			dot := two(u64(qs)>>shift, u64(qh)>>bit, p, g) + two(u64(qs[8:])>>shift, u64(qh[8:])>>bit, p, g+1)
			isum += int32(sc) * top(half+dot-4*(p.corr[g]+p.corr[g+1]))
		}
		t[i] = term(float32(halfAt(b[108:])*p8[0].d), float32(isum))
	}
	return len(a) / 8
}

// two returns the products of eight weights with group g of p: two bits in the lowest of each byte of x, and a third in the
// lowest bit of each byte of h.
func two(x, h uint64, p *actBlock, g int) uint64 {
	return (x&(3*ones)|h&ones<<2)*p.pairs[2*g] + (x>>8&(3*ones)|h>>8&ones<<2)*p.pairs[2*g+1]
}

func termsQ4_K(t *terms, w []byte, a []actBlock) int {
	for i := range len(a) / 8 {
		b := (*[bytesQ4_K]byte)(w[i*bytesQ4_K:])
		p8 := (*[8]actBlock)(a[8*i:])
		sc, mn := unpackScales(b[4:16])
		isum, imin := int32(0), int32(0)
		for s := 0; s < 8; s += 2 {
			qs := (*[32]byte)(b[16+16*s:])
			x0, x1, x2, x3 := u64(qs[:]), u64(qs[8:]), u64(qs[16:]), u64(qs[24:])
			p0, p1 := &p8[s], &p8[s+1]
			lo := top(p0.base+eight(x0, p0, 0)+eight(x1, p0, 1)+eight(x2, p0, 2)+eight(x3, p0, 3)) + 8*p0.sum
			hi := top(p1.base+eight(x0>>4, p1, 0)+eight(x1>>4, p1, 1)+eight(x2>>4, p1, 2)+eight(x3>>4, p1, 3)) + 8*p1.sum
			isum += int32(sc&63)*lo + int32(sc>>8&63)*hi
			imin += int32(mn&63)*p0.sum + int32(mn>>8&63)*p1.sum
			sc, mn = sc>>16, mn>>16
		}
		t[2*i] = term(float32(halfAt(b[:])*p8[0].d), float32(isum))
		t[2*i+1] = term(-float32(halfAt(b[2:])*p8[0].d), float32(imin))
	}
	return 2 * len(a) / 8
}

func termsQ5_K(t *terms, w []byte, a []actBlock) int {
	for i := range len(a) / 8 {
		b := (*[bytesQ5_K]byte)(w[i*bytesQ5_K:])
		p8 := (*[8]actBlock)(a[8*i:])
		sc, mn := unpackScales(b[4:16])
		h0, h1, h2, h3 := u64(b[16:]), u64(b[24:]), u64(b[32:]), u64(b[40:])
		isum, imin := int32(0), int32(0)
		for s := 0; s < 8; s++ {
			qs := (*[32]byte)(b[48+s/2*32:])
			shift := uint(s & 1 * 4)
			x0, x1, x2, x3 := u64(qs[:])>>shift, u64(qs[8:])>>shift, u64(qs[16:])>>shift, u64(qs[24:])>>shift
			p := &p8[s]
			t0 := half - 16*(p.corr[0]+p.corr[1]) + eight5(x0, h0&ones<<4, h0>>8&ones<<4, p, 0) + eight5(x1, h1&ones<<4, h1>>8&ones<<4, p, 1)
			t1 := half - 16*(p.corr[2]+p.corr[3]) + eight5(x2, h2&ones<<4, h2>>8&ones<<4, p, 2) + eight5(x3, h3&ones<<4, h3>>8&ones<<4, p, 3)
			isum += int32(sc&63) * (top(t0) + top(t1) + 16*p.sum)
			imin += int32(mn&63) * p.sum
			sc, mn = sc>>8, mn>>8
			h0, h1, h2, h3 = h0>>1, h1>>1, h2>>1, h3>>1
		}
		t[2*i] = term(float32(halfAt(b[:])*p8[0].d), float32(isum))
		t[2*i+1] = term(-float32(halfAt(b[2:])*p8[0].d), float32(imin))
	}
	return 2 * len(a) / 8
}

func termsQ6_K(t *terms, w []byte, a []actBlock) int {
	for i := range len(a) / 8 {
		b := (*[bytesQ6_K]byte)(w[i*bytesQ6_K:])
		p8 := (*[8]actBlock)(a[8*i:])
		isum := int32(0)
		for s := 0; s < 8; s++ { // 32 elements with two scales
			part := s & 3
			ql := (*[32]byte)(b[64*(s/4)+32*(part&1):])
			qh := (*[32]byte)(b[128+32*(s/4):])
			p := &p8[s]
			lo, hi := uint(part/2*4), uint(2*part)
			t0 := dot6(u64(ql[:])>>lo, u64(qh[:])>>hi, p, 0) + dot6(u64(ql[8:])>>lo, u64(qh[8:])>>hi, p, 1)
			t1 := dot6(u64(ql[16:])>>lo, u64(qh[16:])>>hi, p, 2) + dot6(u64(ql[24:])>>lo, u64(qh[24:])>>hi, p, 3)
			isum += int32(int8(b[192+2*s]))*t0 + int32(int8(b[193+2*s]))*t1
		}
		t[i] = term(float32(halfAt(b[208:])*p8[0].d), float32(isum))
	}
	return len(a) / 8
}

// dot6 returns the sum of (w-32)·a over group g of p, where bytes of x have the low four bits of eight weights in their
// low half and those of h the high two bits in their bits 0 and 1.
func dot6(x, h uint64, p *actBlock, g int) int32 {
	const two = 3 * ones
	return top(half - 32*p.corr[g] + eight5(x, h&two<<4, h>>8&two<<4, p, g))
}
