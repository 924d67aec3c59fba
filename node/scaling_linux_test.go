package node

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/gguf"
)

var chunkModel = flag.String("chunk-model", "", "measure single chunks of this GGUF file with one thread, and keep the times in "+chunkFile)

var (
	chunkRows   = []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 512}
	chunkDepths = []int{0, 2048}
)

// TestMeasureChunks replaces the times that TestPrefillScaling reckons with. They are processor time, so what else runs changes them only by
// what it takes from caches and shared cores.
func TestMeasureChunks(t *testing.T) {
	if *chunkModel == "" {
		t.Skip("no -chunk-model")
	}
	if err := measureChunks(t.Context(), *chunkModel); err != nil {
		t.Fatal(err)
	}
}

// processorTime returns the seconds of processor time that this process has used.
func processorTime() (float64, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9, err
}

// measureChunks measures and writes chunkFile, in about half a minute.
func measureChunks(ctx context.Context, model string) error {
	set, err := gguf.OpenSet(model)
	if err != nil {
		return err
	}
	card, err := artifacts.NewCard(set)
	if err != nil {
		return err
	}
	out := chunkTimes{Card: *card, Processor: processorName()}
	out.Card.PartSizes, out.Card.HeaderSpans, out.Card.LayerSpans, out.Card.EmbedSpans, out.Card.HeadSpans = nil, nil, nil, nil, nil
	e, err := runtime.Engine{}.Open(runtime.Options{Path: model, Threads: 1})
	if err != nil {
		return err
	}
	defer e.Close()
	if out.Speed, err = runtime.Measure(ctx, e); err != nil {
		return err
	}
	layers := e.Layers()
	deep, rows := slices.Max(chunkDepths), slices.Max(chunkRows)
	seq, err := e.NewSequence(deep+rows, layers)
	if err != nil {
		return err
	}
	defer seq.Close()
	read := func(n int, logits ...int) (float64, error) {
		step := &runtime.Step{Seq: seq, Layers: layers, Start: seq.Len(0), N: n, Tokens: make([]int32, n), LogitRows: logits}
		for i := range step.Tokens {
			step.Tokens[i] = int32(1000 + 37*i)
		}
		began, err := processorTime()
		if err != nil {
			return 0, err
		}
		if err := e.Run(ctx, []*runtime.Step{step}); err != nil {
			return 0, err
		}
		ended, err := processorTime()
		return ended - began, err
	}
	for _, depth := range chunkDepths {
		for seq.Len(0) < depth {
			if _, err := read(rows); err != nil {
				return err
			}
		}
		for _, n := range chunkRows {
			best, with := math.Inf(1), math.Inf(1)
			for range 4 + 64/n { // the fastest: others were disturbed
				took, err := read(n)
				if err != nil {
					return err
				}
				best = min(best, took)
				seq.Truncate(depth)
				if n == 1 && depth == 0 {
					if took, err = read(n, 0); err != nil {
						return err
					}
					with = min(with, took)
					seq.Truncate(depth)
				}
			}
			out.Chunks = append(out.Chunks, chunkTime{n, depth, best})
			if n == 1 && depth == 0 {
				out.Head = max(with-best, 0)
			}
		}
	}
	slices.SortFunc(out.Chunks, func(a, b chunkTime) int { return cmp.Or(cmp.Compare(a.Rows, b.Rows), cmp.Compare(a.Depth, b.Depth)) })
	b, err := json.MarshalIndent(out, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(chunkFile, append(b, '\n'), 0o644)
}

func processorName() string {
	b, _ := os.ReadFile("/proc/cpuinfo") // elsewhere it has no name
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	return "an unknown processor"
}
