package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/swarm/wire"
)

// drained is what a Pause or Leave returned.
type drained struct {
	handedOver int
	err        error
}

// leaveHeld makes n leave in the middle of a session that the decoder's gate holds up, and returns what comes of it. The gate
// opens when n is about to wait, for limit or for the step under way, or has handed over what it had.
func (s *slowNet) leaveHeld(n *Node, limit time.Duration) <-chan drained {
	c := make(chan drained, 1)
	go func() {
		handedOver, err := n.Leave(context.Background(), limit)
		c <- drained{handedOver, err}
		s.gates[s.decoder].release()
	}()
	if limit > 0 {
		eventually(s.t, "the node to leave", func() bool { return n.standing() == leaving })
		s.gates[s.decoder].release()
	} else if n == s.decoder { // it ends its step before
		eventually(s.t, "the session to end", func() bool {
			return !slices.ContainsFunc(n.decoderList(), func(d *decoderSession) bool {
				d.mu.Lock()
				defer d.mu.Unlock()
				return d.m.leaving == nil && !d.m.ended
			})
		})
		s.gates[s.decoder].release()
	}
	return c
}

// offered reports how many peers the client could plan with.
func (s *slowNet) offered() int {
	p, _ := s.client.planPeers(s.id)
	return len(p)
}

