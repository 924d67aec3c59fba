package node

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/route"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// turnTokens are n tokens of the tiny model without a pattern.
func turnTokens(seed, n int) []int32 {
	list := make([]int32, n)
	for i := range list {
		list[i] = int32((i*i*31 + i*7 + seed*101) % 250)
	}
	return list
}

// TestTurns holds conversations with a decoder: further turns, the same question again, an edited one. Each answer is that of a
// node that computes everything afresh, and only what is new is computed, as far as the model's layers can go back.
func TestTurns(t *testing.T) {
	for _, arch := range []string{"llama", "gemma3", "qwen35moe"} {
		t.Run(arch, func(t *testing.T) {
			if testing.Short() && arch != "qwen35moe" {
				t.Skip("-short takes one family")
			}
			tn := newTestNet(t)
			tn.model = filepath.Join(t.TempDir(), "turns.gguf")
			if err := (runtimetest.TinyModel{Arch: arch, Layers: 4}).Write(tn.model); err != nil {
				t.Fatal(err)
			}
			tracker := tn.start(nil)
			id := tn.publish(tracker)
			whole, first := tn.start(nil), tn.start(nil)
			client, other := tn.start(func(c *Config) { c.Client = true }), tn.start(func(c *Config) { c.Client = true })
			tn.serve(whole, id, 0, 4)
			tn.serve(first, id, 0, 2)
			ctx := testContext(t)
			for _, n := range []*Node{client, other} {
				eventually(t, "two offers", func() bool { _ = n.host.Refresh(ctx); p, _ := n.planPeers(id); return len(p) == 2 })
			}
			rewinds := arch != "qwen35moe"
			ask := func(n *Node, fresh bool, k control.Constraints, prompt []int32) *control.Account {
				t.Helper()
				if k.Decoder = whole.ID(); k.Shape == "" {
					k.Shape = "local" // of rows that come from a stage, those before a window do not
				}
				a, err := n.run(ctx, control.RunRequest{Model: id.String(), Tokens: prompt, MaxNew: 10, Sampling: control.Sampling{Temperature: 0.8, TopP: 0.95, Seed: 3}, Proof: true, Fresh: fresh, Constraints: k}, quiet)
				if err != nil {
					t.Fatal(err)
				}
				return a
			}
			// turn asks for an answer of which the cache has so many tokens.
			turn := func(what string, prompt []int32, reused int, k control.Constraints) *control.Account {
				t.Helper()
				want := ask(other, true, control.Constraints{}, prompt)
				got := ask(client, false, k, prompt)
				sameAnswer(t, got, want)
				if got.Reused != reused || want.Reused != 0 {
					t.Errorf("%s: %d of %d tokens reused, want %d; %d afresh", what, got.Reused, len(prompt), reused, want.Reused)
				}
				if reused > 0 && got.Decoder.Tokens != len(prompt)+len(got.NewTokens)-1-reused {
					t.Errorf("%s: %d tokens computed of %d and %d, %d of them reused", what, got.Decoder.Tokens, len(prompt), len(got.NewTokens), reused)
				}
				return got
			}
			prompt := turnTokens(1, 300)
			one := turn("the first turn", prompt, 0, control.Constraints{})
			all := len(prompt) + len(one.NewTokens) - 1 // the last token has been sampled, not computed
			next := slices.Concat(prompt, one.NewTokens, turnTokens(2, 20))
			two := turn("the second turn", next, all, control.Constraints{})
			turn("the third turn", slices.Concat(next, two.NewTokens, turnTokens(3, 5)), len(next)+len(two.NewTokens)-1, control.Constraints{})
			again := len(next) - 1
			edited := slices.Concat(prompt, one.NewTokens, turnTokens(2, 10), turnTokens(4, 15))
			common := len(prompt) + len(one.NewTokens) + 10
			if !rewinds { // only to where a Run began or ended
				again, common = all, all
			}
			turn("the second turn again", next, again, control.Constraints{})
			turn("an edited second turn", edited, common, control.Constraints{})
			early := 280
			if !rewinds { // to a page's end
				early = 256
			}
			turn("an edited first turn", slices.Concat(prompt[:280], turnTokens(6, 60)), early, control.Constraints{})
			if got := ask(other, false, control.Constraints{Chunk: 50}, turnTokens(9, 200)); got.Reused != 0 {
				t.Errorf("another client's question had %d tokens reused", got.Reused)
			}
			if got := ask(other, false, control.Constraints{}, slices.Concat(prompt[:200], turnTokens(7, 9))); got.Reused != min(200, got.Reused) {
				t.Errorf("%d tokens reused", got.Reused)
			}

			// A short turn is the decoder's alone, whatever the route; a long one is everybody's, and a given route is walked.
			across := control.Constraints{Shape: "across", Cuts: []int{2}, Assign: []string{first.ID()}}
			if got := ask(client, false, across, next); got.Reused != 0 || len(got.Stages) != 1 {
				t.Errorf("a given route: %d tokens reused, %d stages", got.Reused, len(got.Stages))
			}
			tn.mustBeIdle()
		})
	}
}

