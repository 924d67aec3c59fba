package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/starling-swarm/starling/node"
	"github.com/starling-swarm/starling/node/control"
)

// torrentFlags are the settings for what is outside the swarm: ordinary BitTorrent clients and web
// servers.
type torrentFlags struct {
	TorrentListen  string   `group:"Settings" env:"STARLING_TORRENT_LISTEN" placeholder:"HOST:PORT" help:"TCP address at which ordinary BitTorrent clients may fetch the models held here, such as 0.0.0.0:6881. Whoever has a model's .torrent or magnet gets it, member of the swarm or not. Default: none."`
	TorrentPeer    []string `group:"Settings" env:"STARLING_TORRENT_PEER" placeholder:"HOST:PORT" help:"Ordinary BitTorrent client to fetch from and to seed to."`
	TorrentTracker []string `group:"Settings" env:"STARLING_TORRENT_TRACKER" placeholder:"URL" help:"Announce URL of a BitTorrent tracker, http, https or udp: it learns this node's address and models, and .torrent files name it."`
	UseWebSeeds    string   `group:"Settings" env:"STARLING_USE_WEB_SEEDS" enum:"auto,yes,no" default:"auto" placeholder:"auto|yes|no" help:"Fetch from web seeds that other nodes name, at public addresses, when no node gets on: in public swarms (auto), always, or never."`
}

// torrents puts the flags into a node's settings.
func (f *torrentFlags) torrents(c *node.Config) {
	c.TorrentListen, c.TorrentPeers, c.TorrentTrackers = f.TorrentListen, f.TorrentPeer, f.TorrentTracker
	c.WebSeeds = f.UseWebSeeds == "yes" || f.UseWebSeeds == "auto" && c.Swarm.Public
}

// writeTorrents writes .torrent files and prints their magnet links: the only one to out, if that ends
// in .torrent, else all into the folder out.
func writeTorrents(out string, list []control.Torrent) error {
	if len(list) == 0 {
		return nil
	}
	folder := len(list) > 1 || filepath.Ext(out) != ".torrent"
	if folder {
		if err := os.MkdirAll(out, 0o755); err != nil {
			return err
		}
	}
	for _, t := range list {
		path := out
		if folder {
			path = filepath.Join(out, filepath.Base(t.Name)) // the node's word: a name, no path
		}
		if err := os.WriteFile(path, t.Data, 0o644); err != nil {
			return err
		}
		fmt.Printf("wrote %s\n%s\n", path, printable(t.Magnet))
	}
	return nil
}

// printCard shows what a model is before any of its weights are here.
func printCard(c *control.Card) {
	name := c.Name
	if name == "" {
		name = "a model without a name"
	}
	fmt.Printf("%s (%s, %s, %s parameters): %s in %s\n", printable(name), printable(c.Arch), printable(c.Quant), countText(uint64(max(c.Parameters, 0))), bytesText(c.Bytes), plural(c.Parts, "file"))
	layers := int64(0)
	for _, n := range c.LayerBytes {
		layers += n
	}
	if len(c.LayerBytes) > 0 {
		fmt.Printf("%s of %s to %s, %s together; %s outside\n", plural(c.NumLayers, "layer"), bytesText(slices.Min(c.LayerBytes)), bytesText(slices.Max(c.LayerBytes)), bytesText(layers), bytesText(c.Bytes-layers))
	}
	var cache []string
	for _, s := range c.Cache {
		cache = append(cache, fmt.Sprintf("%s for %d tokens", bytesText(s.Bytes), s.Tokens))
	}
	fmt.Printf("a session's cache takes %s; the context is %d tokens\n", strings.Join(cache, ", "), c.Context)
	if c.License != "" {
		fmt.Printf("license: %s\n", printable(c.License))
	}
}
