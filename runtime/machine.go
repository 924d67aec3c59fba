package runtime

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/starling-swarm/starling/kernels"
)

// Machine is what this machine does without any model, as measured: it predicts what models of its weight types will do.
type Machine struct {
	Variant           string  `json:"variant"`              // of the kernels
	PrefillThreads    int     `json:"prefill_threads"`      // the fewest that do about as well as any number
	DecodeThreads     int     `json:"decode_threads"`       // likewise, with a single row
	DecodeBytesPerSec float64 `json:"decode_bytes_per_sec"` // of packed weights that no cache holds, with a single row
	Rates             []Rate  `json:"rates"`                // by weight type; types that there was no time for are missing
	MemoryFree        int64   `json:"memory_free_bytes"`    // as AvailableMemory says
	MemoryTotal       int64   `json:"memory_total_bytes"`   // 0: the system doesn't say
	Seconds           float64 `json:"measured_for_seconds"` // how long it took
}

// Rate is how fast weights of one type are multiplied, in FLOP/s (a multiply-add is two), by how many rows there are at once. The weights are
// in a cache, so that with a single row this is what unpacking allows.
type Rate struct {
	Type    string  `json:"type"`
	Rows1   float64 `json:"rows_1"`
	Rows32  float64 `json:"rows_32"`
	Rows512 float64 `json:"rows_512"`
}

const (
	machineFor    = 15 * time.Second      // after which no further figure is begun
	machineEach   = 50 * time.Millisecond // that each figure is tried for, and twice at least
	machineRest   = 10 * time.Millisecond // between two figures, for other programs
	machineEnough = 0.97                  // of the best rate, with fewer threads
	machineMemory = 96 << 20              // bytes of weights that no cache holds
)

// machineTypes are the weight types that are measured, the commonest first.
var machineTypes = []kernels.Type{kernels.Q4_K, kernels.Q6_K, kernels.Q8_0, kernels.Q5_K, kernels.F16, kernels.BF16, kernels.Q4_0, kernels.IQ4_XS, kernels.MXFP4, kernels.Q3_K,
	kernels.Q2_K, kernels.IQ4_NL, kernels.Q5_0, kernels.Q4_1, kernels.Q5_1, kernels.F32, kernels.IQ3_S, kernels.IQ3_XXS, kernels.IQ2_S, kernels.IQ2_XS, kernels.IQ2_XXS, kernels.IQ1_S, kernels.IQ1_M}

// ErrBusy is that other programs compute on this machine, so that figures would say nothing.
var ErrBusy = errors.New("other programs are computing")

// MeasureMachine measures with up to so many threads. It takes below 20 s, and memory for 96 MiB of weights. Where other programs compute (as far as
// the system tells) it is ErrBusy. ctx ends it between two
// figures.
func MeasureMachine(ctx context.Context, threads int) (*Machine, error) {
	return measureMachine(ctx, threads, machineFor, machineEach, newOthers())
}

func measureMachine(ctx context.Context, threads int, limit, each time.Duration, others *others) (*Machine, error) {
	b := bench{ctx: ctx, pool: newPool(max(threads, 1)), each: each, others: others}
	defer b.pool.close()
	b.scratch = make([]kernels.Scratch, b.pool.threads)
	for range 3 { // what others do in a second
		if err := b.free(); err != nil {
			return nil, err
		}
		if others != nil {
			time.Sleep(othersEvery)
		}
	}
	began := time.Now()
	m := &Machine{Variant: kernels.Active().String(), MemoryFree: AvailableMemory(), MemoryTotal: totalMemory()}
	square := func(t kernels.Type) (kernels.Matrix, error) { return emptyMatrix(t, 1024, 1024) }

	w, err := square(kernels.Q4_K)
	if err != nil {
		return nil, err
	}
	if m.PrefillThreads, _, err = b.fewest(&w, 32); err != nil {
		return nil, err
	}
	size := min(machineMemory, max(m.MemoryFree/4, 1<<20))
	if w, err = emptyMatrix(kernels.Q8_0, int(size/(4096*34/32))/64*64, 4096); err != nil {
		return nil, err
	}
	var passes float64
	if m.DecodeThreads, passes, err = b.fewest(&w, 1); err != nil {
		return nil, err
	}
	m.DecodeBytesPerSec = passes * float64(w.PackedBytes())
	for _, t := range machineTypes {
		if time.Since(began) > limit {
			break
		}
		if w, err = square(t); err != nil {
			return nil, err
		}
		r := Rate{Type: t.String()}
		for _, f := range []struct {
			rows, threads int
			rate          *float64
		}{{1, m.DecodeThreads, &r.Rows1}, {32, m.PrefillThreads, &r.Rows32}, {512, m.PrefillThreads, &r.Rows512}} {
			passes, err := b.passes(&w, f.rows, f.threads)
			if err != nil {
				return nil, err
			}
			*f.rate = passes * 2 * float64(f.rows) * float64(w.Rows) * float64(w.Cols)
		}
		m.Rates = append(m.Rates, r)
	}
	m.Seconds = time.Since(began).Seconds()
	return m, nil
}

