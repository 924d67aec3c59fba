package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/node"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm"
)

const (
	probeBytes = 16 << 20        // written to measure the disk, where it has room for many more
	probeLimit = 3 * time.Second // for writing them
)

// measure gathers the facts, as far as they can be had; wait is how long the node may look for others, who take 17 s to say
// that they can't dial it.
func measure(ctx context.Context, g *globals, wait time.Duration) *facts {
	f := &facts{Data: g.Data, Now: time.Now(), Unsynced: clockUnsynced(), Memory: runtime.AvailableMemory()}
	f.processor()
	f.disk()
	f.place(g)
	f.node(ctx, g, wait)
	return f
}

// processor finds out what computes, and whether rightly.
func (f *facts) processor() {
	f.Arch, f.Variant, f.Forced = goruntime.GOARCH, kernels.Active().String(), os.Getenv("STARLING_KERNELS") != ""
	for _, v := range kernels.Variants() {
		f.Variants = append(f.Variants, v.String())
	}
	f.Chosen = errors.Join(kernels.VariantError(), kernels.Distrusted())
	_, f.Numerics = kernels.SelfTest()
}

// disk measures the data folder's. A folder that isn't there yet is judged by the one that it would be made in.
func (f *facts) disk() {
	dir := f.Data
	for {
		st, err := os.Stat(dir)
		if err == nil && !st.IsDir() {
			f.Free, f.DataErr = -1, fmt.Errorf("%s is no folder", dir)
			return
		}
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || filepath.Dir(dir) == dir {
			f.Free, f.DataErr = -1, err
			return
		}
		dir = filepath.Dir(dir)
	}
	f.Free = node.FreeDisk(dir)
	probe, err := os.CreateTemp(dir, "starling-doctor-")
	if err != nil {
		if !noRoom(err) {
			f.DataErr = fmt.Errorf("data folder %s: %w", f.Data, err)
		} else {
			f.Free = 0
		}
		return
	}
	defer os.Remove(probe.Name())
	defer probe.Close()
	if f.Free >= 0 && f.Free < diskFull+probeBytes {
		return
	}
	block := make([]byte, 1<<20)
	_, _ = rand.Read(block) // it doesn't fail; numbers that don't compress
	began, written := time.Now(), 0
	for written < probeBytes && time.Since(began) < probeLimit {
		n, err := probe.Write(block)
		if written += n; err != nil {
			if noRoom(err) {
				f.Free = 0
			} else {
				f.DataErr = fmt.Errorf("data folder %s: %w", f.Data, err)
			}
			return
		}
	}
	if err := probe.Sync(); err != nil {
		f.DataErr = fmt.Errorf("data folder %s: %w", f.Data, err)
		return
	}
	f.Write = float64(written) / time.Since(began).Seconds()
	runtime.DropCache(probe)
	if _, err := probe.Seek(0, io.SeekStart); err != nil {
		return
	}
	began = time.Now()
	if n, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{probe}, block); err == nil {
		f.Read = float64(n) / time.Since(began).Seconds()
	}
}

// place finds out which swarm the data folder's node is in, and whether it is a member.
func (f *facts) place(g *globals) {
	info, err := g.chooseSwarm()
	if err != nil {
		f.SwarmErr = err
		return
	}
	f.Swarm, f.Public = info.Name, info.Public
	if info.Public {
		return
	}
	id, err := swarm.LoadIdentity(g.Data)
	if err != nil {
		f.SwarmErr = err
		return
	}
	f.Peer = id.ID()
	f.Membership = membershipFacts(swarm.OpenSwarms(g.Data).Membership(info, id.ID()))
}