// TestLongTurn goes on with a conversation by a prompt long enough for the route: all peers begin where their caches end, and what is on
// the links is what is new. Somebody else's session with the same text begins at 0.
func TestLongTurn(t *testing.T) {
	for _, arch := range []string{"llama", "gemma3", "qwen35moe"} {
		for _, shape := range []string{"across", "pipelined"} {
			t.Run(arch+" "+shape, func(t *testing.T) {
				if testing.Short() && arch != "qwen35moe" {
					t.Skip("-short takes one family")
				}
				tn := newTestNet(t)
				tn.model = filepath.Join(t.TempDir(), "turns.gguf")
				if err := (runtimetest.TinyModel{Arch: arch, Layers: 4}).Write(tn.model); err != nil {
					t.Fatal(err)
				}
				tracker := tn.start(nil)
				id := tn.publish(tracker)
				whole, first, second := tn.start(nil), tn.start(nil), tn.start(nil)
				client, other := tn.start(func(c *Config) { c.Client = true }), tn.start(func(c *Config) { c.Client = true })
				tn.serve(first, id, 0, 1)
				tn.serve(second, id, 1, 3)
				if shape == "across" {
					tn.serve(whole, id, 0, 4)
				} else {
					tn.serve(whole, id, 3, 4)
				}
				ctx := testContext(t)
				for _, n := range []*Node{client, other} {
					eventually(t, "three offers", func() bool { _ = n.host.Refresh(ctx); p, _ := n.planPeers(id); return len(p) == 3 })
				}
				k := control.Constraints{Shape: shape, Cuts: []int{1, 3}, Assign: []string{first.ID(), second.ID()}, Decoder: whole.ID(), Chunk: 64}
				ask := func(n *Node, fresh bool, prompt []int32) *control.Account {
					t.Helper()
					a, err := n.run(ctx, control.RunRequest{Model: id.String(), Tokens: prompt, MaxNew: 10, Sampling: control.Sampling{Temperature: 0.8, TopP: 0.95, Seed: 3}, Proof: true, Fresh: fresh, Continued: !fresh,
						NoGuess: true, Constraints: k}, quiet)
					if err != nil {
						t.Fatal(err)
					}
					return a
				}
				kvBytes := func(first, last, chunks int) (sum int64) {
					e := whole.served(id).exec
					for l := range 3 {
						c := e.Config().Cache[l]
						sum += int64((last-first)*c.RowElems()*2 + chunks*c.TailBytes())
					}
					return sum
				}
				prompt := turnTokens(1, 500)
				one := ask(client, false, prompt)
				next := slices.Concat(prompt, one.NewTokens, turnTokens(2, 400))
				came := received(t, whole)
				two := ask(client, false, next)
				came = received(t, whole) - came
				want := ask(other, true, next)
				sameAnswer(t, two, want)
				before := len(prompt) + len(one.NewTokens) - 1 // the last token has been sampled, not computed
				begins, computed := before, len(next)          // of the stages
				if shape == "across" {
					begins = len(prompt)
				} else {
					computed += len(two.NewTokens) - 1
				}
				if two.Reused != before || want.Reused != 0 {
					t.Errorf("%d of %d tokens reused, want %d; %d afresh", two.Reused, len(next), before, want.Reused)
				}
				for i, st := range two.Stages {
					layers := st.Layers.Last - st.Layers.First + 1
					if st.Tokens != computed-begins {
						t.Errorf("stage %d of %d layers computed %d tokens, want %d", i, layers, st.Tokens, computed-begins)
					}
					seams := computed - begins
					if i == 1 {
						seams = computed - before
					}
					if width := whole.served(id).exec.Config().Width; st.SeamBytes != int64(4*width*seams) {
						t.Errorf("stage %d sent %d bytes of seams, want those of %d positions", i, st.SeamBytes, seams)
					}
				}
				if sent := two.Stages[0].KVBytes + two.Stages[1].KVBytes; shape == "across" {
					most := kvBytes(before, len(next), two.Stages[0].Chunks) // of a window fewer rows go, and none of tails with chunks for stages alone
					if sent > most || arch == "llama" && sent < most {
						t.Errorf("%d bytes of KV were sent, want %d", sent, most)
					}
				}
				if sent := two.Stages[0].KVBytes + two.Stages[1].KVBytes + two.Stages[1].SeamBytes; came < sent || came > sent+sent/10 {
					t.Errorf("the decoder received %d bytes of seams and KV, sent were %d", came, sent)
				}
				if got := ask(tracker, false, next); got.Reused != 0 || got.Stages[0].Tokens < len(next) {
					t.Errorf("another client's session: %d tokens reused, the first stage computed %d", got.Reused, got.Stages[0].Tokens)
				}
				tn.mustBeIdle()
			})
		}
	}
}

