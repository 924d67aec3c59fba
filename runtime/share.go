package runtime

// leastKVShare is what the KV of sessions has of a bound on memory where weights from the file nearly fill it: they can be read again.
const leastKVShare = 0.1

// available is the memory that weights can still have: of the machine's, within the bound that Open was given.
func (m *Model) available() int64 {
	free := AvailableMemory()
	if m.most == 0 {
		return free
	}
	left := m.most
	for _, p := range m.packed {
		left -= int64(len(p))
	}
	return max(min(free, left), 0)
}

// kvShare is the KV memory of a model whose weights are where they are used from, and whose options don't say.
func (m *Model) kvShare() int64 {
	available := m.available()
	switch {
	case m.stream.larger():
		return int64(streamKV * float64(available))
	case m.most == 0:
		return available / 2
	}
	return max(min(available, m.most-m.memory.Packed-m.memory.Mapped)/2, int64(leastKVShare*float64(available)))
}

// memoryToGrow is what is available for weights beside what sequences may reserve.
func (m *Model) memoryToGrow() int64 {
	available := AvailableMemory() - m.budget.free()
	if m.most > 0 {
		weights := m.Memory()
		available = min(available, m.most-weights.Packed-weights.Mapped-m.budget.limit)
	}
	return available
}
