package metrics

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// TestWrite counts everything once and reads it back with Prometheus' own parser.
func TestWrite(t *testing.T) {
	m := New("1.2", func() State {
		return State{Accepting: true, Sessions: map[string]int{Stage: 2}, Queued: map[Purpose]int{Seam: 3}, Peers: 4, KVDisk: 5,
			Models: map[string]Model{"abc": {Name: "a \"model\"\n\xff", First: 1, Last: 9, KVReserved: 2, KVKept: 3, KVLimit: 7, Waiting: 1, WeightsMapped: 11, WeightsPacked: 13, WeightsHeldOnDisk: 17}}}
	})
	m.Sent(KV, 100)
	m.Received(Session, 200)
	m.Computed("abc", Decoder, 3*time.Millisecond, 4, 1)
	m.Computed("abc", Decoder, time.Hour, 0, 1)
	m.Reused("abc", "disk", 100)
	m.Reused("abc", "disk", 200)
	m.Refused("busy")
	m.Recovered(Stage)
	m.Ended(Client, true)
	var b bytes.Buffer
	if err := m.Write(&b); err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	if _, err := parser.TextToMetricFamilies(bytes.NewReader(b.Bytes())); err != nil {
		t.Fatalf("not Prometheus' text: %v\n%s", err, b.String())
	}
	for _, line := range []string{
		`starling_build_info{version="1.2"} 1`,
		`starling_accepting 1`,
		`starling_sessions{role="stage"} 2`,
		`starling_sessions{role="client"} 0`,
		`starling_queue_length{purpose="seam"} 3`,
		`starling_peers_connected 4`,
		`starling_model_info{first="1",last="9",model="abc",name="a \"model\"\n` + "\uFFFD" + `"} 1`,
		`starling_kv_reserved_bytes{model="abc"} 2`,
		`starling_kv_kept_bytes{model="abc"} 3`,
		`starling_kv_disk_bytes 5`,
		`starling_prefix_hits_total{model="abc",place="disk"} 2`,
		`starling_prefix_positions_total{model="abc",place="disk"} 300`,
		`starling_line_length{model="abc"} 1`,
		`starling_kv_limit_bytes{model="abc"} 7`,
		`starling_weights_bytes{model="abc",place="mapped"} 11`,
		`starling_weights_bytes{model="abc",place="packed"} 13`,
		`starling_weights_bytes{model="abc",place="disk"} 17`,
		`starling_sent_bytes_total{purpose="kv"} 100`,
		`starling_sent_bytes_total{purpose="seam"} 0`,
		`starling_received_bytes_total{purpose="session"} 200`,
		`starling_tokens_total{model="abc",phase="prefill",role="decoder"} 4`,
		`starling_tokens_total{model="abc",phase="decode",role="decoder"} 2`,
		`starling_chunk_seconds_bucket{model="abc",role="decoder",le="0.002"} 0`,
		`starling_chunk_seconds_bucket{model="abc",role="decoder",le="0.004"} 1`,
		`starling_chunk_seconds_bucket{model="abc",role="decoder",le="65.536"} 1`,
		`starling_chunk_seconds_bucket{model="abc",role="decoder",le="+Inf"} 2`,
		`starling_refusals_total{code="busy"} 1`,
		`starling_recoveries_total{role="stage"} 1`,
		`starling_sessions_ended_total{result="failed",role="client"} 1`,
	} {
		if !strings.Contains("\n"+b.String(), "\n"+line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	for _, name := range []string{"starling_uptime_seconds ", "go_goroutines "} {
		if !strings.Contains(b.String(), "\n"+name) {
			t.Errorf("no figure %s", name)
		}
	}
	if t.Failed() {
		t.Log(b.String())
	}
}
