package runtime_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// roundedProfiles are some that differ from a model's own: each seam type, with cuts in the middle, at each layer and before the
// head, and the KV type for slow links alone and with them.
func roundedProfiles(m *runtime.Model) []runtime.Profile {
	own, layers := m.Profile(), m.Config().Layers
	var every []int
	for l := range layers {
		every = append(every, l+1)
	}
	middle := []int{(layers + 1) / 2}
	return []runtime.Profile{
		own.Rounding(runtime.KVQ8, runtime.SeamF32, nil),
		own.Rounding(own.KV, runtime.SeamBF16, middle),
		own.Rounding(own.KV, runtime.SeamF16, middle),
		own.Rounding(own.KV, runtime.SeamQ8, every),
		own.Rounding(runtime.KVQ8, runtime.SeamQ8, middle),
	}
}

// TestProfiles asks for one answer of each profile: with the model cut before every layer, be that one of the profile's cuts or not,
// in several chunks and batches; and for answers that differ between profiles.
func TestProfiles(t *testing.T) {
	if raceEnabled {
		t.Skip("numbers only: not with -race")
	}
	for _, name := range goldenModels {
		t.Run(name, func(t *testing.T) {
			e := readExpected(t, name)
			m := open(t, runtime.Options{Path: goldenFile(t, name, "model.gguf")})
			e.Prompt, e.LogitsPositions = e.Prompt[:70], []int{0, 31, 69} // beyond a window of 24
			seen := map[string]string{fmt.Sprint(digest(t, m, e)): m.Profile().String()}
			for _, p := range roundedProfiles(m) {
				want := fmt.Sprint(prefillAs(t, m, p, e, len(e.Prompt), 0, 1)[0])
				if other, ok := seen[want]; ok {
					t.Errorf("%v and %v give the same bits", p, other)
				}
				seen[want] = p.String()
				for cut := range m.Config().Layers {
					v := []struct{ chunk, batch int }{{7, 3}, {64, 1}, {1, 2}}[cut%3]
					for j, got := range prefillAs(t, m, p, e, v.chunk, cut, v.batch) {
						if fmt.Sprint(got) != want {
							t.Errorf("%v: chunks of %d, cut at %d, sequence %d of %d: other bits", p, v.chunk, cut, j, v.batch)
						}
					}
				}
			}
		})
	}
}

// rounding is an executor that makes sequences of another profile than its own.
type rounding struct {
	*runtime.Model
	profile runtime.Profile
}

func (r rounding) Profile() runtime.Profile { return r.profile }

func (r rounding) NewSequence(capacity int, layers runtime.Range) (runtime.Sequence, error) {
	return r.NewSequenceFor(r.profile, capacity, layers)
}

// TestRoundedExecutor holds executors to their contract with profiles that round.
func TestRoundedExecutor(t *testing.T) {
	for _, arch := range []string{"llama", "deepseek2", "gemma3", "qwen35"} {
		path := tiny(t, runtimetest.TinyModel{Arch: arch, Seed: 3, Layers: 3})
		for i := range 2 {
			t.Run(fmt.Sprint(arch, "/", i), func(t *testing.T) {
				if testing.Short() && i > 0 {
					t.Skip("-short takes one rounding")
				}
				runtimetest.TestExecutor(t, func(r runtime.Range) runtime.Executor {
					m, err := runtime.Open(runtime.Options{Path: path, Layers: r, Threads: 2})
					if err != nil {
						t.Fatal(err)
					}
					return rounding{m, m.Profile().Rounding(runtime.KVQ8, []runtime.SeamType{runtime.SeamQ8, runtime.SeamBF16}[i], []int{1, 3})}
				})
			})
		}
	}
}

