package golden

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/tokenizer"
)

// maxExpected bounds expected.json, in bytes: about a thousand times those of tiny models.
const maxExpected = 64 << 20

// Tolerances: with F32, F16 or BF16 weights the largest absolute error of a logit or hidden element, whose standard deviation
// is about 3; with quantised weights, whose activations are quantised, too, the least cosine of a row of logits and the
// least share of likeliest tokens that agree.
const (
	absolute  = 2e-3
	cosine    = 0.98
	agreement = 0.75
)

// Expected is expected.json, as far as it is compared.
type Expected struct {
	Prompt           []int32       `json:"prompt"`
	LogitsPositions  []int         `json:"logits_positions"`
	Logits           [][]float32   `json:"logits"`             // [LogitsPositions][Vocab]
	Greedy           []int32       `json:"greedy"`             // after the prompt
	GreedyLastLogits []float32     `json:"greedy_last_logits"` // [Vocab] after all of Greedy
	HiddenPositions  []int         `json:"hidden_positions"`
	Hidden           [][][]float32 `json:"hidden"` // [Layers+1][HiddenPositions][Width]: the input of layer 0, then each layer's output
	Cache            struct {
		PerLayer []struct {
			Growing float64 `json:"growing"` // elements per position, on average
			Ring    int     `json:"ring"`    // elements of a window
			State   int     `json:"state"`   // elements in any case
		} `json:"per_layer"`
	} `json:"cache"`
	Tokenize []struct {
		Text string  `json:"text"`
		IDs  []int32 `json:"ids"`
	} `json:"tokenize"`
}

// Read reads dir/expected.json and checks that its parts fit each other.
func Read(dir string) (*Expected, error) {
	path := filepath.Join(dir, "expected.json")
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxExpected+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxExpected {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxExpected)
	}
	e, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return e, nil
}

func parse(data []byte) (*Expected, error) {
	e := new(Expected)
	if err := json.Unmarshal(data, e); err != nil {
		return nil, err
	}
	return e, e.check()
}

// check compares the lengths of lists.
func (e *Expected) check() error {
	inside := func(key string, positions []int) error {
		if !slices.IsSorted(positions) {
			return fmt.Errorf("%s is not ascending", key)
		}
		if n := len(positions); n > 0 && (positions[0] < 0 || positions[n-1] >= len(e.Prompt)) {
			return fmt.Errorf("%s goes beyond the prompt's %d tokens", key, len(e.Prompt))
		}
		return nil
	}
	switch {
	case len(e.Prompt) == 0:
		return errors.New("prompt is missing or empty")
	case len(e.LogitsPositions) == 0 || len(e.Logits) != len(e.LogitsPositions):
		return fmt.Errorf("%d logits for %d logits_positions", len(e.Logits), len(e.LogitsPositions))
	case e.LogitsPositions[len(e.LogitsPositions)-1] != len(e.Prompt)-1:
		return errors.New("the last of logits_positions is not the prompt's last token")
	}
	for l, rows := range e.Hidden {
		if len(rows) != len(e.HiddenPositions) {
			return fmt.Errorf("hidden[%d] has %d rows for %d hidden_positions", l, len(rows), len(e.HiddenPositions))
		}
	}
	return cmp.Or(inside("logits_positions", e.LogitsPositions), inside("hidden_positions", e.HiddenPositions))
}

// Report is how near the engine came.
type Report struct {
	Quantised bool    `json:"quantised"`         // so that Cosine counts, not Logits and Hidden
	Logits    float64 `json:"logits_max_error"`  // absolute
	Hidden    float64 `json:"hidden_max_error"`  // absolute
	Cosine    float64 `json:"logits_min_cosine"` // of the rows of logits
	Greedy    int     `json:"greedy_agreed"`     // of GreedyOf tokens, each predicted after the reference's
	GreedyOf  int     `json:"greedy_of"`
}

// Check opens dir/model.gguf with the options given (its path and KV type are set here) and compares everything: cache
// sizes, tokens, logits, greedy decoding, hidden states after each layer. The error is the first disagreement.
func Check(ctx context.Context, dir string, o runtime.Options) (Report, error) {
	r := Report{Cosine: 1}
	e, err := Read(dir)
	if err != nil {
		return r, err
	}
	o.Path, o.KV = filepath.Join(dir, "model.gguf"), runtime.KVF32
	layers, head, err := runtime.CountOps(o.Path)
	if err != nil {
		return r, err
	}
	r.Quantised = layers.Int8+head.Int8 > 0
	m, err := runtime.Open(o)
	if err != nil {
		return r, err
	}
	defer m.Close()
	k := check{e, m, &r}
	for _, part := range []func(context.Context) error{k.cache, k.tokenize, k.tokens, k.hidden} {
		if err := part(ctx); err != nil {
			return r, fmt.Errorf("%s: %w", dir, err)
		}
	}
	return r, nil
}

// check is a comparison under way.
type check struct {
	*Expected
	m *runtime.Model
	r *Report
}

