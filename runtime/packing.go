package runtime

import (
	"errors"
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

// packAll makes packed copies of the weights that Open has loaded, as its option asks; so many bytes of KV memory were asked for. The copied pages of the file are given
// back as it goes, so that memory is never needed twice.
func (m *Model) packAll(kv int64) error {
	if m.pack > PackOn {
		return fmt.Errorf("runtime: %v is not known", m.pack)
	}
	available := m.available()
	if m.most > 0 {
		if available = min(available, m.most-max(kv, 0)); available <= 0 {
			return fmt.Errorf("runtime: %d bytes of KV memory are asked for, and %d bytes are for the model in all: give it more (--max-memory), or KV less (--kv-memory)", kv, m.most)
		}
	}
	weights, total := m.toPack(&m.loaded, m.load.weights, available)
	switch {
	case total == 0:
		return nil
	case total > available:
		return fmt.Errorf("runtime: packed weights take %d bytes, and %d are available: use --pack off", total, available)
	}
	return m.packInto(weights, total, available, func(w *weight, dst []byte, tight bool) error {
		m.begin(m.pool.threads)
		return m.packGroups(w, dst, 0, w.Groups(), tight)
	})
}

// toPack returns those of some weights, of a range, that are to be packed where so much memory is available, and what that takes.
func (m *Model) toPack(of *loaded, weights []*weight, available int64) (list []*weight, total int64) {
	if m.pack == PackOff || m.pack == PackAuto && kernels.Active() == kernels.Generic {
		return nil, 0
	}
	for _, w := range weights {
		if of.multiplies(w) && w.PackedBytes() > 0 {
			list, total = append(list, w), total+packedBytes(w)
		}
	}
	if m.pack == PackAuto && total > available/3*2 {
		return nil, 0
	}
	return list, total
}

// packInto allocates memory for weights and has each packed into its part. tight says that even the system's cache has no room for
// both a weight and its copy. After an error none of them is.
func (m *Model) packInto(weights []*weight, total, available int64, pack func(w *weight, dst []byte, tight bool) error) error {
	memory, err := allocate(total)
	if err != nil {
		return fmt.Errorf("runtime: no memory for %d bytes of packed weights (use --pack off): %w", total, err)
	}
	rest := memory
	for _, w := range weights {
		dst := rest[:w.PackedBytes()]
		rest = rest[packedBytes(w):]
		if err := pack(w, dst, total > available/2); err != nil {
			for _, w := range weights {
				w.UsePacked(nil)
				w.packed = false
			}
			return errors.Join(err, free(memory))
		}
		w.UsePacked(dst)
		w.packed = true
	}
	m.packed = append(m.packed, memory)
	return nil
}

// multiplies reports whether a weight is used for products, and not only for its rows.
func (w *loaded) multiplies(x *weight) bool { return x != w.embed || x == w.output }

// packedBytes is what w takes of the packed memory.
func packedBytes(w *weight) int64 {
	return (int64(w.PackedBytes()) + packAlign - 1) / packAlign * packAlign
}

// packGroups packs groups [first, last) of w into dst, which has room for all, on all threads of the pool, and fails with
// *WeightError if they are damaged.
func (m *Model) packGroups(w *weight, dst []byte, first, last int, tight bool) error {
	each := packedAtOnce(w)
	var bad atomic.Bool
	m.pool.do((last-first+each-1)/each, func(_, t int) {
		begin := first + t*each
		end := min(begin+each, last)
		from, to := begin*groupRows, min(end*groupRows, w.Rows)
		if !w.sound(from, to) {
			bad.Store(true)
			return
		}
		w.PackGroups(dst, begin, end)
		w.source.drop(w.rows(from, to), tight)
	})
	if bad.Load() {
		return &WeightError{Tensor: w.name, Err: w.CheckScales(0, w.Rows)}
	}
	return nil
}

// packedAtOnce is how many groups of w are packed at a time.
func packedAtOnce(w *weight) int { return max(1, packTask*w.Groups()/max(len(w.Data), 1)) }

// Memory implements Executor.
func (m *Model) Memory() Memory {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.memory
}