// node asks the data folder's node what it knows, or one that is started for a moment.
func (f *facts) node(ctx context.Context, g *globals, wait time.Duration) {
	client, err := control.Dial(ctx, g.Data)
	switch {
	case err == nil:
		f.Node = true
		defer client.Close()
	case !errors.Is(err, control.ErrNoDaemon):
		f.NodeErr = err
		return
	default:
		f.ports(g)
		if f.SwarmErr != nil || f.Membership.Err != nil {
			f.NodeErr = errors.Join(f.SwarmErr, f.Membership.Err)
			return
		}
		cfg, err := g.nodeConfig(slog.LevelError)
		if err != nil {
			f.NodeErr = err
			return
		}
		cfg.Client = true // which offers nothing, but listens here, so that peers can try to dial it
		if len(cfg.Listen) == 0 {
			cfg.Listen, _ = node.DefaultListen()
		}
		if f.PortErr != nil {
			cfg.Listen = nil
		}
		n, err := node.Start(ctx, cfg)
		if err != nil {
			f.NodeErr = err
			return
		}
		defer n.Close()
		client = control.InProcess(n.Control())
		defer client.Close()
		st, err := client.Status(ctx)
		if err != nil {
			f.NodeErr = err
			return
		}
		for _, m := range st.Models {
			if m.Allocated > f.ModelBytes {
				f.ModelName, f.ModelBytes = m.Name, m.Allocated
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		w, err := client.Network(ctx)
		if err != nil {
			if f.Network == nil {
				f.NodeErr = err
			}
			return
		}
		f.Network = &w
		f.Reach = reach{Known: w.Reachable == "public" || w.Reachable == "private", Public: w.Reachable == "public", Relayed: w.Relayed, NAT: w.NAT, HasIPs: publicAddress()}
		if settled(&w) && (f.Reach.Public || f.Reach.Relayed || !metFar(&w)) { // who can't be dialled may get a place at a relay yet
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// settled says whether waiting longer would tell nothing new: every bootstrap node has been met or has failed, and those that
// were met are in the DHT's table.
func settled(w *control.Network) bool {
	met, elsewhere := 0, 0
	for _, c := range w.Bootstrap {
		switch {
		case c.Elsewhere:
			elsewhere++
		case c.Connected:
			met++
		case c.Error == "":
			return false
		}
	}
	return met == 0 && w.Connected <= elsewhere || w.DHT > 0 && len(w.Clocks) > 0
}

// metFar says whether a node with a public address is connected: only those dial back to tell who is reachable.
func metFar(w *control.Network) bool {
	return slices.ContainsFunc(w.Bootstrap, func(c control.Contact) bool {
		return c.Connected && slices.ContainsFunc(c.Addrs, func(a string) bool {
			parts := strings.Split(a, "/")
			return len(parts) > 2 && (strings.HasPrefix(parts[1], "dns") || public(parts[2]))
		})
	})
}

// public says whether a text is an IP address of the public internet.
func public(text string) bool {
	ip, err := netip.ParseAddr(text)
	return err == nil && ip.IsGlobalUnicast() && !ip.IsPrivate()
}

// publicAddress says whether an interface of this machine has a public address.
func publicAddress() bool {
	addrs, _ := net.InterfaceAddrs() // without any it has none
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		ip, _, _ := strings.Cut(a.String(), "/")
		return public(ip)
	})
}

// ports tries to listen where a node would.
func (f *facts) ports(g *globals) {
	if len(g.Listen) == 0 {
		if _, port := node.DefaultListen(); port != node.DefaultPort {
			f.Port = node.DefaultPort
		}
		return
	}
	for _, a := range g.Listen {
		parts := strings.Split(a, "/") // "", "ip4", "0.0.0.0", "tcp", "4077", …
		if len(parts) < 5 || parts[1] != "ip4" && parts[1] != "ip6" {
			continue // the node says what is wrong with it
		}
		network, at := parts[3]+strings.TrimPrefix(parts[1], "ip"), net.JoinHostPort(parts[2], parts[4])
		if err := listenable(network, at); err != nil {
			f.PortErr = fmt.Errorf("listen address %s: %w", a, err)
			return
		}
	}
}

// listenable returns why an address, such as "tcp4" and "0.0.0.0:4077", can't be listened on.
func listenable(network, at string) error {
	_, port, _ := net.SplitHostPort(at)
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return err
	}
	if strings.HasPrefix(network, "tcp") {
		l, err := net.Listen(network, at)
		if err != nil {
			return err
		}
		return l.Close()
	}
	c, err := net.ListenPacket(network, at)
	if err != nil {
		return err
	}
	return c.Close()
}
