package runtime_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// sayings runs a prompt and three tokens after it, and returns all logits.
func sayings(t *testing.T, m *runtime.Model) (all [][]float32) {
	t.Helper()
	seq := sequenceOf(t, m, 20)
	run(t, m, &runtime.Step{Seq: seq, Layers: m.Layers(), N: 17, Tokens: []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}})
	one := &runtime.Step{Seq: seq, Layers: m.Layers(), N: 1, Start: 17, Tokens: []int32{18}, LogitRows: []int{0}}
	for range 3 {
		run(t, m, one)
		all = append(all, slices.Clone(one.Logits[0]))
		one.Start++
	}
	return all
}

// TestPacking expects the same bits with weights packed and not, in memory that fits and as they stream through less, by
// every weight type, tied and not, with several threads.
func TestPacking(t *testing.T) {
	for _, typ := range []kernels.Type{
		kernels.F16, kernels.Q8_0, kernels.Q4_0, kernels.Q4_1, kernels.Q5_0, kernels.Q5_1,
		kernels.Q2_K, kernels.Q3_K, kernels.Q4_K, kernels.Q5_K, kernels.Q6_K, kernels.IQ4_NL, kernels.IQ4_XS, kernels.MXFP4,
		kernels.IQ2_XXS, kernels.IQ2_XS, kernels.IQ2_S, kernels.IQ3_XXS, kernels.IQ3_S, kernels.IQ1_S, kernels.IQ1_M,
	} {
		for _, tied := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/%v", typ, tied), func(t *testing.T) {
				if testing.Short() && tied {
					t.Skip("-short takes models with a head of their own")
				}
				path := tiny(t, runtimetest.TinyModel{Type: typ, Tied: tied, Layers: 4})
				off := open(t, runtime.Options{Path: path, Threads: 1, Pack: runtime.PackOff})
				if mem := off.Memory(); mem.Packed != 0 || mem.Mapped == 0 {
					t.Errorf("not packed: %+v", mem)
				}
				want := sayings(t, off)
				for _, o := range []runtime.Options{{Threads: 1, Pack: runtime.PackOn}, {Threads: 3, DecodeThreads: 2, Pack: runtime.PackOn}, {Threads: 2}, {Threads: 1, DecodeThreads: 4, Pack: runtime.PackOff}} {
					o.Path = path
					m := open(t, o)
					mem, cfg := m.Memory(), m.Config()
					if dense := typ.Form() == kernels.Dense; o.Pack == runtime.PackOn && (dense != (mem.Packed == 0) || !dense && mem.Mapped > cfg.EmbedBytes) {
						t.Errorf("%+v: %+v", o, mem)
					}
					if got := sayings(t, m); !equalRows(got, want) {
						t.Errorf("%+v: other logits", o)
					}
				}
				size := off.Memory().Mapped
				for _, available := range []int64{size * 2, size, size / 2, 1} {
					resident, units := off.ForceStream(available)
					if units > 0 && (resident == units) != (available > size) {
						t.Errorf("%d of %d units are resident in %d bytes of memory for %d", resident, units, available, size)
					}
					for range 2 {
						if got := sayings(t, off); !equalRows(got, want) {
							t.Errorf("%d bytes of memory for %d: other logits", available, size)
						}
					}
				}
			})
		}
	}
}

func equalRows(a, b [][]float32) bool {
	return slices.EqualFunc(a, b, func(x, y []float32) bool { return maxDiff(x, y) == 0 })
}

// TestPackingDamaged checks that packing finds a scale that is NaN, and that wishes nobody knows are refused.
func TestPackingDamaged(t *testing.T) {
	path := tiny(t, runtimetest.TinyModel{Type: kernels.Q4_1})
	if _, err := runtime.Open(runtime.Options{Path: path, Pack: runtime.PackOn + 1}); err == nil {
		t.Error("an unknown packing opened")
	}
	overwrite(t, path, "blk.2.ffn_up.weight", []byte{0, 0x7c})
	var bad *runtime.WeightError
	if _, err := runtime.Open(runtime.Options{Path: path, Pack: runtime.PackOn}); !errors.As(err, &bad) || bad.Tensor != "blk.2.ffn_up.weight" {
		t.Errorf("damaged: error %v", err)
	}
	for _, p := range []runtime.Packing{runtime.PackAuto, runtime.PackOff, runtime.PackOn} {
		if got, err := runtime.ParsePacking(p.String()); err != nil || got != p {
			t.Errorf("%v parses to %v, %v", p, got, err)
		}
	}
	if _, err := runtime.ParsePacking("perhaps"); err == nil {
		t.Error("an unknown packing parses")
	}
}

// TestDecodeAllocates checks that a decoding step allocates nothing when its Logits are there to be reused.
func TestDecodeAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, model := range []runtimetest.TinyModel{
		{Type: kernels.F16}, {Type: kernels.Q8_0}, {Type: kernels.Q4_1}, {Type: kernels.Q4_K}, {Type: kernels.Q4_K, Arch: "deepseek2"},
	} {
		for _, threads := range []int{1, 2} {
			m := open(t, runtime.Options{Path: tiny(t, model), Threads: threads})
			seq := sequenceOf(t, m, 256)
			steps := []*runtime.Step{{Seq: seq, Layers: m.Layers(), N: 1, Tokens: []int32{7}, LogitRows: []int{0}}}
			run(t, m, steps...)
			n := testing.AllocsPerRun(50, func() {
				steps[0].Start++
				if err := m.Run(t.Context(), steps); err != nil {
					t.Fatal(err)
				}
			})
			if n != 0 {
				t.Errorf("%s %v, %d threads: %v allocations a token", model.Arch, model.Type, threads, n)
			}
		}
	}
}
