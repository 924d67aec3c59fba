package runtime_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
	"lukechampine.com/blake3"
)

// chains are settings that have each sampler alone, and all of them.
func chains() map[string]runtime.Sampling {
	one := func(change func(s *runtime.Sampling)) runtime.Sampling {
		s := runtime.Greedy()
		s.Temperature = 1
		change(&s)
		return s
	}
	all := runtime.LlamaCpp()
	// powers of two, so that what is equal in float32 is so in float64
	all.PenaltyLastN, all.RepetitionPenalty, all.FrequencyPenalty, all.PresencePenalty = 30, 2, 0.125, -0.25
	all.DRY.Multiplier, all.DRY.Base, all.DRY.LastN = 0.5, 1.5, 50
	all.TypicalP, all.TopP, all.MinP, all.XTCProbability = 0.9, 0.9, 0.02, 0.5
	all.TemperatureRange, all.TemperatureExponent = 0.5, 1.5
	all.Bias = []runtime.TokenBias{{5, 2}, {7, runtime.Ban}, {1000000, 1}}
	return map[string]runtime.Sampling{
		"greedy":            runtime.Greedy(),
		"temperature":       one(func(s *runtime.Sampling) { s.Temperature = 0.7 }),
		"hot":               one(func(s *runtime.Sampling) { s.Temperature = 30 }),
		"top-k":             one(func(s *runtime.Sampling) { s.TopK = 7 }),
		"top-k of most":     one(func(s *runtime.Sampling) { s.TopK = 90 }),
		"typical":           one(func(s *runtime.Sampling) { s.TypicalP = 0.3 }),
		"typical, most":     one(func(s *runtime.Sampling) { s.TypicalP = 0.95 }),
		"top-p":             one(func(s *runtime.Sampling) { s.TopP = 0.6 }),
		"top-p, most":       one(func(s *runtime.Sampling) { s.TopP = 0.999999 }),
		"min-p":             one(func(s *runtime.Sampling) { s.MinP = 0.1 }),
		"XTC":               one(func(s *runtime.Sampling) { s.XTCProbability = 0.5 }),
		"XTC of top-k":      one(func(s *runtime.Sampling) { s.XTCProbability, s.XTCThreshold, s.TopK = 1, 0.02, 20 }),
		"XTC of everything": one(func(s *runtime.Sampling) { s.XTCProbability, s.XTCThreshold = 1, 0 }),
		"XTC off":           one(func(s *runtime.Sampling) { s.XTCProbability, s.XTCThreshold = 1, 0.6 }),
		"DRY":               one(func(s *runtime.Sampling) { s.DRY.Multiplier = 0.8 }),
		"DRY, latest":       one(func(s *runtime.Sampling) { s.DRY.Multiplier, s.DRY.LastN, s.DRY.AllowedLength = 0.8, 20, 1 }),
		"DRY, base 1":       one(func(s *runtime.Sampling) { s.DRY.Multiplier, s.DRY.Base, s.DRY.AllowedLength = 0.5, 1, 0 }),
		"repetition":        one(func(s *runtime.Sampling) { s.RepetitionPenalty = 1.3 }),
		"frequency":         one(func(s *runtime.Sampling) { s.FrequencyPenalty = 0.4 }),
		"presence":          one(func(s *runtime.Sampling) { s.PresencePenalty, s.PenaltyLastN = 0.9, -1 }),
		"no latest":         one(func(s *runtime.Sampling) { s.PresencePenalty, s.PenaltyLastN = 0.9, 0 }),
		"bias":              one(func(s *runtime.Sampling) { s.Bias = []runtime.TokenBias{{3, 4}, {4, runtime.Ban}, {0, -1000}} }),
		"dynamic":           one(func(s *runtime.Sampling) { s.TemperatureRange = 0.6 }),
		"dynamic from 0":    one(func(s *runtime.Sampling) { s.Temperature, s.TemperatureRange, s.TemperatureExponent = 0, 1, 3 }),
		"llama.cpp":         runtime.LlamaCpp(),
		"all":               all,
	}
}

// someLogits returns logits of n tokens, with many equals every other time, and a history that repeats itself.
func someLogits(rng *rand.Rand, n int) (logits []float32, history []int32) {
	logits = make([]float32, n)
	coarse := rng.IntN(2) == 0
	for i := range logits {
		if logits[i] = float32(rng.NormFloat64() * 3); coarse {
			logits[i] = float32(math.Round(float64(logits[i])))
		}
	}
	history = make([]int32, rng.IntN(100))
	for i := range history {
		history[i] = int32(rng.IntN(4))
		if rng.IntN(8) == 0 {
			history[i] = int32(rng.IntN(n))
		}
	}
	return logits, history
}

