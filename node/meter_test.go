package node

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/swarm"
)

// feed lets n frames of a size come over a link of a rate, in pieces of 16 KiB; before each the peer computes for a while.
func feed(m *meter, peer string, now time.Time, n, size int, rate float64) time.Time {
	for range n {
		now = now.Add(80 * time.Millisecond)
		first := m.piece(peer, 5, now)
		last := first
		for got := 0; got < size; got += 16 << 10 {
			now = now.Add(time.Duration(float64(16<<10) / rate * 1e9))
			last = m.piece(peer, 16<<10, now)
		}
		m.frame(peer, first, last)
	}
	return now
}

func one(t *testing.T, m *meter, now time.Time) swarm.Link {
	t.Helper()
	list := m.measured(now)
	if len(list) != 1 {
		t.Fatalf("measured %+v, want one link", list)
	}
	return list[0]
}

func TestMeter(t *testing.T) {
	m, now := newMeter(), time.Unix(0, 0)
	const rate = 2.5e6
	now = feed(m, "a", now, 3, 64<<10, rate)
	if list := m.measured(now); len(list) != 0 {
		t.Errorf("three frames of 64 KiB are a sample: %+v", list)
	}
	now = feed(m, "a", now, 9, 64<<10, rate)
	if l := one(t, m, now); l.Samples != 3 || l.BytesPerSec < rate*0.99 || l.BytesPerSec > rate*1.01 || l.Age != 0 {
		t.Errorf("12 frames at %.3g bytes/s: %+v", rate, l)
	}
	// Some that waited in buffers, and some that shared the link, change nothing.
	now = feed(m, "a", now, 8, 64<<10, 1e9)
	now = feed(m, "a", now, 8, 64<<10, rate/3)
	now = feed(m, "a", now, 8, 64<<10, rate)
	if l := one(t, m, now); l.BytesPerSec < rate*0.99 || l.BytesPerSec > rate*1.01 {
		t.Errorf("with outliers: %+v", l)
	}
	// A link that has changed is known anew.
	now = feed(m, "a", now, 4*lateSamples, 64<<10, rate/10)
	if l := one(t, m, now); l.Samples != lateSamples || l.BytesPerSec > rate/9 {
		t.Errorf("a tenth as fast: %+v", l)
	}
	for i, trip := range []time.Duration{90, 30, 40} {
		m.ping("a", uint64(i), now)
		m.pong("a", uint64(i)+7, now.Add(time.Millisecond)) // to another ping
		m.pong("a", uint64(i), now.Add(trip*time.Millisecond))
		m.pong("a", uint64(i), now.Add(time.Millisecond)) // again
	}
	if l := one(t, m, now.Add(time.Minute)); l.RTT != 30*time.Millisecond || l.Age != time.Minute-40*time.Millisecond {
		t.Errorf("round trips of 90, 30 and 40 ms: %+v", l)
	}
	if list := m.measured(now.Add(2 * measuredFor)); len(list) != 0 {
		t.Errorf("hours later: %+v", list)
	}
	for i := range 40 {
		peer := fmt.Sprint(i)
		m.ping(peer, 1, now)
		m.pong(peer, 1, now.Add(time.Duration(i)*time.Millisecond))
	}
	if list := m.measured(now.Add(time.Second)); len(list) != 16 || list[0].From != "39" || list[15].From != "24" {
		t.Errorf("of 40 links: %+v", list)
	}
}

// What others say of links is believed within limits.
func TestPlanLink(t *testing.T) {
	good := swarm.Link{From: "a", RTT: time.Second, BytesPerSec: 1e6, Samples: sureSamples, Age: time.Minute}
	if l := planLink(good, "b"); l.BytesPerSec != 1e6 || l.RTT != 1 || l.Basis == "" || l.From != "a" || l.To != "b" {
		t.Errorf("%+v becomes %+v", good, l)
	}
	for _, change := range []func(*swarm.Link){
		func(l *swarm.Link) { l.Samples-- }, func(l *swarm.Link) { l.Age = 2 * measuredFor },
		func(l *swarm.Link) { l.BytesPerSec = 1e-3 }, func(l *swarm.Link) { l.BytesPerSec = 1e15 },
	} {
		l := good
		change(&l)
		if p := planLink(l, "b"); p.BytesPerSec != 0 || p.Basis != "" || p.RTT != 1 {
			t.Errorf("%+v becomes %+v", l, p)
		}
	}
}

