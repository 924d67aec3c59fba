package runtime

import (
	"fmt"
	"sync/atomic"

	"github.com/starling-swarm/starling/kernels"
)

// Packing says whether quantised matrices are copied, when a model is opened, into the layout that kernels read fastest
// (kernels.Matrix.UsePacked): sixteen rows side by side, one run of memory for each thread, nothing lost. It changes
// speed and memory, and no bit of any result. The copy is as large as the file's weights, but of IQ1, IQ2 and IQ3 types, whose
// grids are looked up for it, up to three times that.
type Packing uint8

const (
	// PackAuto packs where the copy leaves a third of the available memory, and kernels exist that use it.
	PackAuto Packing = iota
	// PackOff uses weights from the file's mapping alone: memory that the system can take back, and little else.
	PackOff
	// PackOn packs, and fails where the copy exceeds the available memory.
	PackOn
)

var packingNames = [...]string{PackAuto: "auto", PackOff: "off", PackOn: "on"}

// String returns "auto", "off" or "on".
func (p Packing) String() string {
	if int(p) < len(packingNames) {
		return packingNames[p]
	}
	return fmt.Sprintf("packing %d", uint8(p))
}

// ParsePacking is the inverse of String.
func ParsePacking(s string) (Packing, error) {
	for p, name := range packingNames {
		if name == s {
			return Packing(p), nil
		}
	}
	return 0, fmt.Errorf("packing %q is not known (there are: auto, off, on)", s)
}

// Memory is what the weights of an executor take. KV memory is beside it (FreeKVBytes), and buffers of a few rows per
// thread.
type Memory struct {
	Mapped int64 // bytes read from the mapped file as needed; the system can take them back
	Packed int64 // bytes of packed copies, held until Close
}

// packTask is how many bytes of a matrix are packed at a time: so many of the file's pages are in use twice.
const packTask = 4 << 20

// packAlign is where packed matrices start: at the beginning of a cache line.
const packAlign = 64

// pack makes packed copies as the option asks for. The copied pages of the file are given back as it goes, so that memory
// is never needed twice; tight says that even the system's cache has no room for both.
func (m *Model) pack(how Packing) error {
	if how > PackOn {
		return fmt.Errorf("runtime: %v is not known", how)
	}
	if how == PackOff || how == PackAuto && kernels.Active() == kernels.Generic {
		return nil
	}
	total := int64(0)
	for _, w := range m.load.weights {
		if m.multiplies(w) {
			total += packedBytes(w)
		}
	}
	available := availableMemory()
	switch {
	case total == 0 || how == PackAuto && total > available/3*2:
		return nil
	case total > available:
		return fmt.Errorf("runtime: packed weights take %d bytes, and %d are available: use --pack off", total, available)
	}
	memory, err := allocate(total)
	if err != nil {
		return fmt.Errorf("runtime: no memory for %d bytes of packed weights (use --pack off): %w", total, err)
	}
	m.packed = memory
	tight := total > available/2
	for _, w := range m.load.weights {
		if !m.multiplies(w) || w.PackedBytes() == 0 {
			continue
		}
		dst := memory[:w.PackedBytes()]
		memory = memory[packedBytes(w):]
		m.begin(m.pool.threads)
		if err := m.packWeight(w, dst, tight); err != nil {
			return err
		}
		w.UsePacked(dst)
	}
	return nil
}

// multiplies reports whether a weight is used for products, and not only for its rows.
func (m *Model) multiplies(w *weight) bool { return w != m.embed || w == m.output }

// packedBytes is what w takes of the packed memory.
func packedBytes(w *weight) int64 {
	return (int64(w.PackedBytes()) + packAlign - 1) / packAlign * packAlign
}

// packWeight packs w into dst on all threads, and fails with *WeightError if it is damaged.
func (m *Model) packWeight(w *weight, dst []byte, tight bool) error {
	groups := w.Groups()
	each := max(1, packTask*groups/max(len(w.Data), 1))
	var bad atomic.Bool
	m.pool.do((groups+each-1)/each, func(_, t int) {
		first, last := t*each, min((t+1)*each, groups)
		from, to := first*groupRows, min(last*groupRows, w.Rows)
		if !w.sound(from, to) {
			bad.Store(true)
			return
		}
		w.PackGroups(dst, first, last)
		rowBytes := len(w.Data) / w.Rows
		w.source.drop(w.Data[from*rowBytes:to*rowBytes], tight)
	})
	if bad.Load() {
		return &WeightError{Tensor: w.name, Err: w.CheckScales(0, w.Rows)}
	}
	return nil
}

// isPacked reports whether products with w use a packed copy.
func (m *Model) isPacked(w *weight) bool {
	return m.packed != nil && m.multiplies(w) && w.PackedBytes() > 0
}

// Memory implements Executor.
func (m *Model) Memory() Memory { return m.memory }
