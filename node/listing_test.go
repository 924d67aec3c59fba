package node

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime/gguf"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// named makes n publish a tiny model under a name.
func named(t *testing.T, n *Node, name, licence string, model runtimetest.TinyModel) artifacts.ID {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.gguf")
	model.Meta = map[string]gguf.Value{"general.name": gguf.ValueOf(name), "general.license": gguf.ValueOf("mit")}
	if err := model.Write(path); err != nil {
		t.Fatal(err)
	}
	m, err := n.publish(t.Context(), path, licence, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return m.ID()
}

// TestSearch lists models of one name by two publishers: both are found, none is meant.
func TestSearch(t *testing.T) {
	tn := newTestNet(t)
	a := tn.start(nil)
	b := tn.start(nil)
	client := tn.start(func(c *Config) { c.Client = true })
	first := named(t, a, "Tiny Llama 1B", "", runtimetest.TinyModel{Seed: 1})
	second := named(t, b, "Tiny Llama 1B", "apache-2.0", runtimetest.TinyModel{Seed: 2, Layers: 4})
	other := named(t, b, "Somewhat Else", "", runtimetest.TinyModel{Seed: 3})
	ctx := testContext(t)
	search := func(words string) (list []control.Listing) {
		eventually(t, "listings with "+words, func() bool {
			var err error
			list, err = client.Control().Search(ctx, control.SearchRequest{Words: words})
			return err == nil && len(list) == 2
		})
		return list
	}
	list := search("tiny lla")
	slices.SortFunc(list, func(x, y control.Listing) int { return x.Layers - y.Layers })
	for i, want := range []control.Listing{
		{Model: first.String(), Name: "Tiny Llama 1B", Licence: "mit", Layers: 3, Publisher: a.ID(), Copies: []int{1, 1, 1, 1}},
		{Model: second.String(), Name: "Tiny Llama 1B", Licence: "apache-2.0", Layers: 4, Publisher: b.ID(), Copies: []int{1, 1, 1, 1, 1}},
	} {
		got := list[i]
		if got.Model != want.Model || got.Name != want.Name || got.Licence != want.Licence || got.Layers != want.Layers || got.Publisher != want.Publisher ||
			!slices.Equal(got.Copies, want.Copies) || got.Family != "llama" || got.Quant == "" || got.Bytes == 0 {
			t.Errorf("listing %d is %+v, want %+v", i, got, want)
		}
	}

	if _, err := client.resolve(ctx, "tiny llama 1b"); err == nil || !strings.Contains(err.Error(), "ambiguous") ||
		!strings.Contains(err.Error(), first.Short()+", by …"+a.ID()[len(a.ID())-8:]) || !strings.Contains(err.Error(), second.Short()+", by …"+b.ID()[len(b.ID())-8:]) {
		t.Errorf("a name of two models: %v", err)
	}
	if id, err := client.resolve(ctx, second.Short()); err != nil || id != second {
		t.Errorf("the start of an ID: %v, %v", id, err)
	}
	if id, err := client.resolve(ctx, "somewhat else"); err != nil || id != other {
		t.Errorf("a name of one model: %v, %v", id, err)
	}
	if _, err := client.resolve(ctx, "Somewhat Elfe"); err == nil || !strings.Contains(err.Error(), "like it are Somewhat Else ("+other.Short()) || strings.Contains(err.Error(), "Tiny") {
		t.Errorf("a name with a slip: %v", err)
	}
	if _, err := client.resolve(ctx, "quite unlike these"); err == nil || !strings.Contains(err.Error(), "Somewhat Else") || !strings.Contains(err.Error(), "Tiny") {
		t.Errorf("a name unlike any: %v", err)
	}

	// Part of a model counts for the layers that are there, and a listing outlives its publisher.
	if _, _, _, err := b.pull(ctx, first, &control.Layers{First: 0, Last: 1}, quiet); err != nil {
		t.Fatal(err)
	}
	a.Close()
	eventually(t, "the publisher's end", func() bool {
		list, err := client.Control().Search(ctx, control.SearchRequest{Words: "mit tiny"})
		return err == nil && len(list) == 1 && list[0].Publisher == a.ID() && list[0].Copies[0] == 1 && list[0].Copies[2] == 0
	})
	if _, err := client.Control().Pull(ctx, control.PullRequest{Model: "Tiny Llama 1B"}, quiet); err == nil || !strings.Contains(err.Error(), "ambiguous") {
		t.Errorf("pull of a name of two models: %v", err)
	}
	if _, err := b.publish(context.Background(), tn.model, "two\nlines", quiet); err == nil {
		t.Error("a licence of two lines is taken")
	}
}
