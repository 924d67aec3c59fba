package session_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/session"
)

// open begins a session that must begin.
func (s *testSwarm) open(t *testing.T, k session.Constraints, tokens ...int32) *session.Session {
	t.Helper()
	ss, err := session.Open(t.Context(), s.client, session.Options{Model: s.id, Constraints: k, Wait: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ss.Close)
	if err := ss.Append(tokens...); err != nil {
		t.Fatal(err)
	}
	return ss
}

// generate takes a whole answer.
func generate(t *testing.T, s *session.Session, q session.Request) (made []int32) {
	t.Helper()
	for token, err := range s.Generate(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, token.ID)
	}
	return made
}

// shapes are routes over nodes that hold everything, [0, a), [a, b) and [b, end).
func (s *testSwarm) shapes(a, b int) map[string]session.Constraints {
	cuts, stages := []int{a, b}, s.peers[1:3]
	return map[string]session.Constraints{
		"local":     {Shape: "local", Decoder: s.peers[0]},
		"across":    {Shape: "across", Cuts: cuts, Assign: stages, Decoder: s.peers[0], Chunk: 16},
		"pipelined": {Shape: "pipelined", Cuts: cuts, Assign: stages, Decoder: s.peers[3], Chunk: 16},
		"any":       {},
	}
}

// TestHidden asks for hidden states at every boundary, those at cuts among them, and for logits, of published models of several
// families over each shape of route.
func TestHidden(t *testing.T) {
	for _, name := range []string{"qwen3_5_moe", "gemma3", "deepseek2_lite"} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "qwen3_5_moe" {
				t.Skip("-short takes one family")
			}
			path := golden(t, name)
			cfg, err := runtime.Inspect(path)
			if err != nil {
				t.Fatal(err)
			}
			n := cfg.Layers
			s := newSwarm(t, path, runtime.Range{First: 0, Last: n}, runtime.Range{First: 0, Last: 1}, runtime.Range{First: 1, Last: n - 1}, runtime.Range{First: n - 1, Last: n})
			tokens := someTokens(1, 90)
			want := s.numbers(t, tokens)
			var layers []int
			for l := range n + 1 {
				layers = append(layers, l)
			}
			for shape, k := range s.shapes(1, n-1) {
				ss := s.open(t, k, tokens...)
				if m := ss.Model(); m.NumLayers != n || m.Width != cfg.Width || m.Vocab != cfg.Vocab {
					t.Fatalf("the model is %+v", m)
				}
				hidden, err := ss.Hidden(t.Context(), layers, 0, len(tokens))
				if err != nil {
					t.Fatal(err)
				}
				if stages := len(ss.Account().Stages); (shape == "across" || shape == "pipelined") && stages != 2 {
					t.Errorf("%s: %d stages took part", shape, stages)
				}
				for l := range layers {
					if !slices.Equal(hidden[l], want.hidden[l]) {
						t.Errorf("%s: hidden states at boundary %d differ from the engine's", shape, l)
					}
				}
				one, err := ss.Hidden(t.Context(), []int{n - 1}, 40, 50) // inside what has been computed
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(one[0], want.hidden[n-1][40*cfg.Width:50*cfg.Width]) {
					t.Errorf("%s: hidden states of some positions differ from the engine's", shape)
				}
				logits, err := ss.Logits(t.Context(), 60, 90)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(logits, slices.Concat(want.logits[60:]...)) {
					t.Errorf("%s: logits differ from the engine's", shape)
				}
			}
			s.mustBeIdle(t)
		})
	}
}