// TestTurnsWithAndWithoutRows has the plans of a conversation's turns differ in whether the decoder is to have the rows of all layers: each
// turn goes on from the cache of the one before.
func TestTurnsWithAndWithoutRows(t *testing.T) {
	tn := newTestNet(t)
	tn.model = filepath.Join(t.TempDir(), "turns.gguf")
	if err := (runtimetest.TinyModel{Arch: "llama", Layers: 4}).Write(tn.model); err != nil {
		t.Fatal(err)
	}
	tracker := tn.start(nil)
	id := tn.publish(tracker)
	first, second, client := tn.start(nil), tn.start(nil), tn.start(func(c *Config) { c.Client = true })
	tn.serve(first, id, 0, 1)
	tn.serve(second, id, 1, 3)
	for _, pushed := range []bool{true, false} {
		t.Run(fmt.Sprint(pushed), func(t *testing.T) {
			last := tn.start(nil)
			tn.serve(last, id, 3, 4)
			ctx := testContext(t)
			// far makes it take long, or not, until the decoder's acknowledgements reach the first stage, whose seams go elsewhere. The second one is
			// near, whatever a busy machine makes of it.
			far := func(trip time.Duration) {
				trips := map[*Node]time.Duration{first: trip, second: time.Microsecond}
				m := last.links.meter
				m.mu.Lock()
				for from, trip := range trips {
					l := m.fromLocked(from.ID())
					l.trips, l.rates, l.at = slices.Repeat([]time.Duration{trip}, lateSamples), nil, time.Now()
				}
				m.mu.Unlock()
				last.offer()
				eventually(t, "the links' offer", func() bool {
					_ = client.host.Refresh(ctx)
					_, links := client.planPeers(id)
					for from, trip := range trips {
						if !slices.ContainsFunc(links, func(l route.Link) bool { return l.From == from.ID() && l.To == last.ID() && l.RTT == trip.Seconds() }) {
							return false
						}
					}
					return true
				})
			}
			ask := func(pushed bool, prompt []int32) *control.Account {
				t.Helper()
				far(map[bool]time.Duration{false: 20 * time.Second, true: time.Microsecond}[pushed])
				a, err := client.run(ctx, control.RunRequest{Model: id.String(), Tokens: prompt, MaxNew: 10, Sampling: control.Sampling{Temperature: 0.8, TopP: 0.95, Seed: 3}, Proof: true, Continued: true, NoGuess: true,
					Constraints: control.Constraints{Shape: "pipelined", Cuts: []int{1, 3}, Assign: []string{first.ID(), second.ID()}, Decoder: last.ID(), Chunk: 64}}, func(ev control.Event) error {
					if p := ev.Plan; p != nil && p.Plan.KVToDecoder != pushed {
						t.Errorf("the plan isn't what the test is about:\n%s", p.Explain)
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				return a
			}
			prompt := turnTokens(1, 500)
			one := ask(pushed, prompt)
			next := slices.Concat(prompt, one.NewTokens, turnTokens(2, 200))
			two := ask(!pushed, next)
			if before := len(prompt) + len(one.NewTokens) - 1; two.Reused != before {
				t.Errorf("%d of %d tokens reused, want %d", two.Reused, len(next), before)
			}
			if one.Stages[0].KVBytes > 0 != pushed {
				t.Errorf("the first stage pushed %d bytes", one.Stages[0].KVBytes)
			}
			tn.mustBeIdle()
		})
	}
}

// received returns how many bytes of seams and KV have come to a node.
func received(t *testing.T, n *Node) (sum int64) {
	t.Helper()
	for _, purpose := range []string{"seam", "kv"} {
		v, err := strconv.ParseFloat(figure(t, n, `starling_received_bytes_total{purpose="`+purpose+`"}`), 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += int64(v)
	}
	return sum
}

// TestPrefixesMakeRoom fills a decoder's memory with ended sessions and asks for more: room is made, the longest unused first.
func TestPrefixesMakeRoom(t *testing.T) {
	tn := newTestNet(t)
	tracker := tn.start(nil)
	id := tn.publish(tracker)
	row := int64(0)
	c, err := runtime.Inspect(tn.model)
	if err != nil {
		t.Fatal(err)
	}
	for l := range c.Layers {
		row += int64(c.KVRowBytes(l, runtime.KVF16))
	}
	limit := 8 * 256 * row // pages
	n := tn.start(func(c *Config) { c.Engine.MaxKVBytes = limit })
	tn.serve(n, id, 0, c.Layers)
	ctx := testContext(t)
	ask := func(prompt []int32) *control.Account {
		t.Helper()
		a, err := n.run(ctx, control.RunRequest{Model: id.String(), Tokens: prompt, MaxNew: 4}, quiet)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	p := n.served(id).prefixes
	for i := range 10 {
		ask(turnTokens(i, 250))
		eventually(t, "the cache to be kept", func() bool { return len(p.list()) == min(i+1, 7) })
		eventually(t, "all memory to be offered", func() bool { return p.freeBytes(limit) == limit })
	}
	if got := ask(turnTokens(0, 260)).Reused; got != 0 {
		t.Errorf("%d tokens of the longest unused cache", got)
	}
	if got := ask(slices.Concat(turnTokens(9, 250), turnTokens(1, 5))).Reused; got != 250 {
		t.Errorf("%d tokens of the latest cache but one", got)
	}
	eventually(t, "sessions to be over", func() bool { return len(n.sessionViews()) == 0 })
	if got := ask(turnTokens(20, 2000)); len(got.NewTokens) != 4 { // needs all there is
		t.Errorf("%+v", got)
	}
	p.expire(time.Now().Add(prefixLife + time.Second))
	eventually(t, "all memory to be free after everything has expired", func() bool { return p.exec.FreeKVBytes() == limit && len(p.list()) == 0 })
}

// list names what is kept.
func (p *prefixes) list() (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.kept {
		names = append(names, fmt.Sprint(k.client, len(k.tokens)))
	}
	return names
}

// TestDecoderRemembered asks a client that may choose to take the decoder that has the conversation's cache.
func TestDecoderRemembered(t *testing.T) {
	tn := newTestNet(t)
	tracker := tn.start(nil)
	id := tn.publish(tracker)
	a, b := tn.start(nil), tn.start(nil)
	client := tn.start(func(c *Config) { c.Client = true })
	tn.serve(a, id, 0, tn.layers())
	tn.serve(b, id, 0, tn.layers())
	ctx := testContext(t)
	eventually(t, "two offers", func() bool {
		_ = client.host.Refresh(context.Background())
		p, _ := client.planPeers(id)
		return len(p) == 2
	})
	for i, decoder := range []string{a.ID(), b.ID()} {
		prompt := turnTokens(i, 100)
		q := control.RunRequest{Model: id.String(), Tokens: prompt, MaxNew: 5, Constraints: control.Constraints{Decoder: decoder}}
		one, err := client.run(ctx, q, quiet)
		if err != nil {
			t.Fatal(err)
		}
		q.Tokens, q.Decoder = slices.Concat(prompt, one.NewTokens, turnTokens(5, 7)), ""
		two, err := client.run(ctx, q, quiet)
		if err != nil {
			t.Fatal(err)
		}
		if two.Decoder.Peer != decoder || two.Reused != 104 {
			t.Errorf("the second turn is decoded by %s with %d tokens reused, want %s", two.Decoder.Peer, two.Reused, decoder)
		}
	}
}
