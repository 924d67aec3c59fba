package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/node"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/swarm"
)

type serveCmd struct {
	Model      string        `short:"m" env:"STARLING_MODEL" placeholder:"ID|NAME" help:"Model whose layers to fetch, load and offer. Without it the node is a bootstrap and tracker, and seeds what it holds."`
	Layers     layers        `default:"auto" placeholder:"A-B|all|auto" help:"Layers to serve, both ends included, such as 0-9; all; or auto: all if memory and --max-disk have room for them, else as many as fit, those that the swarm lacks most, and others when they are needed more for minutes. Default: auto."`
	NoDecode   bool          `help:"Only prefill for others; don't be the peer that decodes."`
	Grow       growth        `default:"own" env:"STARLING_GROW" placeholder:"own|any|no" help:"When this node decodes with --layers and others have the rest, fetch and load the layers that it lacks meanwhile, where disk and memory have room, and go on alone: for its own runs (own), for everybody's, which also offers them from then on (any), or never (no)."`
	Draft      string        `env:"STARLING_DRAFT" placeholder:"ID|NAME" help:"Small model with the same vocabulary, all of which is loaded to guess ahead where this node decodes. The model verifies several guesses at once; they change no token, only how long an answer takes."`
	Publish    []string      `type:"path" placeholder:"FILE" help:"GGUF file to publish at start; without --model it is also served."`
	SeedSpare  size          `env:"STARLING_SEED_SPARE" placeholder:"SIZE" help:"Disk to give to the swarm, such as 50GB: copies of those layers of listed models of which there are fewest, fetched and seeded without computing with them. Default: 0, none."`
	SeedModels []string      `env:"STARLING_SEED_MODELS" placeholder:"ID|NAME" help:"With --seed-spare: only these models. Default: all that are listed in the swarm."`
	Drain      time.Duration `default:"30s" env:"STARLING_DRAIN" placeholder:"DURATION" help:"How long running sessions may go on when the node ends or pauses; what is left then is handed over. Default: 30s."`
	Hours      workHours     `env:"STARLING_HOURS" placeholder:"FROM-TO" help:"Times of the day at which to work for others, such as 22:00-07:00, by this machine's clock; several with commas between. Outside them the node is as if paused. Default: always."`
	OnBattery  bool          `name:"pause-on-battery" env:"STARLING_PAUSE_ON_BATTERY" help:"Work for nobody else while this machine runs on its battery, where the system tells (Linux)."`
	OnMetered  bool          `name:"pause-on-metered" env:"STARLING_PAUSE_ON_METERED" help:"Work for nobody else while the way to the internet costs by the byte, where the system tells (NetworkManager)."`
	Relay      string        `enum:"auto,all,off" default:"auto" env:"STARLING_RELAY" help:"What to relay for peers behind NATs while others can dial this node: all, whatever they send; auto, all for the members of a private swarm, and in a public one what it takes to find a direct way; or off. Default: auto."`
	MaxUpload  size          `env:"STARLING_MAX_UPLOAD" placeholder:"SIZE" help:"Bytes per second that this node may send, such as 5MB: sessions first, torrents get the rest. Default: any."`
	MaxDown    size          `name:"max-download" env:"STARLING_MAX_DOWNLOAD" placeholder:"SIZE" help:"Bytes per second that this node may receive, likewise; what web servers send isn't counted. Default: any."`
	MaxDisk    size          `env:"STARLING_MAX_DISK" placeholder:"SIZE" help:"Disk that fetched models may take, such as 100GB; spare copies count, --kv-disk comes on top. Default: any."`
	PeerSess   int           `name:"sessions-per-peer" default:"-1" env:"STARLING_SESSIONS_PER_PEER" placeholder:"N" help:"How many sessions one client may have here at once, on this node as decoder and as stage; 0: any. Default: 64 in a public swarm, else any."`
	PeerTokens int           `name:"tokens-per-minute" env:"STARLING_TOKENS_PER_MINUTE" placeholder:"N" help:"How many tokens, of prompts and answers, one client may ask of this node in a minute; a longer request is admitted, and the next one later. Default: any."`
	Metrics    string        `env:"STARLING_METRICS" placeholder:"HOST:PORT" help:"Serve /metrics for Prometheus over HTTP there, too, such as 127.0.0.1:9464; whoever reaches the port can read them."`
	Pprof      bool          `help:"With --metrics: serve Go's profiles there, under /debug/pprof/."`
	Gateway    string        `env:"STARLING_GATEWAY" placeholder:"HOST:PORT" help:"Also answer programs that speak OpenAI's API there, such as 127.0.0.1:4078; see \"starling gateway\"."`
	Front      frontFlags    `embed:"" prefix:"gateway-"`
	JSON       bool          `name:"json" help:"Print events, one JSON object per line."`
	Attached   bool          `hidden:"" help:"End when standard input ends: for a parent process that must leave nothing behind."`
}