// TestReuse measures what steps compute: what is new, wherever the session goes on from.
func TestReuse(t *testing.T) {
	for _, arch := range []string{"llama", "gemma3", "qwen35moe"} {
		t.Run(arch, func(t *testing.T) {
			s := newSwarm(t, tiny(t, arch), runtime.Range{First: 0, Last: 4}, runtime.Range{First: 0, Last: 2})
			rewinds := arch == "llama"
			check := func(what string, ss *session.Session, reused, computed int) {
				t.Helper()
				if a := ss.Account(); a.Reused != reused || a.Decoder.Tokens != computed {
					t.Errorf("%s: %d tokens reused and %d computed, want %d and %d", what, a.Reused, a.Decoder.Tokens, reused, computed)
				}
			}
			q := session.Request{MaxNew: 10, Sampling: session.Sampling{Temperature: 0.8, TopP: 0.95, Seed: 3}}
			ss := s.open(t, session.Constraints{Decoder: s.peers[0], Shape: "across", Cuts: []int{2}, Assign: s.peers[1:2], Chunk: 64}, someTokens(1, 300)...)
			if err := ss.Prefill(t.Context()); err != nil {
				t.Fatal(err)
			}
			if check("prefill", ss, 0, 299); len(ss.Account().Stages) != 1 || ss.Len() != 300 {
				t.Errorf("%d stages took part", len(ss.Account().Stages))
			}
			want := s.answer(t, ss.Tokens(), q)
			if made := generate(t, ss, q); !slices.Equal(made, want) || !slices.Equal(ss.Tokens()[300:], want) {
				t.Errorf("made %v, want %v", made, want)
			}
			check("generate after prefill", ss, 299, len(want)) // the prompt's last token, and all new ones but the last
			if err := ss.Append(someTokens(2, 30)...); err != nil {
				t.Fatal(err)
			}
			turn := ss.Fork()
			generate(t, ss, q)
			check("a further turn", ss, 299+len(want), 1+30+9)
			if got, want := generate(t, turn, q), s.answer(t, turn.Tokens()[:turn.Len()-10], q); !slices.Equal(got, want) {
				t.Errorf("a fork made %v, want %v", got, want)
			}
			if rewinds {
				check("a fork", turn, turn.Len()-11, 10)
			}
			if err := turn.Rewind(200); err != nil {
				t.Fatal(err)
			}
			want = s.answer(t, turn.Tokens(), q)
			if got := generate(t, turn, q); !slices.Equal(got, want) {
				t.Errorf("after a rewind: made %v, want %v", got, want)
			}
			if rewinds {
				check("after a rewind", turn, 199, len(want))
			} else {
				t.Logf("after a rewind from %d to 200: %d tokens reused, %d computed", 330+len(want)+10, turn.Account().Reused, turn.Account().Decoder.Tokens)
			}
			if _, err := turn.Hidden(t.Context(), []int{2}, 180, 190); err != nil {
				t.Fatal(err)
			}
			if rewinds {
				check("hidden states in the middle", turn, 180, 10)
			}
		})
	}
}

