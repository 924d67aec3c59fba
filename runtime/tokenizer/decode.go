package tokenizer

// Piece returns the bytes that id stands for: the text of special tokens too,
// nothing for unused ones and ids out of range. A piece need not be whole UTF-8.
// The caller must not change it.
func (t *Tokenizer) Piece(id int32) []byte {
	if id < 0 || int(id) >= len(t.ends) {
		return nil
	}
	var start uint32
	if id > 0 {
		start = t.ends[id-1]
	}
	end := t.ends[id]
	return t.pieces[start:end:end]
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
	var b []byte
	strip := t.spacePrefix
	for _, id := range ids {
		piece := t.Piece(id)
		if strip && len(piece) > 0 && piece[0] == ' ' && !t.atomic(id) {
			piece = piece[1:]
		}
		strip = t.spacePrefix && t.atomic(id)
		if special || !t.hidden(id) {
			b = append(b, piece...)
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
