package test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/swarm"
)

// childEnv makes this binary a node, or its place in the swarm.
const childEnv = "STARLING_TEST_NODE"

// childConfig says what a node is.
type childConfig struct {
	Dir          string
	Listen       []string
	Bootstrap    []string
	Reachability swarm.Reachability
	Relay        swarm.RelayMode
	Invite       string      // of a private swarm
	Public       *swarm.Info // or this one
	Create       bool        // or a new one
	CreatePublic bool
	Offers       bool
	Volunteer    bool   // a whole node, not only its place in the swarm
	Publish      string // a model's file
}

// order is what a test wants of a node, and report what comes of it.
type order struct {
	Do     string // "state", "invite"; "meet", "send"; of a volunteer "serve", "run", "plan"
	Peer   swarm.PeerID
	Bytes  int64           // to send
	Wait   time.Duration   // for a direct connection when peers have met
	Layers *control.Layers // to serve
	Route  control.Constraints
	Model  string // of these; "": tiny
	Prompt int    // tokens, to run; 0: 100
}

type report struct {
	ID           swarm.PeerID
	Addrs        []string
	Info         *swarm.Info
	Invite       string
	Reachability swarm.Reachability
	Relay        swarm.PeerID
	Connected    bool
	RTT          time.Duration
	Took         time.Duration // until it was so
	Sudden       time.Duration // from the first connection until a direct one
	Tokens       []int32
	KVBytes      int64 // that stages have sent
	Text         string
	Error        string
}

const sinkProtocol = "/starling/test-sink/1"

func child(text string) error {
	var cfg childConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	began := time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	id, err := swarm.LoadIdentity(cfg.Dir)
	if err != nil {
		return err
	}
	info := cfg.Public
	switch {
	case cfg.Create:
		info, err = swarm.CreateSwarm(cfg.Dir, "nat", cfg.CreatePublic, nil)
	case cfg.Invite != "":
		info, err = swarm.Join(ctx, id, cfg.Invite, cfg.Dir)
	}
	if err != nil {
		return err
	}
	if cfg.Volunteer {
		obey, stop, err := volunteer(ctx, &cfg, info)
		if err != nil {
			return err
		}
		defer stop()
		return serve(func(o order, r *report) error { return obey(ctx, o, r) })
	}
	w := watch{first: map[swarm.PeerID]time.Time{}, direct: map[swarm.PeerID]time.Time{}}
	h, err := swarm.Start(ctx, swarm.Config{Identity: id, Dir: cfg.Dir, Swarm: info, Listen: cfg.Listen, Bootstrap: cfg.Bootstrap,
		Reachability: cfg.Reachability, Relay: cfg.Relay, Tracker: cfg.Create, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	defer h.Close()
	h.Handle(sinkProtocol, func(s *swarm.Stream) {
		defer s.Close()
		n, err := io.Copy(io.Discard, s)
		if err == nil {
			fmt.Fprintln(s, n)
		}
	})
	if cfg.Offers {
		h.SetOffers([]swarm.Offer{{Model: [32]byte{1}, ModelName: "nothing", Last: 1, Embed: true}})
	}
	go w.watch(ctx, h)
	return serve(func(o order, r *report) error {
		err := obey(ctx, h, &cfg, o, r)
		r.Sudden = w.sudden(o.Peer)
		r.ID, r.Addrs, r.Info, r.Reachability, r.Relay, r.RTT = h.ID(), h.Addrs(), info, h.Reachability(), h.Relay(o.Peer), h.RTT(o.Peer)
		r.Connected = slices.Contains(h.Connected(), o.Peer)
		if o.Do == "state" {
			r.Took = time.Since(began)
		}
		return err
	})
}

// watch notes when each peer was connected first, and when without a relay.
type watch struct {
	mu            sync.Mutex
	first, direct map[swarm.PeerID]time.Time
}

func (w *watch) watch(ctx context.Context, h *swarm.Host) {
	note := func(times map[swarm.PeerID]time.Time, p swarm.PeerID) {
		if times[p].IsZero() {
			times[p] = time.Now()
		}
	}
	for ctx.Err() == nil {
		for _, p := range h.Connected() {
			relay := h.Relay(p)
			w.mu.Lock()
			note(w.first, p)
			if relay == "" {
				note(w.direct, p)
			}
			w.mu.Unlock()
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// sudden returns how long a peer was reached through a relay before it was directly.
func (w *watch) sudden(p swarm.PeerID) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(w.direct[p].Sub(w.first[p]), 0)
}

// serve carries out the test's orders. The first is the child's own: its state.
func serve(obey func(order, *report) error) error {
	do := func(o order) (r report) {
		if err := obey(o, &r); err != nil {
			r.Error = err.Error()
		}
		return r
	}
	return listen(do(order{Do: "state"}), do)
}

func obey(ctx context.Context, h *swarm.Host, cfg *childConfig, o order, r *report) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	defer func() { r.Took = time.Since(began) }()
	switch o.Do {
	case "state":
	case "invite":
		r.Invite, err = swarm.OpenSwarms(cfg.Dir).CreateInvite(h.Swarm().ID, swarm.RoleMember, time.Hour, h.Addrs())
	case "meet": // by the peer's offer
		var first, asked time.Time
		for ctx.Err() == nil {
			connected := slices.Contains(h.Connected(), o.Peer)
			if !connected && time.Since(asked) > time.Second {
				asked = time.Now()
				go h.Refresh(ctx)
			}
			if connected && first.IsZero() {
				first = time.Now()
			}
			if connected && (h.Relay(o.Peer) == "" || time.Since(first) > o.Wait) {
				return nil
			}
			time.Sleep(5 * time.Millisecond)
		}
		return ctx.Err()
	case "send":
		s, err := h.Open(ctx, o.Peer, sinkProtocol)
		if err != nil {
			return err
		}
		defer s.Close()
		chunk := make([]byte, 256<<10)
		for left := o.Bytes; left > 0; {
			n := min(left, int64(len(chunk)))
			s.SetDeadline(time.Now().Add(patience))
			if _, err := s.Write(chunk[:n]); err != nil {
				return err
			}
			left -= n
		}
		if err := s.CloseWrite(); err != nil {
			return err
		}
		line, err := bufio.NewReader(s).ReadString('\n')
		if err != nil {
			return err
		}
		if line != fmt.Sprintln(o.Bytes) {
			return fmt.Errorf("of %d bytes came %s", o.Bytes, line)
		}
	default:
		return fmt.Errorf("unknown order %q", o.Do)
	}
	return err
}
