package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"time"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime"
)

type benchCmd struct {
	Model  string `short:"m" required:"" type:"existingfile" placeholder:"FILE" help:"GGUF file to measure."`
	Prompt []int  `short:"p" default:"512" placeholder:"N" help:"Tokens of a prompt, or several numbers: -p 128,512. 0 leaves these tests out. Default: 512."`
	New    []int  `short:"n" default:"128" placeholder:"N" help:"New tokens that are decoded one after the other. 0 leaves these tests out. Default: 128."`
	Depth  []int  `short:"d" default:"0" placeholder:"N" help:"Tokens that are in the KV cache already. Default: 0."`
	Batch  []int  `short:"b" default:"1" placeholder:"N" help:"Streams that decode together. Default: 1."`
	Repeat int    `short:"r" default:"5" placeholder:"N" help:"How often each test is timed, after a run that isn't. Default: 5."`
	Limits bool   `negatable:"" default:"true" help:"Measure the machine's limits, too, which takes seconds. With --no-limits those figures are 0."`
	JSON   bool   `name:"json" xor:"format" help:"Print a JSON object."`
	CSV    bool   `name:"csv" xor:"format" help:"Print comma-separated values."`
}

// Help implements kong.HelpProvider.
func (benchCmd) Help() string {
	return `Measures how fast this machine runs a model, in this process alone, and how near that is to what the machine can do.
-t is the number of threads, of decoding too. The tests are named as those of llama-bench are:

  pp512          512 prompt tokens read together, logits of the last one
  tg128          128 tokens decoded one by one, logits of each, from an empty cache on
  tg128@d2048    … with 2048 tokens in the cache already
  tg128xB4       … by four streams that share each pass over the weights; t/s is the sum

Token IDs are random and nothing is sampled. "t/s" is the median of the repetitions, ± their standard deviation.

"limit" is what the machine could do at best, measured in the same run with the same threads and the kernels' own
instructions, before and after the tests, the better of both:

  memory   bytes of weights, and of KV rows at the test's depth, at the speed of a plain read loop over 512 MiB
  int8     operations in products with quantised weights, at the rate of 8-bit multiply-adds in registers
  f32      operations in products with F32, F16 and BF16 weights, at the rate of float32 multiply-adds in registers

A test's limit is the slower of memory and arithmetic; attention's arithmetic isn't counted. A model that fits into the
processor's caches can exceed a memory limit. Other programs that run make every figure worse: compare figures of one
run only.

--json prints one object:

  version, platform, cpu, variant (the kernels in use), variants (those this processor has), threads, kv (cache type)
  model     {file, name, arch, bytes (of all weights), pass_bytes (that each pass reads: layers and head)}
  memory    {mapped, packed}: bytes of weights used from the file, and of copies in memory (--pack)
  load_s    seconds until the model could compute
  limits    {threads, read_bytes_per_s, int8_ops_per_s, f32_ops_per_s, one_thread: {the same}}; a multiply-add is 2
  results   [{test, tps, stddev, limit_fraction, limit_tps, bound (memory, int8, f32), mean, min, max,
            samples (t/s of each repetition), prompt, new, depth, batch}]

Examples:

  starling bench -m model.gguf -p 512 -n 128 -t 1 --json
  starling bench -m model.gguf -p 128,512,2048 -n 0
  starling bench -m model.gguf -p 0 -d 0,2048,8192 -b 1,4,8
  STARLING_KERNELS=generic starling bench -m model.gguf -p 16 -n 4    # the specification, in Go`
}

// benchReport is what "bench --json" prints.
type benchReport struct {
	Version  string        `json:"version"`
	Platform string        `json:"platform"`
	CPU      string        `json:"cpu"`
	Variant  string        `json:"variant"`
	Variants []string      `json:"variants"`
	Threads  int           `json:"threads"`
	KV       string        `json:"kv"`
	Model    benchModel    `json:"model"`
	Memory   benchMemory   `json:"memory"`
	Load     float64       `json:"load_s"`
	Limits   benchLimits   `json:"limits"`
	Results  []benchResult `json:"results"`
}

