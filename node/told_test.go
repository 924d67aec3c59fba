package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/route"
	"github.com/starling-swarm/starling/swarm/wire"
)

// TestTold checks the kinds that errors get on their way to a client, and that their text stays.
func TestTold(t *testing.T) {
	busy := wire.Refuse(wire.CodeBusy, "no room")
	busy.Peer, busy.RetryAfter = "p", time.Second
	for _, c := range []struct {
		err  error
		want control.Error
	}{
		{busy, control.Error{Kind: control.Busy, Peer: "p", RetryAfter: time.Second}},
		{wire.Refuse(wire.CodeContext, "long"), control.Error{Kind: control.TooLong}},
		{wire.Refuse(wire.CodeBadRequest, "odd"), control.Error{Kind: control.BadRequest}},
		{&route.ContextError{Need: 9, Context: 8}, control.Error{Kind: control.TooLong, Tokens: 9, Context: 8}},
		{&route.NoRouteError{Detail: "none"}, control.Error{Kind: control.NoRoute}},
		{route.ErrConstraint, control.Error{Kind: control.BadRequest}},
		{&control.Error{Kind: control.Loading, Text: "soon"}, control.Error{Kind: control.Loading}},
		{wire.Refuse(wire.CodeInternal, "broken"), control.Error{}},
		{errors.New("else"), control.Error{}},
	} {
		outer := fmt.Errorf("while asking: %w", c.err)
		err := told(outer)
		var e *control.Error
		switch {
		case !errors.As(err, &e):
			if c.want.Kind != "" || err != outer {
				t.Errorf("%v has no kind, want %s", err, c.want.Kind)
			}
		default:
			if c.want.Text = outer.Error(); fmt.Sprint(*e) != fmt.Sprint(c.want) {
				t.Errorf("%v: %+v, want %+v", outer, *e, c.want)
			}
		}
	}
	if told(nil) != nil {
		t.Error("no error has become one")
	}
}

func TestNearNames(t *testing.T) {
	names := map[artifacts.ID]string{}
	for i, n := range []string{"SmolLM2-135M", "SmolLM2-360M", "Qwen3-8B", "Qwen3-0.6B", "Qwen3-0.6B", "", "Gemma 3"} {
		names[artifacts.ID{byte(i)}] = n
	}
	for want, near := range map[string][]string{
		"smollm2":                 {"SmolLM2-135M", "SmolLM2-360M"},
		"SmolLM2-135":             {"SmolLM2-135M"},
		"Qwen3-8":                 {"Qwen3-8B"},
		"Gemma3":                  {"Gemma 3"},
		"the model Gemma 3":       {"Gemma 3"},
		"llama":                   nil,
		"":                        nil,
		strings.Repeat("x", 1000): nil,
	} {
		if got := nearNames(names, want); !slices.Equal(got, near) {
			t.Errorf("near %.20q are %q, want %q", want, got, near)
		}
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"abc", "abc", 0}, {"abcd", "bcd", 1}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("from %q to %q are %d changes, want %d", c.a, c.b, got, c.want)
		}
	}
}
