package swarm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

// owner is a key with which this data folder speaks for a private swarm.
type owner struct {
	swarm string
	key   *Identity
	by    *wire.Delegation // nil: it is the founder's
}

// owner returns the founder's key if this data folder has it, else its peer key if the founder made it a delegate.
func (s *Swarms) owner(a *authority) (*owner, error) {
	path, err := s.path(a.swarm, ownerFile)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err == nil {
		key, err := s.ownerKey(a.swarm)
		return &owner{swarm: a.swarm, key: key}, err
	}
	if len(a.delegates()) > 0 {
		key, err := loadKey(filepath.Join(filepath.Dir(s.dir), identityFile), false)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err == nil {
			if by := a.delegation(key.ID()); by != nil {
				return &owner{swarm: a.swarm, key: key, by: by}, nil
			}
		}
	}
	return nil, fmt.Errorf("swarm %s: this node doesn't hold its owner key, nor is it one of its owners; ask on a node that is", a.swarm)
}

// issue signs a certificate for peer.
func (o *owner) issue(peer PeerID, role wire.Role, now time.Time) *wire.Certificate {
	c := &wire.Certificate{Swarm: o.swarm, Peer: peer, Role: role, Issued: now.Unix(), Expires: now.Add(CertificateLife).Unix(), By: o.by}
	copy(c.Signature[:], o.key.Sign(wire.DomainCertificate, c.SigningBytes()))
	return c
}

// renews reports whether it is time for this owner to renew cert. The founder's key comes first, so that what it has signed stays
// its own as long as it is there.
func (o *owner) renews(cert *wire.Certificate, now time.Time) bool {
	left := time.Unix(cert.Expires, 0).Sub(now)
	return o.by == nil && left <= CertificateLife/4 || left <= CertificateLife/8
}

// next returns this owner's list after the one that is held, with the next number, unsigned. A delegate's numbers begin above all that it
// can have used before, if it was one before.
func (o *owner) next(a *authority, now time.Time) *wire.RevocationList {
	l := &wire.RevocationList{Swarm: o.swarm, By: o.by}
	if o.by != nil {
		l.Seq = o.by.Seq << 32
	}
	if old := a.lists[o.key.ID()]; old != nil {
		l.Seq, l.Peers, l.Owners = max(l.Seq, old.Seq), slices.Clone(old.Peers), slices.Clone(old.Owners)
	}
	l.Seq++
	l.Issued = now.Unix()
	return l
}

func (o *owner) sign(l *wire.RevocationList) *wire.RevocationList {
	copy(l.Signature[:], o.key.Sign(wire.DomainRevocation, l.SigningBytes()))
	return l
}

// revoke returns this owner's list with peer added.
func (o *owner) revoke(a *authority, peer PeerID, now time.Time) (*wire.RevocationList, error) {
	if _, err := publicKey(peer); err != nil {
		return nil, err
	}
	l := o.next(a, now)
	switch {
	case a.revoked[peer]:
		return nil, fmt.Errorf("%s was revoked before", peer)
	case o.by != nil && a.owns(peer):
		return nil, fmt.Errorf("%s is one of the swarm's owners: only who has the founder's key can revoke it", peer)
	case len(l.Peers) >= wire.MaxRevoked:
		return nil, fmt.Errorf("the list already has %d peers; create a new swarm", len(l.Peers))
	}
	l.Peers = append(l.Peers, peer)
	l.Owners = slices.DeleteFunc(l.Owners, func(g wire.Delegation) bool { return g.Owner == peer })
	return o.sign(l), nil
}

// delegate returns the founder's list with peer made an owner, or none any more. With the first one the founder's own node, self, becomes
// one, too: else a delegate whose key was stolen could shut it out, and nobody would hear that the founder has ended that delegate.
func (o *owner) delegate(a *authority, self, peer PeerID, end bool, now time.Time) (*wire.RevocationList, error) {
	if _, err := publicKey(peer); err != nil {
		return nil, err
	}
	l, is := o.next(a, now), a.delegation(peer) != nil
	switch {
	case o.by != nil:
		return nil, errors.New("only who has the founder's key can say who else is an owner")
	case a.revoked[peer]:
		return nil, fmt.Errorf("%s was revoked", peer)
	case is && !end:
		return nil, fmt.Errorf("%s is an owner already", peer)
	case !is && end:
		return nil, fmt.Errorf("%s is no owner by the founder's list", peer)
	case !end && len(l.Owners) >= wire.MaxOwners:
		return nil, fmt.Errorf("the swarm has %d owners beside its founder, more don't fit", len(l.Owners))
	case end && peer == self:
		return nil, errors.New("that is the founder's own node, which other owners could revoke then")
	case end:
		l.Owners = slices.DeleteFunc(l.Owners, func(g wire.Delegation) bool { return g.Owner == peer })
	default:
		l.Owners = append(l.Owners, o.delegation(peer, l.Seq))
		if self != peer && a.delegation(self) == nil && len(l.Owners) < wire.MaxOwners && !a.revoked[self] {
			l.Owners = append(l.Owners, o.delegation(self, l.Seq))
		}
	}
	return o.sign(l), nil
}

// delegation signs that peer is an owner from the founder's list seq on.
func (o *owner) delegation(peer PeerID, seq uint64) wire.Delegation {
	g := wire.Delegation{Owner: peer, Seq: seq}
	copy(g.Signature[:], o.key.Sign(wire.DomainDelegation, g.SigningBytes(o.swarm)))
	return g
}

// Owners returns the peers that the founder has made owners of the private swarm, as far as this data folder knows.
func (s *Swarms) Owners(id string) ([]PeerID, error) {
	a, err := s.loadAuthority(id)
	if err != nil {
		return nil, err
	}
	var list []PeerID
	for _, g := range a.delegates() {
		list = append(list, g.Owner)
	}
	return list, nil
}

// SetOwner makes peer another owner of the private swarm, who invites and revokes with its peer key; with end it is none any more, and
// neither the certificates that it signed nor its revocations count then. It needs the founder's key. A running node spreads the news with Host.SetOwner; this is for when none runs.
func (s *Swarms) SetOwner(id string, peer PeerID, end bool) error {
	self, err := loadKey(filepath.Join(filepath.Dir(s.dir), identityFile), false)
	if err != nil {
		return fmt.Errorf("owner: %w", err)
	}
	err = s.newList(id, func(o *owner, a *authority) (*wire.RevocationList, error) {
		return o.delegate(a, self.ID(), peer, end, time.Now())
	})
	if err != nil {
		return fmt.Errorf("owner: %w", err)
	}
	return nil
}

// SetOwner makes peer another owner of this host's swarm, or ends that, and tells all connected members.
func (h *Host) SetOwner(peer PeerID, end bool) error {
	err := h.newList(func(o *owner, a *authority) (*wire.RevocationList, error) {
		return o.delegate(a, h.ID(), peer, end, time.Now())
	})
	if err != nil {
		return fmt.Errorf("owner: %w", err)
	}
	return nil
}
