package swarm

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

// A node remembers whom it was connected to, in <dir>/swarms/<id>.peers, one
// full multiaddr per line. So it finds its swarm again when the bootstrap nodes
// are gone for good.
const (
	rememberEvery = 5 * time.Minute
	maxRemembered = 64          // addresses
	maxPeersFile  = 64 << 10    // bytes that are read
	recallAfter   = time.Second // lets bootstrap nodes answer first
)

func (h *Host) peersFile() string {
	return filepath.Join(h.store.dir, h.info.ID+".peers")
}

// rememberLoop keeps the file up to date, and tries the peers in it whenever
// nobody is connected: at the start, and when the network was gone for so long
// that all have given each other up. Until one answers, or another way into
// the swarm is found.
func (h *Host) rememberLoop(ctx context.Context) {
	if h.cfg.Dir == "" {
		return
	}
	peers, err := readPeers(h.peersFile())
	if err != nil {
		h.log.Warn("starting without remembered peers", "error", err)
	}
	var written time.Time
	for retry := recallAfter; sleep(ctx, retry); {
		switch {
		case len(h.Connected()) == 0:
			h.recall(peers)
			retry = min(2*retry, lastRetry)
			continue
		case time.Since(written) >= rememberEvery:
			h.remember()
			if known, err := readPeers(h.peersFile()); err == nil {
				peers = known
			}
			written = time.Now()
		}
		retry = lastRetry
	}
}

// recall dials peers of earlier.
func (h *Host) recall(peers []peer.AddrInfo) {
	for _, p := range peers {
		if p.ID == h.lp.ID() {
			continue
		}
		h.goDo(func(ctx context.Context) {
			if h.dialOnce(ctx, p) == nil {
				h.log.Info("connected to a peer of an earlier time", "peer", p.ID.String())
				h.joinedDHT()
			}
		})
	}
}

// remember writes the addresses of the peers that are connected now; if there
// are none, it leaves the file as it is.
func (h *Host) remember() {
	if h.cfg.Dir == "" {
		return
	}
	var lines []string
	for _, id := range h.lp.Network().Peers() {
		// Where a peer dialled us from isn't where it listens: the peerstore
		// has the addresses that it told by identify.
		full, err := peer.AddrInfoToP2pAddrs(&peer.AddrInfo{ID: id, Addrs: h.lp.Peerstore().Addrs(id)})
		if err != nil {
			continue
		}
		full = full[:min(len(full), 4)]
		lines = append(lines, addrStrings(full)...)
	}
	if len(lines) == 0 {
		return
	}
	slices.Sort(lines)
	text := strings.Join(lines[:min(len(lines), maxRemembered)], "\n") + "\n"
	if old, err := os.ReadFile(h.peersFile()); err == nil && string(old) == text {
		return
	}
	if err := os.MkdirAll(h.store.dir, 0o700); err != nil {
		h.log.Warn("can't remember peers", "error", err)
		return
	}
	if err := replaceFile(h.peersFile(), []byte(text), 0o600); err != nil {
		h.log.Warn("can't remember peers", "error", err)
	}
}

func readPeers(path string) ([]peer.AddrInfo, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	lines := strings.Fields(string(bytes.ToValidUTF8(b[:min(len(b), maxPeersFile)], nil)))
	return parseBootstrap(lines[:min(len(lines), maxRemembered)])
}
