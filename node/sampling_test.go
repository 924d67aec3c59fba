package node

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
	"github.com/starling-swarm/starling/swarm/wire"
)

// everySetting has a value of its own in every setting.
func everySetting() control.Sampling {
	return control.Sampling{
		Seed: 1, Temperature: 2, TemperatureRange: 3, TemperatureExponent: 4, TopK: 5, TypicalP: 0.6, TopP: 0.7, MinP: 0.08, XTCProbability: 0.9, XTCThreshold: 0.1,
		PenaltyLastN: -1, RepetitionPenalty: 1.2, FrequencyPenalty: 1.3, PresencePenalty: -1.4,
		DRYMultiplier: 1.5, DRYBase: 1.6, DRYAllowedLength: 17, DRYLastN: 18, DRYBreakers: []string{"\n", "ab"},
		LogitBias: []control.LogitBias{{Token: 3, Bias: -2}, {Text: "xyx", Bias: 5}, {Text: "z", Ban: true}},
	}
}

// TestSamplingTravels checks that a decoder reads the settings that a client has.
func TestSamplingTravels(t *testing.T) {
	tok, q := runtimetest.FakeTokenizer(), everySetting()
	want, err := Sampling(&q, tok)
	if err != nil {
		t.Fatal(err)
	}
	if bias := []runtime.TokenBias{{ID: 3, Bias: -2}, {ID: 'x', Bias: 5}, {ID: 'y', Bias: 5}, {ID: 'z', Bias: runtime.Ban}}; !slices.Equal(want.Bias, bias) {
		t.Errorf("biases %v, want %v", want.Bias, bias)
	}
	for i, v := 0, reflect.ValueOf(want); i < v.NumField(); i++ {
		if name := v.Type().Field(i).Name; name != "Choice" && v.Field(i).IsZero() {
			t.Errorf("everySetting has no %s", name)
		}
	}
	open := &wire.SessionOpen{Sampling: wireSampling(&want, q.DRYBreakers)}
	frame := wire.Append(nil, open)
	m, err := wire.Read(strings.NewReader(string(frame)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := readSampling(&m.(*wire.SessionOpen).Sampling, tok)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, %v; sent %+v", got, err, want)
	}
}

func TestSamplingRefused(t *testing.T) {
	for want, change := range map[string]func(q *control.Sampling){
		"typical-p":         func(q *control.Sampling) { q.TypicalP = 2 },
		"logit bias":        func(q *control.Sampling) { q.LogitBias = append(q.LogitBias, control.LogitBias{Token: 'x', Bias: 1}) },
		"the vocabulary":    func(q *control.Sampling) { q.LogitBias = []control.LogitBias{{Token: 1 << 20}} },
		"sequence breaker":  func(q *control.Sampling) { q.DRYBreakers = []string{""} },
		"log-probabilities": func(q *control.Sampling) { q.Logprobs = 21 },
		"penalty last-n":    func(q *control.Sampling) { q.PenaltyLastN = 1 << 40 },
	} {
		q := everySetting()
		change(&q)
		if _, err := Sampling(&q, runtimetest.FakeTokenizer()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one about %s", err, want)
		}
	}
	if _, err := readSampling(&wire.Sampling{Bias: []wire.TokenBias{{ID: 1 << 31}}}, runtimetest.FakeTokenizer()); err == nil {
		t.Error("a token beyond int32 has a bias")
	}
}

// TestSettingsAcrossPeers compares an answer with settings of every kind, and its log-probabilities, between a route of
// several peers and one node alone.
func TestSettingsAcrossPeers(t *testing.T) {
	tn := newTestNet(t)
	tracker := tn.start(nil)
	id := tn.publish(tracker)
	layers := tn.layers()
	first, whole, client := tn.start(nil), tn.start(nil), tn.start(func(c *Config) { c.Client = true })
	tn.serve(first, id, 0, 1)
	tn.serve(whole, id, 0, layers)
	ask := func(k control.Constraints) (*control.Account, []control.Logprob) {
		var told []control.Logprob
		q := control.RunRequest{Model: id.String(), Prompt: "one two one two one", MaxNew: 12, Sampling: everySetting(), Constraints: k}
		q.Logprobs = 2
		a, err := client.run(context.Background(), q, func(ev control.Event) error {
			if ev.Kind == "text" && ev.Logprobs != nil {
				if len(ev.Logprobs) != 3 || ev.Logprobs[0].Token != ev.Token || ev.Logprobs[1].Logprob < ev.Logprobs[2].Logprob {
					t.Errorf("token %d comes with %+v", ev.Token, ev.Logprobs)
				}
				told = append(told, ev.Logprobs...)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return a, told
	}
	alone, toldAlone := ask(control.Constraints{Shape: "local", Decoder: whole.ID()})
	across, toldAcross := ask(control.Constraints{Shape: "across", Decoder: whole.ID()})
	if len(across.Stages) == 0 {
		t.Fatal("nobody else took part")
	}
	if !slices.Equal(alone.NewTokens, across.NewTokens) || !slices.Equal(toldAlone, toldAcross) || len(toldAlone) == 0 {
		t.Errorf("alone %v %v, across %v %v", alone.NewTokens, toldAlone, across.NewTokens, toldAcross)
	}
}

func TestMaxNew(t *testing.T) {
	for _, c := range []struct{ prompt, asked, context, want int }{
		{10, 0, 1000, 256}, {10, 0, 100, 90}, {10, 5, 100, 5}, {10, 500, 100, 90}, {99, 7, 100, 1}, {100, 1, 100, 0}, {500, 0, 100, 0}, {10, -1, 100, 0},
	} {
		got, err := MaxNew(c.prompt, c.asked, c.context)
		if got != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
}
