package runtimetest

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/tokenizer"
)

// Fake is a Backend whose models are arithmetic toys: each layer hashes the residual stream together with every cache
// row that a position may see. So any wrong, missing or misplaced seam, cache row or position changes all that
// follows, as in a real model, but nothing takes time or files. The same Options.Path gives the same model. The zero
// Fake is ready for use. Fields must not change after Open.
type Fake struct {
	// Config replaces FakeConfig, for instance by what runtime.Inspect says of a file. Heads, FFN and costs mean nothing.
	Config runtime.Config
	// Tokenizer replaces FakeTokenizer. Config.Vocab must be at least its size.
	Tokenizer *tokenizer.Tokenizer
	// StopAt is the position at which the model starts to prefer the tokenizer's end-of-sequence token; it never does
	// before, and never at all where StopAt is 0.
	StopAt int
	// Delay is how long one row takes in one layer.
	Delay time.Duration
	// Fail is asked before each row of a layer is computed from the residual stream h, from the goroutine that called Run; an
	// error ends the Run.
	Fail func(layer, position int, h []float32) error
	// Grows is asked before a model grows to a range; an error is Grow's.
	Grows func(ctx context.Context, to runtime.Range) error
}

// FakeConfig is the shape of Fake's models: 6 layers of width 8, one KV head of 4, a context of 4096 and the vocabulary
// of FakeTokenizer.
func FakeConfig() runtime.Config {
	c := runtime.Config{
		Arch: "fake", Name: "fake", Layers: 6, Width: 8, Heads: 2, KVHeads: 1, HeadDim: 4, RopeDim: 4, FFN: 16,
		Vocab: FakeTokenizer().Size(), Context: 4096, Eps: 1e-5, RopeBase: 10000, RopeScale: 1,
		EmbedBytes: 2000, HeadBytes: 2000, AttnFlops: 32, HeadFlops: 4000,
	}
	for range c.Layers {
		c.LayerBytes, c.LayerFlops = append(c.LayerBytes, 1000), append(c.LayerFlops, 1000)
		c.Cache = append(c.Cache, runtime.LayerCache{Heads: c.KVHeads, Key: c.HeadDim, Value: c.HeadDim})
	}
	return c
}

// FakeTokenizer has the 256 bytes as tokens 0 to 255 in their own order, then <|endoftext|> (256), <|im_start|> and
// <|im_end|>.
var FakeTokenizer = sync.OnceValue(func() *tokenizer.Tokenizer {
	t, err := tokenizer.New(fakeVocab())
	if err != nil {
		panic(err) // fakeVocab is a constant
	}
	return t
})

// fakeVocab is the vocabulary of FakeTokenizer.
func fakeVocab() tokenizer.Vocab {
	v := tokenizer.Vocab{Model: "gpt2", Pre: "gpt-2", BOS: -1, EOS: 256, EOT: 258, PAD: -1, UNK: -1}
	spare := rune(256) // GPT-2's alphabet writes unprintable bytes as the letters from U+0100 on
	for b := range rune(256) {
		if b >= '!' && b <= '~' || b >= '¡' && b <= '¬' || b >= '®' {
			v.Tokens = append(v.Tokens, string(b))
		} else {
			v.Tokens = append(v.Tokens, string(spare))
			spare++
		}
		v.Types = append(v.Types, 1)
	}
	v.Tokens = append(v.Tokens, "<|endoftext|>", "<|im_start|>", "<|im_end|>")
	v.Types = append(v.Types, 3, 3, 3)
	return v
}

// Open implements runtime.Backend. Of the options it heeds Path (as the name of the model; no file is read), Layers, KV
// and MaxKVBytes (0: 1 GiB).
func (f *Fake) Open(o runtime.Options) (runtime.Executor, error) {
	e := &executor{fake: f, cfg: f.Config, tok: f.Tokenizer, layers: o.Layers, kv: o.KV, running: make(chan struct{}, 1)}
	if e.cfg.Layers == 0 {
		e.cfg = FakeConfig()
	}
	if e.tok == nil {
		e.tok = FakeTokenizer()
	}
	if e.tok.Size() > e.cfg.Vocab {
		return nil, fmt.Errorf("runtimetest: a tokenizer of %d tokens for a vocabulary of %d", e.tok.Size(), e.cfg.Vocab)
	}
	if e.layers == (runtime.Range{}) {
		e.layers = e.all()
	}
	if !e.all().Covers(e.layers) || e.layers.Len() == 0 && e.layers.Last != e.cfg.Layers {
		return nil, fmt.Errorf("runtimetest: layers %d to %d asked for, the model has layers 0 to %d", e.layers.First, e.layers.Last-1, e.cfg.Layers-1)
	}
	e.free = o.MaxKVBytes
	if e.free <= 0 {
		e.free = 1 << 30
	}
	h := fnv.New64a()
	h.Write([]byte(o.Path))
	e.seed = h.Sum64()
	return e, nil
}

