package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
	"github.com/starling-swarm/starling/swarm"
	"github.com/starling-swarm/starling/swarm/wire"
)

// probeAlone is what one process gives for a session's probe, by boundary.
func (u simSetup) probeAlone(t testing.TB) map[uint32][]byte {
	t.Helper()
	e := u.open(t, u.backend(), runtime.Range{})
	seq, err := e.NewSequence(len(u.prompt), e.Layers())
	if err != nil {
		t.Fatal(err)
	}
	step := &runtime.Step{Seq: seq, Layers: e.Layers(), N: len(u.prompt), Tokens: u.prompt}
	for _, l := range u.probe.Layers {
		step.Probe = append(step.Probe, int(l))
	}
	for r := int(u.probe.First); r < int(u.probe.Last) && u.probe.Logits; r++ {
		step.LogitRows = append(step.LogitRows, r)
	}
	if err := e.Run(context.Background(), []*runtime.Step{step}); err != nil {
		t.Fatal(err)
	}
	rows, w := map[uint32][]byte{}, e.Config().Width
	for i, l := range u.probe.Layers {
		rows[l] = encodeRows(step.Probed[i][int(u.probe.First)*w : int(u.probe.Last)*w])
	}
	for _, logits := range step.Logits {
		rows[wire.LogitRows] = append(rows[wire.LogitRows], encodeRows(logits)...)
	}
	return rows
}

// mustShow fails unless the client was told exactly what the probe asks for.
func (s *simulation) mustShow() {
	s.t.Helper()
	want := s.setup.probeAlone(s.t)
	for l, rows := range want {
		if !bytes.Equal(s.rows[l], rows) {
			s.t.Errorf("rows of boundary %d differ from those of one process: %d bytes, want %d", l, len(s.rows[l]), len(rows))
		}
	}
	if len(s.rows) != len(want) {
		s.t.Errorf("rows of %d boundaries, want %d", len(s.rows), len(want))
	}
}

// simProbes are probes of a prompt of 23 tokens and 6 layers.
var simProbes = []wire.Probe{
	{First: 0, Last: 23, Layers: []uint32{0, 1, 2, 3, 4, 5, 6}, Logits: true},
	{First: 22, Last: 23, Layers: []uint32{3}},
	{First: 5, Last: 9, Layers: []uint32{0, 2, 6}},
	{First: 7, Last: 23, Logits: true},
}

// Whatever the route, the chunks and the order of events, a probe gives the rows of one process, with an answer and without.
func TestProbesEqualTheRunAlone(t *testing.T) {
	for i, probe := range simProbes {
		for _, cuts := range [][]int{nil, {1}, {2, 4}, {1, 2, 3, 4, 5, 6}} {
			for _, chunk := range []int{1, 4, 64} {
				for _, shape := range []string{"across", "pipelined", "pipelined, whole"} {
					for _, maxNew := range []int{0, 3} {
						u := simSetup{prompt: somePrompt(23), maxNew: maxNew, chunk: chunk, cuts: cuts, local: shape == "across" || cuts == nil,
							whole: shape != "pipelined" || cuts == nil, how: simSampling, probe: probe, guess: true}
						t.Run(fmt.Sprintf("%d/%v/%d/%s/%d", i, cuts, chunk, shape, maxNew), func(t *testing.T) {
							for seed := range uint64(3) {
								s := u.start(t, seed)
								s.run()
								s.mustEqual()
								s.mustShow()
								if len(s.refused) > 0 || len(s.stages) > 0 {
									t.Errorf("refused: %v; stages left: %d", s.refused, len(s.stages))
								}
							}
						})
					}
				}
			}
		}
	}
}

