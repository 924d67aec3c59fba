package route

import (
	"errors"
	"fmt"
	"strings"
)

// What [Make] and [Plan.Validate] return, for errors.Is.
var (
	// ErrNoRoute: the usable peers can't form a route. The error is a *[NoRouteError].
	ErrNoRoute = errors.New("route: no route")
	// ErrContext: prompt and answer are longer than the model's context. The error is a *[ContextError].
	ErrContext = errors.New("route: prompt and answer exceed the context")
	// ErrConstraint: the request contradicts itself, the model or the offers; its text says where.
	ErrConstraint = errors.New("route: constraint can't be met")
	// ErrModel: the model's figures are unusable.
	ErrModel = errors.New("route: bad model")
	// ErrInvalid: a plan that its own model and peers don't allow.
	ErrInvalid = errors.New("route: invalid plan")
)

// NoRouteError says what is missing.
type NoRouteError struct {
	// Uncovered is the layers that no usable peer can run, ascending and disjoint. It is empty when every layer
	// has a peer and the parts still don't make a whole; then Detail says why.
	Uncovered []Range `json:"uncovered,omitempty"`
	Detail    string  `json:"detail,omitempty"`
	// Reasons is one line per peer offered.
	Reasons []Reason `json:"reasons,omitempty"`
}

func (e *NoRouteError) Error() string {
	var parts []string
	for _, r := range e.Uncovered {
		parts = append(parts, r.String())
	}
	what := strings.Join(parts, ", ")
	if what != "" {
		what = "no usable peer for " + what + "; some machine has to serve them"
	}
	if e.Detail != "" {
		if what != "" {
			what += "; "
		}
		what += e.Detail
	}
	return fmt.Sprintf("%v: %s (%d peers offered)", ErrNoRoute, what, len(e.Reasons))
}

// Unwrap makes errors.Is(err, ErrNoRoute) true.
func (e *NoRouteError) Unwrap() error { return ErrNoRoute }

// ContextError carries both numbers.
type ContextError struct {
	Need    int `json:"need"`    // prompt plus new tokens
	Context int `json:"context"` // the model's limit
}

func (e *ContextError) Error() string {
	return fmt.Sprintf("%v: %d tokens asked for, %d possible; shorten the prompt or ask for fewer new tokens", ErrContext, e.Need, e.Context)
}

// Unwrap makes errors.Is(err, ErrContext) true.
func (e *ContextError) Unwrap() error { return ErrContext }

func constraintf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrConstraint, fmt.Sprintf(format, args...))
}
