package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/swarm/wire"
)

// drained is what a Pause or Leave returned.
type drained struct {
	handedOver int
	err        error
}

// leave makes n leave, and returns what comes of it.
func leave(n *Node, limit time.Duration) <-chan drained {
	c := make(chan drained, 1)
	go func() {
		handedOver, err := n.Leave(context.Background(), limit)
		c <- drained{handedOver, err}
	}()
	return c
}

// offered reports how many peers the client could plan with.
func (s *slowNet) offered() int {
	p, _ := s.client.planPeers(s.id)
	return len(p)
}

func TestStageLeaves(t *testing.T) {
	for name, limit := range map[string]time.Duration{"within the limit": 30 * time.Second, "at once": 0} {
		t.Run(name, func(t *testing.T) {
			s := newSlowNet(t)
			ctx := testContext(t)
			want, err := s.run(ctx, s.client, s.id, s.k, nil)
			if err != nil {
				t.Fatal(err)
			}
			var gone <-chan drained
			got, err := s.run(ctx, s.client, s.id, s.k, func(ev control.Event) error {
				if ev.Phase == "prefill" && gone == nil {
					gone = leave(s.second, limit)
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
	for name, limit := range map[string]time.Duration{"within the limit": 30 * time.Second, "at once": 0} {
		t.Run(name, func(t *testing.T) {
			s := newSlowNet(t)
			ctx := testContext(t)
			want, err := s.run(ctx, s.client, s.id, s.k, nil)
			if err != nil {
				t.Fatal(err)
			}
			var gone <-chan drained
			texts := 0
			got, err := s.run(ctx, s.client, s.id, s.k, func(ev control.Event) error {
				if ev.Kind == "text" {
					if texts++; texts == 4 {
						gone = leave(s.decoder, limit)
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

// askSession opens a session on a decoder that no plan names.
func (n *Node) askSession(ctx context.Context, s *slowNet, decoder *Node) (wire.Message, error) {
	c, err := n.prepare(ctx, control.RunRequest{Model: s.id.String(), Prompt: "x", MaxNew: 1}, quiet)
	if err != nil {
		return nil, err
	}
	c.count++
	c.plan.Decoder, c.plan.Chunk = decoder.ID(), 4
	conn, err := n.openSession(ctx, decoder.ID())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := writeFrame(conn, c.opening(c.plan, 1)); err != nil {
		return nil, err
	}
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
	eventually(t, "the offers' withdrawal", func() bool { return s.offered() == 3 })
	holders := s.client.holders(s.id)
	if len(holders) != 6 { // the tracker, too
		t.Errorf("%d peers offer the bytes, want 6", len(holders))
	}
	var r *wire.Refusal
	if _, err := s.client.askSession(ctx, s, s.decoder); !errors.As(err, &r) || r.Code != wire.CodeLeaving || !strings.Contains(r.Text, "paused") {
		t.Errorf("a session with a paused node: %v", err)
	}
	if st, err := s.decoder.Control().Status(ctx); err != nil || st.Standing != "paused" || figure(t, s.decoder, "starling_accepting") != "0" {
		t.Errorf("status %+v, %v", st, err)
	}

	if got, err := s.decoder.run(ctx, control.RunRequest{Model: s.id.String(), Prompt: "The quick brown fox jumps over the lazy dog. Again and again.",
		MaxNew: 12, Temperature: 0.7, TopP: 0.9, Seed: 5, Proof: true}, quiet); err != nil {
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
		if handedOver, err := stage.Leave(ctx, time.Second); err != nil || handedOver > 0 {
			t.Errorf("life %d: %d handed over, %v", life, handedOver, err)
		}
		if err := stage.Close(); err != nil {
			t.Fatal(err)
		}
		tn.nodes = tn.nodes[:1]
		eventually(t, "its offer's end", func() bool { p, _ := whole.planPeers(id); return len(p) == 1 })
	}
}