// A stage that is lost at any moment changes nothing of what is told.
func TestProbesSurviveLosses(t *testing.T) {
	for _, local := range []bool{true, false} {
		for _, maxNew := range []int{0, 4} {
			for _, tails := range []bool{false, true} {
				for when := 1; when < 140; when += 3 {
					u := simSetup{prompt: somePrompt(23), maxNew: maxNew, chunk: 4, cuts: []int{2, 3, 5}, local: local, whole: local, tails: tails,
						how: simSampling, probe: simProbes[when%2*2]}
					t.Run(fmt.Sprintf("%v/%d/%v/%d", local, maxNew, tails, when), func(t *testing.T) {
						s := u.start(t, uint64(when))
						s.spare = []string{"T0", "T1"}
						for i := 0; i < when && s.step(); i++ {
						}
						if s.done != nil {
							t.Skip("the session was over before the loss")
						}
						s.kill([]string{"S0", "S1", "S2"}[when/3%3])
						s.run()
						if s.done.Err != nil {
							t.Fatalf("session failed: %v", s.done.Err)
						}
						s.mustShow()
						told, _, _ := u.alone(t)
						s.mustTell(told)
					})
				}
			}
		}
	}
}

// What nobody asked for, what is out of order and what is no number is refused, or its sender given up.
func TestRowsAreChecked(t *testing.T) {
	p, r := newProbed(wire.Probe{First: 2, Last: 6, Layers: []uint32{1, 3}, Logits: true}, 4, 2, 3, 6)
	if r != nil {
		t.Fatal(r)
	}
	rows := func(layer, start, count uint32, floats int) *wire.Rows {
		return &wire.Rows{Layer: layer, Start: start, Count: count, Rows: encodeRows(make([]float32, floats))}
	}
	bad := rows(1, 2, 1, 2)
	copy(bad.Rows[4:], encodeRows([]float32{float32(math.Inf(-1))}))
	for what, m := range map[string]*wire.Rows{
		"another boundary":     rows(2, 2, 1, 2),
		"a gap":                rows(1, 3, 1, 2),
		"earlier positions":    rows(1, 1, 2, 4),
		"later positions":      rows(1, 2, 5, 10),
		"short rows":           rows(1, 2, 2, 3),
		"logits as wide":       rows(wire.LogitRows, 2, 1, 2),
		"positions that wrap":  rows(1, 2, math.MaxUint32, 2),
		"an infinity":          bad,
		"the logits' boundary": rows(wire.LogitRows-1, 2, 1, 3),
	} {
		if got, r := p.take(m); r == nil || got != nil {
			t.Errorf("%s: took %+v", what, got)
		}
	}
	take := func(m *wire.Rows, start, count uint32) {
		t.Helper()
		got, r := p.take(m)
		if r != nil || (got == nil) != (count == 0) || got != nil && (got.Start != start || got.Count != count || len(got.Rows) != int(count)*p.rowBytes(m.Layer)) {
			t.Errorf("took %+v, %v; want %d rows from %d on", got, r, count, start)
		}
	}
	take(rows(1, 2, 2, 4), 2, 2)
	take(rows(1, 2, 1, 2), 0, 0)
	take(rows(1, 3, 3, 6), 4, 2)
	if p.done(all) || p.done(4) || !p.done(2) || p.due(2) != 6 || p.due(all) != 2 {
		t.Errorf("told %v of %+v", p.upto, p.asked)
	}
	take(rows(3, 2, 4, 8), 2, 4)
	take(rows(wire.LogitRows, 2, 4, 12), 2, 4)
	if !p.done(all) {
		t.Errorf("told %v of %+v", p.upto, p.asked)
	}
	for what, q := range map[string]wire.Probe{
		"boundary 5 of 4 layers": {Last: 1, Layers: []uint32{1, 5}},
		"position 6 of 6":        {Last: 7, Logits: true},
		"too much":               {Last: math.MaxInt32, Layers: slices.Repeat([]uint32{1}, 1024)},
	} {
		prompt := 6
		if what == "too much" {
			prompt = math.MaxInt32
		}
		if _, r := newProbed(q, 4, 1<<20, 1<<20, prompt); r == nil || r.Code != wire.CodeBadRequest {
			t.Errorf("%s: %v", what, r)
		}
	}
}