// Help implements kong.HelpProvider.
func (serveCmd) Help() string {
	return `Runs a node until Ctrl-C, SIGTERM or 'starling stop'. Then it takes no new work, lets running sessions end (--drain), hands
over what is left, and exits with status 0; a second signal ends it at once. One node owns a data folder; the other verbs talk to it over a local socket there. Layers
that are missing are fetched from the swarm by torrent, only their bytes, each piece verified, and seeded to others
from then on. A node whose layers reach the model's end can decode. A node that has chosen its layers itself moves when others are needed more, once it has fetched
those, and never away from layers that nobody else would be left to serve.

A bare "starling serve" computes nothing: it is a meeting point whose address others can be given.

Examples:

  starling serve                                   # bootstrap and tracker
  starling serve --publish model.gguf              # publish a file and serve all of it
  starling serve --model SmolLM2 --layers 0-9      # volunteer layers 0–9 (10)
  starling serve --model SmolLM2 --layers 20-29 --no-decode
  starling serve --model Qwen3-32B --max-disk 10GB # too large for this machine: the layers that the swarm lacks most
  starling serve --model Qwen3-8B --draft Qwen3-0.6B
  starling serve --metrics 127.0.0.1:9464 --log info,node=debug
  starling serve --seed-spare 50GB                 # keep copies of what the swarm has fewest of
  starling serve --model SmolLM2 --hours 22:00-07:00 --pause-on-battery
  starling serve --listen /ip4/0.0.0.0/tcp/5000 --kv-memory 2GiB
  starling serve --reachability public --relay all # a meeting point that also carries what peers behind NATs send
  starling serve --model SmolLM2 --kv-disk 4GiB    # ended sessions' KV state goes to the disk when memory is short`
}

// publicSessions is how many sessions a client may have on a node of a public swarm when its owner doesn't say: enough for a
// busy program, and far from all that a node has room for (maxSessions in package node).
const publicSessions = 64

// serveEvent is a line of "serve --json".
type serveEvent struct {
	Kind    string          `json:"kind"` // "started", "published", "progress", "serving", "ready", "closing"
	Status  *control.Status `json:"status,omitempty"`
	Metrics string          `json:"metrics,omitempty"` // started: their address
	Gateway string          `json:"gateway,omitempty"` // started: its base URL
	Model   *control.Model  `json:"model,omitempty"`
	Phase   string          `json:"phase,omitempty"`
	Done    int64           `json:"done,omitempty"`
	Total   int64           `json:"total,omitempty"`
}

// Run is a node until ctx ends.
func (c *serveCmd) Run(ctx context.Context, g *globals) (err error) {
	if c.Drain < 0 {
		return usageError(fmt.Errorf("--drain %v: write 0s or more", c.Drain))
	}
	if c.Model == "" && c.Layers.r != nil && len(c.Publish) == 0 {
		return usageError(errors.New("--layers given without --model: say of which model"))
	}
	if c.Draft != "" && c.NoDecode {
		return usageError(errors.New("--draft given with --no-decode: guesses are for the peer that decodes"))
	}
	if c.Draft != "" && c.Model == "" && len(c.Publish) == 0 {
		return usageError(errors.New("--draft given without --model: say for which model"))
	}
	if len(c.SeedModels) > 0 && c.SeedSpare == 0 {
		return usageError(errors.New("--seed-models given without --seed-spare: say how much disk they may have"))
	}
	if c.Pprof && c.Metrics == "" {
		return usageError(errors.New("--pprof given without --metrics: say on which address"))
	}
	if _, err := kernels.SelfTest(); err != nil { // tens of milliseconds
		return err
	}
	if c.Attached {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // any end is the end
			cancel()
		}()
	}
	d, err := g.startDaemon(ctx, func(cfg *node.Config) {
		cfg.Tracker, cfg.Drain, cfg.Grow = c.Model == "", c.Drain, c.Grow.Growth
		cfg.Relay = swarm.RelayMode(c.Relay)
		cfg.SeedSpare, cfg.SeedModels = int64(c.SeedSpare), c.SeedModels
		cfg.MaxUpload, cfg.MaxDownload, cfg.MaxDisk = int64(c.MaxUpload), int64(c.MaxDown), int64(c.MaxDisk)
		cfg.Shares = node.Shares{Sessions: c.PeerSess, Tokens: c.PeerTokens}
		if c.PeerSess < 0 {
			cfg.Shares.Sessions = 0
			if cfg.Swarm.Public {
				cfg.Shares.Sessions = publicSessions
			}
		}
		cfg.Measure, cfg.BestThreads, cfg.BestDecodeThreads = true, g.Threads == 0, g.Threads == 0 && g.DecodeThreads == 0
		cfg.Terms = node.Terms{Hours: c.Hours.Hours, Battery: c.OnBattery, Metered: c.OnMetered}
	})
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := d.close(); err == nil {
			err = closeErr
		}
	}()
	var watch *observer
	if c.Metrics != "" {
		if watch, err = startObserver(c.Metrics, d.node.Control(), c.Pprof); err != nil {
			return err
		}
		defer watch.close()
	}
	var answers *front
	if c.Gateway != "" {
		if answers, err = c.Front.start("--gateway", c.Gateway, d.client, g.logger(slog.LevelInfo).With("pkg", "gateway")); err != nil {
			return err
		}
		defer answers.close(0)
	}
	say := &teller{json: c.JSON, progress: newProgress()}
	st, err := d.client.Status(ctx)
	if err != nil {
		return err
	}
	say.started(g, &st, watch, answers)
	if err := c.work(ctx, d.client, say); err != nil {
		return err
	}
	if say.json {
		_ = printLine(serveEvent{Kind: "ready"}) // a reader that has gone wants no more lines
	} else {
		fmt.Println("ready; Ctrl-C ends the node")
	}
	limit := d.wait(ctx)
	if say.json {
		_ = printLine(serveEvent{Kind: "closing"}) // as above
	}
	d.leave(limit)
	return nil
}

