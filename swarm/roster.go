package swarm

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

// Member is what a node knows of one member of its private swarm.
type Member struct {
	Peer    PeerID
	Role    Role
	Issued  time.Time // of the newest certificate; zero where none was seen
	Expires time.Time
	Revoked bool
	Owner   bool // by the founder's list
}

// maxMembers bounds the records of certificates that are read.
const maxMembers = 1 << 16

// record keeps the newest certificate that was issued to a peer, on the owner's node that did.
func (s *Swarms) record(c *wire.Certificate) error {
	return s.put(c.Swarm, filepath.Join(issuedDir, c.Peer), c.Data())
}

// Members lists the private swarm's members as this data folder knows them, by peer: this node, whom it ever admitted as an owner, the
// other owners, and who was revoked. Of a swarm's only owner that is everybody (all). Host.Members adds whom a running node has met.
func (s *Swarms) Members(id string) (list []Member, all bool, err error) {
	known, all, err := s.members(id)
	return sortMembers(known), all, err
}

func (s *Swarms) members(id string) (known map[PeerID]Member, all bool, err error) {
	info, err := s.Load(id)
	if err != nil {
		return nil, false, fmt.Errorf("members: %w", err)
	}
	if info.Public {
		return nil, false, fmt.Errorf("members: swarm %s is public: anybody may be in it", info.Name)
	}
	known = map[PeerID]Member{}
	own, err := s.certificate(info.ID)
	if err != nil {
		return nil, false, fmt.Errorf("members: %w", err)
	}
	known[own.Peer] = memberOf(own)
	dir, err := s.path(info.ID, issuedDir)
	if err != nil {
		return nil, false, err
	}
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, false, fmt.Errorf("members: %w", err)
	}
	for _, f := range files[:min(len(files), maxMembers)] {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, false, fmt.Errorf("members: %w", err)
		}
		c, err := wire.ParseCertificate(b)
		if err != nil {
			continue // half of one, from before a crash
		}
		known[c.Peer] = memberOf(c)
	}
	a, err := s.authority(info)
	if err != nil {
		return nil, false, fmt.Errorf("members: %w", err)
	}
	a.mark(known)
	o, err := s.owner(a)
	return known, err == nil && o.by == nil && len(a.delegates()) == 0, nil
}

// Members lists the members of this host's private swarm that it knows of, by peer; all says that there are no others.
func (h *Host) Members() (list []Member, all bool, err error) {
	known, all, err := h.store.members(h.info.ID)
	if err != nil {
		return nil, false, err
	}
	m := h.members
	m.mu.Lock()
	defer m.mu.Unlock()
	for peer, c := range m.members {
		if old, ok := known[peer]; !ok || old.Issued.Unix() < c.Issued {
			known[peer] = memberOf(c)
		}
	}
	m.owners.mark(known)
	return sortMembers(known), all, nil
}

func memberOf(c *wire.Certificate) Member {
	return Member{Peer: c.Peer, Role: c.Role, Issued: time.Unix(c.Issued, 0), Expires: time.Unix(c.Expires, 0)}
}

// mark says in known who is revoked and who is an owner.
func (a *authority) mark(known map[PeerID]Member) {
	for p := range a.revoked {
		k := known[p]
		k.Peer, k.Revoked = p, true
		known[p] = k
	}
	for _, g := range a.delegates() {
		k := known[g.Owner]
		k.Peer, k.Owner = g.Owner, true
		known[g.Owner] = k
	}
}

func sortMembers(known map[PeerID]Member) []Member {
	list := make([]Member, 0, len(known))
	for _, m := range known {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b Member) int { return cmp.Compare(a.Peer, b.Peer) })
	return list
}
