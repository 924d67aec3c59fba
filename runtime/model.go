package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"sync"
	"sync/atomic"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/gguf"
	"github.com/starling-swarm/starling/runtime/tokenizer"
)

// Engine is the Go engine as a Backend.
type Engine struct{}

// Open implements Backend.
func (Engine) Open(o Options) (Executor, error) {
	m, err := Open(o)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Model is a loaded layer range: the Go engine's Executor. Weights are used from the file's mapping.
type Model struct {
	// Constant after Open.
	cfg     Config
	kv      KVType
	tok     *tokenizer.Tokenizer
	budget  kvBudget
	pool    *pool
	threads struct{ prefill, decode int } // how many of the pool's compute
	pack    Packing
	most    int64         // Options.MaxMemory
	others  *others       // owned like buf; nil where the model does not yield
	running chan struct{} // capacity 1, holds an element while a Run (or Close) has the fields below

	// Owned by whoever holds running.
	buf    buffers
	pass   pass
	ops    operations
	closed atomic.Bool // written by the holder, read by anyone

	mu sync.RWMutex // who writes loaded holds running, too: to read it, either will do
	loaded

	growing chan struct{} // capacity 1, holds an element while a Grow (or Open, or Close) has the fields below
	load    loader
	packed  [][]byte // packed copies of weights; from allocate
}

// loaded is what a layer range needs of a model's weights.
type loaded struct {
	layers     Range
	rope       ropes
	embed      *weight   // [Vocab][Width], when layer 0 is here
	layer      []*layer  // [layers.Len()]
	outputNorm []float32 // [Width], when the head is here
	output     *weight   // [Vocab][Width], when the head is here; embed itself where the two are tied
	stream     *stream   // weights used from the file; nil where there is nothing to read ahead
	memory     Memory    // what place made of it
}

var _ Executor = (*Model)(nil)

// Open loads a layer range. It checks the whole header and maps the file(s). Tensors outside the range are not touched, so
// the file may be sparse there. NaN and infinite scales are found before the first result that they would have changed:
// here where weights are packed, in Run otherwise (*WeightError).
func Open(o Options) (*Model, error) {
	set, err := gguf.OpenSet(o.Path)
	if err != nil {
		return nil, err
	}
	cfg, err := InspectSet(set)
	if err != nil {
		return nil, err
	}
	layers := o.Layers
	if layers == (Range{}) {
		layers = Range{0, cfg.Layers}
	}
	if !(Range{0, cfg.Layers}).Covers(layers) || layers.Len() == 0 && layers.Last != cfg.Layers {
		return nil, fmt.Errorf("runtime: layers %d to %d asked for, %s has layers 0 to %d", layers.First, layers.Last-1, o.Path, cfg.Layers-1)
	}
	if o.KV > KVQ8 {
		return nil, fmt.Errorf("runtime: KV type %d is not known", o.KV)
	}
	m := &Model{cfg: cfg, kv: o.KV, pack: o.Pack, most: o.MaxMemory, load: loader{set: set}, running: make(chan struct{}, 1), growing: make(chan struct{}, 1)}
	m.threads.prefill = cmp.Or(max(o.Threads, 0), goruntime.GOMAXPROCS(0))
	m.threads.decode = cmp.Or(max(o.DecodeThreads, 0), m.threads.prefill)
	most := max(m.threads.prefill, m.threads.decode)
	if o.Yield {
		m.others = newOthers()
	}
	m.pool = newPool(most)
	m.buf.scratch = make([]kernels.Scratch, most)
	m.buf.attention.bind(m, most)
	m.bindOperations()

	var vocab sync.WaitGroup // a tenth of a second for a large vocabulary: beside the weights
	var tokErr error
	vocab.Go(func() { m.tok, tokErr = LoadTokenizer(set) })
	m.loaded, err = m.load.weightsOf(&m.cfg, layers, loaded{})
	if err == nil {
		err = m.packAll(o.MaxKVBytes)
	}
	if err == nil {
		m.place(&m.loaded)
	}
	vocab.Wait()
	if err = cmp.Or(err, tokErr); err == nil && m.tok.Size() != cfg.Vocab {
		err = fmt.Errorf("runtime: %s: tokenizer.ggml.tokens has %d entries, tensor token_embd.weight %d rows", o.Path, m.tok.Size(), cfg.Vocab)
	}
	if err != nil {
		_ = m.free() // err says what matters
		return nil, err
	}
	m.budget.limit = o.MaxKVBytes
	if m.budget.limit <= 0 {
		m.budget.limit = m.kvShare()
	}
	return m, nil
}

// weightsOf maps what a range needs and have, of a part of it, lacks: the layers and the rope factors, the embedding table for
// layer 0, and norm and matrix of the head after the last layer.
func (ld *loader) weightsOf(c *Config, layers Range, have loaded) (w loaded, err error) {
	w = have
	w.layers = layers
	var factors ropeFactors
	for _, f := range []struct {
		name string
		to   *[]float32
	}{{"rope_freqs.weight", &factors.all}, {ropeFactorsShort, &factors.short}, {ropeFactorsLong, &factors.long}} {
		if !ld.has(f.name) || layers.Len() == 0 {
			continue
		}
		if *f.to, err = ld.vector(f.name); err != nil {
			return w, err
		}
		for i, x := range *f.to {
			if !(x > 0) {
				return w, fmt.Errorf("runtime: %s: tensor %s: factor %d is %v, not above 0: the file is damaged", ld.set.Meta().Path, f.name, i, x)
			}
		}
	}
	w.rope = newRopes(c, layers, factors)
	switch {
	case layers.First > 0 || w.embed != nil:
	case c.Tied && w.output != nil:
		w.embed = w.output
	default:
		if w.embed, err = ld.matrix("token_embd.weight"); err != nil {
			return w, err
		}
	}
	f, err := familyOf(c.Arch)
	if err != nil {
		return w, err
	}
	w.layer = make([]*layer, layers.Len())
	for i := range w.layer {
		if l := layers.First + i; have.layers.Contains(l) {
			w.layer[i] = have.layer[l-have.layers.First]
		} else if w.layer[i], err = f.load(ld, c, l); err != nil {
			return w, err
		}
	}
	if layers.Last == c.Layers && w.output == nil {
		if w.outputNorm, err = ld.vector("output_norm.weight"); err != nil {
			return w, err
		}
		switch {
		case !c.Tied:
			w.output, err = ld.matrix("output.weight")
		case w.embed != nil:
			w.output = w.embed
		default:
			w.output, err = ld.matrix("token_embd.weight")
		}
		if err != nil {
			return w, err
		}
	}
	return w, nil
}

// place says where the weights of w are used from: packed copies, the file, or as much of the file as memory holds at a time.
func (m *Model) place(w *loaded) {
	var mapped []*weight
	w.memory = Memory{}
	for _, p := range m.packed {
		w.memory.Packed += int64(len(p))
	}
	for _, x := range m.load.weights {
		if !x.packed {
			mapped = append(mapped, x)
			w.memory.Mapped += int64(len(x.Data))
		}
	}
	w.stream = newStream(w.layers.Len(), w.layers.First, w.output, mapped, m.available())
}

// free ends the threads and gives back the memory of weights.
func (m *Model) free() error {
	m.pool.close()
	m.stream.close()
	var errs []error
	for _, p := range m.packed {
		errs = append(errs, free(p))
	}
	m.packed = nil
	return errors.Join(append(errs, m.load.close())...)
}

// Config implements Executor.
func (m *Model) Config() Config { return m.cfg }

// Layers implements Executor.
func (m *Model) Layers() Range {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.layers
}

// Profile implements Executor.
func (m *Model) Profile() Profile { return NewProfile(m.kv) }

// Tokenizer implements Executor.
func (m *Model) Tokenizer() *tokenizer.Tokenizer { return m.tok }

// FreeKVBytes implements Executor.
func (m *Model) FreeKVBytes() int64 { return m.budget.free() }

// Computes implements Executor.
func (m *Model) Computes(p Profile) error { return p.check(m.Profile(), m.cfg.Layers) }

// NewSequence implements Executor.
func (m *Model) NewSequence(capacity int, layers Range) (Sequence, error) {
	return m.NewSequenceFor(m.Profile(), capacity, layers)
}

// NewSequenceFor implements Executor.
func (m *Model) NewSequenceFor(p Profile, capacity int, layers Range) (Sequence, error) {
	if err := m.Computes(p); err != nil {
		return nil, err
	}
	switch {
	case m.closed.Load():
		return nil, ErrClosed
	case capacity < 1:
		return nil, fmt.Errorf("runtime: a sequence of %d positions asked for", capacity)
	case capacity > m.cfg.Context:
		return nil, &ContextError{Asked: capacity, Limit: m.cfg.Context}
	}
	if err := CheckLayers(layers, Range{0, m.cfg.Layers}); err != nil {
		return nil, err
	}
	s, err := newSequence(layers, p, m.cfg.Cache[layers.First:layers.Last], m.cfg.Snapshots(p.KV, capacity), capacity, 0, &m.budget)
	if err != nil {
		return nil, err
	}
	s.context, s.longFrom = m.cfg.Context, m.cfg.LongRope.Original
	s.snapshotsFor = func(capacity int) Snapshots { return m.cfg.Snapshots(p.KV, capacity) }
	return s, nil
}

// lock waits for the right to run.
func (m *Model) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case m.running <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *Model) unlock() { <-m.running }

// Close implements Executor.
func (m *Model) Close() error {
	m.growing <- struct{}{}
	defer func() { <-m.growing }()
	m.running <- struct{}{}
	defer m.unlock()
	if m.closed.Swap(true) {
		return nil
	}
	err := m.free()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.embed, m.layer, m.output = nil, nil, nil
	return err
}
