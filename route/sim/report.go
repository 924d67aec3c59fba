package sim

import (
	"slices"

	"github.com/starling-swarm/starling/route"
)

// Report is what a scenario has come to. Quantiles are of single sessions, plans and peers.
type Report struct {
	Scenario string `json:"scenario"`
	Peers    int    `json:"peers"`

	Minutes   float64        `json:"minutes"`  // that were counted
	Sessions  int            `json:"sessions"` // that ended well
	Failed    int            `json:"failed"`
	Failures  map[string]int `json:"failures"` // by reason
	FailedPct float64        `json:"failed_percent"`
	Recovered int            `json:"recovered"` // sessions that lost peers
	Losses    int            `json:"losses"`    // of peers, by sessions
	Retries   int            `json:"retries"`   // plans that peers refused, or that couldn't be made at once

	FirstTokenSeconds Quantiles `json:"first_token_seconds"`
	TokensPerSec      Quantiles `json:"tokens_per_sec"`
	Utilisation       float64   `json:"utilisation"` // share of peers with sessions

	Moves        int     `json:"moves"`
	MovesPerHour float64 `json:"moves_per_hour"`

	WorstHolders          int     `json:"worst_holders"` // of any layer at any time
	UncoveredLayerSeconds float64 `json:"uncovered_layer_seconds"`

	Plans       int       `json:"plans"`
	PlanSeconds Quantiles `json:"plan_seconds"` // of this machine

	// Control traffic, both directions, bytes/s: of peers, of trackers, and for each session by its client.
	PeerBytesPerSec    Quantiles `json:"peer_bytes_per_sec"`
	TrackerBytesPerSec Quantiles `json:"tracker_bytes_per_sec"`
	SessionBytes       float64   `json:"session_bytes"`

	Series []Point `json:"series"`

	firstToken, tokensPerSec, planSeconds []float64
	clientBytes                           float64
}

// Quantiles of a distribution.
type Quantiles struct {
	P5   float64 `json:"p5"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
}

// Point is the swarm at the end of a minute.
type Point struct {
	Minute            float64 `json:"minute"`
	Peers             int     `json:"peers"`
	Sessions          int     `json:"sessions"`
	WorstHolders      int     `json:"worst_holders"`  // of any layer
	WorstCoverage     float64 `json:"worst_coverage"` // tokens/s of prefill
	MeanCoverage      float64 `json:"mean_coverage"`
	FirstTokenSeconds float64 `json:"first_token_seconds"` // median of the minute
	Moves             int     `json:"moves"`               // in the minute
	Busy              float64 `json:"busy"`                // share of peers
}

func newReport(s *Scenario) *Report {
	return &Report{Scenario: s.Name, Peers: s.Peers, Minutes: s.Minutes, Failures: map[string]int{}}
}

func quantiles(v []float64) (q Quantiles) {
	if len(v) == 0 {
		return q
	}
	q = Quantiles{P5: quantile(v, 0.05), P50: quantile(v, 0.5), P95: quantile(v, 0.95), P99: quantile(v, 0.99), Max: slices.Max(v)}
	for _, x := range v {
		q.Mean += x / float64(len(v))
	}
	return q
}

// finish makes the report of what was counted.
func (w *world) finish() {
	w.count(route.Range{}, 0)
	for _, p := range w.alive {
		w.account(p)
	}
	r, seconds := w.r, 60*w.s.Minutes
	if all := r.Sessions + r.Failed; all > 0 {
		r.FailedPct = 100 * float64(r.Failed) / float64(all)
		r.SessionBytes = r.clientBytes / float64(all)
	}
	r.FirstTokenSeconds, r.TokensPerSec, r.PlanSeconds = quantiles(r.firstToken), quantiles(r.tokensPerSec), quantiles(r.planSeconds)
	if w.lived > 0 {
		r.Utilisation = w.busy / w.lived
	}
	r.MovesPerHour = float64(r.Moves) / (w.s.Minutes / 60)
	r.PeerBytesPerSec = quantiles(w.perPeer)
	var trackers []float64
	for _, t := range w.trackers {
		trackers = append(trackers, (t.sent+t.received)/seconds)
	}
	r.TrackerBytesPerSec = quantiles(trackers)
}