// TestChain compares what is drawn from with the definition, for random logits: each sampler alone, and all.
func TestChain(t *testing.T) {
	breakers := [][]int32{{2}, {3, 1, 3}, {1, 1}}
	for name, s := range chains() {
		rng := rand.New(rand.NewPCG(8, 9))
		s.DRY.Breakers = runtime.BreakersOf(breakers...)
		for trial := range 200 {
			logits, history := someLogits(rng, 8+rng.IntN(120))
			got, err := runtime.Distribution(logits, history, trial, s)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for id, want := range reference(logits, history, trial, s, breakers...) {
				// float32 logits and weights: a few units of 2^−24, more where a large penalty or a high power comes in
				if p := got[int32(id)]; math.Abs(p-want) > 2e-5 {
					t.Fatalf("%s, trial %d: token %d has probability %v, want %v", name, trial, id, p, want)
				}
			}
		}
	}
}

// TestLargeVocabulary does so where the whole vocabulary is never put in order.
func TestLargeVocabulary(t *testing.T) {
	rng := rand.New(rand.NewPCG(10, 11))
	for name, s := range chains() {
		s.Bias = append(s.Bias, runtime.TokenBias{ID: 11, Bias: runtime.Ban})
		logits, history := someLogits(rng, 5000)
		got, err := runtime.Distribution(logits, history, 3, s)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for id, want := range reference(logits, history, 3, s) {
			if p := got[int32(id)]; math.Abs(p-want) > 2e-5 {
				t.Fatalf("%s: token %d has probability %v, want %v", name, id, p, want)
			}
		}
	}
}

// TestSampleAnyOrder samples positions in another order, from several goroutines at once, and with its biases in another
// order: nothing that came before may matter.
func TestSampleAnyOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(12, 13))
	logits, history := someLogits(rng, 3000)
	for name, s := range chains() {
		const n = 30
		want := make([]int32, n)
		for at := range want {
			want[at], _ = runtime.Sample(logits, history, at, s)
		}
		slices.Reverse(s.Bias)
		var wg sync.WaitGroup
		for range 4 {
			wg.Add(1)
			order := rng.Perm(n)
			go func() {
				defer wg.Done()
				for _, at := range order {
					if got, err := runtime.Sample(logits, history, at, s); err != nil || got != want[at] {
						t.Errorf("%s: position %d: token %d, %v; alone %d", name, at, got, err, want[at])
					}
				}
			}()
		}
		wg.Wait()
	}
}

// TestSampleBits holds the chain still: these tokens are the same on every machine, and a change is another version of
// the session protocol.
func TestSampleBits(t *testing.T) {
	rng := rand.New(rand.NewPCG(14, 15))
	all := chains()
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	h := blake3.New(32, nil)
	for _, name := range names {
		for at := range 100 {
			logits, history := someLogits(rng, 500)
			id, err := runtime.Sample(logits, history, at, all[name])
			if err != nil {
				t.Fatal(err)
			}
			chosen, top := runtime.Logprobs(logits, id, 3)
			for _, p := range append(top, chosen) {
				h.Write(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, uint32(p.ID)), math.Float32bits(p.Logprob)))
			}
		}
	}
	const want = "498541e2ef981b9f"
	if got := fmt.Sprintf("%x", h.Sum(nil)[:8]); got != want {
		t.Errorf("digest of tokens and log-probabilities is %s, want %s", got, want)
	}
}

