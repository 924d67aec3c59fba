package kernels

// The dot functions of the K types are like those of the legacy types; d has the activations' scale per 256 columns.

func dotQ4_K(w []byte, a []packed, d []float32) float32 {
	acc := float32(0)
	for i, da := range d {
		b := (*[bytesQ4_K]byte)(w[i*bytesQ4_K:])
		p := (*[8]packed)(a[8*i:])
		sc, mn := unpackScales(b[4:16])
		isum, imin := int32(0), int32(0)
		for s := 0; s < 8; s += 2 {
			qs := (*[32]byte)(b[16+16*s:])
			x0, x1, x2, x3 := u64(qs[:]), u64(qs[8:]), u64(qs[16:]), u64(qs[24:])
			p0, p1 := &p[s], &p[s+1]
			sc0, sc1 := int32(sc&63), int32(sc>>8&63)
			isum += sc0 * (top(low32(x0, x1, x2, x3, p0, p0.base)) + 8*p0.sum)
			isum += sc1 * (top(low32(x0>>4, x1>>4, x2>>4, x3>>4, p1, p1.base)) + 8*p1.sum)
			imin += int32(mn&63)*p0.sum + int32(mn>>8&63)*p1.sum
			sc, mn = sc>>16, mn>>16
		}
		acc = FMA(float32(halfAt(b[:])*da), float32(isum), acc)
		acc = FMA(-float32(halfAt(b[2:])*da), float32(imin), acc)
	}
	return acc
}

func dotQ5_K(w []byte, a []packed, d []float32) float32 {
	acc := float32(0)
	for i, da := range d {
		b := (*[bytesQ5_K]byte)(w[i*bytesQ5_K:])
		sc, mn := unpackScales(b[4:16])
		h0, h1, h2, h3 := u64(b[16:]), u64(b[24:]), u64(b[32:]), u64(b[40:])
		isum, imin := int32(0), int32(0)
		for s := 0; s < 8; s++ {
			qs := (*[32]byte)(b[48+s/2*32:])
			shift := uint(s & 1 * 4)
			x0, x1, x2, x3 := u64(qs[:])>>shift, u64(qs[8:])>>shift, u64(qs[16:])>>shift, u64(qs[24:])>>shift
			p := &a[8*i+s]
			t0 := half - 16*(p.corr[0]+p.corr[1]) +
				(x0&nibbles|h0&ones<<4)*p.pairs[0] + (x0>>8&nibbles|h0>>8&ones<<4)*p.pairs[1] +
				(x1&nibbles|h1&ones<<4)*p.pairs[2] + (x1>>8&nibbles|h1>>8&ones<<4)*p.pairs[3]
			t1 := half - 16*(p.corr[2]+p.corr[3]) +
				(x2&nibbles|h2&ones<<4)*p.pairs[4] + (x2>>8&nibbles|h2>>8&ones<<4)*p.pairs[5] +
				(x3&nibbles|h3&ones<<4)*p.pairs[6] + (x3>>8&nibbles|h3>>8&ones<<4)*p.pairs[7]
			isum += int32(sc&63) * (top(t0) + top(t1) + 16*p.sum)
			imin += int32(mn&63) * p.sum
			sc, mn = sc>>8, mn>>8
			h0, h1, h2, h3 = h0>>1, h1>>1, h2>>1, h3>>1
		}
		acc = FMA(float32(halfAt(b[:])*da), float32(isum), acc)
		acc = FMA(-float32(halfAt(b[2:])*da), float32(imin), acc)
	}
	return acc
}

func dotQ6_K(w []byte, a []packed, d []float32) float32 {
	acc := float32(0)
	for i, da := range d {
		b := (*[bytesQ6_K]byte)(w[i*bytesQ6_K:])
		isum := int32(0)
		for s := 0; s < 8; s++ { // 32 elements with two scales
			part := s & 3
			ql := (*[32]byte)(b[64*(s/4)+32*(part&1):])
			qh := (*[32]byte)(b[128+32*(s/4):])
			p := &a[8*i+s]
			var t [4]int32
			for g := 0; g < 4; g++ {
				t[g] = dot6(u64(ql[8*g:])>>(part/2*4), u64(qh[8*g:])>>(2*part), p, g)
			}
			isum += int32(int8(b[192+2*s]))*(t[0]+t[1]) + int32(int8(b[193+2*s]))*(t[2]+t[3])
		}
		acc = FMA(float32(halfAt(b[208:])*da), float32(isum), acc)
	}
	return acc
}

// dot6 returns the sum of (w-32)·a over group g of p, where bytes of x have the low four bits of eight weights in their
// low half and those of h the high two bits in their bits 0 and 1.
func dot6(x, h uint64, p *packed, g int) int32 {
	const two = 3 * ones
	return top(half - 32*p.corr[g] +
		(x&nibbles|h&two<<4)*p.pairs[2*g] + (x>>8&nibbles|h>>8&two<<4)*p.pairs[2*g+1])
}
