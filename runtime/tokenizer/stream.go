package tokenizer

import "unicode/utf8"

// Stream turns tokens into text one by one. It never emits part of a character:
// bytes that may still become one wait for the next token. Bytes that cannot
// become UTF-8 are emitted as U+FFFD, one each. Control and unknown tokens
// have no text. What comes out is the same however the bytes are spread over
// tokens. It goes on where other text ended, so a space in front of the first
// token is kept. Not safe for concurrent use.
type Stream struct {
	t    *Tokenizer
	rest []byte // fewer than utf8.UTFMax bytes between calls
}

// NewStream returns an empty stream.
func (t *Tokenizer) NewStream() *Stream { return &Stream{t: t} }

// Push adds a token and returns the text that is certain now, often "".
func (s *Stream) Push(id int32) string {
	if s.t.hidden(id) {
		return ""
	}
	s.rest = s.t.appendPiece(s.rest, id)
	return s.take(false)
}

// Flush ends the stream and returns what was held back, as U+FFFD per byte.
// The stream is empty afterwards and can be used again.
func (s *Stream) Flush() string { return s.take(true) }

// take removes whole characters from the front of rest, and with all everything.
func (s *Stream) take(all bool) string {
	var out []byte
	i := 0
	for i < len(s.rest) && (all || utf8.FullRune(s.rest[i:])) {
		r, n := utf8.DecodeRune(s.rest[i:])
		out = utf8.AppendRune(out, r)
		i += n
	}
	s.rest = append(s.rest[:0], s.rest[i:]...)
	return string(out)
}
