package route

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// problem is a whole planning problem as offers from strangers might spell it.
type problem struct {
	Model   Model   `json:"model"`
	Peers   []Peer  `json:"peers"`
	Links   []Link  `json:"links"`
	Request Request `json:"request"`
}

// Whatever the figures, Make answers: a plan that validates and that JSON can carry, or one of its typed errors.
func FuzzMake(f *testing.F) {
	for seed := range 20 {
		rng := rand.New(rand.NewPCG(uint64(seed), 5))
		m, ps, links, r := random(rng, 4, 5)
		b, err := json.Marshal(problem{m, ps, links, r})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"model":{"layers":1,"layer_weight_bytes":[0],"layer_flops":[0],"kv_bytes_per_token":[0]},"peers":[{"id":"a","holds":{"first":0,"last":1},"head":true,"embed":true}],"request":{"prompt_tokens":1}}`))
	f.Add([]byte(`{"model":{"layers":1,"layer_weight_bytes":[9e18]}}`))
	f.Add([]byte(`{"peers":[{"holds":{"first":-9223372036854775808,"last":9223372036854775807}}],"request":{"shape":"sideways"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p problem
		if json.Unmarshal(b, &p) != nil || len(p.Peers) > 9 || p.Model.Layers > 20 {
			return
		}
		plan, err := Make(p.Model, p.Peers, p.Links, p.Request)
		if err != nil {
			for _, known := range []error{ErrNoRoute, ErrContext, ErrConstraint, ErrModel} {
				if errors.Is(err, known) {
					return
				}
			}
			t.Fatalf("untyped error: %v", err)
		}
		if err := plan.Validate(p.Model, p.Peers); err != nil {
			t.Fatal(err)
		}
		if s := plan.Predicted.TotalSeconds; !(s > 0) || math.IsInf(s, 0) {
			t.Fatalf("a total of %g s", s)
		}
		if _, err := json.Marshal(plan); err != nil {
			t.Fatal(err)
		}
		plan.Explain()
	})
}

// Plan.Validate and Plan.Predict take plans that came over the wire.
func FuzzValidate(f *testing.F) {
	rng := rand.New(rand.NewPCG(7, 5))
	m, ps, links, _ := random(rng, 4, 5)
	for seed := range 20 {
		rng := rand.New(rand.NewPCG(uint64(seed), 6))
		_, _, _, r := random(rng, 4, 5)
		if plan, err := Make(m, ps, links, r); err == nil {
			b, _ := json.Marshal(plan)
			f.Add(b)
		}
	}
	f.Add([]byte(`{"shape":"across","prompt_tokens":1,"chunk":1,"stages":[{"peer":"p0","layers":{"first":0,"last":-5}}],"decoder":"p1"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var plan Plan
		if json.Unmarshal(b, &plan) != nil || len(plan.Predicted.Ranges) > 99 {
			return
		}
		err := plan.Validate(m, ps)
		cost, err2 := plan.Predict(m, ps, links)
		if (err == nil) != (err2 == nil) || err != nil && !errors.Is(err, ErrInvalid) {
			t.Fatalf("Validate says %v, Predict %v", err, err2)
		}
		if err == nil && !(cost.TotalSeconds > 0) {
			t.Fatalf("a total of %g s", cost.TotalSeconds)
		}
		_ = plan.String()
		plan.Explain()
	})
}
