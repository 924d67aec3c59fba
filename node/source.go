package node

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
)

// wanted returns the model that a request to pull names, known to the store: an
// ID or a name, a .torrent file, a magnet link, or a model's file on a web server.
func (n *Node) wanted(ctx context.Context, q control.PullRequest, emit func(control.Event) error) (artifacts.ID, error) {
	switch {
	case q.Torrent != "":
		return n.addTorrentFile(q.Torrent)
	case artifacts.IsMagnet(q.Model):
		return artifacts.ParseMagnet(q.Model)
	case artifacts.IsSource(q.Model):
		return n.addRemote(ctx, q, emit)
	}
	return n.resolve(ctx, q.Model)
}

// addTorrentFile makes the model of a .torrent file known.
func (n *Node) addTorrentFile(path string) (artifacts.ID, error) {
	f, err := os.Open(path)
	if err != nil {
		return artifacts.ID{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, artifacts.MaxTorrentFile+1))
	if err != nil {
		return artifacts.ID{}, err
	}
	b, err := artifacts.ParseTorrentFile(data)
	if err != nil {
		return artifacts.ID{}, fmt.Errorf("%s: %w", path, err)
	}
	m, err := n.store.AddBundle(b)
	if err != nil {
		return artifacts.ID{}, err
	}
	return m.ID(), nil
}

// addRemote makes a model on a web server known: by the manifest that somebody
// in the swarm has made of it, else by fetching all of it.
func (n *Node) addRemote(ctx context.Context, q control.PullRequest, emit func(control.Event) error) (artifacts.ID, error) {
	url, err := artifacts.SourceURL(q.Model, q.Hub)
	if err != nil {
		return artifacts.ID{}, err
	}
	progress := func(phase string) func(done, total int64) {
		return func(done, total int64) {
			_ = emit(control.Event{Kind: "progress", Phase: phase, Done: done, Total: total}) // the end of ctx stops the work
		}
	}
	r, err := artifacts.OpenRemote(ctx, url, &artifacts.Auth{Server: cmp.Or(q.Hub, artifacts.DefaultHub), Token: q.Token}, progress("header"))
	if err != nil {
		return artifacts.ID{}, err
	}
	if err := emit(control.Event{Kind: "card", Card: cardView(r.Card())}); err != nil {
		return artifacts.ID{}, err
	}
	m, err := n.findRemote(ctx, r)
	if err != nil {
		return artifacts.ID{}, err
	}
	if m != nil {
		return m.ID(), n.torrents.UseRemote(m, r)
	}
	if m, err = n.store.Download(ctx, r, progress("pull"), progress("hash")); err != nil {
		return artifacts.ID{}, err
	}
	if err := n.torrents.Seed(m); err != nil {
		return artifacts.ID{}, err
	}
	n.offer()
	return m.ID(), nil
}

// findRemote returns the model on a web server if its manifest is here or in the
// swarm, else nil. Peers tell of models by name, so only those are asked whose
// model has the name of its header or file.
func (n *Node) findRemote(ctx context.Context, r *artifacts.Remote) (*artifacts.Model, error) {
	for _, m := range n.store.Models() {
		if same, err := r.Matches(ctx, m.Manifest()); err != nil || same {
			return m, err
		}
	}
	_ = n.host.Refresh(ctx) // offers are hints: without them the file is fetched whole
	names := []string{cmp.Or(r.Card().Name, r.Name()), strings.TrimSuffix(r.Name(), ".gguf")}
	var asked []artifacts.ID
	for _, o := range n.host.Offers() {
		id := artifacts.ID(o.Model)
		if _, here := n.store.Get(id); here || slices.Contains(asked, id) || !slices.Contains(append(names, id.Short()), o.ModelName) {
			continue
		}
		asked = append(asked, id)
		b, err := n.fetchBundle(ctx, id)
		if err != nil {
			n.log.Info("a manifest could not be had", "model", id.Short(), "error", err)
			continue
		}
		same, err := r.Matches(ctx, b.Manifest)
		if err != nil {
			return nil, err
		}
		if same {
			return n.store.AddBundle(b)
		}
	}
	return nil, nil
}

// addWebSeeds puts URLs into a model's bundle, once each was seen to have the
// model's files.
func addWebSeeds(ctx context.Context, m *artifacts.Model, urls []string) error {
	for _, u := range urls {
		r, err := artifacts.OpenRemote(ctx, u, nil, nil)
		if err != nil {
			return fmt.Errorf("web seed: %w: put the file there first", err)
		}
		same, err := r.Matches(ctx, m.Manifest())
		if err != nil {
			return fmt.Errorf("web seed: %w", err)
		}
		if !same {
			return fmt.Errorf("web seed %s: it has another file than the one published: put that file there, or leave the web seed out", u)
		}
	}
	return m.AddWebSeeds(urls)
}

// torrentFiles returns .torrent files and magnet links of a model's parts, for
// ordinary BitTorrent clients.
func (n *Node) torrentFiles(m *artifacts.Model) ([]control.Torrent, error) {
	b := m.Bundle()
	var list []control.Torrent
	for i := range b.Manifest.Parts {
		data, err := b.TorrentFile(i, n.cfg.TorrentTrackers)
		if err != nil {
			return nil, err
		}
		magnet, err := b.Magnet(i, n.cfg.TorrentTrackers)
		if err != nil {
			return nil, err
		}
		name := b.Manifest.Parts[i].Name
		if len(b.Manifest.Parts) == 1 {
			name = filepath.Base(m.Path())
		}
		list = append(list, control.Torrent{Name: name + ".torrent", Magnet: magnet, Data: data})
	}
	return list, nil
}

// cacheLengths are the tokens that a card sizes caches for, beside the context.
var cacheLengths = []int{4 << 10, 32 << 10}

// cardView is what people see of a card before there are weights.
func cardView(c *artifacts.Card) *control.Card {
	v := &control.Card{Name: c.Name, Arch: c.Architecture, Quant: c.Quant, License: c.License, Parameters: c.Parameters, NumLayers: c.Layers,
		Context: c.Context, Parts: len(c.PartSizes), Bytes: c.TotalBytes, LayerBytes: c.LayerBytes}
	for _, tokens := range append(slices.DeleteFunc(slices.Clone(cacheLengths), func(n int) bool { return n >= c.Context }), c.Context) {
		bytes, tails := int64(0), int64(snapshots(c, tokens).Tails())
		for l, n := range c.KVBytesPerToken {
			kept := int64(tokens)
			if w := int64(c.KVWindow[l]); w > 0 {
				kept = min(kept, w)
			}
			bytes += n*kept + tails*c.TailBytes[l]
		}
		v.Cache = append(v.Cache, control.CacheSize{Tokens: tokens, Bytes: bytes})
	}
	return v
}
