package node

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/gguf"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// TestCardsAgree compares what the planner is told of a model's cache with what the engine reserves, for every family.
func TestCardsAgree(t *testing.T) {
	for _, arch := range []string{"llama", "qwen2", "qwen3", "qwen3moe", "gemma3", "deepseek2", "glm4moe", "qwen35", "qwen35moe", "gpt-oss", "phi3", "mistral3"} {
		path := filepath.Join(t.TempDir(), "model.gguf")
		if err := (runtimetest.TinyModel{Arch: arch, Layers: 8}).Write(path); err != nil {
			t.Fatal(err)
		}
		set, err := gguf.OpenSet(path)
		if err != nil {
			t.Fatal(err)
		}
		card, err := artifacts.NewCard(set)
		if err != nil {
			t.Fatal(err)
		}
		c, err := runtime.InspectSet(set)
		if err != nil {
			t.Fatal(err)
		}
		m := planModel(card, 1000, 1000, runtime.KVQ8, runtime.SeamQ8)
		if snapshots := c.Snapshots(runtime.KVQ8, 1000); m.HeldTails != snapshots.Tails() {
			t.Errorf("%s: tails of %d positions, the engine holds %d", arch, m.HeldTails, snapshots.Tails())
		}
		for l, cache := range c.Cache {
			positions := int64(0)
			if cache.Window > 0 {
				positions = int64(cache.Positions(c.Context))
			}
			attn, seen := c.AttnFlops, 500.0
			if cache.Heads == 0 {
				attn = 0
			}
			if w := float64(cache.Window); w > 0 {
				seen = w/2*w/1000 + w*(1000-w)/1000
			}
			if want := card.LayerFlops[l] + attnShare*attn*seen; card.AttnFlops[l] != attn || math.Abs(m.LayerFlops[l]-want) > 1 {
				t.Errorf("%s, layer %d: %g operations a token, %g for each that it sees; the engine has %g and %g", arch, l, m.LayerFlops[l], card.AttnFlops[l], want, attn)
			}
			if heads := int64(c.KVRowBytes(l, runtime.KVQ8)); cache.Key%32 == 0 && cache.Value%32 == 0 && m.KVSentBytes[l] != heads {
				t.Errorf("%s, layer %d: %d bytes a token on a link, the engine sends %d", arch, l, m.KVSentBytes[l], heads)
			}
			if m.KVBytesPerToken[l] != int64(c.KVRowBytes(l, runtime.KVF16)) || m.TailBytes[l] != int64(cache.TailBytes()) || m.KVPositions[l] != positions {
				t.Errorf("%s, layer %d: %d bytes a token, of %d, and a tail of %d; the engine has %d, %d and %d", arch, l, m.KVBytesPerToken[l], m.KVPositions[l],
					m.TailBytes[l], c.KVRowBytes(l, runtime.KVF16), positions, cache.TailBytes())
			}
		}
		d, err := runtime.Describe(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range cardView(card).Cache { // it counts the rows of windows, which the engine keeps in pages
			if want := d.SessionBytes(int64(size.Tokens), runtime.KVF16); size.Bytes != want && slices.Max(d.CacheRows) == 0 {
				t.Errorf("%s: a cache of %d tokens has %d bytes on its card, %d by its description", arch, size.Tokens, size.Bytes, want)
			}
		}
	}
}

// TestOffersFollowSessions asks that others learn what a session has changed.
func TestOffersFollowSessions(t *testing.T) {
	tn := newTestNet(t)
	tracker := tn.start(nil)
	id := tn.publish(tracker)
	n, client := tn.start(nil), tn.start(func(c *Config) { c.Client = true })
	tn.serve(n, id, 0, tn.layers())
	ctx := testContext(t)
	free := func() int64 {
		_ = client.host.Refresh(ctx)
		for _, o := range client.host.Offers() {
			if o.Peer == n.ID() {
				return o.KVFreeBytes
			}
		}
		return -1
	}
	s := n.served(id)
	eventually(t, "the offer", func() bool { return free() == s.kvLimit })
	seq, err := s.exec.NewSequence(300, s.exec.Layers()) // nobody is told of this
	if err != nil {
		t.Fatal(err)
	}
	defer seq.Close()
	if _, err := client.run(ctx, control.RunRequest{Model: id.String(), Prompt: "The quick brown fox", MaxNew: 5}, quiet); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an offer of what is free", func() bool { return free() == s.prefixes.freeBytes(s.kvLimit) })
}
