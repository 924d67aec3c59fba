package runtime

// uniform returns the draw of a key as a multiple of 2^−53 in [0, 1).
func uniform(seed uint64, choice uint32, position int, draw uint32) float64 {
	r := philox([4]uint32{uint32(position), uint32(uint64(position) >> 32), choice, draw}, [2]uint32{uint32(seed), uint32(seed >> 32)})
	return float64((uint64(r[1])<<32|uint64(r[0]))>>11) * 0x1p-53
}

// philox is Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011): a keyed bijection
// of counters whose outputs pass as random. Integers only.
func philox(ctr [4]uint32, key [2]uint32) [4]uint32 {
	for range 10 {
		p0, p1 := 0xD2511F53*uint64(ctr[0]), 0xCD9E8D57*uint64(ctr[2])
		ctr = [4]uint32{uint32(p1>>32) ^ ctr[1] ^ key[0], uint32(p1), uint32(p0>>32) ^ ctr[3] ^ key[1], uint32(p0)}
		key[0] += 0x9E3779B9
		key[1] += 0xBB67AE85
	}
	return ctr
}
