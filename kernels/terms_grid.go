package kernels

// termsGrid returns the terms of a grid type, like those of K types.
func termsGrid(typ Type) termsOf {
	of, size := &gridTypes[typ], typ.geometry().bytes
	return func(t *terms, w []byte, a []actBlock) int {
		var g gridBlock
		for i := range len(a) / 8 {
			of.expand(&g, w[i*size:])
			isum := int32(0)
			for s := range 8 {
				p := &a[8*i+s]
				var x [4]uint64 // value+128
				for j := range 16 {
					c := g.codes[2*s+j/8] >> (j % 8 * 8)
					x[j/8] |= uint64(uint8(of.values[c&15])^0x80) << (j % 8 * 8)
					x[2+j/8] |= uint64(uint8(of.values[c>>4&15])^0x80) << (j % 8 * 8)
				}
				isum += int32(g.scales[2*s])*dot16(x[0], x[1], p, 0) + int32(g.scales[2*s+1])*dot16(x[2], x[3], p, 2)
			}
			t[i] = term(float32(g.d*a[8*i].d), float32(isum))
		}
		return len(a) / 8
	}
}

// dot16 returns the sum of w·a over groups n and n+1 of p and 16 weights of eight bits, stored as w+128. As dot8 it splits
// w = 16·(h-8) + (l-8) + 8; the sum of the activations is the coefficient of X³ in corr.
func dot16(x0, x1 uint64, p *actBlock, n int) int32 {
	corr := p.corr[n] + p.corr[n+1]
	lo := top(half - 8*corr + eight(x0, p, n) + eight(x1, p, n+1))
	hi := top(half - 8*corr + eight(x0>>4, p, n) + eight(x1>>4, p, n+1))
	return 16*hi + lo + 8*top(half+corr)
}
