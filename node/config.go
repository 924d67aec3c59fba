package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm"
)

// Config says what a node is. Start copies it.
type Config struct {
	// DataDir holds the identity, swarms and models; one node owns it at a
	// time. An ephemeral client leaves no identity in it but keeps what it
	// fetches.
	DataDir string

	// Listen holds the multiaddrs to listen on. Empty: DefaultListen, but a
	// client only dials.
	Listen []string

	// Swarm is the swarm to be in; nil is an error.
	Swarm *swarm.Info

	// Bootstrap holds addresses (with /p2p/PEER) beside the swarm's own.
	Bootstrap []string

	// Reachability says whether others can dial the node; empty: it finds out.
	// Relay is what it relays for those who can't be dialled; empty is
	// swarm.RelayAuto.
	Reachability swarm.Reachability
	Relay        swarm.RelayMode

	// LAN announces the node by mDNS.
	LAN bool

	// Tracker announces the node as a tracker of the swarm.
	Tracker bool

	// Client makes an ephemeral client: a fresh identity (unless the swarm is
	// private, where the data folder's is the one that was admitted), no
	// offers and no part in others' sessions.
	Client bool

	// Engine says within which means models are opened; its Path and Layers
	// are not used. Its MaxKVBytes bounds each model's KV memory, its MaxMemory
	// what all models and the node's own buffers take together.
	Engine runtime.Options

	// Measure has the node measure its machine while it is idle, unless the data folder has the figures. BestThreads and BestDecodeThreads
	// take the numbers of threads that do best by them, at most Engine's, once they are known.
	Measure, BestThreads, BestDecodeThreads bool

	// KVDisk is how many bytes of the data folder may hold caches of ended
	// sessions that memory may have to give up, sealed; 0: none.
	KVDisk int64

	// TorrentListen is the TCP address, host:port, at which ordinary
	// BitTorrent clients may fetch the models that are held; TorrentPeers are
	// such clients to connect to, TorrentTrackers the trackers to announce to.
	// Without any of them this node has nothing to do with ordinary clients.
	TorrentListen   string
	TorrentPeers    []string
	TorrentTrackers []string

	// WebSeeds lets the node fetch from web seeds that other peers name. They
	// see its address then. Those that its user names are used in any case.
	WebSeeds bool

	// SeedSpare is how many bytes of disk may go to copies of what the swarm has
	// fewest copies of; 0: none.
	SeedSpare int64

	// SeedModels names the models that SeedSpare may go to, by ID, six or more
	// digits of its start, or name; empty: all that are listed.
	SeedModels []string

	// Silence is how long a peer of an active session may say nothing, and how
	// long a decoder waits for accounts at the end. 0 means DefaultSilence.
	Silence time.Duration

	// Drain is how long sessions may go on when the node pauses and the request
	// doesn't say; 0 hands them over at once.
	Drain time.Duration

	// Terms say when the node works for others; else it is as if paused.
	Terms Terms

	// MaxUpload and MaxDownload bound what sessions and torrents send and fetch,
	// in bytes per second, sessions first, and MaxDisk the bytes of disk that
	// fetched models may take; 0: any.
	MaxUpload, MaxDownload, MaxDisk int64

	// Shares bound what one client may have of the node.
	Shares Shares

	// Grow says for whose sessions a decoder gets the layers that it lacks.
	Grow Growth

	// Backend opens models; nil means runtime.Engine.
	Backend runtime.Backend

	// Version is what status reports.
	Version string

	// Log receives what the node does; nil discards it. Records have "pkg":
	// node, swarm or artifacts (the BitTorrent library's own words), and those
	// of a session "session", its ID: the client draws it, every frame carries
	// it, so it is the same on all peers that take part.
	Log *slog.Logger

	// wrap, if not nil, stands between the node and its streams of sessions, where tests break them.
	wrap func(stream) stream

	speed runtime.Speed // of models that aren't measured: what tests say

	spareEvery  time.Duration // 0: spareEvery
	assignEvery time.Duration // 0: assignEvery
	weightRoom  int64         // bytes of weights that there is room for; 0: what memory and disk have
	termsEvery  time.Duration // 0: termsEvery

	look func(context.Context) surroundings // nil: Terms.look
}

// DefaultSilence is how long a peer of an active session may be silent before
// it counts as dead. A loss is noticed within 2 s (DESIGN §3, Failure): that
// leaves 0.2 s to the way of the last word that was said before it, and to the
// scheduler. Three pings in a row must be lost.
const DefaultSilence = 1800 * time.Millisecond

func (c *Config) validate() error {
	switch {
	case c.DataDir == "":
		return errors.New("no data folder given")
	case c.Swarm == nil:
		return errors.New("no swarm given: make one with 'starling swarm create' or join one with 'starling swarm join'")
	case c.KVDisk < 0:
		return fmt.Errorf("kv-disk %d: write 0 or more bytes", c.KVDisk)
	case c.MaxUpload < 0 || c.MaxDownload < 0 || c.MaxDisk < 0:
		return fmt.Errorf("caps of %d and %d bytes per second and %d bytes of disk: write 0 or more", c.MaxUpload, c.MaxDownload, c.MaxDisk)
	case c.MaxUpload > 0 && c.MaxUpload < leastCap || c.MaxDownload > 0 && c.MaxDownload < leastCap:
		return fmt.Errorf("caps of %d and %d bytes per second: write %d or more, with less no session would get on; or 0, for any", c.MaxUpload, c.MaxDownload, leastCap)
	case c.SeedSpare < 0:
		return fmt.Errorf("seed-spare %d: write 0 or more bytes", c.SeedSpare)
	case c.Engine.MaxMemory != 0 && c.Engine.MaxMemory < leastMemory:
		return fmt.Errorf("max-memory %d: write %d or more, with less a node has no room for a model; or 0, for what the machine has", c.Engine.MaxMemory, leastMemory)
	case c.Silence < 0 || c.Engine.MaxKVBytes < 0 || c.Engine.Threads < 0 || c.Engine.DecodeThreads < 0:
		return fmt.Errorf("negative limit in the configuration (silence %v, KV bytes %d, threads %d and %d)",
			c.Silence, c.Engine.MaxKVBytes, c.Engine.Threads, c.Engine.DecodeThreads)
	}
	if err := c.Shares.validate(); err != nil {
		return err
	}
	if c.Silence == 0 {
		c.Silence = DefaultSilence
	}
	if c.Backend == nil {
		c.Backend = runtime.Engine{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// public returns how ordinary BitTorrent clients are met, or nil.
func (c *Config) public() *artifacts.PublicConfig {
	if c.TorrentListen == "" && len(c.TorrentPeers)+len(c.TorrentTrackers) == 0 {
		return nil
	}
	return &artifacts.PublicConfig{Listen: c.TorrentListen, Peers: c.TorrentPeers, Trackers: c.TorrentTrackers}
}

func (c *Config) spillDir() string { return filepath.Join(c.DataDir, "kv") }

func (c *Config) storeDir() string { return filepath.Join(c.DataDir, "store") }