// TestChainExtremes checks logits, biases and penalties at the ends of their ranges.
func TestChainExtremes(t *testing.T) {
	most := float32(math.MaxFloat32)
	for name, c := range map[string]struct {
		logits  []float32
		history []int32
		s       runtime.Sampling
		want    []int32 // that may be chosen
	}{
		"all equal":             {[]float32{1, 1, 1}, nil, runtime.Sampling{Temperature: 1, TopK: 2}, []int32{0, 1}},
		"all least":             {[]float32{-most, -most}, nil, runtime.Sampling{Temperature: 1}, []int32{0, 1}},
		"all but one banned":    {[]float32{9, 1, 9}, nil, runtime.Sampling{Bias: []runtime.TokenBias{{0, runtime.Ban}, {2, runtime.Ban}}, Temperature: 100}, []int32{1}},
		"banned, top-k":         {[]float32{9, 1, 9}, nil, runtime.Sampling{Bias: []runtime.TokenBias{{0, runtime.Ban}, {2, runtime.Ban}}, Temperature: 1, TopK: 2}, []int32{1}},
		"banned, typical":       {[]float32{9, 1, 9}, nil, runtime.Sampling{Bias: []runtime.TokenBias{{0, runtime.Ban}}, Temperature: 1, TypicalP: 0.5}, []int32{2}},
		"banned, penalties":     {[]float32{9, 1}, []int32{0, 0}, runtime.Sampling{Bias: []runtime.TokenBias{{0, runtime.Ban}}, PenaltyLastN: -1, FrequencyPenalty: -100, RepetitionPenalty: 50}, []int32{1}},
		"penalties overflow":    {[]float32{most, -most}, []int32{0, 0, 1}, runtime.Sampling{PenaltyLastN: -1, RepetitionPenalty: 1e-30, FrequencyPenalty: -100, Temperature: 1}, []int32{0}},
		"division overflows":    {[]float32{most, 0}, []int32{0}, runtime.Sampling{PenaltyLastN: 1, RepetitionPenalty: 1e-30, Temperature: 1}, []int32{0}},
		"bias over the end":     {[]float32{-most, -most, 0}, nil, runtime.Sampling{Bias: []runtime.TokenBias{{0, -1000}, {1, 1000}}, Temperature: 1}, []int32{2}},
		"DRY beyond float32":    {[]float32{5, 4}, make([]int32, 5000), runtime.Sampling{DRY: runtime.DRY{Multiplier: 100, Base: 100, LastN: -1}, Temperature: 1}, []int32{1}},
		"XTC without a rest":    {[]float32{1, 1}, nil, runtime.Sampling{XTCProbability: 1, XTCThreshold: 0.5, Temperature: 1}, []int32{1}},
		"XTC of one":            {[]float32{1}, nil, runtime.Sampling{XTCProbability: 1, Temperature: 1}, []int32{0}},
		"dynamic, one has all":  {[]float32{most, 0}, nil, runtime.Sampling{TemperatureRange: 1, TemperatureExponent: 1}, []int32{0}},
		"dynamic, least":        {[]float32{1, 0}, nil, runtime.Sampling{TemperatureRange: 1, TemperatureExponent: 100}, []int32{0}},
		"foreign history":       {[]float32{1, 0}, []int32{-5, 7, -5, 7, -5}, runtime.Sampling{PenaltyLastN: -1, PresencePenalty: 1, DRY: runtime.DRY{Multiplier: 1, Base: 2, LastN: -1}}, []int32{0}},
		"typical of equal ones": {[]float32{2, 2, 2, 2}, nil, runtime.Sampling{TypicalP: 0.3, Temperature: 1}, []int32{0, 1}},
	} {
		seen := map[int32]bool{}
		for at := range 60 {
			id, err := runtime.Sample(c.logits, c.history, at, c.s)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !slices.Contains(c.want, id) {
				t.Errorf("%s: token %d, want one of %v", name, id, c.want)
			}
			seen[id] = true
		}
		if len(seen) != len(c.want) {
			t.Errorf("%s: only %v were chosen, want %v", name, seen, c.want)
		}
	}
}

// TestBreakers finds breakers within and across tokens.
func TestBreakers(t *testing.T) {
	tok := runtimetest.FakeTokenizer() // a token for each byte
	b, err := runtime.NewBreakers(tok, []string{":", "\r\n"})
	if err != nil {
		t.Fatal(err)
	}
	if got := b.Sequences(':'); len(got) != 1 || len(got[0]) != 0 {
		t.Errorf("a token that is a breaker has %v", got)
	}
	if got := b.Sequences('\r'); len(got) != 1 || !slices.Equal(got[0], []int32{'\n'}) {
		t.Errorf("the first byte of two begins %v", got)
	}
	if got := b.Sequences('\n'); got != nil {
		t.Errorf("the second byte of two begins %v", got)
	}
	for _, bad := range [][]string{{""}, {strings.Repeat("x", 41)}, make([]string, 65)} {
		if _, err := runtime.NewBreakers(tok, bad); err == nil {
			t.Errorf("breakers %q are accepted", bad)
		}
	}
}

