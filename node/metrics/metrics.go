package metrics

import (
	"io"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
)

// Roles of a node in a session, as the "role" label has them.
const (
	Client  = "client"
	Decoder = "decoder"
	Stage   = "stage"
)

// Purpose says what bytes between nodes are for.
type Purpose int

// The purposes.
const (
	Seam    Purpose = iota // hidden states
	KV                     // cache rows
	Control                // everything else on stage streams
	Session                // between client and decoder
	numPurposes
)

var purposeNames = [numPurposes]string{"seam", "kv", "control", "session"}

// Metrics are one node's figures. Its methods may be called concurrently.
type Metrics struct {
	registry       *prometheus.Registry
	sent, received [numPurposes]prometheus.Counter
	total          struct{ sent, received atomic.Int64 }
	tokens         *prometheus.CounterVec
	chunks         *prometheus.HistogramVec
	refusals       *prometheus.CounterVec
	recoveries     *prometheus.CounterVec
	ended          *prometheus.CounterVec
	reuses, reused *prometheus.CounterVec
}

// chunkSeconds are the upper bounds of the histogram of compute times: from
// what a token takes on a fast machine to what a long chunk takes on a slow one.
var chunkSeconds = prometheus.ExponentialBuckets(0.001, 2, 17) // 1 ms to 65.5 s

// New returns metrics at zero; read tells what is measured at each scrape.
func New(version string, read func() State) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.registry.MustRegister(v)
		return v
	}
	sent := vec("starling_sent_bytes_total", "Bytes written to other nodes, by purpose.", "purpose")
	received := vec("starling_received_bytes_total", "Bytes read from other nodes, by purpose.", "purpose")
	for p, name := range purposeNames {
		m.sent[p], m.received[p] = sent.WithLabelValues(name), received.WithLabelValues(name)
	}
	m.tokens = vec("starling_tokens_total", "Positions computed, by model, role and phase (prefill, decode).", "model", "role", "phase")
	m.refusals = vec("starling_refusals_total", "Refusals sent, by code.", "code")
	m.recoveries = vec("starling_recoveries_total", "Peers that were lost and worked around, by their role in the session.", "role")
	m.ended = vec("starling_sessions_ended_total", "Sessions that are over, by role and result (done, failed).", "role", "result")
	m.reuses = vec("starling_prefix_hits_total", "Sessions that began with a kept cache, by model and where it was (memory, disk).", "model", "place")
	m.reused = vec("starling_prefix_positions_total", "Positions that were not computed again, by model and where they were (memory, disk).", "model", "place")
	m.chunks = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "starling_chunk_seconds", Buckets: chunkSeconds,
		Help: "Compute time of one chunk of positions, by model and role."}, []string{"model", "role"})
	info := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "starling_build_info", Help: "1, with the version.",
		ConstLabels: prometheus.Labels{"version": version}}, func() float64 { return 1 })
	m.registry.MustRegister(m.chunks, info, &states{read: read, began: time.Now()},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Sent counts bytes that went to another node.
func (m *Metrics) Sent(p Purpose, bytes int) {
	m.sent[p].Add(float64(bytes))
	m.total.sent.Add(int64(bytes))
}

// Received counts bytes that came from another node.
func (m *Metrics) Received(p Purpose, bytes int) {
	m.received[p].Add(float64(bytes))
	m.total.received.Add(int64(bytes))
}

// Traffic returns the bytes of all purposes that went to and came from other nodes.
func (m *Metrics) Traffic() (sent, received int64) {
	return m.total.sent.Load(), m.total.received.Load()
}

// Computed counts a chunk that took so long and had so many positions of a
// prompt and so many after it.
func (m *Metrics) Computed(model, role string, took time.Duration, prefill, decode int) {
	m.chunks.WithLabelValues(model, role).Observe(took.Seconds())
	for phase, n := range map[string]int{"prefill": prefill, "decode": decode} {
		if n > 0 {
			m.tokens.WithLabelValues(model, role, phase).Add(float64(n))
		}
	}
}

// Reused counts a session that began with so many positions of a kept cache, which was in memory or on the disk.
func (m *Metrics) Reused(model, place string, positions int) {
	m.reuses.WithLabelValues(model, place).Inc()
	m.reused.WithLabelValues(model, place).Add(float64(positions))
}

// Refused counts a refusal by the name of its code.
func (m *Metrics) Refused(code string) { m.refusals.WithLabelValues(code).Inc() }

// Recovered counts a peer in that role that was lost and worked around.
func (m *Metrics) Recovered(role string) { m.recoveries.WithLabelValues(role).Inc() }

// Ended counts a session that is over.
func (m *Metrics) Ended(role string, failed bool) {
	result := "done"
	if failed {
		result = "failed"
	}
	m.ended.WithLabelValues(role, result).Inc()
}

// Write writes everything in the text format, version 0.0.4.
func (m *Metrics) Write(w io.Writer) error {
	families, err := m.registry.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(w, f); err != nil {
			return err
		}
	}
	return nil
}
