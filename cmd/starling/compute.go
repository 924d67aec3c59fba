package main

import (
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"strings"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime"
)

// computing are the settings of what computes. None changes a bit of any answer.
type computing struct {
	Threads       int  `group:"Settings" short:"t" env:"STARLING_THREADS" placeholder:"N" help:"Threads that compute. Default: as many as did best when serve measured this machine, until then one per processor. The answer never depends on it."`
	DecodeThreads int  `group:"Settings" env:"STARLING_DECODE_THREADS" placeholder:"N" help:"Threads that decode, which memory bounds: often fewer do as well. Default: likewise; where --threads is given, as many as that."`
	CPUs          int  `group:"Settings" name:"cpus" env:"STARLING_CPUS" placeholder:"N" help:"Processors to compute on at most, whatever --threads says. Default: all."`
	Nice          int  `group:"Settings" env:"STARLING_NICE" placeholder:"1-19" help:"Lower the priority of this process, so that others go first: 19 is the lowest."`
	Yield         bool `group:"Settings" env:"STARLING_YIELD" negatable:"" default:"true" help:"Leave processors to other programs that are busy (Linux). --no-yield computes on all of them always."`
	Pack          pack `group:"Settings" env:"STARLING_PACK" placeholder:"auto|on|off" default:"auto" help:"Copy weights into memory in the layout that is fastest to read: auto does where they leave a third of the free memory, off uses the file's pages, which the system can take back."`

	MaxMemory size `group:"Settings" env:"STARLING_MAX_MEMORY" placeholder:"SIZE" help:"Memory that weights, sessions' KV state and buffers may take together, such as 8GiB: weights first, and half of what they leave for KV. Default: what is free."`
	KVMemory  size `group:"Settings" name:"kv-memory" env:"STARLING_KV_MEMORY" placeholder:"SIZE" help:"Memory for sessions' KV state, such as 2GiB. Default: half of what is free, or a fifth where the model is larger than that."`
	KVDisk    size `group:"Settings" name:"kv-disk" env:"STARLING_KV_DISK" placeholder:"SIZE" help:"Disk for KV state of ended sessions that memory has no room for, such as 4GiB, in the data folder; sealed with a key that this process alone has. Default: none."`
}

// pack is a packing as a flag.
type pack struct{ runtime.Packing }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *pack) UnmarshalText(text []byte) (err error) {
	p.Packing, err = runtime.ParsePacking(strings.ToLower(string(text)))
	return err
}

// Validate is called by the parser.
func (c *computing) Validate() error {
	switch {
	case c.Threads < 0 || c.DecodeThreads < 0 || c.CPUs < 0:
		return errors.New("--threads, --decode-threads and --cpus take a positive number")
	case c.Nice < 0 || c.Nice > 19:
		return fmt.Errorf("--nice %d: not within 0 to 19", c.Nice)
	}
	return nil
}

// threads returns how many threads prefill and decode.
func (c *computing) threads() (prefill, decode int) {
	most := goruntime.NumCPU()
	prefill = c.Threads
	if prefill == 0 {
		prefill = most
	}
	decode = c.DecodeThreads
	if decode == 0 {
		decode = prefill
	}
	if c.CPUs > 0 {
		prefill, decode = min(prefill, c.CPUs), min(decode, c.CPUs)
	}
	return prefill, decode
}

// engine prepares this process for computing, and returns what to open a model with. The scheduler gets two processors
// beside the threads that compute: those spin, and without spare ones the network starves.
func (c *computing) engine() runtime.Options {
	for _, err := range []error{kernels.VariantError(), kernels.Distrusted()} {
		if err != nil {
			fmt.Fprintf(os.Stderr, "starling: %s; using %v\n", oneLine(err.Error()), kernels.Active())
		}
	}
	if c.Nice > 0 {
		if err := setNice(c.Nice); err != nil {
			fmt.Fprintf(os.Stderr, "starling: --nice %d: %v\n", c.Nice, err)
		}
	}
	if c.MaxMemory > 0 {
		debug.SetMemoryLimit(int64(c.MaxMemory)) // the collector works harder before Go's part alone gets there
	}
	prefill, decode := c.threads()
	if n := max(prefill, decode) + 2; goruntime.GOMAXPROCS(0) < n {
		goruntime.GOMAXPROCS(n)
	}
	return runtime.Options{Threads: prefill, DecodeThreads: decode, Yield: c.Yield, Pack: c.Pack.Packing, MaxKVBytes: int64(c.KVMemory), MaxMemory: int64(c.MaxMemory)}
}