// A stage that sends rows of others, or twice as many, is refused; one that sends an infinity is lost.
func TestStageRowsAreChecked(t *testing.T) {
	u := simSetup{prompt: somePrompt(23), maxNew: 2, chunk: 4, cuts: []int{2, 4}, local: true, whole: true, how: simSampling,
		probe: wire.Probe{First: 0, Last: 23, Layers: []uint32{1, 3, 5}}}
	s := u.start(t, 1)
	for s.d.probed.upto[1] == 0 && s.step() {
	}
	width := runtimetest.FakeConfig().Width
	for what, m := range map[string]*wire.Rows{
		"another stage's":  {Layer: 3, Start: 0, Count: 1, Rows: encodeRows(make([]float32, width))},
		"the decoder's":    {Layer: 5, Start: 0, Count: 1, Rows: encodeRows(make([]float32, width))},
		"far ahead":        {Layer: 1, Start: 22, Count: 1, Rows: encodeRows(make([]float32, width))},
		"an older epoch's": {Layer: 1, Start: 0, Count: 1, Rows: encodeRows(make([]float32, width))},
	} {
		if m.Head = s.d.head; what == "an older epoch's" {
			m.Epoch.Plan--
		}
		if _, r := s.d.handle("S0", m); r == nil {
			t.Errorf("%s: taken", what)
		}
	}
	bad := encodeRows(make([]float32, width))
	copy(bad, encodeRows([]float32{float32(math.Inf(1))}))
	acts, r := s.d.handle("S0", &wire.Rows{Head: s.d.head, Layer: 1, Start: s.d.probed.upto[1], Count: 1, Rows: bad})
	if r != nil || !slices.Equal(s.d.lost, []string{"S0"}) {
		t.Fatalf("an infinity: %v, lost %v", r, s.d.lost)
	}
	s.dead["S0"] = true
	s.decoderDo(acts)
	s.run()
	s.mustShow()
}

// A decoder that sends more rows than were asked for is given up before they fill the client's memory.
func TestInboxOfRows(t *testing.T) {
	p, r := newProbed(wire.Probe{Last: 2, Layers: []uint32{1}}, 4, 2, 3, 6)
	if r != nil {
		t.Fatal(r)
	}
	b := newInbox(0, &p)
	rows := &wire.Rows{Layer: 1, Count: 1, Rows: make([]byte, 8)}
	for range 2 {
		if !b.put(rows, nil) {
			t.Fatal("rows that were asked for are refused")
		}
	}
	if b.put(rows, nil) {
		t.Fatal("a third row of two is taken")
	}
	for range 2 {
		if _, err := b.take(); err != nil {
			t.Fatal(err)
		}
	}
	var refusal *wire.Refusal
	if _, err := b.take(); !errors.As(err, &refusal) || refusal.Code != wire.CodeBadFrame {
		t.Errorf("after them: %v", err)
	}
}

// Rows of many sessions don't fill a node's memory: it is busy for more of them, and only for such.
func TestProbesHaveRoom(t *testing.T) {
	n := &Node{identity: swarm.Ephemeral()}
	n.sessions.decoders, n.turnover = map[wire.SessionID]*decoderSession{}, make(chan struct{}, 1)
	add := func(id byte, bytes uint32) *wire.Refusal {
		m := newMachine(t, runtimetest.FakeConfig(), wire.Route{Chunk: 4}, 10)
		m.probed = probed{asked: wire.Probe{Last: bytes / 4, Layers: []uint32{1}}, width: 1}
		return n.addDecoder(wire.SessionID{id}, &decoderSession{m: m})
	}
	for id := range byte(4) {
		if r := add(id, wire.MaxProbe); r != nil {
			t.Fatal(r)
		}
	}
	if r := add(4, 4); r == nil || r.Code != wire.CodeBusy || r.RetryAfter == 0 {
		t.Errorf("a fifth large probe: %v", r)
	}
	if r := add(5, 0); r != nil {
		t.Errorf("a session without a probe: %v", r)
	}
	n.removeDecoder(wire.SessionID{2}, n.sessions.decoders[wire.SessionID{2}])
	if r := add(6, wire.MaxProbe); r != nil {
		t.Errorf("after another has ended: %v", r)
	}
}

