package runtime_test

import (
	"context"
	"flag"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/tokenizer"
)

// Flags of TestQuality, which bench/quality.sh sets.
var (
	qualityModel     = flag.String("quality.model", "", "GGUF file whose logits are judged")
	qualityReference = flag.String("quality.reference", "", "the same weights as F32")
	qualityText      = flag.String("quality.text", "", "file with the text to predict")
	qualityChunks    = flag.Int("quality.chunks", 0, "chunks of the text at most, or 0 for all")
	qualityLimit     = flag.Float64("quality.limit", math.Inf(1), "mean KL divergence above which the test fails")
)

const (
	qualityContext = 512 // tokens of a chunk, as llama-perplexity cuts the text
	qualityRows    = 32  // logits kept at a time
)

// TestQuality reports how far the logits of a quantised file, whose activations are quantised, too, lie from those of
// float32 arithmetic on the same weights: the Kullback-Leibler divergence of the predictions of the second half of each
// chunk of a text, the same positions that llama-perplexity --kl-divergence looks at.
func TestQuality(t *testing.T) {
	if *qualityModel == "" || *qualityReference == "" || *qualityText == "" {
		t.Skip("run by bench/quality.sh, with -quality.model, -quality.reference and -quality.text")
	}
	text, err := os.ReadFile(*qualityText)
	if err != nil {
		t.Fatal(err)
	}
	judged := open(t, runtime.Options{Path: *qualityModel})
	reference := open(t, runtime.Options{Path: *qualityReference, KV: runtime.KVF32})
	tok := judged.Tokenizer()
	tokens := tok.Encode(string(text), tokenizer.EncodeOptions{AddSpecial: true})
	var divergences []float64
	same := 0
	for c := 0; len(tokens) >= qualityContext && (*qualityChunks == 0 || c < *qualityChunks); c++ {
		chunk := slices.Clone(tokens[:qualityContext])
		tokens = tokens[qualityContext:]
		if tok.AddBOS() {
			chunk[0] = tok.BOS()
		}
		q, p := newPredictor(t, judged, chunk), newPredictor(t, reference, chunk)
		for at := qualityContext / 2; at < qualityContext-1; at += qualityRows {
			n := min(qualityRows, qualityContext-1-at)
			want, got := p.next(at, n), q.next(at, n)
			for i := range n {
				d, agree := divergence(want[i], got[i])
				divergences = append(divergences, d)
				if agree {
					same++
				}
			}
		}
		q.seq.Close()
		p.seq.Close()
	}
	if len(divergences) == 0 {
		t.Fatalf("%s has fewer than %d tokens", *qualityText, qualityContext)
	}
	slices.Sort(divergences)
	n, mean := len(divergences), 0.0
	for _, d := range divergences {
		mean += d / float64(n)
	}
	t.Logf("quality: %d positions, KL divergence mean %.6f, median %.6f, 99 %% %.6f, max %.6f, same best token %.2f %%",
		n, mean, divergences[n/2], divergences[n*99/100], divergences[n-1], 100*float64(same)/float64(n))
	if !(mean <= *qualityLimit) {
		t.Errorf("the mean divergence %.6f exceeds %.6f", mean, *qualityLimit)
	}
}

// predictor computes the logits of consecutive positions of a chunk.
type predictor struct {
	t     *testing.T
	m     runtime.Executor
	seq   runtime.Sequence
	chunk []int32
}

func newPredictor(t *testing.T, m runtime.Executor, chunk []int32) *predictor {
	seq, err := m.NewSequence(len(chunk), m.Layers())
	if err != nil {
		t.Fatal(err)
	}
	return &predictor{t, m, seq, chunk}
}

// next returns the logits of positions [at, at+n).
func (p *predictor) next(at, n int) [][]float32 {
	from := p.seq.Len(p.m.Layers().First)
	step := &runtime.Step{Seq: p.seq, Layers: p.m.Layers(), Start: from, N: at + n - from, Tokens: p.chunk[from : at+n]}
	for i := range n {
		step.LogitRows = append(step.LogitRows, at+i-from)
	}
	if err := p.m.Run(context.Background(), []*runtime.Step{step}); err != nil {
		p.t.Fatal(err)
	}
	return step.Logits
}

// divergence returns KL(softmax(p) ‖ softmax(q)), which rounding leaves at 0 or above, and whether both have the same
// largest element.
func divergence(p, q []float32) (sum float64, agree bool) {
	lp, lq := logSum(p), logSum(q)
	bestP, bestQ := 0, 0
	for i := range p {
		a, b := float64(p[i])-lp, float64(q[i])-lq
		sum += math.Exp(a) * (a - b)
		if p[i] > p[bestP] {
			bestP = i
		}
		if q[i] > q[bestQ] {
			bestQ = i
		}
	}
	return max(sum, 0), bestP == bestQ
}

// logSum returns log Σ exp(x).
func logSum(x []float32) float64 {
	largest := float64(slices.Max(x))
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(float64(v) - largest)
	}
	return largest + math.Log(sum)
}

// TestDivergence works the formula out by hand.
func TestDivergence(t *testing.T) {
	p := []float32{float32(math.Log(3)), 0} // 3/4, 1/4
	q := []float32{0, 0}                    // 1/2, 1/2
	want := 0.75*math.Log(1.5) + 0.25*math.Log(0.5)
	if got, agree := divergence(p, q); math.Abs(got-want) > 1e-7 || !agree {
		t.Errorf("divergence %v, %v; want %v, true", got, agree, want)
	}
	if got, agree := divergence(p, []float32{1, 2}); got <= 0 || agree {
		t.Errorf("divergence %v, %v; want above 0, false", got, agree)
	}
	if got, _ := divergence(p, []float32{float32(math.Log(3)) + 50, 50}); math.Abs(got) > 1e-6 {
		t.Errorf("shifted logits diverge by %v", got)
	}
}
