package metrics

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// State is what has a value at each moment.
type State struct {
	Accepting bool             // new work of others is taken
	Sessions  map[string]int   // by role
	Queued    map[Purpose]int  // frames that wait to be written
	Peers     int              // connected
	Models    map[string]Model // served, by ID
	KVDisk    int64            // bytes of the disk that ended sessions' caches take
}

// Model is a model that is served.
type Model struct {
	Name              string
	First, Last       int   // layers [First, Last)
	KVReserved        int64 // bytes that sessions hold for KV
	KVKept            int64 // bytes of ended sessions' caches, which give way
	KVLimit           int64 // bytes that sessions may hold
	Waiting           int   // sessions in line for KV
	WeightsMapped     int64 // bytes used from the file
	WeightsPacked     int64 // bytes of copies in memory
	WeightsHeldOnDisk int64 // verified bytes of the model's file
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	descAccepting = desc("starling_accepting", "1 if new work of others is taken, 0 while paused or leaving.")
	descSessions  = desc("starling_sessions", "Sessions in which this node takes part, by role.", "role")
	descQueue     = desc("starling_queue_length", "Frames that wait to be written to other nodes, by purpose.", "purpose")
	descPeers     = desc("starling_peers_connected", "Nodes with an open connection.")
	descUptime    = desc("starling_uptime_seconds", "Time since the node was started.")
	descModel     = desc("starling_model_info", "1 for each model served, with its name and layers [first, last).", "model", "name", "first", "last")
	descReserved  = desc("starling_kv_reserved_bytes", "KV memory reserved by sessions, by model.", "model")
	descKept      = desc("starling_kv_kept_bytes", "KV memory of ended sessions' caches, which give way to sessions, by model.", "model")
	descKVDisk    = desc("starling_kv_disk_bytes", "Bytes of the disk that ended sessions' caches take.")
	descWaiting   = desc("starling_line_length", "Sessions that wait for KV memory, by model.", "model")
	descLimit     = desc("starling_kv_limit_bytes", "KV memory that sessions may reserve, by model.", "model")
	descWeights   = desc("starling_weights_bytes", "Weights of the served layers, by model and place: mapped from the file, packed in memory, held on the disk.", "model", "place")
)

// states reads a node's State at each scrape.
type states struct {
	read  func() State
	began time.Time
}

// Describe implements prometheus.Collector.
func (s *states) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descAccepting, descSessions, descQueue, descPeers, descUptime, descModel, descReserved, descKept, descKVDisk, descWaiting, descLimit, descWeights} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (s *states) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	st := s.read()
	accepting := 0.0
	if st.Accepting {
		accepting = 1
	}
	gauge(descAccepting, accepting)
	for _, role := range []string{Client, Decoder, Stage} {
		gauge(descSessions, float64(st.Sessions[role]), role)
	}
	for p, n := range st.Queued {
		gauge(descQueue, float64(n), purposeNames[p])
	}
	gauge(descPeers, float64(st.Peers))
	gauge(descUptime, time.Since(s.began).Seconds())
	gauge(descKVDisk, float64(st.KVDisk))
	for id, m := range st.Models {
		gauge(descModel, 1, id, strings.ToValidUTF8(m.Name, "\uFFFD"), strconv.Itoa(m.First), strconv.Itoa(m.Last))
		gauge(descReserved, float64(m.KVReserved), id)
		gauge(descKept, float64(m.KVKept), id)
		gauge(descWaiting, float64(m.Waiting), id)
		gauge(descLimit, float64(m.KVLimit), id)
		gauge(descWeights, float64(m.WeightsMapped), id, "mapped")
		gauge(descWeights, float64(m.WeightsPacked), id, "packed")
		gauge(descWeights, float64(m.WeightsHeldOnDisk), id, "disk")
	}
}
