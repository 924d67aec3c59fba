package main

import (
	"os"
	goruntime "runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime"
)

// benchSpeeds are what the machine can do at best, per second.
type benchSpeeds struct {
	Read float64 `json:"read_bytes_per_s"`
	Int8 float64 `json:"int8_ops_per_s"`
	F32  float64 `json:"f32_ops_per_s"`
}

// benchLimits are the machine's speeds, with all threads and with one.
type benchLimits struct {
	Threads int `json:"threads"`
	benchSpeeds
	One benchSpeeds `json:"one_thread"`
}

const (
	readBytes = 512 << 20              // exceeds every cache that a thread could fill
	limitTime = 250 * time.Millisecond // that each figure is tried for,
	limitMin  = 3                      // and how often at least
)

// measure raises the limits to what it finds now.
func (l *benchLimits) measure(threads int) {
	l.Threads = threads
	memory := make([]byte, readBytes)
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1 // its own page, not the system's page of zeros
	}
	l.One.measure(1, memory)
	if threads == 1 {
		l.benchSpeeds = l.One
	} else {
		l.benchSpeeds.measure(threads, memory)
	}
	memory = nil
	debug.FreeOSMemory() // the model may need it
}

func (s *benchSpeeds) measure(threads int, memory []byte) {
	part := len(memory) / threads
	s.Read = max(s.Read, float64(part*threads)*bestRate(threads, func(thread int) {
		kernels.ReadLoop(memory[thread*part : (thread+1)*part])
	}))
	const rounds = 20000
	for _, p := range []struct {
		speed *float64
		ops   float64
		run   func(rounds int)
	}{{&s.Int8, kernels.PeakInt8Ops, kernels.PeakInt8}, {&s.F32, kernels.PeakF32Ops, kernels.PeakF32}} {
		n := rounds
		if kernels.Active() == kernels.Generic {
			n = rounds / 1000
		}
		*p.speed = max(*p.speed, float64(threads)*float64(n)*p.ops*bestRate(threads, func(int) { p.run(n) }))
	}
}

// bestRate runs work on some threads at once, again and again, and returns how often a second it can be done.
func bestRate(threads int, work func(thread int)) float64 {
	best := time.Duration(1<<63 - 1)
	for began, n := time.Now(), 0; n < limitMin || time.Since(began) < limitTime; n++ {
		best = min(best, together(threads, work))
	}
	return 1 / best.Seconds()
}

// together runs work once on each of some threads, which start at the same time, and returns how long the last one took.
func together(threads int, work func(thread int)) time.Duration {
	var waiting atomic.Int64
	var done sync.WaitGroup
	took := make([]time.Duration, threads)
	for i := range threads {
		done.Go(func() {
			goruntime.LockOSThread()
			defer goruntime.UnlockOSThread()
			for waiting.Add(1); waiting.Load() < int64(threads); {
				goruntime.Gosched()
			}
			began := time.Now()
			work(i)
			took[i] = time.Since(began)
		})
	}
	done.Wait()
	longest := took[0]
	for _, d := range took {
		longest = max(longest, d)
	}
	return longest
}

// limit gives r's speed as a fraction of what the machine's speeds allow, given the operations of all layers and of the
// head.
func (r *benchResult) limit(c *runtime.Config, layers, head runtime.Ops, s benchSpeeds) {
	w := r.work(c, layers, head)
	memory, int8s, floats := w.bytes/s.Read, w.ops.Int8/s.Int8, w.ops.F32/s.F32
	seconds := max(memory, int8s+floats)
	switch {
	case memory == seconds:
		r.Bound = "memory"
	case int8s >= floats:
		r.Bound = "int8"
	default:
		r.Bound = "f32"
	}
	r.Limit = float64(r.tokens()) / seconds
	r.Fraction = r.TPS / r.Limit
}

// benchWork is what a test cannot do without.
type benchWork struct {
	bytes float64     // read from memory
	ops   runtime.Ops // in matrices
}

// work counts a test's: every pass reads the weights once, and a pass that decodes the KV rows of all its streams, too.
// A prompt is one pass; its KV rows are read from caches many times over, and from memory hardly ever.
func (t benchTest) work(c *runtime.Config, layers, head runtime.Ops) benchWork {
	passes, logits := 1, 1 // logits: rows whose logits are wanted
	kv := 0.0
	if t.New > 0 {
		passes, logits = t.New, t.New*t.Batch
		for i := range t.New {
			kv += float64(t.Batch) * float64(kvBytes(c, t.Depth+i+1))
		}
	}
	rows := float64(t.tokens())
	return benchWork{
		bytes: float64(passes)*float64(passBytes(c)) + kv,
		ops:   runtime.Ops{Int8: rows*layers.Int8 + float64(logits)*head.Int8, F32: rows*layers.F32 + float64(logits)*head.F32},
	}
}

// passBytes is how many bytes of weights every pass reads, at least: of the embedding table, where the head doesn't share it,
// it needs a row, and of experts as many as one row uses.
func passBytes(c *runtime.Config) int64 {
	n := c.HeadBytes
	if c.Experts > 0 {
		n -= c.ExpertBytes / int64(c.Experts) * int64(c.Experts-c.UsedExperts)
	}
	for _, b := range c.LayerBytes {
		n += b
	}
	return n
}

// kvBytes is how many bytes of all layers' caches, f16, a row attends to that is the last of n.
func kvBytes(c *runtime.Config, n int) (bytes int64) {
	for l := range c.Layers {
		rows := n
		if w := c.Cache[l].Window; w > 0 {
			rows = min(n, w)
		}
		bytes += int64(rows) * int64(c.KVRowBytes(l, runtime.KVF16))
	}
	return bytes
}

// processor names the processor where the system tells it.
func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(info)) {
			key, value, _ := strings.Cut(line, ":")
			if strings.TrimSpace(key) == "model name" {
				return printable(strings.TrimSpace(value))
			}
		}
	}
	if name := os.Getenv("PROCESSOR_IDENTIFIER"); name != "" { // Windows
		return printable(name)
	}
	return goruntime.GOARCH
}