func TestStageLeaves(t *testing.T) {
	for name, limit := range map[string]time.Duration{"within the limit": patience, "at once": 0} {
		t.Run(name, func(t *testing.T) {
			s := newSlowNet(t)
			ctx := testContext(t)
			want, err := s.run(ctx, s.client, s.id, s.k, nil)
			if err != nil {
				t.Fatal(err)
			}
			var gone <-chan drained
			s.gates[s.decoder].hold(8)
			got, err := s.run(ctx, s.client, s.id, s.k, func(ev control.Event) error {
				if ev.Phase == "prefill" && gone == nil {
					gone = s.leaveHeld(s.second, limit)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if gone == nil {
				t.Fatal("the answer came before the stage could leave")
			}
			sameAnswer(t, got, want)
			d := <-gone
			if limit == 0 {
				if d != (drained{1, nil}) || len(got.Recovered) == 0 || !strings.Contains(got.Recovered[0], "leaving") {
					t.Errorf("%+v; the account tells of %q", d, got.Recovered)
				}
			} else if d != (drained{0, nil}) || len(got.Recovered) > 0 {
				t.Errorf("%+v; the account tells of %q", d, got.Recovered)
			}
			eventually(t, "the offer's withdrawal", func() bool { return s.offered() == 4 })
			if err := s.second.Close(); err != nil {
				t.Error(err)
			}
			s.nodes = []*Node{s.decoder, s.reserve, s.first, s.spare, s.client}
			s.mustBeIdle()
		})
	}
}

func TestDecoderLeaves(t *testing.T) {
	for name, limit := range map[string]time.Duration{"within the limit": patience, "at once": 0} {
		t.Run(name, func(t *testing.T) {
			s := newSlowNet(t)
			ctx := testContext(t)
			want, err := s.run(ctx, s.client, s.id, s.k, nil)
			if err != nil {
				t.Fatal(err)
			}
			var gone <-chan drained
			s.gates[s.decoder].hold(len(want.PromptTokens) + 6)
			texts := 0
			got, err := s.run(ctx, s.client, s.id, s.k, func(ev control.Event) error {
				if ev.Kind == "text" {
					if texts++; texts == 4 {
						gone = s.leaveHeld(s.decoder, limit)
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if got.Text != want.Text || fmt.Sprint(got.NewTokens) != fmt.Sprint(want.NewTokens) || got.KVHash != want.KVHash {
				t.Errorf("answer %q %v, want %q %v", got.Text, got.NewTokens, want.Text, want.NewTokens)
			}
			d := <-gone
			if limit == 0 {
				if d != (drained{1, nil}) || got.Decoder.Peer == s.decoder.ID() || !strings.HasPrefix(got.Epoch, "2.") || !strings.Contains(got.Recovered[0], "leaving") {
					t.Errorf("%+v; finished by %s in epoch %s: %q", d, got.Decoder.Peer, got.Epoch, got.Recovered)
				}
				if least := len(want.PromptTokens) + 2; got.Reused < least || !strings.Contains(fmt.Sprint(got.Recovered), "took over") {
					t.Errorf("the next decoder took over %d positions of at least %d: %q", got.Reused, least, got.Recovered)
				}
				if n := len(s.decoder.bequestList()); n > 0 {
					t.Errorf("%d caches are still kept for other decoders", n)
				}
			} else if d != (drained{0, nil}) || got.Decoder.Peer != s.decoder.ID() || len(got.Recovered) > 0 {
				t.Errorf("%+v; finished by %s in epoch %s: %q", d, got.Decoder.Peer, got.Epoch, got.Recovered)
			}

			// Nothing new is taken, neither of others nor of its own.
			var r *wire.Refusal
			if _, err := s.decoder.run(ctx, control.RunRequest{Model: s.id.String(), Prompt: "x"}, quiet); err == nil || !strings.Contains(err.Error(), "about to close") {
				t.Errorf("a run of a node that leaves: %v", err)
			}
			if err := s.decoder.Resume(); err == nil {
				t.Error("a node that leaves resumes")
			}
			eventually(t, "the offer's withdrawal", func() bool { return s.offered() == 4 })
			if _, err := s.client.askSession(ctx, s, s.decoder); !errors.As(err, &r) || r.Code != wire.CodeLeaving {
				t.Errorf("a session with a node that leaves: %v", err)
			}
		})
	}
}

// openUnplanned opens a session on a decoder that no plan names.
func (n *Node) openUnplanned(ctx context.Context, id artifacts.ID, decoder *Node) (sessionConn, error) {
	c, err := n.prepare(ctx, control.RunRequest{Model: id.String(), Prompt: "x", MaxNew: 1}, quiet)
	if err != nil {
		return nil, err
	}
	c.count++
	c.plan.Decoder, c.plan.Chunk = decoder.ID(), 4
	conn, err := n.openSession(ctx, decoder.ID())
	if err != nil {
		return nil, err
	}
	if err := writeFrame(conn, c.opening(c.plan, 1)); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// lastWord reads a session's stream up to its last frame.
func lastWord(conn sessionConn) (wire.Message, error) {
	for {
		m, err := wire.Read(&patientReader{s: conn})
		if err != nil {
			return nil, err
		}
		switch m := m.(type) {
		case *wire.Refusal:
			return nil, m
		case *wire.Done:
			return m, nil
		}
	}
}

// askSession opens a session on a decoder that no plan names, and returns its last frame.
func (n *Node) askSession(ctx context.Context, s *slowNet, decoder *Node) (wire.Message, error) {
	conn, err := n.openUnplanned(ctx, s.id, decoder)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return lastWord(conn)
}

// A session whose answer is complete has nothing to hand over: its client gets the last words, however slowly it reads.
func TestPauseAfterTheAnswer(t *testing.T) {
	tn := newTestNet(t)
	n := tn.start(nil)
	id := tn.publish(n)
	tn.serve(n, id, 0, tn.layers())
	ctx := testContext(t)
	conn, err := n.openUnplanned(ctx, id, n) // a pipe: nothing is written before it is read
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	eventually(t, "the answer", func() bool { return n.answered() })
	if handedOver, err := n.Pause(ctx, 0); err != nil || handedOver != 0 {
		t.Errorf("%d handed over, %v", handedOver, err)
	}
	if m, err := lastWord(conn); err != nil {
		t.Errorf("the last word is %v, %v", m, err)
	}
	tn.mustBeIdle()
}

// answered reports whether a session that n decodes has its whole answer.
func (n *Node) answered() bool {
	return slices.ContainsFunc(n.decoderList(), func(d *decoderSession) bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.m.ended
	})
}

// Nor has one that waits for the account of a stage.
func TestPauseBeforeTheAccounts(t *testing.T) {
	tn := newTestNet(t)
	decoder := tn.start(nil)
	id := tn.publish(decoder)
	tn.serve(decoder, id, 0, tn.layers())
	stage := tn.start(func(c *Config) { c.wrap = func(s stream) stream { return hushed{s, wire.TypeStageClosed} } })
	tn.serve(stage, id, 0, 1)
	client := tn.start(func(c *Config) { c.Client = true })
	eventually(t, "two offers", func() bool {
		_ = client.host.Refresh(context.Background())
		p, _ := client.planPeers(id)
		return len(p) == 2
	})
	ctx := testContext(t)
	type result struct {
		got *control.Account
		err error
	}
	results := make(chan result, 1)
	go func() {
		got, err := tn.run(ctx, client, id, control.Constraints{Shape: "across", Cuts: []int{1}, Assign: []string{stage.ID()}, Decoder: decoder.ID(), Chunk: 4}, nil)
		results <- result{got, err}
	}()
	eventually(t, "the answer", func() bool { return decoder.answered() })
	if handedOver, err := decoder.Pause(ctx, 0); err != nil || handedOver != 0 {
		t.Errorf("%d handed over, %v", handedOver, err)
	}
	if r := <-results; r.err != nil || len(r.got.Recovered) > 0 {
		t.Errorf("the answer: %+v, %v", r.got, r.err)
	}
	tn.mustBeIdle()
}

func TestPauseAndResume(t *testing.T) {
	s := newSlowNet(t)
	ctx := testContext(t)
	want, err := s.run(ctx, s.client, s.id, s.k, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []*Node{s.decoder, s.first} {
		if handedOver, err := n.Pause(ctx, 0); err != nil || handedOver != 0 {
			t.Fatalf("%d, %v", handedOver, err)
		}
	}
	for _, n := range []*Node{s.client, s.decoder} {
		eventually(t, "the offers' withdrawal", func() bool { p, _ := n.planPeers(s.id); return len(p) == 3 })
	}
	eventually(t, "six peers' offers of the bytes", func() bool { return len(s.client.holders(s.id)) == 6 }) // the tracker, too
	var r *wire.Refusal
	if _, err := s.client.askSession(ctx, s, s.decoder); !errors.As(err, &r) || r.Code != wire.CodeLeaving || !strings.Contains(r.Text, "paused") {
		t.Errorf("a session with a paused node: %v", err)
	}
	if st, err := s.decoder.Control().Status(ctx); err != nil || st.Standing != "paused" || figure(t, s.decoder, "starling_accepting") != "0" {
		t.Errorf("status %+v, %v", st, err)
	}

	if got, err := s.decoder.run(ctx, control.RunRequest{Model: s.id.String(), Prompt: "The quick brown fox jumps over the lazy dog. Again and again.",
		MaxNew: 12, Sampling: control.Sampling{Temperature: 0.7, TopP: 0.9, Seed: 5}, Proof: true}, quiet); err != nil {
		t.Errorf("a paused node's own run: %v", err)
	} else if got.Text != want.Text || got.Decoder.Peer == s.decoder.ID() {
		t.Errorf("a paused node's own run: %q from %s, want %q", got.Text, got.Decoder.Peer, want.Text)
	}

	for _, n := range []*Node{s.decoder, s.first} {
		if err := n.Resume(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the offers' return", func() bool { return s.offered() == 5 })
	got, err := s.run(ctx, s.client, s.id, s.k, nil)
	if err != nil {
		t.Fatal(err)
	}
	sameAnswer(t, got, want)
	if len(got.Recovered) > 0 || got.Decoder.Peer != s.decoder.ID() {
		t.Errorf("after the pause: %+v", got)
	}
	s.mustBeIdle()
}

// A peer that was away and is back, as one that was stopped and started again,
// finds no dead stream between itself and those that it worked with.
func TestStageRestarts(t *testing.T) {
	tn := newTestNet(t)
	whole := tn.start(nil)
	id := tn.publish(whole)
	tn.serve(whole, id, 0, tn.layers())
	dir := t.TempDir()
	ctx := testContext(t)
	for life := range 3 {
		stage := tn.start(func(c *Config) { c.DataDir = dir })
		tn.serve(stage, id, 0, 1)
		eventually(t, "two offers", func() bool { _ = whole.host.Refresh(ctx); p, _ := whole.planPeers(id); return len(p) == 2 })
		got, err := tn.run(ctx, whole, id, control.Constraints{Shape: "across", Cuts: []int{1}, Assign: []string{stage.ID()}, Decoder: whole.ID(), Chunk: 5}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Recovered) > 0 {
			t.Errorf("life %d: %q", life, got.Recovered)
		}
		if handedOver, err := stage.Leave(ctx, patience); err != nil || handedOver > 0 {
			t.Errorf("life %d: %d handed over, %v", life, handedOver, err)
		}
		if err := stage.Close(); err != nil {
			t.Fatal(err)
		}
		tn.nodes = tn.nodes[:1]
		eventually(t, "its offer's end", func() bool { p, _ := whole.planPeers(id); return len(p) == 1 })
	}
}

// A stage that has left may be asked for the session by its neighbour, who tells the decoder, before its own word comes there: that says why, too.
func TestNoSessionOfLeavingNode(t *testing.T) {
	n := newTestNet(t).start(nil)
	if r := n.noSession(wire.SessionID{1}); r.Code != wire.CodeUnknownSession || strings.Contains(r.Error(), "leaving") {
		t.Errorf("a node at work says %v", r)
	}
	if _, err := n.Leave(testContext(t), 0); err != nil {
		t.Fatal(err)
	}
	if r := n.noSession(wire.SessionID{1}); r.Code != wire.CodeUnknownSession || !strings.Contains(r.Error(), "leaving") {
		t.Errorf("a node that leaves says %v", r)
	}
}
