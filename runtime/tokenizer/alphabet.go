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
