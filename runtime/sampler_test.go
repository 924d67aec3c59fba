package runtime_test

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime"
)

// TestPhilox compares with the known-answer vectors of Random123 (kat_vectors, philox4x32 10 rounds).
func TestPhilox(t *testing.T) {
	for _, c := range []struct {
		ctr  [4]uint32
		key  [2]uint32
		want [4]uint32
	}{
		{want: [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{
			[4]uint32{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, [2]uint32{0xffffffff, 0xffffffff},
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
		},
		{
			[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		},
	} {
		if got := runtime.Philox(c.ctr, c.key); got != c.want {
			t.Errorf("philox(%x, %x) = %x, want %x", c.ctr, c.key, got, c.want)
		}
	}
}

func sample(t testing.TB, logits []float32, position int, s runtime.Sampling) int32 {
	t.Helper()
	id, err := runtime.Sample(logits, nil, position, s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestGreedy(t *testing.T) {
	for _, c := range []struct {
		logits []float32
		want   int32
	}{
		{[]float32{1}, 0},
		{[]float32{1, 3, 2}, 1},
		{[]float32{3, 1, 3, 3}, 0}, // ties: the lowest id
		{[]float32{-5, -5}, 0},
		{[]float32{float32(math.Copysign(0, -1)), 0}, 0}, // equal zeros
		{[]float32{-math.MaxFloat32, math.MaxFloat32}, 1},
	} {
		if got := sample(t, c.logits, 0, runtime.Sampling{Seed: 9, TopK: 1, TopP: 0.1, MinP: 0.9}); got != c.want {
			t.Errorf("greedy of %v is %d, want %d", c.logits, got, c.want)
		}
		if got := sample(t, c.logits, 0, runtime.Sampling{Temperature: 1, TopK: 1}); got != c.want {
			t.Errorf("top-1 of %v is %d, want %d", c.logits, got, c.want)
		}
	}
}

// TestSampleDistribution draws often and compares frequencies with the definition by a χ² test. The draws are fixed by
// the seeds, so this passes or fails for ever.
func TestSampleDistribution(t *testing.T) {
	logits := []float32{0.3, 2.1, -1, 2.1, 0, 1.5, -4, 0.9, 1.2, -0.5}
	for _, s := range []runtime.Sampling{
		{Temperature: 1},
		{Temperature: 0.5, Choice: 3},
		{Temperature: 2, Seed: 77},
		{Temperature: 1, TopK: 3},
		{Temperature: 1, TopP: 0.8},
		{Temperature: 1.5, MinP: 0.2},
		{Temperature: 1.3, TopK: 7, TopP: 0.9, MinP: 0.05, Seed: math.MaxUint64},
		{Temperature: 1, TypicalP: 0.6},
		{Temperature: 1, TemperatureRange: 0.8, TemperatureExponent: 2},
	} {
		const n = 20000
		counts := make([]int, len(logits))
		for i := range n {
			counts[sample(t, logits, i, s)]++
		}
		chi, freedom := 0.0, -1
		for id, p := range reference(logits, nil, 0, s) {
			if p == 0 {
				if counts[id] != 0 {
					t.Errorf("%+v: token %d was drawn %d times and is excluded", s, id, counts[id])
				}
				continue
			}
			freedom++
			d := float64(counts[id]) - p*n
			chi += d * d / (p * n)
		}
		// 99.9 % quantiles of χ² with 1 to 9 degrees of freedom.
		limit := []float64{0, 10.83, 13.82, 16.27, 18.47, 20.52, 22.46, 24.32, 26.12, 27.88}[freedom]
		if chi > limit {
			t.Errorf("%+v: χ² is %.1f with %d degrees of freedom, limit %.1f; counts %v", s, chi, freedom, limit, counts)
		}
	}
}

// TestSampleKey checks that each part of the key matters and nothing else does.
func TestSampleKey(t *testing.T) {
	logits := make([]float32, 1000)
	draw := func(position int, s runtime.Sampling) (out []int32) {
		s.Temperature = 1
		for i := range 20 {
			out = append(out, sample(t, logits, position+i, s))
		}
		return out
	}
	base := draw(5, runtime.Sampling{Seed: 1})
	if !slices.Equal(base, draw(5, runtime.Sampling{Seed: 1})) {
		t.Error("the same key gives other tokens")
	}
	for what, other := range map[string][]int32{
		"seed":              draw(5, runtime.Sampling{Seed: 2}),
		"high bits of seed": draw(5, runtime.Sampling{Seed: 1 + 1<<40}),
		"choice":            draw(5, runtime.Sampling{Seed: 1, Choice: 1}),
		"position":          draw(6, runtime.Sampling{Seed: 1}),
	} {
		if slices.Equal(base, other) {
			t.Errorf("%s does not matter", what)
		}
	}
}

// TestTopK compares the heap with sorting, with many ties.
func TestTopK(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		logits := make([]float32, 1+rng.IntN(60))
		for i := range logits {
			logits[i] = float32(rng.IntN(8))
		}
		want := make([]int32, len(logits))
		for i := range want {
			want[i] = int32(i)
		}
		slices.SortStableFunc(want, func(a, b int32) int { return int(logits[b] - logits[a]) })
		for _, k := range []int{0, 1, 2, 5, len(logits) - 1, len(logits), 100} {
			n := k
			if k == 0 || k > len(logits) {
				n = len(logits)
			}
			if k < 0 {
				continue
			}
			if got := runtime.Order(logits, k); !slices.Equal(got, want[:n]) {
				t.Fatalf("order of %v, first %d: %v, want %v", logits, k, got, want[:n])
			}
		}
	}
}

func TestPenalties(t *testing.T) {
	logits := []float32{5, 4.5, 4}
	pick := func(history []int32, s runtime.Sampling) int32 {
		s.PenaltyLastN = -1
		id, err := runtime.Sample(logits, history, 0, s)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	for _, c := range []struct {
		history []int32
		s       runtime.Sampling
		want    int32
	}{
		{[]int32{0}, runtime.Sampling{}, 0},
		{nil, runtime.Sampling{PresencePenalty: 2}, 0},
		{[]int32{0, 0, 0}, runtime.Sampling{PresencePenalty: 0.4}, 0}, // counts once
		{[]int32{0, 0, 0}, runtime.Sampling{FrequencyPenalty: 0.2}, 1},
		{[]int32{0, 1, 0, 1}, runtime.Sampling{FrequencyPenalty: 1, PresencePenalty: 0.1}, 2},
		{[]int32{2}, runtime.Sampling{PresencePenalty: -2}, 2},
		{[]int32{-1, 99}, runtime.Sampling{PresencePenalty: 1}, 0}, // foreign ids are nobody's
	} {
		if got := pick(c.history, c.s); got != c.want {
			t.Errorf("history %v, %+v: %d, want %d", c.history, c.s, got, c.want)
		}
	}
	if !slices.Equal(logits, []float32{5, 4.5, 4}) {
		t.Error("Sample changed its logits")
	}
}

func TestSampleErrors(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		s    runtime.Sampling
		name string // of the setting
	}{
		{runtime.Sampling{Temperature: -1}, "temperature"},
		{runtime.Sampling{Temperature: nan}, "temperature"},
		{runtime.Sampling{Temperature: 101}, "temperature"},
		{runtime.Sampling{TemperatureRange: -1}, "temperature range"},
		{runtime.Sampling{TemperatureExponent: nan}, "temperature exponent"},
		{runtime.Sampling{TopK: -1}, "top-k"},
		{runtime.Sampling{TopP: 1.1}, "top-p"},
		{runtime.Sampling{TopP: nan}, "top-p"},
		{runtime.Sampling{MinP: -0.1}, "min-p"},
		{runtime.Sampling{TypicalP: 2}, "typical-p"},
		{runtime.Sampling{XTCProbability: 1.5}, "XTC probability"},
		{runtime.Sampling{XTCThreshold: nan}, "XTC threshold"},
		{runtime.Sampling{RepetitionPenalty: -1}, "repetition penalty"},
		{runtime.Sampling{FrequencyPenalty: nan}, "frequency penalty"},
		{runtime.Sampling{PresencePenalty: float32(math.Inf(1))}, "presence penalty"},
		{runtime.Sampling{PenaltyLastN: -2}, "penalty last-n"},
		{runtime.Sampling{DRY: runtime.DRY{Multiplier: -1}}, "DRY multiplier"},
		{runtime.Sampling{DRY: runtime.DRY{Base: nan}}, "DRY base"},
		{runtime.Sampling{DRY: runtime.DRY{AllowedLength: -1}}, "DRY allowed length"},
		{runtime.Sampling{DRY: runtime.DRY{LastN: -2}}, "DRY penalty last-n"},
		{runtime.Sampling{Bias: []runtime.TokenBias{{0, nan}}}, "logit bias"},
		{runtime.Sampling{Bias: []runtime.TokenBias{{0, float32(math.Inf(-1))}}}, "logit bias"},
		{runtime.Sampling{Bias: []runtime.TokenBias{{-1, 0}}}, "logit bias"},
		{runtime.Sampling{Bias: []runtime.TokenBias{{3, 1}, {3, 2}}}, "logit bias"},
		{runtime.Sampling{Bias: make([]runtime.TokenBias, runtime.MaxBias+1)}, "logit bias"},
		{runtime.Sampling{Bias: []runtime.TokenBias{{0, runtime.Ban}}}, "logit bias"}, // of the only token
	} {
		if _, err := runtime.Sample([]float32{1}, nil, 0, c.s); err == nil || !strings.HasPrefix(err.Error(), "runtime: "+c.name+" ") && !strings.HasPrefix(err.Error(), "runtime: "+c.name+":") {
			t.Errorf("%+v: error %v, want one about %s", c.s, err, c.name)
		}
	}
	for _, bad := range []float32{nan, float32(math.Inf(1)), float32(math.Inf(-1))} {
		var e *runtime.NonFiniteError
		if _, err := runtime.Sample([]float32{1, bad}, nil, 7, runtime.Sampling{}); !errors.As(err, &e) || e.Pos != 7 {
			t.Errorf("logit %v: error %v", bad, err)
		}
	}
	if _, err := runtime.Sample(nil, nil, 0, runtime.Sampling{}); err == nil {
		t.Error("no logits are accepted")
	}
}

// TestSampleExtremes checks temperatures and logits at the ends of their ranges.
func TestSampleExtremes(t *testing.T) {
	logits := []float32{-math.MaxFloat32, math.MaxFloat32, 0}
	for _, temperature := range []float32{math.SmallestNonzeroFloat32, 1e-20, 1, 100} {
		for p := range 50 {
			if got := sample(t, logits, p, runtime.Sampling{Temperature: temperature, TopP: 0.999}); got != 1 {
				t.Errorf("temperature %v: token %d", temperature, got)
			}
		}
	}
}

// TestOrder compares the order of a vocabulary with a sort by comparison, among values of all sizes and many equals.
func TestOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for trial := range 40 {
		logits := make([]float32, 1+rng.IntN(5000))
		for i := range logits {
			switch {
			case trial%2 == 0:
				logits[i] = float32(rng.NormFloat64())
			case rng.IntN(3) == 0:
				logits[i] = []float32{0, float32(math.Copysign(0, -1)), 0x1p-149, -0x1p-149, math.MaxFloat32, -math.MaxFloat32}[rng.IntN(6)]
			default:
				logits[i] = math.Float32frombits(rng.Uint32()&^0x40000000 | rng.Uint32()&0x3f800000)
			}
		}
		want := make([]int32, len(logits))
		for i := range want {
			want[i] = int32(i)
		}
		slices.SortStableFunc(want, func(a, b int32) int {
			switch {
			case logits[a] > logits[b]:
				return -1
			case logits[a] < logits[b]:
				return 1
			}
			return 0
		})
		for _, k := range []int{0, 1, 40, len(logits) - 1, len(logits)} {
			n := min(k, len(logits))
			if k == 0 {
				n = len(logits)
			}
			if got := runtime.Order(logits, k); !slices.Equal(got, want[:n]) {
				t.Fatalf("trial %d: the first %d of %d differ", trial, k, len(logits))
			}
		}
	}
}

// TestTypicalOrder compares the typical step, which puts no more of a vocabulary in order than it must, with its definition
// on all of it: bit for bit, ties and −∞ too.
func TestTypicalOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(18, 19))
	none := float32(math.Inf(-1))
	kinds := map[string]func() float32{
		"normal":       func() float32 { return float32(rng.NormFloat64() * 3) },
		"peaked":       func() float32 { return float32(rng.ExpFloat64() * rng.ExpFloat64() * 4) },
		"flat":         func() float32 { return float32(rng.NormFloat64() * 0.01) },
		"few values":   func() float32 { return float32(rng.IntN(6)) },
		"one value":    func() float32 { return -3 },
		"steps of 8":   func() float32 { return float32(-8 * rng.IntN(4)) },
		"neighbours":   func() float32 { return math.Nextafter32(1, float32(rng.IntN(3))) },
		"any exponent": func() float32 { return math.Float32frombits(rng.Uint32()&^0x40000000 | rng.Uint32()&0x3f800000) },
		"extremes":     func() float32 { return []float32{math.MaxFloat32, -math.MaxFloat32, 0}[rng.IntN(3)] },
	}
	check := func(name string, logits []float32, most float64) {
		t.Helper()
		if got, want := runtime.Typical(logits, most), typical(logits, most); !slices.Equal(got, want) {
			t.Errorf("%s: of %d tokens %d are left by %v, want %d; they differ", name, len(logits), len(got), most, len(want))
		}
	}
	for name, next := range kinds {
		for trial := range 150 {
			logits := make([]float32, 1+rng.IntN(1+trial*trial/4))
			for i := range logits {
				if logits[i] = next(); trial%3 == 1 && rng.IntN(3) == 0 {
					logits[i] = none
				}
			}
			if logits[0] == none {
				logits[0] = next()
			}
			check(name, logits, []float64{0.001, 0.3, 0.9, 0.95, 0.999, 1 - 0x1p-24}[rng.IntN(6)])
		}
	}
	many := make([]float32, 150_000) // so many that the mean is among them, where at first nothing is in order
	for i := range many {
		many[i] = float32(rng.NormFloat64() * 0.5)
	}
	many[7] = 10
	for _, most := range []float64{0.001, 0.5, 0.95} {
		check("a peak over many", many, most)
	}
}

// typical is step 6 of Sample by two sorts of the whole vocabulary.
func typical(logits []float32, most float64) []int32 {
	largest := slices.Max(logits)
	d, p := make([]float32, len(logits)), make([]float32, len(logits))
	var sums, products [4]float64
	var order []int32
	for id, logit := range logits {
		d[id] = logit - largest
		if logit > float32(math.Inf(-1)) {
			order = append(order, int32(id))
		}
	}
	kernels.Exps(p, d)
	for id := range p {
		if sums[id%4] += float64(p[id]); p[id] > 0 {
			products[id%4] += float64(p[id]) * float64(d[id])
		}
	}
	fold := func(x [4]float64) float64 { return (x[0] + x[2]) + (x[1] + x[3]) }
	sum := fold(sums)
	mean := fold(products) / sum
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(logits[b], logits[a]) })
	place := map[int32]int{}
	for i, id := range order {
		place[id] = i
	}
	near := slices.Clone(order)
	slices.SortStableFunc(near, func(a, b int32) int {
		return cmp.Compare(math.Abs(float64(d[a])-mean), math.Abs(float64(d[b])-mean))
	})
	kept, n := 0.0, 0
	for ; n < len(near) && kept <= most*sum; n++ {
		kept += float64(p[near[n]])
	}
	near = near[:n]
	slices.SortFunc(near, func(a, b int32) int { return cmp.Compare(place[a], place[b]) })
	return near
}
