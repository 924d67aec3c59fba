package runtime

// EmbedRow is what layer 0 gets for a token.
func (m *Model) EmbedRow(dst []float32, token int32) { m.embedRow(dst, int(token)) }

// Philox is philox.
var Philox = philox

// Order returns the ids of order.
func Order(logits []float32, k int) (ids []int32) {
	for _, c := range order(logits, k) {
		ids = append(ids, c.id)
	}
	return ids
}
