package tokenizer

import "unicode/utf8"

// GPT-2's byte alphabet: byte-level vocabularies write each byte as one printable
// character. Bytes that are printable in Latin-1 (0x21–0x7E, 0xA1–0xAC,
// 0xAE–0xFF) stand for themselves; the other 68 are U+0100, U+0101, … in order
// (OpenAI gpt-2, src/encoder.py, bytes_to_unicode).
const alphabetExtra = 0x100

// byteOf maps a rune of the alphabet below alphabetExtra+68 to its byte, and
// others to -1.
var byteOf = func() (m [alphabetExtra + 68]int16) {
	for i := range m {
		m[i] = -1
	}
	next := alphabetExtra
	for b := range 256 {
		if b >= 0x21 && b <= 0x7E || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			m[b] = int16(b)
		} else {
			m[next] = int16(b)
			next++
		}
	}
	return m
}()

// runeOf is byteOf's inverse.
var runeOf = func() (m [256]rune) {
	for r, b := range byteOf {
		if b >= 0 {
			m[b] = rune(r)
		}
	}
	return m
}()

// byteOfText returns the byte that s, one character of the alphabet, stands for,
// or -1.
func byteOfText(s string) int {
	switch {
	case len(s) == 1 && s[0] < utf8.RuneSelf:
		return int(byteOf[s[0]])
	case len(s) == 2:
		if r, w := utf8.DecodeRuneInString(s); w == 2 && int(r) < len(byteOf) {
			return int(byteOf[r])
		}
	}
	return -1
}

// In the UTF-8 of the alphabet, two bytes may follow each other where follows of
// the first and kind of the second have a bit in common. Bytes that begin a
// character have bit 0 of kind, those that end one have the bits of their range.
var kind, follows = func() (kind, follows [256]uint8) {
	ranges := []struct{ from, to byte }{{0x80, 0x83}, {0x84, 0xA0}, {0xA1, 0xAC}, {0xAD, 0xAD}, {0xAE, 0xBF}}
	for i, r := range ranges {
		for c := int(r.from); c <= int(r.to); c++ {
			kind[c], follows[c] = 1<<(i+1), 1
		}
	}
	for r, b := range byteOf {
		if b < 0 {
			continue
		}
		s := string(rune(r))
		kind[s[0]] = 1
		if len(s) == 1 {
			follows[s[0]] = 1
		} else {
			follows[s[0]] |= kind[s[1]]
		}
	}
	return kind, follows
}()

// inAlphabet reports whether s is written in the alphabet.
func inAlphabet(s string) bool {
	next := uint8(1)
	for i := range len(s) {
		if next&kind[s[i]] == 0 {
			return false
		}
		next = follows[s[i]]
	}
	return next&1 != 0
}

// appendDecoded appends the bytes that s, written in the alphabet, stands for.
// Characters outside the alphabet stand for themselves.
func appendDecoded(dst []byte, s string) []byte {
	for i := 0; i < len(s); {
		r, w := utf8.DecodeRuneInString(s[i:])
		if int(r) < len(byteOf) && byteOf[r] >= 0 {
			dst = append(dst, byte(byteOf[r]))
		} else {
			dst = append(dst, s[i:i+w]...)
		}
		i += w
	}
	return dst
}
