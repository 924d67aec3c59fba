package runtime

// EmbedRow is what layer 0 gets for a token.
func (m *Model) EmbedRow(dst []float32, token int32) { m.embed.Row(dst, int(token)) }