// TestSeamOverflow has a residual stream that half precision cannot hold.
func TestSeamOverflow(t *testing.T) {
	m := open(t, runtime.Options{Path: tiny(t, runtimetest.TinyModel{Seed: 1, Layers: 2})})
	c := m.Config()
	seam := slices.Repeat([]float32{1e6}, c.Width)
	for _, typ := range runtime.SeamTypes() {
		seq, err := m.NewSequenceFor(m.Profile().Rounding(runtime.KVF16, typ, []int{2}), 4, m.Layers())
		if err != nil {
			t.Fatal(err)
		}
		defer seq.Close()
		step := &runtime.Step{Seq: seq, Layers: runtime.Range{First: 1, Last: 2}, N: 1, Seam: seam}
		err = m.Run(t.Context(), []*runtime.Step{step})
		var e *runtime.NonFiniteError
		if typ != runtime.SeamF16 && err != nil {
			t.Errorf("%v: %v", typ, err)
		} else if typ == runtime.SeamF16 && (!errors.As(err, &e) || e.Layer != 2 || e.What != "rounded seam") {
			t.Errorf("%v: error %v", typ, err)
		}
	}
}

// TestComputes has profiles that no executor here can do.
func TestComputes(t *testing.T) {
	m := open(t, runtime.Options{Path: tiny(t, runtimetest.TinyModel{Seed: 1, Layers: 2})})
	own := m.Profile()
	for _, p := range []runtime.Profile{
		own.Rounding(runtime.KVQ8+1, runtime.SeamF32, nil),
		own.Rounding(runtime.KVF16, runtime.SeamQ8+1, []int{1}),
		own.Rounding(runtime.KVF16, runtime.SeamQ8, []int{0}),
		own.Rounding(runtime.KVF16, runtime.SeamQ8, []int{3}),
		own.Rounding(runtime.KVF16, runtime.SeamQ8, []int{2, 1}),
		{Rules: 2, AttnBlock: own.AttnBlock},
	} {
		var e *runtime.ProfileError
		if _, err := m.NewSequenceFor(p, 4, m.Layers()); !errors.As(err, &e) {
			t.Errorf("%v: error %v", p, err)
		}
	}
}

func TestParseSeam(t *testing.T) {
	own := runtime.NewProfile(runtime.KVF16)
	for _, text := range []string{"f32", "q8_0@10,20", "bf16@1", "f16@7,8,65535"} {
		typ, cuts, err := runtime.ParseSeam(text)
		if got := own.Rounding(runtime.KVF16, typ, cuts).SeamText(); err != nil || got != text {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	if typ, cuts, err := runtime.ParseSeam("q8_0"); typ != runtime.SeamQ8 || cuts != nil || err != nil {
		t.Errorf("q8_0: %v %v %v", typ, cuts, err)
	}
	for _, text := range []string{"", "f64", "q8_0@", "q8_0@0", "q8_0@2,2", "q8_0@3,x", "q8_0@-1"} {
		if _, _, err := runtime.ParseSeam(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// TestSeamBytes takes a step's rows to bytes and back in each type.
func TestSeamBytes(t *testing.T) {
	m := open(t, runtime.Options{Path: tiny(t, runtimetest.TinyModel{Seed: 1, Layers: 2})})
	width := m.Config().Width
	for _, typ := range runtime.SeamTypes() {
		seq, err := m.NewSequenceFor(m.Profile().Rounding(runtime.KVF16, typ, []int{1}), 4, m.Layers())
		if err != nil {
			t.Fatal(err)
		}
		defer seq.Close()
		step := &runtime.Step{Seq: seq, Layers: runtime.Range{First: 0, Last: 1}, N: 3, Tokens: []int32{1, 2, 3}}
		run(t, m, step)
		b := typ.Append(nil, step.Out, width)
		if len(b) != 3*typ.Bytes(width) {
			t.Errorf("%v: %d bytes, want %d", typ, len(b), 3*typ.Bytes(width))
		}
		for _, x := range typ.Decode(bytes.Repeat([]byte{0xff}, typ.Bytes(width)), width) {
			if x == x {
				t.Fatalf("%v: bytes of ones are %v", typ, x) // package node means "no rows" by them
			}
		}
		for i, x := range typ.Decode(b, width) {
			if math.Float32bits(x) != math.Float32bits(step.Out[i]) {
				t.Fatalf("%v: element %d is %v, was %v", typ, i, x, step.Out[i])
			}
		}
	}
}
