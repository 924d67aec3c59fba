package tokenizer

// Piece returns the bytes that id stands for: the text of special tokens too,
// nothing for unused ones and ids out of range. A piece need not be whole UTF-8.
func (t *Tokenizer) Piece(id int32) []byte { return t.appendPiece(nil, id) }

// appendPiece appends id's piece: normal tokens are decoded from the byte
// alphabet, or have spaces for U+2581, byte tokens are the byte they name, unused
// ones are empty, and all others are their text.
func (t *Tokenizer) appendPiece(dst []byte, id int32) []byte {
	if id < 0 || int(id) >= len(t.tokens) {
		return dst
	}
	text := t.tokens[id]
	switch t.types[id] {
	case typeNormal, typeUndefined:
		if t.spaced {
			return appendSpaced(dst, text)
		}
		return appendDecoded(dst, text)
	case typeByte:
		b, _ := parseByteToken(text) // New has checked it
		return append(dst, b)
	case typeUnused:
		return dst
	}
	return append(dst, text...)
}

// Decode returns the text of ids: the inverse of [Tokenizer.Encode] without
// AddSpecial, but for U+2581, which SentencePiece cannot tell from a space, the
// white space that Phi-3's special tokens swallow, and bytes that the vocabulary
// has no tokens for. With special, control and unknown tokens appear as their text,
// otherwise they are left out; ids out of range always are. The space that a
// vocabulary with AddSpacePrefix has in front of every text is not part of it.
// The result is the pieces' bytes as they are, so it is valid UTF-8 only if they
// are together.
func (t *Tokenizer) Decode(ids []int32, special bool) string {
	var b, piece []byte
	strip := t.spacePrefix
	for _, id := range ids {
		piece = t.appendPiece(piece[:0], id)
		text := piece
		if strip && len(text) > 0 && text[0] == ' ' && !t.atomic(id) {
			text = text[1:]
		}
		strip = t.spacePrefix && t.atomic(id)
		if special || !t.hidden(id) {
			b = append(b, text...)
		}
	}
	return string(b)
}

// atomic reports whether id is a token that is looked for in texts as a whole.
func (t *Tokenizer) atomic(id int32) bool {
	return id >= 0 && int(id) < len(t.types) && (t.types[id] == typeControl || t.types[id] == typeUserDefined)
}

// hidden reports whether id is a token that carries no text for the reader.
func (t *Tokenizer) hidden(id int32) bool {
	return id >= 0 && int(id) < len(t.types) && (t.types[id] == typeControl || t.types[id] == typeUnknown)
}
