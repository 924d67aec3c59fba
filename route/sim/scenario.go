package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/starling-swarm/starling/route"
)

// Scenario is a swarm and what is asked of it.
type Scenario struct {
	Name string `json:"name"`
	// About says in a sentence what the scenario is for.
	About string `json:"about"`
	Seed  uint64 `json:"seed"`
	// Peers is how many there are at any time, about: as many come as go.
	Peers int `json:"peers"`
	// WarmupMinutes pass before anything is counted; Minutes are counted.
	WarmupMinutes float64 `json:"warmup_minutes"`
	Minutes       float64 `json:"minutes"`
	// ChurnPerHour is the share of the peers that leaves in an hour.
	ChurnPerHour float64 `json:"churn_per_hour"`
	// Abrupt is the share of those that leave without a word.
	Abrupt float64 `json:"abrupt"`
	// Sessions run at any time.
	Sessions int `json:"sessions"`
	// PromptTokens and NewTokens are medians; single requests are spread over a factor of three or so.
	PromptTokens int `json:"prompt_tokens"`
	NewTokens    int `json:"new_tokens"`
	// Chunk is the request's; 0 leaves it to the planner.
	Chunk    int     `json:"chunk,omitempty"`
	Trackers int     `json:"trackers"`
	Model    Model   `json:"model"`
	Classes  []Class `json:"classes"`
}

// Model is a model with layers of equal size.
type Model struct {
	Name       string  `json:"name"`
	Layers     int     `json:"layers"`
	LayerBytes int64   `json:"layer_bytes"`
	LayerFlops float64 `json:"layer_flops"` // per token
	HeadBytes  int64   `json:"head_bytes"`
	EmbedBytes int64   `json:"embed_bytes"`
	HeadFlops  float64 `json:"head_flops"`
	KVBytes    int64   `json:"kv_bytes"`   // of a layer and token
	SeamBytes  int64   `json:"seam_bytes"` // of a token
}

// Class is a kind of machine. Figures are medians; Spread is the standard deviation of their logarithms.
type Class struct {
	Name              string  `json:"name"`
	Share             float64 `json:"share"` // of the peers; shares are relative to their sum
	PrefillFlops      float64 `json:"prefill_flops"`
	DecodeBytesPerSec float64 `json:"decode_bytes_per_sec"`
	WeightBytes       int64   `json:"weight_bytes"` // that it has room for
	KVBytes           int64   `json:"kv_bytes"`     // likewise
	Up                float64 `json:"up"`           // bytes/s
	Down              float64 `json:"down"`
	AccessSeconds     float64 `json:"access_seconds"` // round trip of its access line
	Spread            float64 `json:"spread"`
}

// Bounds of a scenario: it comes from a file.
const (
	maxPeers    = 100_000
	maxSessions = 100_000
	maxMinutes  = 7 * 24 * 60
	maxTrackers = 1000
	maxClasses  = 64
)

// ParseScenario reads a scenario. Errors name the field.
func ParseScenario(data []byte) (*Scenario, error) {
	s := &Scenario{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(s); err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	if d.More() {
		return nil, errors.New("scenario: there is more behind its end")
	}
	return s, s.check()
}

func (s *Scenario) check() error {
	m := &s.Model
	for _, f := range []struct {
		name       string
		value      float64
		least, top float64
	}{
		{"peers", float64(s.Peers), 1, maxPeers}, {"minutes", s.Minutes, 1, maxMinutes}, {"warmup_minutes", s.WarmupMinutes, 0, maxMinutes},
		{"churn_per_hour", s.ChurnPerHour, 0, 60}, {"abrupt", s.Abrupt, 0, 1}, {"sessions", float64(s.Sessions), 0, maxSessions},
		{"prompt_tokens", float64(s.PromptTokens), 1, 1 << 20}, {"new_tokens", float64(s.NewTokens), 1, 1 << 20}, {"chunk", float64(s.Chunk), 0, 1 << 20},
		{"trackers", float64(s.Trackers), 1, maxTrackers}, {"model.layers", float64(m.Layers), 1, 1023}, {"model.layer_bytes", float64(m.LayerBytes), 1, 1 << 40},
		{"model.layer_flops", m.LayerFlops, 1, 1e15}, {"model.head_bytes", float64(m.HeadBytes), 0, 1 << 40}, {"model.embed_bytes", float64(m.EmbedBytes), 0, 1 << 40},
		{"model.head_flops", m.HeadFlops, 0, 1e15}, {"model.kv_bytes", float64(m.KVBytes), 0, 1 << 24}, {"model.seam_bytes", float64(m.SeamBytes), 1, 1 << 24},
		{"classes", float64(len(s.Classes)), 1, maxClasses},
	} {
		if !(f.value >= f.least && f.value <= f.top) {
			return fmt.Errorf("scenario: %s is %g: write %g to %g", f.name, f.value, f.least, f.top)
		}
	}
	for _, c := range s.Classes {
		for _, f := range []struct {
			name  string
			value float64
			least float64
		}{
			{"share", c.Share, 0}, {"prefill_flops", c.PrefillFlops, 1}, {"decode_bytes_per_sec", c.DecodeBytesPerSec, 1}, {"weight_bytes", float64(c.WeightBytes), 0},
			{"kv_bytes", float64(c.KVBytes), 0}, {"up", c.Up, 1}, {"down", c.Down, 1}, {"access_seconds", c.AccessSeconds, 0},
		} {
			if !(f.value >= f.least && f.value <= 1e16) {
				return fmt.Errorf("scenario: %s of class %q is %g: write %g or more", f.name, c.Name, f.value, f.least)
			}
		}
		if !(c.Spread >= 0 && c.Spread <= 2) {
			return fmt.Errorf("scenario: spread of class %q is %g: write 0 to 2", c.Name, c.Spread)
		}
	}
	return nil
}

// model returns the planner's form.
func (m *Model) model() route.Model {
	r := route.Model{Layers: m.Layers, HeadBytes: m.HeadBytes, EmbedBytes: m.EmbedBytes, HeadFlops: m.HeadFlops, SeamBytes: m.SeamBytes}
	for x := range m.Layers {
		r.LayerWeightBytes = append(r.LayerWeightBytes, m.LayerBytes)
		r.LayerFlops = append(r.LayerFlops, m.LayerFlops)
		r.KVBytesPerToken = append(r.KVBytesPerToken, m.KVBytes)
		if x > 0 {
			r.Cuts = append(r.Cuts, x)
		}
	}
	return r
}
