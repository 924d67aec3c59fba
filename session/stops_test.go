package session_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/session"
)

// TestStopTexts ends answers at texts that are in them: what is told, what the history has, who accounts for it, and what is left.
func TestStopTexts(t *testing.T) {
	s := newSwarm(t, tiny(t, "llama"), runtime.Range{First: 0, Last: 4}, runtime.Range{First: 0, Last: 1}, runtime.Range{First: 1, Last: 3}, runtime.Range{First: 3, Last: 4})
	tok := s.engine.Tokenizer()
	q := session.Request{MaxNew: 60, Sampling: session.Sampling{Temperature: 1.5, TopP: 1, Seed: 4}}
	for id := range int32(tok.Size()) { // texts that are no UTF-8 can't be told
		if id < ' ' || id > '~' {
			q.LogitBias = append(q.LogitBias, session.LogitBias{Token: id, Ban: true})
		}
	}
	tokens := someTokens(1, 40)
	want := s.answer(t, tokens, q)
	whole := tok.Decode(want, false)
	if len(whole) < 12 {
		t.Fatalf("the answer %q is too short to be cut", whole)
	}
	for shape, k := range s.shapes(1, 3) {
		ss := s.open(t, k, tokens...)
		for _, at := range []int{3, 7} {
			stop := whole[at : at+3]
			q.Stop = []string{"not in it at all", stop}
			told, made := "", []int32{}
			for token, err := range ss.Generate(t.Context(), q) {
				if err != nil {
					t.Fatal(err)
				}
				told, made = told+token.Text, append(made, token.ID)
			}
			a, end := ss.Account(), strings.Index(whole, stop)
			if told != whole[:end] || a.Text != told || a.Stop != stop || a.Reason != "stop" || !slices.Equal(a.NewTokens, made) {
				t.Errorf("%s: told %q of %q, stop %q; %+v", shape, told, whole, stop, a)
			}
			if !slices.Equal(made, want[:len(made)]) || len(tok.Decode(made, false)) < end+len(stop) || len(tok.Decode(made[:len(made)-1], false)) >= end+len(stop) {
				t.Errorf("%s: %d tokens end with %q", shape, len(made), tok.Decode(made, false))
			}
			if n := len(a.Stages); shape != "any" && shape != "local" && at == 3 && n != 2 {
				t.Errorf("%s: %d stages have accounted for themselves", shape, n)
			}
			if !slices.Equal(ss.Tokens(), append(slices.Clone(tokens), made...)) {
				t.Errorf("%s: the history has %d tokens", shape, ss.Len())
			}
			if err := ss.Rewind(len(tokens)); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.mustBeIdle(t)
}