// benchMemory says where the weights are.
type benchMemory struct {
	Mapped int64 `json:"mapped"`
	Packed int64 `json:"packed"`
}

// benchModel says what was measured.
type benchModel struct {
	File  string `json:"file"`
	Name  string `json:"name"`
	Arch  string `json:"arch"`
	Bytes int64  `json:"bytes"`
	Pass  int64  `json:"pass_bytes"`
}

// newBenchModel takes sizes from the tensors, which may be in several files.
func newBenchModel(path string, c *runtime.Config) benchModel {
	m := benchModel{File: filepath.Base(path), Name: c.Name, Arch: c.Arch, Pass: passBytes(c)}
	m.Bytes = m.Pass
	if !c.Tied {
		m.Bytes += c.EmbedBytes
	}
	return m
}

// Run measures and prints.
func (c *benchCmd) Run(ctx context.Context, g *globals) error {
	tests, err := c.tests()
	if err != nil {
		return usageError(err)
	}
	if err := kernels.VariantError(); err != nil {
		return err
	}
	layers, head, err := runtime.CountOps(c.Model)
	if err != nil {
		return err
	}
	o := g.engine()
	threads := o.Threads
	o.Path, o.Yield, o.DecodeThreads = c.Model, false, threads // others' work is noise here, and settings are not to blur the table
	began := time.Now()
	m, err := runtime.Open(o)
	if err != nil {
		return err
	}
	defer m.Close()
	load := time.Since(began).Seconds()
	cfg := m.Config()
	r := benchReport{
		Version: version(), Platform: goruntime.GOOS + "/" + goruntime.GOARCH, CPU: processor(), Threads: threads, KV: runtime.KVF16.String(),
		Variant: kernels.Active().String(), Variants: variantNames(), Memory: benchMemory(m.Memory()), Load: load,
		Model: newBenchModel(c.Model, &cfg),
	}
	status := benchStatus{terminal: isTerminal(os.Stderr)}
	defer status.clear()
	limits := func() {
		if c.Limits {
			status.show("the machine's limits")
			r.Limits.measure(threads)
		}
	}
	limits()
	b := bench{m: m, layers: m.Layers(), cfg: cfg, status: &status}
	for _, t := range tests {
		samples, err := b.run(ctx, t, c.Repeat)
		if err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
		r.Results = append(r.Results, newResult(t, samples))
	}
	limits()
	for i := range r.Results {
		if c.Limits {
			r.Results[i].limit(&cfg, layers, head, r.Limits.benchSpeeds)
		}
	}
	status.clear()
	return c.print(&r)
}

// tests are what the flags ask for: prompts, then decoding, each at all depths.
func (c *benchCmd) tests() (list []benchTest, err error) {
	for _, v := range [][]int{c.Prompt, c.New, c.Depth} {
		for _, n := range v {
			if n < 0 {
				return nil, fmt.Errorf("%d tokens asked for", n)
			}
		}
	}
	for _, b := range c.Batch {
		if b < 1 {
			return nil, fmt.Errorf("a batch of %d streams asked for", b)
		}
	}
	if c.Repeat < 1 {
		return nil, fmt.Errorf("%d repetitions asked for", c.Repeat)
	}
	for _, p := range c.Prompt {
		for _, d := range c.Depth {
			if p > 0 {
				list = append(list, benchTest{Prompt: p, Depth: d, Batch: 1})
			}
		}
	}
	for _, n := range c.New {
		for _, d := range c.Depth {
			for _, b := range c.Batch {
				if n > 0 {
					list = append(list, benchTest{New: n, Depth: d, Batch: b})
				}
			}
		}
	}
	if len(list) == 0 {
		return nil, errors.New("no test asked for: -p and -n are both 0")
	}
	return list, nil
}