// slowed lets bytes of seams and rows through at a rate.
type slowed struct {
	stream
	rate float64
}

func (s slowed) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		piece := b[n:min(n+4<<10, len(b))]
		time.Sleep(time.Duration(float64(len(piece)) / s.rate * 1e9))
		var k int
		k, err = s.stream.Write(piece)
		n += k
	}
	return n, err
}

// TestMeasuredPlan runs a prompt over a slow link. What its ends have measured is part of their offers then, so that others plan with it.
func TestMeasuredPlan(t *testing.T) {
	const rate = 1e6
	tn := newTestNet(t)
	decoder := tn.start(nil)
	id := tn.publish(decoder)
	stage := tn.start(func(c *Config) { c.wrap = func(s stream) stream { return slowed{s, rate} } })
	tn.serve(decoder, id, 0, 3)
	tn.serve(stage, id, 0, 2)
	client := tn.start(func(c *Config) { c.Client = true })
	plan := func() (string, float64) {
		r, err := (engine{client}).Plan(testContext(t), control.PlanRequest{Model: id.String(), PromptTokens: 400, NewTokens: 1,
			Constraints: control.Constraints{Shape: "across", Cuts: []int{2}, Assign: []string{stage.ID()}, Decoder: decoder.ID()}})
		if err != nil {
			t.Fatal(err)
		}
		return r.Explain, r.Plan.Predicted.Ranges[0].Hop.BytesPerSec
	}
	eventually(t, "two offers", func() bool {
		_ = client.host.Refresh(context.Background())
		p, _ := client.planPeers(id)
		return len(p) == 2
	})
	if text, got := plan(); got != lanBytesPerSec || !strings.Contains(text, "throughput not measured") {
		t.Errorf("before anything was sent the link is taken for one of %g bytes/s:\n%s", got, text)
	}
	for i := range 12 { // each 100 KiB of seams
		_, err := client.run(testContext(t), control.RunRequest{Model: id.String(), Tokens: turnTokens(i, 400), PromptOnly: true, Fresh: true,
			Constraints: control.Constraints{Shape: "across", Cuts: []int{2}, Assign: []string{stage.ID()}, Decoder: decoder.ID(), Chunk: 200}}, quiet)
		if err != nil {
			t.Fatal(err)
		}
	}
	if l := decoder.links.meter.measured(time.Now()); len(l) != 1 || l[0].From != stage.ID() || l[0].BytesPerSec > 2.2*rate {
		t.Errorf("the decoder has measured %+v", l)
	}
	eventually(t, "the measured link in the plan", func() bool {
		_ = client.host.Refresh(context.Background())
		text, got := plan()
		return got < 2.2*rate && strings.Contains(text, "measured ")
	})
	r, err := (engine{client}).Plan(testContext(t), control.PlanRequest{Model: id.String(), PromptTokens: 400, NewTokens: 1,
		Constraints: control.Constraints{Shape: "across", Cuts: []int{2}, Assign: []string{stage.ID()}, Decoder: decoder.ID(), Seam: "auto", KV: "auto"}})
	if err != nil || r.Plan.Seam != "q8_0@2" || r.Plan.KV != "q8_0" {
		t.Errorf("over the slow link the plan rounds seams to %s and rows to %s (%v)", r.Plan.Seam, r.Plan.KV, err)
	}
}

// What was measured of a relayed link says nothing of the direct one that replaces it.
func TestMeterForgets(t *testing.T) {
	m, now := newMeter(), time.Unix(1000, 0)
	m.ping("a", 1, now)
	m.pong("a", 1, now.Add(80*time.Millisecond))
	first := m.piece("a", 1000, now)
	m.frame("a", first, m.piece("a", 2*sampleBytes, now.Add(time.Second)))
	if l := m.measured(now.Add(time.Second)); len(l) != 1 || l[0].Samples != 1 || l[0].RTT != 80*time.Millisecond {
		t.Fatalf("measured %+v", l)
	}
	m.ping("a", 2, now)
	m.forget("a")
	m.pong("a", 2, now.Add(80*time.Millisecond))
	if l := m.measured(now.Add(time.Second)); len(l) != 0 {
		t.Errorf("after that, measured %+v", l)
	}
	m.forget("nobody")
	m.ping("a", 3, now)
	m.pong("a", 3, now.Add(time.Millisecond))
	if l := m.measured(now.Add(time.Second)); len(l) != 1 || l[0].RTT != time.Millisecond {
		t.Errorf("then, measured %+v", l)
	}
}
