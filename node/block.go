package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/swarm"
	"github.com/starling-swarm/starling/swarm/wire"
)

// blockFile is, in the data folder, what its owner wants nothing to do with: a control.Blocked as JSON.
const blockFile = "blocked.json"

// maxBlocked bounds the file in bytes.
const maxBlocked = 1 << 20

// readBlocked reads a data folder's list; a folder without one blocks nothing.
func readBlocked(dir string) (b control.Blocked, err error) {
	path := filepath.Join(dir, blockFile)
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err == nil && st.Size() > maxBlocked {
		err = fmt.Errorf("it has %d bytes, at most %d are read", st.Size(), maxBlocked)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err == nil {
		b, err = parseBlocked(text)
	}
	if err != nil {
		return b, fmt.Errorf("block list %s: %w: mend it, or move it away", path, err)
	}
	return b, nil
}

// parseBlocked is readBlocked of a file's bytes.
func parseBlocked(text []byte) (b control.Blocked, err error) {
	if err := json.Unmarshal(text, &b); err != nil {
		return b, err
	}
	for _, p := range b.Peers {
		if err := swarm.CheckPeer(p); err != nil {
			return b, err
		}
	}
	for _, m := range b.Models {
		if _, err := artifacts.ParseID(m); err != nil {
			return b, err
		}
	}
	return b, nil
}

// Block changes a data folder's list of what its owner wants nothing to do with, where no node runs on it, and returns it. A
// peer is named by its ID, a model by its whole one.
func Block(dir string, q control.BlockRequest) (*control.Blocked, error) {
	b, err := readBlocked(dir)
	if err != nil || q.What == "" {
		return &b, err
	}
	list := &b.Models
	if _, err := artifacts.ParseID(q.What); err != nil {
		if swarm.CheckPeer(q.What) != nil {
			return nil, fmt.Errorf("%q is neither a peer ID (12D3KooW…) nor the whole ID of a model (64 hexadecimal digits)", q.What)
		}
		list = &b.Peers
	}
	at := slices.Index(*list, q.What)
	switch {
	case q.Unblock && at < 0:
		return nil, fmt.Errorf("%s is not blocked", q.What)
	case q.Unblock:
		*list = slices.Delete(*list, at, at+1)
	case at < 0:
		*list = append(*list, q.What)
	}
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return nil, err
	}
	if len(text) > maxBlocked {
		return nil, errors.New("the block list is full")
	}
	if err := replaceFile(dir, blockFile, append(text, '\n')); err != nil {
		return nil, fmt.Errorf("block list: %w", err)
	}
	return &b, nil
}

// Block changes what the node has nothing to do with, from now on.
func (e engine) Block(ctx context.Context, q control.BlockRequest) (*control.Blocked, error) {
	n := e.n
	if q.What != "" && swarm.CheckPeer(q.What) != nil { // a peer ID may be taken for a model's name
		id, err := n.resolveAny(ctx, strings.TrimSpace(q.What))
		if err != nil {
			return nil, err
		}
		q.What = id.String()
	}
	if q.What == n.ID() {
		return nil, bad(errors.New("this is the node's own peer ID"))
	}
	n.blocking.Lock()
	defer n.blocking.Unlock()
	b, err := Block(n.cfg.DataDir, q)
	if err == nil && q.What != "" {
		n.obeyBlocked(b)
		n.offer()
	}
	return b, err
}

// obeyBlocked makes a list the one that counts: connections of blocked peers close, their sessions end, and blocked models are
// neither served nor seeded.
func (n *Node) obeyBlocked(b *control.Blocked) {
	n.sessions.Lock()
	n.sessions.blocked = map[string]bool{}
	for _, x := range slices.Concat(b.Peers, b.Models) {
		n.sessions.blocked[x] = true
	}
	n.sessions.Unlock()
	n.host.Block(b.Peers)
	for _, m := range n.store.Models() {
		if n.isBlocked(m.ID().String()) {
			n.torrents.Drop(m.ID())
		} else if err := n.torrents.Seed(m); err != nil {
			n.log.Warn("can't seed", "model", m.ID().Short(), "error", err)
		}
	}
	r := wire.Refuse(wire.CodeLeaving, "this node's owner has blocked the client or the model")
	for _, s := range n.stageMap() {
		if n.isBlocked(s.client) || n.isBlocked(s.model.String()) {
			s.giveUpNow(r)
		}
	}
	for _, d := range n.decoderList() {
		if n.isBlocked(d.client) || n.isBlocked(d.model.String()) {
			d.abort(r)
		}
	}
}

// isBlocked reports whether the node has nothing to do with a peer or a model, by its ID.
func (n *Node) isBlocked(id string) bool {
	n.sessions.Lock()
	defer n.sessions.Unlock()
	return n.sessions.blocked[id]
}

// giveUpNow ends the stage and tells the decoder why.
func (s *stageSession) giveUpNow(r *wire.Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.n.refuse(s.decoder, s.m.head, r)
		s.closeLocked()
	}
}