// TestProbeOfRouteLeft asks for hidden states over a route that turns out not to be worth walking: its stage has no cache of what
// the decoder has. The decoder gives them all, and nobody waits for the stage's.
func TestProbeOfRouteLeft(t *testing.T) {
	s := newSwarm(t, tiny(t, "llama"), runtime.Range{First: 0, Last: 4}, runtime.Range{First: 0, Last: 2})
	tokens := someTokens(1, 450)
	if err := s.open(t, session.Constraints{Shape: "local", Decoder: s.peers[0]}, tokens[:300]...).Prefill(t.Context()); err != nil {
		t.Fatal(err)
	}
	want, width, got := s.numbers(t, tokens), s.engine.Config().Width, 0
	a, err := s.client.Run(t.Context(), control.RunRequest{Model: s.id, Tokens: tokens, PromptOnly: true, Continued: true,
		Constraints: control.Constraints{Shape: "across", Cuts: []int{2}, Assign: s.peers[1:2], Decoder: s.peers[0], Chunk: 16},
		Probe:       &control.Probe{First: 310, Last: 450, Layers: []int{0, 1, 2, 3, 4}}}, func(ev control.Event) {
		if r := ev.Rows; r != nil {
			if got += r.Count; !bytes.Equal(r.Data, littleEndian(want.hidden[r.Layer][r.First*width:(r.First+r.Count)*width])) {
				t.Errorf("hidden states at boundary %d from position %d on differ", r.Layer, r.First)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if a.Reused != 299 || got != 5*140 {
		t.Errorf("%d tokens reused, %d rows", a.Reused, got)
	}
}

func littleEndian(x []float32) (b []byte) {
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// TestRandomSteps plays sessions that append, generate, rewind, fork and look at numbers in random order, and compares everything with
// runs that begin afresh.
func TestRandomSteps(t *testing.T) {
	for _, arch := range []string{"llama", "gemma3", "qwen35moe"} {
		t.Run(arch, func(t *testing.T) {
			if testing.Short() && arch != "qwen35moe" {
				t.Skip("-short takes one family")
			}
			s := newSwarm(t, tiny(t, arch), runtime.Range{First: 0, Last: 4}, runtime.Range{First: 0, Last: 1}, runtime.Range{First: 1, Last: 3}, runtime.Range{First: 3, Last: 4})
			width := s.engine.Config().Width
			for shape, k := range s.shapes(1, 3) {
				rng := rand.New(rand.NewPCG(uint64(len(shape)), 1))
				all := []*session.Session{s.open(t, k, someTokens(rng.IntN(100), 40)...)}
				for range 25 {
					ss := all[rng.IntN(len(all))]
					tokens := ss.Tokens()
					switch step := rng.IntN(7); {
					case step == 0 || len(tokens) < 2:
						if err := ss.Append(someTokens(rng.IntN(100), 1+rng.IntN(50))...); err != nil {
							t.Fatal(err)
						}
					case step == 1:
						if err := ss.Rewind(rng.IntN(len(tokens) + 1)); err != nil {
							t.Fatal(err)
						}
					case step == 2 && len(all) < 4:
						all = append(all, ss.Fork())
					case step == 3:
						if err := ss.Prefill(t.Context()); err != nil {
							t.Fatal(err)
						}
					case step == 4:
						first := rng.IntN(len(tokens))
						last := first + 1 + rng.IntN(len(tokens)-first)
						l := rng.IntN(5)
						got, err := ss.Hidden(t.Context(), []int{l}, first, last)
						if err != nil {
							t.Fatal(err)
						}
						if !slices.Equal(got[0], s.numbers(t, tokens).hidden[l][first*width:last*width]) {
							t.Errorf("%s: hidden states at boundary %d of [%d, %d) of %d differ", shape, l, first, last, len(tokens))
						}
					case step == 5:
						first := rng.IntN(len(tokens))
						got, err := ss.Logits(t.Context(), first, first+1)
						if err != nil {
							t.Fatal(err)
						}
						if !slices.Equal(got, s.numbers(t, tokens).logits[first]) {
							t.Errorf("%s: logits at %d of %d differ", shape, first, len(tokens))
						}
					default:
						q := session.Request{MaxNew: 1 + rng.IntN(8), Sampling: session.Sampling{Temperature: 0.9, Seed: rng.Uint64N(9)}}
						want := s.answer(t, tokens, q)
						leave := rng.IntN(12)
						made := []int32{}
						for token, err := range ss.Generate(t.Context(), q) {
							if err != nil {
								t.Fatal(err)
							}
							if made = append(made, token.ID); len(made) == leave {
								break
							}
						}
						if leave > 0 {
							want = want[:min(leave, len(want))]
						}
						if !slices.Equal(made, want) || !slices.Equal(ss.Tokens(), append(tokens, want...)) {
							t.Errorf("%s: after %d tokens came %v, want %v", shape, len(tokens), made, want)
						}
					}
				}
			}
			s.mustBeIdle(t)
		})
	}
}

// TestEnds ends steps at any time, by their context, by leaving the loop and by Close: nothing is left, and the session goes on, or says
// that it is closed.
func TestEnds(t *testing.T) {
	s := newSwarm(t, tiny(t, "llama"), runtime.Range{First: 0, Last: 4}, runtime.Range{First: 0, Last: 1}, runtime.Range{First: 1, Last: 3}, runtime.Range{First: 3, Last: 4})
	tokens := someTokens(1, 120)
	for shape, k := range s.shapes(1, 3) {
		for when := 1; when < 12; when += 2 {
			ctx, cancel := context.WithCancel(t.Context())
			events := 0
			var ss *session.Session
			ss, err := session.Open(t.Context(), s.client, session.Options{Model: s.id, Constraints: k, On: func(session.Event) {
				if events++; events == when {
					if when%3 == 0 {
						ss.Close()
					} else {
						cancel()
					}
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			if err := ss.Append(tokens...); err != nil {
				t.Fatal(err)
			}
			if when%4 == 1 {
				_, err = ss.Hidden(ctx, []int{0, 1, 2, 3, 4}, 0, len(tokens))
			} else {
				for _, err = range ss.Generate(ctx, session.Request{MaxNew: 30}) {
				}
			}
			cancel()
			switch {
			case events < when: // it was over before
			case when%3 == 0:
				if err != nil && !errors.Is(err, session.ErrClosed) || !errors.Is(ss.Append(1), session.ErrClosed) || !errors.Is(ss.Prefill(t.Context()), session.ErrClosed) {
					t.Errorf("%s: closed at event %d: %v", shape, when, err)
				}
			case err != nil && !errors.Is(err, context.Canceled): // its last word may have been here already
				t.Errorf("%s: ended at event %d: %v", shape, when, err)
			default:
				if _, err := ss.Logits(t.Context(), ss.Len()-1, ss.Len()); err != nil {
					t.Errorf("%s: after an end at event %d: %v", shape, when, err)
				}
			}
		}
	}
	s.mustBeIdle(t)
}

// TestBusy has a step in progress while others ask.
func TestBusy(t *testing.T) {
	s := newSwarm(t, tiny(t, "llama"), runtime.Range{First: 0, Last: 4})
	ss := s.open(t, session.Constraints{}, someTokens(1, 20)...)
	for _, err := range ss.Generate(t.Context(), session.Request{MaxNew: 5}) {
		if err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{"Append": ss.Append(1), "Rewind": ss.Rewind(1), "Prefill": ss.Prefill(t.Context())} {
			if err != session.ErrRunning {
				t.Errorf("%s during a step: %v", what, err)
			}
		}
		if fork := ss.Fork(); fork.Len() != ss.Len() {
			t.Errorf("a fork of %d tokens has %d", ss.Len(), fork.Len())
		} else if err := fork.Prefill(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if ss.Len() != 25 || ss.Account().Reason != "length" {
		t.Errorf("%d tokens, %+v", ss.Len(), ss.Account())
	}
}

// TestBadRequests asks for what can't be had; each error says what it is about.
func TestBadRequests(t *testing.T) {
	s := newSwarm(t, tiny(t, "llama"), runtime.Range{First: 0, Last: 4})
	ss := s.open(t, session.Constraints{}, someTokens(1, 20)...)
	ctx := t.Context()
	hidden := func(layers []int, first, last int) error {
		_, err := ss.Hidden(ctx, layers, first, last)
		return err
	}
	logits := func(first, last int) error {
		_, err := ss.Logits(ctx, first, last)
		return err
	}
	with := func(q session.Request) (err error) {
		for _, err = range ss.Generate(ctx, q) {
		}
		return err
	}
	_, unknown := session.Open(ctx, s.client, session.Options{Model: "nothing of the kind"})
	for want, err := range map[string]error{
		"no model":                    unknown,
		"boundaries [5]":              hidden([]int{5}, 0, 1),
		"boundaries [-1 2]":           hidden([]int{-1, 2}, 0, 1),
		"boundaries []":               hidden(nil, 0, 1),
		"positions [3, 3) of a":       hidden([]int{1}, 3, 3),
		"positions [-1, 3)":           logits(-1, 3),
		"[0, 21) of a history of 20":  logits(0, 21),
		"rewind to position 21":       ss.Rewind(21),
		"rewind to position -1":       ss.Rewind(-1),
		"token 1000000":               ss.Append(1000000),
		"token -2":                    ss.Append(-2),
		"the model's context has":     ss.Append(make([]int32, 1<<20)...),
		"log-probabilities of 21":     with(session.Request{Sampling: session.Sampling{Logprobs: 21}}),
		"no model \"nothing\"; known": func() error { _, err := s.client.Tokenize(ctx, control.TokenizeRequest{Model: "nothing"}); return err }(),
		"a conversation and a text": func() error {
			_, err := s.client.Tokenize(ctx, control.TokenizeRequest{Model: s.id, Text: "a", Messages: []control.Message{{}}})
			return err
		}(),
		"give one of them": func() error {
			_, err := s.client.Run(ctx, control.RunRequest{Model: s.id, Prompt: "a", Tokens: []int32{1}}, nil)
			return err
		}(),
		"token 1048576 of the prompt": func() error {
			_, err := s.client.Run(ctx, control.RunRequest{Model: s.id, Tokens: []int32{1 << 20}}, nil)
			return err
		}(),
		"probe of 0 boundaries": func() error {
			_, err := s.client.Run(ctx, control.RunRequest{Model: s.id, Prompt: "a", Probe: &control.Probe{Last: 1}}, nil)
			return err
		}(),
		"probe of boundaries [3 1]": func() error {
			_, err := s.client.Run(ctx, control.RunRequest{Model: s.id, Prompt: "a", Probe: &control.Probe{Last: 1, Layers: []int{3, 1}}}, nil)
			return err
		}(),
		"probe of boundaries [9]": func() error {
			_, err := s.client.Run(ctx, control.RunRequest{Model: s.id, Prompt: "a", Probe: &control.Probe{Last: 1, Layers: []int{9}}}, nil)
			return err
		}(),
		"positions [0, 5) of a prompt": func() error {
			_, err := s.client.Run(ctx, control.RunRequest{Model: s.id, Prompt: "a", Probe: &control.Probe{Last: 5, Logits: true}}, nil)
			return err
		}(),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if ss.Len() != 20 {
		t.Errorf("bad requests left a history of %d tokens", ss.Len())
	}
	empty := s.open(t, session.Constraints{})
	if err := empty.Prefill(ctx); err != nil {
		t.Errorf("prefill of nothing: %v", err)
	}
	for _, err := range empty.Generate(ctx, session.Request{}) {
		if err == nil || !strings.Contains(err.Error(), "append some") {
			t.Errorf("an answer to nothing: %v", err)
		}
	}
}

// TestText compares texts and conversations with the tokenizer's own.
func TestText(t *testing.T) {
	s := newSwarm(t, tiny(t, "llama"), runtime.Range{First: 0, Last: 4})
	ss := s.open(t, session.Constraints{})
	for _, text := range []string{"Hello", " world"} {
		if err := ss.AppendText(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	tok := s.engine.Tokenizer()
	if got := tok.Decode(ss.Tokens(), false); got != "Hello world" {
		t.Errorf("the history is %q", got)
	}
	text := ""
	for token, err := range ss.Generate(t.Context(), session.Request{MaxNew: 12, Sampling: session.Sampling{Logprobs: 2}}) {
		if err != nil {
			t.Fatal(err)
		}
		if len(token.Logprobs) != 3 || token.Logprobs[0].Token != token.ID {
			t.Errorf("token %+v", token)
		}
		text += token.Text
	}
	if text != ss.Account().Text {
		t.Errorf("pieces %q, the answer is %q", text, ss.Account().Text)
	}
}

// TestRoundedSteps asks that all steps of a session round where the first one did.
func TestRoundedSteps(t *testing.T) {
	s := newSwarm(t, tiny(t, "llama"), runtime.Range{First: 0, Last: 4}, runtime.Range{First: 0, Last: 2})
	ss := s.open(t, session.Constraints{Decoder: s.peers[0], Shape: "across", Cuts: []int{2}, Assign: s.peers[1:2], Seam: "q8_0", KV: "q8_0"}, someTokens(1, 100)...)
	for reused := range 2 {
		generate(t, ss, session.Request{MaxNew: 5})
		if a := ss.Account(); a.Seam != "q8_0@2" || a.KV != "q8_0" || (a.Reused >= 100) != (reused > 0) {
			t.Errorf("step %d: seams %s, KV %s, %d tokens reused", reused, a.Seam, a.KV, a.Reused)
		}
		if err := ss.Append(someTokens(2, 20)...); err != nil {
			t.Fatal(err)
		}
	}
}
