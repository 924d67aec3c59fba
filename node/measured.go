package node

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	mrand "math/rand/v2"
	"os"
	"path/filepath"
	goruntime "runtime"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
)

// A node measures its machine once (Config.Measure), while it has been idle for a while and nobody computes; a session that begins ends the attempt.
// The figures are kept in the data folder until the program, the kernels' variant or the number of processors is another one.

const (
	measuredFile   = "machine.json"
	measuredFormat = 1
	maxMeasured    = 64 << 10        // bytes of the file
	measureIdle    = time.Minute     // without sessions
	measureLook    = 2 * time.Second // how often that is looked for
	measureDisk    = 32 << 20        // bytes that are written and read
	diskSpare      = 1 << 30         // room that must be left
	measureMemory  = 192 << 20       // bytes that must be left of what the node may take
	randomReads    = 128
	pageBytes      = 4 << 10
)

// storedMeasured is the file's content.
type storedMeasured struct {
	Format int `json:"format"`
	control.Measured
}

// readMeasured returns what a data folder has of this machine; nil where it has nothing, or what is there is of other processors or programs.
func readMeasured(dir, program, variant string) (*control.Measured, error) {
	f, err := os.Open(filepath.Join(dir, measuredFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxMeasured+1))
	if err != nil {
		return nil, err
	}
	var s storedMeasured
	if len(b) > maxMeasured {
		return nil, fmt.Errorf("%s exceeds %d bytes: the machine is measured again", f.Name(), maxMeasured)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w; the machine is measured again", f.Name(), err)
	}
	m := &s.Measured
	if s.Format != measuredFormat || m.Program != program || m.Variant != variant || m.CPUs != goruntime.NumCPU() {
		return nil, nil
	}
	rates := []float64{m.DecodeBytesPerSec, m.DiskSequential, m.DiskRandom}
	for _, r := range m.Rates {
		rates = append(rates, r.Rows1, r.Rows32, r.Rows512)
	}
	for _, r := range rates {
		if !(r >= 0 && r <= 1e18) {
			return nil, fmt.Errorf("%s has a rate of %g, and is measured again", f.Name(), r)
		}
	}
	if max(m.PrefillThreads, m.DecodeThreads) > m.CPUs || min(m.PrefillThreads, m.DecodeThreads) < 1 {
		return nil, fmt.Errorf("%s has %d and %d threads on %d processors, and is measured again", f.Name(), m.PrefillThreads, m.DecodeThreads, m.CPUs)
	}
	return m, nil
}

// writeMeasured replaces what a data folder has.
func writeMeasured(dir string, m *control.Measured) error {
	text, err := json.MarshalIndent(storedMeasured{measuredFormat, *m}, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(dir, measuredFile, append(text, '\n'))
}

// withBestThreads returns options with the numbers of threads that did best, where they were measured and the user gave none.
func (n *Node) withBestThreads(o runtime.Options) runtime.Options {
	m := n.measured.Load()
	if m != nil && n.cfg.BestThreads {
		o.Threads = min(o.Threads, m.PrefillThreads)
	}
	if m != nil && n.cfg.BestDecodeThreads {
		o.DecodeThreads = min(o.DecodeThreads, m.DecodeThreads)
	}
	return o
}

// routineMeasure measures as soon as the node has been idle for long enough.
func (n *Node) routineMeasure() {
	t := time.NewTicker(measureLook)
	defer t.Stop()
	idle := time.Now()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-t.C:
		}
		if n.working() {
			idle = time.Now()
		}
		if time.Since(idle) < measureIdle || n.cfg.Engine.MaxMemory > 0 && n.memoryLeft(artifacts.ID{}) < measureMemory {
			continue
		}
		m, err := n.measure()
		switch {
		case n.ctx.Err() != nil:
			return
		case errors.Is(err, context.Canceled), errors.Is(err, runtime.ErrBusy): // a session has begun, or the machine's owner is at work
			idle = time.Now()
			continue
		case err == nil:
			n.measured.Store(m)
			err = writeMeasured(n.cfg.DataDir, m)
		}
		if err != nil {
			n.log.Warn("the machine could not be measured", "error", err)
		} else {
			n.log.Info("machine measured", "decode_bytes_per_sec", m.DecodeBytesPerSec, "prefill_threads", m.PrefillThreads, "decode_threads", m.DecodeThreads)
		}
		return
	}
}