// Variant names the kernels that compute.
func Variant() string { return kernels.Active().String() }

// emptyMatrix makes a matrix of zeros, packed where its type is. How long products take doesn't depend on values.
func emptyMatrix(t kernels.Type, rows, cols int) (kernels.Matrix, error) {
	elems, size := t.Block()
	data := make([]byte, rows*cols/elems*size)
	m, err := kernels.NewMatrix(t, rows, cols, data)
	if err != nil {
		return m, err
	}
	if t.Form() != kernels.Dense {
		data = make([]byte, m.PackedBytes())
		m.UsePacked(data)
	}
	for i := 0; i < len(data); i += 4096 {
		data[i] = 0 // its own page, not the system's page of zeros
	}
	return m, nil
}

// bench times products.
type bench struct {
	ctx     context.Context
	pool    *pool
	scratch []kernels.Scratch
	each    time.Duration
	others  *others
}

// free returns an error if somebody else needs the processors.
func (b *bench) free() error {
	if b.others != nil && b.others.limit(b.others.processors, time.Now()) < b.others.processors {
		return ErrBusy
	}
	return b.ctx.Err()
}

// fewest returns the smallest number of threads that does about as well as any with so many rows, and how many products a second it makes.
func (b *bench) fewest(w *kernels.Matrix, rows int) (threads int, passes float64, err error) {
	var counts []int
	for n := b.pool.threads; n > 0; n /= 2 {
		counts = append(counts, n)
	}
	rates := make([]float64, len(counts))
	for range 3 { // in turn: what disturbs one of them hardly disturbs it each time
		for i, n := range counts {
			r, err := b.passes(w, rows, n)
			if err != nil {
				return 0, 0, err
			}
			rates[i] = max(rates[i], r)
		}
	}
	best := slices.Max(rates)
	for i, r := range rates {
		if r >= best*machineEnough {
			threads, passes = counts[i], r
		}
	}
	return threads, passes, nil
}

// passes returns how many products of so many rows a second some threads make: the best of a few, since other programs only ever make one longer.
func (b *bench) passes(w *kernels.Matrix, rows, threads int) (float64, error) {
	select {
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	case <-time.After(machineRest):
	}
	if err := b.free(); err != nil {
		return 0, err
	}
	var a kernels.Activations
	x, dst := make([]float32, rows*w.Cols), make([]float32, rows*w.Rows)
	for i := range x {
		x[i] = float32(i%7) - 3
	}
	if err := a.Prepare(x, rows, w.Cols, w.Type.Form()); err != nil {
		return 0, err
	}
	const outputs = 64 // of a task
	b.pool.begin(threads)
	best := time.Duration(1<<63 - 1)
	for began, n := time.Now(), 0; n < 2 || time.Since(began) < b.each; n++ {
		start := time.Now()
		b.pool.do(w.Rows/outputs, func(worker, task int) {
			kernels.MatMul(dst, w.Rows, w, &a, task*outputs, (task+1)*outputs, &b.scratch[worker])
		})
		best = min(best, time.Since(start))
	}
	return 1 / max(best, time.Nanosecond).Seconds(), nil
}
