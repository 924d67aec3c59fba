package node

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/route"
	"github.com/starling-swarm/starling/swarm/wire"
)

// told gives an error the kind by which programs know it that ask this node over the local interface. Its text stays.
func told(err error) error {
	if err == nil {
		return nil
	}
	var (
		known   *control.Error
		refusal *wire.Refusal
		long    *route.ContextError
		none    *route.NoRouteError
		e       control.Error
	)
	switch {
	case errors.As(err, &known):
		e = *known
	case errors.As(err, &long):
		e = control.Error{Kind: control.TooLong, Tokens: long.Need, Context: long.Context}
	case errors.As(err, &none):
		e.Kind = control.NoRoute
	case errors.Is(err, route.ErrConstraint):
		e.Kind = control.BadRequest
	case !errors.As(err, &refusal):
		return err
	case refusal.Code == wire.CodeBusy:
		e = control.Error{Kind: control.Busy, Peer: refusal.Peer, RetryAfter: refusal.RetryAfter}
	case refusal.Code == wire.CodeContext:
		e.Kind = control.TooLong
	case refusal.Code == wire.CodeBadRequest:
		e.Kind = control.BadRequest
	case refusal.Code == wire.CodePeerLost:
		e = control.Error{Kind: control.PeerLost, Peer: refusal.Peer}
	default:
		return err
	}
	e.Text = err.Error()
	return &e
}

// bad says that a request makes no sense.
func bad(err error) error { return &control.Error{Kind: control.BadRequest, Text: err.Error()} }

// tooLong says that tokens don't fit into a model's context.
func tooLong(tokens, context int, format string, args ...any) error {
	return &control.Error{Kind: control.TooLong, Text: fmt.Sprintf(format, args...), Tokens: tokens, Context: context}
}

// unknownModel says that nobody knows what want names.
func unknownModel(known []naming, want string) error {
	near := nearNames(nameEach(known), want)
	like := slices.DeleteFunc(slices.Clone(known), func(k naming) bool { return !slices.Contains(near, k.name) })
	text := fmt.Sprintf("no model %q: none is held here, offered or listed in the swarm", want)
	if want == "" {
		text = "no model is held here or offered in the swarm: publish one with 'starling publish FILE.gguf'"
	} else if len(like) > 0 {
		text = fmt.Sprintf("no model %q; like it are %s", want, listModels(like))
	} else if len(known) > 0 {
		text = fmt.Sprintf("no model %q; known are %s", want, listModels(known))
	}
	return &control.Error{Kind: control.UnknownModel, Text: text, Near: near}
}

// maxNear is how many names are told that a wrong one may have meant.
const maxNear = 3

// nearNames returns the names of models that are like want, the nearest first: those that have it in them, or it them, and those that few
// changed letters lead to.
func nearNames(names map[artifacts.ID]string, want string) (near []string) {
	if want == "" || len(want) > wire.MaxModelName {
		return nil
	}
	want = strings.ToLower(want)
	far := map[string]int{}
	for _, name := range names {
		lower := strings.ToLower(name)
		d := distance(lower, want)
		if name != "" && (d <= len(want)/3 || strings.Contains(lower, want) || strings.Contains(want, lower)) {
			far[name] = d
		}
	}
	for name := range far {
		near = append(near, name)
	}
	slices.SortFunc(near, func(a, b string) int { return cmp.Or(cmp.Compare(far[a], far[b]), strings.Compare(a, b)) })
	return near[:min(len(near), maxNear)]
}

// distance is how many bytes must be changed, added or left out to make b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1) // of what has been read of a, to each beginning of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, row[j]+1, before+1)
		}
	}
	return row[len(b)]
}
