package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-swarm/starling/node"
	"github.com/starling-swarm/starling/node/control"
)

type publishCmd struct {
	File       string   `arg:"" type:"path" help:"GGUF file, or any part of a split one."`
	WebSeed    []string `name:"webseed" sep:"none" placeholder:"URL" help:"Where a web server has the same file (of a split one: the first part, with the others beside it). It is checked, and others fetch from there when no node gets on."`
	TorrentOut string   `type:"path" placeholder:"PATH" help:"Write a .torrent file for ordinary BitTorrent clients to PATH, if that ends in .torrent, or into the folder PATH, and print the magnet link. They meet this node with --torrent-listen, --torrent-peer or --torrent-tracker."`
	Licence    string   `placeholder:"NAME" help:"Licence to list the model under, such as apache-2.0. Default: what the file says (general.license)."`
	JSON       bool     `name:"json" help:"Print a JSON object."`
}

// Help implements kong.HelpProvider.
func (publishCmd) Help() string {
	return `Hashes a GGUF file (or all parts of a split one), makes its manifest and torrent, and announces it in the swarm. The
file stays where it is, unchanged, and is seeded from there: don't move or edit it. The model's ID depends on the bytes
alone, so whoever publishes the same file publishes the same model.

The node lists it in the swarm by name, family, quant, licence and size ("starling models --search"), signed by its key; a listing lives
on for a day when its publisher has gone.

With a running node (starling serve) the node does it and goes on seeding. Without one this command becomes the node
and seeds until Ctrl-C.

For a split model --torrent-out writes one .torrent per part. Beside what ordinary clients need each has the model's
manifest, so that "starling pull FILE.torrent" can check every piece by SHA-256.

Examples:

  starling publish SmolLM2-135M-Instruct-Q4_1.gguf
  starling publish model.gguf --webseed https://example.org/models/model.gguf
  starling publish model.gguf --torrent-out . --torrent-listen 0.0.0.0:6881 --torrent-tracker http://tracker.example/announce
  starling publish big-00001-of-00004.gguf
  starling publish model.gguf --licence apache-2.0`
}

// Run publishes the file.
func (c *publishCmd) Run(ctx context.Context, g *globals) (err error) {
	say := &teller{progress: newProgress()}
	client, err := control.Dial(ctx, g.Data)
	if err == nil {
		defer client.Close()
		return c.publish(ctx, client, say, "the running node seeds it")
	}
	if !errors.Is(err, control.ErrNoDaemon) {
		return err
	}
	d, err := g.startDaemon(ctx, func(cfg *node.Config) { cfg.Tracker, cfg.Drain = true, defaultDrain })
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := d.close(); err == nil {
			err = closeErr
		}
	}()
	st, err := d.client.Status(ctx)
	if err != nil {
		return err
	}
	if !c.JSON {
		say.started(g, &st, nil, nil)
	}
	if err := c.publish(ctx, d.client, say, "no other node runs on this data folder, so this one seeds it until Ctrl-C"); err != nil {
		return err
	}
	d.leave(d.wait(ctx))
	return nil
}

func (c *publishCmd) publish(ctx context.Context, client *control.Client, say *teller, then string) error {
	m, err := client.Publish(ctx, control.PublishRequest{Path: c.File, Licence: c.Licence, WebSeeds: c.WebSeed, Torrents: c.TorrentOut != ""}, say.progress.event)
	say.progress.done()
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(m)
	}
	if err := writeTorrents(c.TorrentOut, m.Torrents); err != nil {
		return err
	}
	say.model("published", m)
	fmt.Printf("%s; use it with: starling run -m %s \"…\"\n", then, shortID(m.ID))
	return nil
}
