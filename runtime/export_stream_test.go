package runtime

// ForceStream treats m as if so much memory were available, and returns how many of its units stay resident and how many
// there are.
func (m *Model) ForceStream(available int64) (resident, units int) {
	m.stream.close()
	m.stream = newStream(m.layers.Len(), m.layers.First, m.output, m.load.weights, available)
	if m.stream == nil {
		return 0, 0
	}
	return m.stream.resident, len(m.stream.units)
}