// executor is Fake's runtime.Executor.
type executor struct {
	fake *Fake
	cfg  runtime.Config
	tok  *tokenizer.Tokenizer
	kv   runtime.KVType
	seed uint64

	running chan struct{} // capacity 1, holds an element during a Run or Close

	mu     sync.Mutex
	layers runtime.Range
	free   int64
	closed bool
}

// all is the whole model.
func (e *executor) all() runtime.Range { return runtime.Range{First: 0, Last: e.cfg.Layers} }

func (e *executor) Config() runtime.Config { return e.cfg }

func (e *executor) Tokenizer() *tokenizer.Tokenizer { return e.tok }

func (e *executor) Layers() runtime.Range {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.layers
}

// CanGrow implements runtime.Executor: nothing takes memory.
func (e *executor) CanGrow(runtime.Range) error { return nil }

// Grow asks Fake.Grows.
func (e *executor) Grow(ctx context.Context, to runtime.Range) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !e.all().Covers(to) || !to.Covers(e.Layers()) {
		return fmt.Errorf("runtimetest: growing from %v to layers %d to %d asked for", e.Layers(), to.First, to.Last-1)
	}
	if e.fake.Grows != nil {
		if err := e.fake.Grows(ctx, to); err != nil {
			return err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return runtime.ErrClosed
	}
	e.layers = to
	return nil
}

// Profile has negative rules, so that no real engine shares it.
func (e *executor) Profile() runtime.Profile {
	return runtime.Profile{Rules: -1, KV: e.kv, AttnBlock: 1}
}

// Computes implements runtime.Executor: any KV type and seams will do.
func (e *executor) Computes(p runtime.Profile) error {
	if p.Rules != -1 || p.AttnBlock != 1 {
		return &runtime.ProfileError{Asked: p, Reason: "it is not the toy's"}
	}
	for _, c := range p.Cuts {
		if c < 1 || c > e.cfg.Layers {
			return &runtime.ProfileError{Asked: p, Reason: "the toy has no such layers"}
		}
	}
	return nil
}

// Memory is nothing: the toy has no weights.
func (e *executor) Memory() runtime.Memory { return runtime.Memory{} }

func (e *executor) FreeKVBytes() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.free
}

func (e *executor) NewSequence(capacity int, layers runtime.Range) (runtime.Sequence, error) {
	return e.NewSequenceFor(e.Profile(), capacity, layers)
}

func (e *executor) NewSequenceFor(p runtime.Profile, capacity int, layers runtime.Range) (runtime.Sequence, error) {
	if err := e.Computes(p); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	const page = 256
	need := int64((capacity+page-1)/page*page) * int64(e.cfg.KVRowBytes(0, p.KV)) * int64(layers.Len())
	switch {
	case e.closed:
		return nil, runtime.ErrClosed
	case capacity < 1:
		return nil, fmt.Errorf("runtimetest: a sequence of %d positions asked for", capacity)
	case capacity > e.cfg.Context:
		return nil, &runtime.ContextError{Asked: capacity, Limit: e.cfg.Context}
	case !e.all().Covers(layers):
		return nil, runtime.CheckLayers(layers, e.all())
	case need > e.free:
		return nil, &runtime.CapacityError{Asked: need, Free: e.free}
	}
	e.free -= need
	s := &sequence{exec: e, profile: p, layers: layers, capacity: capacity, reserved: need, rows: make([][]byte, layers.Len())}
	s.idle = sync.NewCond(&s.mu)
	return s, nil
}

func (e *executor) Run(ctx context.Context, steps []*runtime.Step) error {
	if err := runtime.CheckSteps(&e.cfg, e.Layers(), steps); err != nil {
		return err
	}
	for i, s := range steps {
		if seq, ok := s.Seq.(*sequence); !ok || seq.exec != e {
			return &runtime.StepError{Step: i, Reason: "its sequence was not made by this executor"}
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case e.running <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-e.running }()
	if e.isClosed() {
		return runtime.ErrClosed
	}
	for i, s := range steps {
		if err := s.Seq.(*sequence).claim(s.Layers, s.Start, s.N); err != nil {
			release(steps[:i], false)
			return err
		}
	}
	err := e.compute(ctx, steps)
	release(steps, err == nil)
	return err
}

// release ends the claims of steps; their rows stay if keep is set.
func release(steps []*runtime.Step, keep bool) {
	for _, s := range steps {
		s.Seq.(*sequence).release(s.Start, keep)
	}
}

func (e *executor) isClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

func (e *executor) Close() error {
	e.running <- struct{}{}
	defer func() { <-e.running }()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	return nil
}