// cache compares what a position takes in each layer.
func (k *check) cache(context.Context) error {
	c := k.m.Config()
	if len(k.Cache.PerLayer) != c.Layers {
		return fmt.Errorf("cache: %d layers expected, the model has %d", len(k.Cache.PerLayer), c.Layers)
	}
	for l, want := range k.Cache.PerLayer {
		row := c.Cache[l].RowElems()
		growing, ring := row, 0
		if n := c.Cache[l].Window; n > 0 {
			growing, ring = 0, row*n
		}
		if float64(growing) != want.Growing || ring != want.Ring || c.Cache[l].State != want.State {
			return fmt.Errorf("cache of layer %d: %d elements a position, %d of a window and %d of a state, want %v, %d and %d",
				l, growing, ring, c.Cache[l].State, want.Growing, want.Ring, want.State)
		}
	}
	return nil
}

// tokenize compares token ids.
func (k *check) tokenize(context.Context) error {
	for _, c := range k.Tokenize {
		if got := k.m.Tokenizer().Encode(c.Text, tokenizer.EncodeOptions{}); !slices.Equal(got, c.IDs) {
			return fmt.Errorf("tokens of %q: %v, want %v", c.Text, got, c.IDs)
		}
	}
	return nil
}

// tokens compares logits of the prompt, and of decoding one token after the other.
func (k *check) tokens(ctx context.Context) error {
	s, err := k.m.NewSequence(len(k.Prompt)+len(k.Greedy), k.m.Layers())
	if err != nil {
		return err
	}
	defer s.Close()
	step := &runtime.Step{Seq: s, Layers: k.m.Layers(), N: len(k.Prompt), Tokens: k.Prompt, LogitRows: k.LogitsPositions}
	if err := k.m.Run(ctx, []*runtime.Step{step}); err != nil {
		return err
	}
	for i, at := range k.LogitsPositions {
		if err := k.logits(fmt.Sprintf("logits at position %d", at), step.Logits[i], k.Logits[i]); err != nil {
			return err
		}
	}
	next := step.Logits[len(step.Logits)-1]
	k.r.GreedyOf = len(k.Greedy)
	for i, want := range k.Greedy {
		at := len(k.Prompt) + i
		got, err := runtime.Sample(next, nil, at, runtime.Sampling{})
		if err != nil {
			return err
		}
		if got == want {
			k.r.Greedy++
		} else if !k.r.Quantised {
			return fmt.Errorf("greedy token %d: %d, want %d", i, got, want)
		}
		one := &runtime.Step{Seq: s, Layers: k.m.Layers(), Start: at, N: 1, Tokens: []int32{want}, LogitRows: []int{0}}
		if err := k.m.Run(ctx, []*runtime.Step{one}); err != nil {
			return err
		}
		next = one.Logits[0]
	}
	if k.r.Greedy < int(math.Ceil(agreement*float64(len(k.Greedy)))) {
		return fmt.Errorf("greedy tokens: %d of %d agree", k.r.Greedy, len(k.Greedy))
	}
	if len(k.GreedyLastLogits) == 0 {
		return nil
	}
	return k.logits("logits after decoding", next, k.GreedyLastLogits)
}

// logits compares one row of logits.
func (k *check) logits(what string, got, want []float32) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d values, want %d", what, len(got), len(want))
	}
	d, cos := difference(got, want)
	k.r.Logits, k.r.Cosine = math.Max(k.r.Logits, d), math.Min(k.r.Cosine, cos)
	switch {
	case k.r.Quantised && !(cos >= cosine):
		return fmt.Errorf("%s: their cosine with the reference's is %.4f, less than %v", what, cos, cosine)
	case !k.r.Quantised && !(d <= absolute):
		return fmt.Errorf("%s: off by %.2g, more than %v", what, d, absolute)
	}
	return nil
}

// hidden compares the output of each layer, computed from the previous one's.
func (k *check) hidden(ctx context.Context) error {
	c := k.m.Config()
	if len(k.Hidden) == 0 {
		return nil
	}
	if len(k.Hidden) != c.Layers+1 {
		return fmt.Errorf("hidden states of %d layers expected, the model has %d", len(k.Hidden)-1, c.Layers)
	}
	s, err := k.m.NewSequence(len(k.Prompt), k.m.Layers())
	if err != nil {
		return err
	}
	defer s.Close()
	var seam []float32
	for l := range c.Layers {
		one := &runtime.Step{Seq: s, Layers: runtime.Range{First: l, Last: l + 1}, N: len(k.Prompt), Seam: seam, KeepHidden: true}
		if l == 0 {
			one.Tokens = k.Prompt
		}
		if err := k.m.Run(ctx, []*runtime.Step{one}); err != nil {
			return err
		}
		for i, at := range k.HiddenPositions {
			got, want := one.Out[at*c.Width:(at+1)*c.Width], k.Hidden[l+1][i]
			if len(want) != c.Width {
				return fmt.Errorf("hidden state after layer %d: %d values expected, the model has %d", l, len(want), c.Width)
			}
			d, _ := difference(got, want)
			k.r.Hidden = math.Max(k.r.Hidden, d)
			if !k.r.Quantised && !(d <= absolute) {
				return fmt.Errorf("hidden state after layer %d at position %d: off by %.2g, more than %v", l, at, d, absolute)
			}
		}
		seam = one.Out
	}
	return nil
}

// difference returns the largest absolute difference of two rows, and their cosine.
func difference(a, b []float32) (largest, cos float64) {
	var ab, aa, bb float64
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		largest = math.Max(largest, math.Abs(x-y))
		ab, aa, bb = ab+float64(x*y), aa+float64(x*x), bb+float64(y*y)
	}
	return largest, ab / math.Sqrt(aa*bb)
}