// working reports whether somebody computes here, or weights are being loaded.
func (n *Node) working() bool {
	n.models.Lock()
	loading := len(n.models.loading) > 0
	n.models.Unlock()
	n.sessions.Lock()
	defer n.sessions.Unlock()
	return loading || len(n.sessions.stages)+len(n.sessions.decoders)+len(n.sessions.clients) > 0
}

// measure measures the machine, until somebody else needs it.
func (n *Node) measure() (*control.Measured, error) {
	ctx, cancel := context.WithCancel(n.ctx)
	defer cancel()
	n.wg.Go(func() {
		for t := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				t.Stop()
				return
			case <-t.C:
			}
			if n.working() {
				cancel()
			}
		}
	})
	threads := n.cfg.Engine.Threads
	if threads == 0 {
		threads = goruntime.NumCPU()
	}
	r, err := runtime.MeasureMachine(ctx, min(threads, goruntime.NumCPU()))
	if err != nil {
		return nil, err
	}
	m := &control.Measured{At: time.Now().UTC().Truncate(time.Second), Program: n.cfg.Version, CPUs: goruntime.NumCPU(), Variant: r.Variant, Duration: r.Seconds,
		PrefillThreads: r.PrefillThreads, DecodeThreads: r.DecodeThreads, DecodeBytesPerSec: r.DecodeBytesPerSec, MemoryFree: r.MemoryFree, MemoryTotal: r.MemoryTotal}
	for _, x := range r.Rates {
		m.Rates = append(m.Rates, control.TypeRate(x))
	}
	m.DiskSequential, m.DiskRandom, err = readRates(ctx, n.cfg.DataDir)
	return m, err
}

// readRates returns how many bytes a second a folder's disk gives in order, and in pages anywhere; 0 where the system's cache can't be kept out or
// there is little room.
func readRates(ctx context.Context, dir string) (sequential, random float64, err error) {
	if free := FreeDisk(dir); !runtime.DropsCache || free >= 0 && free < diskSpare {
		return 0, 0, nil
	}
	f, err := os.CreateTemp(dir, "starling-measure-")
	if err != nil {
		return 0, 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block := make([]byte, 1<<20)
	_, _ = rand.Read(block) // it doesn't fail; numbers that don't compress
	for range measureDisk / len(block) {
		if ctx.Err() != nil {
			return 0, 0, ctx.Err()
		}
		if _, err := f.Write(block); err != nil {
			return 0, 0, err
		}
	}
	if err := f.Sync(); err != nil {
		return 0, 0, err
	}
	runtime.DropCache(f)
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return 0, 0, err
	}
	began, read := time.Now(), int64(0)
	for read < measureDisk && time.Since(began) < 2*time.Second && ctx.Err() == nil {
		k, err := f.Read(block)
		if read += int64(k); err != nil {
			return 0, 0, err
		}
	}
	sequential = float64(read) / max(time.Since(began).Seconds(), math.SmallestNonzeroFloat32)
	runtime.DropCache(f)
	began, read = time.Now(), 0
	for i := 0; i < randomReads && time.Since(began) < 2*time.Second && ctx.Err() == nil; i++ {
		k, err := f.ReadAt(block[:pageBytes], mrand.Int64N(measureDisk/pageBytes)*pageBytes)
		if read += int64(k); err != nil {
			return 0, 0, err
		}
	}
	return sequential, float64(read) / max(time.Since(began).Seconds(), math.SmallestNonzeroFloat32), ctx.Err()
}