// TestProbesTravel asks for hidden states at every boundary, and for logits, of models whose layers keep all rows, tails or windows,
// of every shape of route, and compares them with what the engine gives by itself.
func TestProbesTravel(t *testing.T) {
	for _, arch := range []string{"llama", "gemma3", "qwen35moe"} {
		t.Run(arch, func(t *testing.T) {
			if testing.Short() && arch != "qwen35moe" {
				t.Skip("-short takes one family")
			}
			tn := newTestNet(t)
			tn.model = filepath.Join(t.TempDir(), "probes.gguf")
			if err := (runtimetest.TinyModel{Arch: arch, Layers: 4}).Write(tn.model); err != nil {
				t.Fatal(err)
			}
			tracker := tn.start(nil)
			id := tn.publish(tracker)
			whole, first, second, last := tn.start(nil), tn.start(nil), tn.start(nil), tn.start(nil)
			client := tn.start(func(c *Config) { c.Client = true })
			tn.serve(whole, id, 0, 4)
			tn.serve(first, id, 0, 1)
			tn.serve(second, id, 1, 3)
			tn.serve(last, id, 3, 4)
			ctx := testContext(t)
			eventually(t, "four offers", func() bool { _ = client.host.Refresh(ctx); p, _ := client.planPeers(id); return len(p) == 4 })

			u := simSetup{prompt: turnTokens(3, 70), model: tn.model, probe: wire.Probe{First: 11, Last: 70, Layers: []uint32{0, 1, 2, 3, 4}, Logits: true}}
			want := u.probeAlone(t)
			stages := []string{first.ID(), second.ID()}
			for _, k := range []control.Constraints{
				{Shape: "local", Decoder: whole.ID()},
				{Shape: "across", Cuts: []int{1, 3}, Assign: stages, Decoder: whole.ID(), Chunk: 16},
				{Shape: "pipelined", Cuts: []int{1, 3}, Assign: stages, Decoder: last.ID(), Chunk: 16},
				{Shape: "pipelined", Cuts: []int{1, 3}, Assign: stages, Decoder: whole.ID(), Chunk: 64},
			} {
				for _, promptOnly := range []bool{true, false} {
					got := map[uint32][]byte{}
					a, err := client.run(ctx, control.RunRequest{Model: id.String(), Tokens: u.prompt, PromptOnly: promptOnly, MaxNew: 3, Constraints: k,
						Probe: &control.Probe{First: 11, Last: 70, Layers: []int{0, 1, 2, 3, 4}, Logits: true}}, func(ev control.Event) error {
						if r := ev.Rows; r != nil {
							l := uint32(r.Layer)
							if r.Logits {
								l = wire.LogitRows
							}
							got[l] = append(got[l], r.Data...)
						}
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
					for l, rows := range want {
						if !bytes.Equal(got[l], rows) {
							t.Errorf("%s, decoded by %s: rows of boundary %d differ from the engine's: %d bytes, want %d", k.Shape, k.Decoder, l, len(got[l]), len(rows))
						}
					}
					for _, events := range []int{1, 3, 6} { // then the client is gone
						ctx, cancel := context.WithCancel(ctx)
						_, err := client.run(ctx, control.RunRequest{Model: id.String(), Tokens: u.prompt, PromptOnly: promptOnly, MaxNew: 3, Constraints: k, Fresh: true,
							Probe: &control.Probe{First: 0, Last: 70, Layers: []int{0, 1, 2, 3, 4}, Logits: true}}, func(control.Event) error {
							if events--; events == 0 {
								cancel()
							}
							return nil
						})
						if cancel(); err != nil && !errors.Is(err, context.Canceled) { // it may have been over
							t.Errorf("%s: a cancelled run ended with %v", k.Shape, err)
						}
					}
					if made := len(a.NewTokens); (made == 0) != promptOnly || (a.Reason == wire.ReasonPrompt) != promptOnly {
						t.Errorf("%s: %d new tokens, ended by %q", k.Shape, made, a.Reason)
					}
				}
			}
			tn.mustBeIdle()
		})
	}
}