// work publishes and serves what the flags ask for.
func (c *serveCmd) work(ctx context.Context, client *control.Client, say *teller) error {
	model := c.Model
	for _, file := range c.Publish {
		m, err := client.Publish(ctx, control.PublishRequest{Path: file}, say.event)
		if err != nil {
			return err
		}
		say.model("published", m)
		if c.Model == "" {
			model = m.ID
		}
	}
	if model == "" {
		return nil
	}
	m, err := client.Serve(ctx, control.ServeRequest{Model: model, Layers: c.Layers.r, All: c.Layers.all, NoDecode: c.NoDecode, Draft: c.Draft}, say.event)
	if err != nil {
		return err
	}
	say.model("serving", m)
	return nil
}

// teller prints what a daemon does, for people or as JSON lines.
type teller struct {
	json     bool
	progress *progress
}

func (t *teller) event(ev control.Event) {
	if !t.json {
		t.progress.event(ev)
		return
	}
	if ev.Kind == "progress" {
		_ = printLine(serveEvent{Kind: "progress", Phase: ev.Phase, Done: ev.Done, Total: ev.Total}) // the work goes on without a reader
	}
}

// started says what has begun; watch and answers may be nil.
func (t *teller) started(g *globals, st *control.Status, watch *observer, answers *front) {
	if t.json {
		_ = printLine(serveEvent{Kind: "started", Status: st, Metrics: watch.url(), Gateway: answers.url()}) // as above
		return
	}
	kind := "private"
	if st.Swarm.Public {
		kind = "public"
	}
	fmt.Printf("starling %s, peer %s\n", st.Version, st.Peer)
	fmt.Printf("data folder %s\n", g.Data)
	fmt.Printf("%s swarm %s, ID %s\n", kind, printable(st.Swarm.Name), st.Swarm.ID)
	for _, a := range st.Addrs {
		fmt.Printf("listening on %s\n", a)
	}
	if st.Torrent != "" {
		fmt.Printf("ordinary BitTorrent clients on %s\n", st.Torrent)
	}
	if watch != nil {
		fmt.Printf("metrics on %s\n", watch.url())
	}
	if answers != nil {
		fmt.Printf("answering on %s\n", answers.url())
	}
	for _, p := range st.Problems {
		fmt.Printf("problem: %s\n", oneLine(p))
	}
	switch {
	case st.Swarm.Public:
		if len(st.Addrs) > 0 {
			fmt.Printf("others join with: starling swarm join %s %s\n", st.Swarm.ID, st.Addrs[0])
		}
	case st.Swarm.Owner:
		fmt.Println("others join with an invitation: run 'starling swarm invite' on this machine")
	}
}

func (t *teller) model(kind string, m *control.Model) {
	if t.json {
		_ = printLine(serveEvent{Kind: kind, Model: m}) // as above
		return
	}
	t.progress.done()
	switch kind {
	case "published":
		fmt.Printf("published %s, ID %s (%s, %s)\n", printable(m.Name), m.ID, bytesText(m.Bytes), filepath.Base(printable(m.Path)))
	case "serving":
		role := "prefills for others"
		if m.Decoder {
			role = "prefills and decodes"
		}
		if m.Draft != "" {
			role += ", guesses by " + printable(m.Draft)
		}
		fmt.Printf("serving %s: %s of %d, %s on this disk; %s\n", printable(m.Name), layersText(m.Serving), m.NumLayers, bytesText(m.Allocated), role)
	}
}