func TestLogprobs(t *testing.T) {
	rng := rand.New(rand.NewPCG(16, 17))
	for range 50 {
		logits, _ := someLogits(rng, 1+rng.IntN(700))
		chosen := int32(rng.IntN(len(logits)))
		p := reference(logits, nil, 0, runtime.Sampling{Temperature: 1})
		of, top := runtime.Logprobs(logits, chosen, 20)
		if of.ID != chosen || len(top) != min(20, len(logits)) {
			t.Fatalf("%d tokens, chosen %d, want %d", len(top), of.ID, chosen)
		}
		for i, x := range append(top, of) {
			if want := math.Log(p[x.ID]); math.Abs(float64(x.Logprob)-want) > 1e-5 {
				t.Errorf("token %d has %v, want %v", x.ID, x.Logprob, want)
			}
			if i > 0 && i < len(top) && (logits[x.ID] > logits[top[i-1].ID] || logits[x.ID] == logits[top[i-1].ID] && x.ID < top[i-1].ID) {
				t.Errorf("token %d comes after %d", x.ID, top[i-1].ID)
			}
		}
	}
	of, _ := runtime.Logprobs([]float32{-math.MaxFloat32, math.MaxFloat32}, 0, 0)
	if of.Logprob != -math.MaxFloat32 {
		t.Errorf("the least likely has %v", of.Logprob)
	}
}

// FuzzSample checks that no settings and no logits panic or give a token that has no probability.
func FuzzSample(f *testing.F) {
	f.Add([]byte{}, []byte{}, uint64(0))
	f.Add([]byte("some settings, of which most are within their ranges or not"), []byte("logits and history"), uint64(7))
	for _, s := range chains() {
		f.Add(settingBytes(s), []byte("0123456789abcdef0123456789abcdef0123456789abcdef"), uint64(3))
	}
	f.Fuzz(func(t *testing.T, settings, data []byte, seed uint64) {
		s := settingsOf(settings)
		s.Seed = seed
		var logits []float32
		for ; len(data) >= 4 && len(logits) < 300; data = data[4:] {
			logits = append(logits, math.Float32frombits(binary.LittleEndian.Uint32(data)))
		}
		var history []int32
		for i := range min(len(settings), 200) {
			history = append(history, int32(int8(settings[i])))
		}
		s.DRY.Breakers = runtime.BreakersOf([]int32{1}, []int32{2, 3})
		id, err := runtime.Sample(logits, history, len(settings), s)
		if err != nil {
			return
		}
		p, err := runtime.Distribution(logits, history, len(settings), s)
		if err != nil || id < 0 || int(id) >= len(logits) || !(p[id] > 0) {
			t.Errorf("%+v: token %d of probability %v, %v", s, id, p[id], err)
		}
		sum := 0.0
		for id, p := range p {
			sum += p
			if slices.Contains(s.Bias, runtime.TokenBias{ID: id, Bias: runtime.Ban}) {
				t.Errorf("token %d is banned", id)
			}
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Errorf("%+v: probabilities sum to %v", s, sum)
		}
		runtime.Logprobs(logits, id, len(settings))
	})
}

// settingsOf reads settings from bytes; missing ones are 0.
func settingsOf(b []byte) (s runtime.Sampling) {
	for _, v := range floats(&s) {
		if len(b) >= 4 {
			*v = math.Float32frombits(binary.LittleEndian.Uint32(b))
			b = b[4:]
		}
	}
	for _, v := range []*int{&s.TopK, &s.PenaltyLastN, &s.DRY.AllowedLength, &s.DRY.LastN} {
		if len(b) > 0 {
			*v = int(int8(b[0]))
			b = b[1:]
		}
	}
	for ; len(b) >= 2; b = b[2:] {
		bias := runtime.TokenBias{ID: int32(b[0]), Bias: float32(int8(b[1]))}
		if b[1] == 0 {
			bias.Bias = runtime.Ban
		}
		s.Bias = append(s.Bias, bias)
	}
	return s
}

// settingBytes is what settingsOf reads.
func settingBytes(s runtime.Sampling) (b []byte) {
	for _, v := range floats(&s) {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(*v))
	}
	return append(b, byte(s.TopK), byte(s.PenaltyLastN), byte(s.DRY.AllowedLength), byte(s.DRY.LastN))
}

func floats(s *runtime.Sampling) []*float32 {
	return []*float32{&s.Temperature, &s.TemperatureRange, &s.TemperatureExponent, &s.TypicalP, &s.TopP, &s.MinP, &s.XTCProbability, &s.XTCThreshold,
		&s.RepetitionPenalty, &s.FrequencyPenalty, &s.PresencePenalty, &s.DRY.Multiplier, &s.DRY.Base}
}
