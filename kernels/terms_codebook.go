package kernels

// These are the terms of the 4-bit codebook types, like those of the legacy types.

func termsIQ4_NL(t *terms, w []byte, a []actBlock) int {
	for i := range a {
		p, b := &a[i], (*[bytesIQ4_NL]byte)(w[i*bytesIQ4_NL:])
		t[i] = term(float32(halfAt(b[:])*p.d), float32(dotCodes(&codesIQ4, b[2:], p)))
	}
	return len(a)
}

func termsIQ4_XS(t *terms, w []byte, a []actBlock) int {
	for i := range len(a) / 8 {
		b := (*[bytesIQ4_XS]byte)(w[i*bytesIQ4_XS:])
		p8 := (*[8]actBlock)(a[8*i:])
		isum := int32(0)
		for s, sc := range unpackScalesIQ4(b[2:]) {
			isum += int32(sc) * dotCodes(&codesIQ4, b[8+16*s:], &p8[s])
		}
		t[i] = term(float32(halfAt(b[:])*p8[0].d), float32(isum))
	}
	return len(a) / 8
}

func termsMXFP4(t *terms, w []byte, a []actBlock) int {
	for i := range a {
		p, b := &a[i], (*[bytesMXFP4]byte)(w[i*bytesMXFP4:])
		t[i] = term(float32(exponentMX(b[0])*p.d), float32(dotCodes(&codesMX, b[1:], p)))
	}
	return len(a)
}

// dotCodes returns the dot product of p and 32 weights, what codes has for the halves of 16 bytes.
func dotCodes(codes *[16]int8, qs []byte, p *actBlock) int32 {
	var x [4]uint64 // w+128
	for j, q := range qs[:16] {
		x[j/8] |= uint64(uint8(codes[q&15])^0x80) << (j % 8 * 8)
		x[2+j/8] |= uint64(uint8(codes[q>>4])^0x80) << (j % 8 * 8)
	}
	return dot8(x[0], x[1], x[2], x[3], p)
}
