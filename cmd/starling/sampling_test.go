package main

import (
	"reflect"
	"testing"

	"github.com/starling-swarm/starling/session"
)

// TestSamplingFlags checks where settings come from: flags, then the named ones.
func TestSamplingFlags(t *testing.T) {
	parse := func(args ...string) session.Request {
		var c cli
		p, err := newParser(&c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Parse(append([]string{"run", "hello"}, args...)); err != nil {
			t.Fatal(err)
		}
		return c.Run.request()
	}
	if q := parse(); q.Temperature != 0 || q.TopK != 0 || q.TopP != 1 || q.PenaltyLastN != 64 || q.DRYBase != 1.75 || len(q.DRYBreakers) != 4 {
		t.Errorf("without flags: %+v", q)
	}
	if q := parse("--sampling", "llama.cpp", "--top-k", "0", "--repeat-last-n=-1", "--dry-sequence-breaker", "none"); q.Temperature != 0.8 || q.TopK != 0 || q.MinP != 0.05 ||
		q.PenaltyLastN != -1 || q.DRYBreakers != nil {
		t.Errorf("llama.cpp's, changed: %+v", q)
	}
	want := []session.LogitBias{{Token: 42, Bias: -1.5}, {Text: " a,b=c", Bias: 2}, {Token: 0, Ban: true}}
	if q := parse("--logit-bias", "42=-1.5", "--logit-bias", " a,b=c=2", "--logit-bias", "0=ban", "--dry-sequence-breaker", ",", "--dry-sequence-breaker", "x"); !reflect.DeepEqual(q.LogitBias, want) ||
		!reflect.DeepEqual(q.DRYBreakers, []string{",", "x"}) {
		t.Errorf("biases %+v, breakers %q", q.LogitBias, q.DRYBreakers)
	}
	for _, bad := range []string{"42", "=1", "42=x", "4294967296=1"} {
		if err := new(logitBias).UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("logit bias %q is accepted", bad)
		}
	}
}
