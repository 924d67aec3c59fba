package swarm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

// A private swarm has one founder, whose key its ID is derived from, and up to wire.MaxOwners delegates: peers that the founder's
// list names, with a delegation for each. They let peers in and put them out, as the founder does, and go on when its key is lost.
//
//	founder's key ── list ──→ revoked peers, delegates
//	      │                        ║ delegation: goes with all that a delegate signs
//	      └── certificate          delegate's peer key ── list ──→ revoked peers
//	                                    └── certificate
//
// Each owner numbers its own lists, and a member adds up the newest of all. The founder alone makes and ends delegates: a delegate's
// list doesn't count against another one. When the founder ends a delegate, the certificates that it signed end with it, and so does its
// list: a key that was stolen can backdate what it signs, so nothing tells what came before the theft.

// authority is what is known of a private swarm's owners and of what they say. It has no clock and no I/O.
type authority struct {
	swarm   string
	founder PeerID
	lists   map[PeerID]*wire.RevocationList // the newest of each owner, checked
	revoked map[PeerID]bool                 // by all of lists
}

func newAuthority(info *Info) *authority {
	return &authority{swarm: info.ID, founder: info.Owner, lists: map[PeerID]*wire.RevocationList{}}
}

// delegates returns the owners beside the founder, as its newest list has them.
func (a *authority) delegates() []wire.Delegation {
	if l := a.lists[a.founder]; l != nil {
		return l.Owners
	}
	return nil
}

// delegation returns the delegation that the founder's newest list has of peer, or nil.
func (a *authority) delegation(peer PeerID) *wire.Delegation {
	for _, g := range a.delegates() {
		if g.Owner == peer {
			return &g
		}
	}
	return nil
}

// signer returns whose key signed by delegation; without one it was the founder's.
func (a *authority) signer(by *wire.Delegation) (PeerID, error) {
	if by == nil {
		return a.founder, nil
	}
	if by.Owner == a.founder {
		return "", fmt.Errorf("a delegation names the founder %s", by.Owner)
	}
	if err := VerifySignature(a.founder, wire.DomainDelegation, by.SigningBytes(a.swarm), by.Signature[:]); err != nil {
		return "", fmt.Errorf("the delegation of %s: %w", by.Owner, err)
	}
	return by.Owner, nil
}

// checkCertificate reports why cert doesn't make peer a member now.
func (a *authority) checkCertificate(cert *wire.Certificate, peer PeerID, now time.Time) error {
	issued, expires := time.Unix(cert.Issued, 0), time.Unix(cert.Expires, 0)
	switch {
	case cert.Swarm != a.swarm:
		return fmt.Errorf("the certificate of %s is for swarm %s, not %s", peer, cert.Swarm, a.swarm)
	case cert.Peer != peer:
		return fmt.Errorf("%s shows the certificate of %s", peer, cert.Peer)
	case issued.After(now.Add(wire.ClockSkew)):
		return fmt.Errorf("the certificate of %s starts at %s, in the future; check the clocks", peer, issued.UTC().Format(time.RFC3339))
	case !expires.After(now):
		return fmt.Errorf("the certificate of %s ran out at %s", peer, expires.UTC().Format(time.RFC3339))
	}
	if err := a.checkSignature(cert); err != nil {
		return err
	}
	return a.bars(cert, peer)
}

// checkSignature reports why no owner, of now or of before, signed cert.
func (a *authority) checkSignature(cert *wire.Certificate) error {
	signer, err := a.signer(cert.By)
	if err != nil {
		return err
	}
	return VerifySignature(signer, wire.DomainCertificate, cert.SigningBytes(), cert.Signature[:])
}

// bars reports why peer is no member any more, with a certificate that was good once.
func (a *authority) bars(cert *wire.Certificate, peer PeerID) error {
	if a.revoked[peer] {
		return fmt.Errorf("%s is no longer a member of swarm %s: its certificate was revoked", peer, a.swarm)
	}
	if err := a.stands(cert.By); err != nil {
		return fmt.Errorf("%s is no longer a member of swarm %s, %w: ask an owner for a new invitation", peer, a.swarm, err)
	}
	return nil
}

// stands reports why by, whose signature is right, makes no owner now.
func (a *authority) stands(by *wire.Delegation) error {
	if by == nil {
		return nil
	}
	if l := a.lists[a.founder]; l != nil && l.Seq >= by.Seq && a.delegation(by.Owner) == nil {
		return fmt.Errorf("since %s, who let it in, is no owner any more", by.Owner)
	}
	return nil
}

// errStale is wrapped when a revocation list isn't newer than the one held.
var errStale = errors.New("stale revocation list")

// checkList reports why l doesn't count, or isn't newer than what is held of its owner, whom it returns.
func (a *authority) checkList(l *wire.RevocationList) (owner PeerID, err error) {
	if l.Swarm != a.swarm {
		return "", fmt.Errorf("revocation list is for swarm %s, not %s", l.Swarm, a.swarm)
	}
	if owner, err = a.signer(l.By); err != nil {
		return "", err
	}
	if err := VerifySignature(owner, wire.DomainRevocation, l.SigningBytes(), l.Signature[:]); err != nil {
		return "", err
	}
	if a.stands(l.By) != nil {
		return "", fmt.Errorf("revocation list of %s, who is no owner any more", owner)
	}
	if held := a.lists[owner]; held != nil && l.Seq <= held.Seq {
		return "", fmt.Errorf("%w: number %d of %s, this node has %d", errStale, l.Seq, owner, held.Seq)
	}
	return owner, nil
}

// take adds a list that was checked.
func (a *authority) take(owner PeerID, l *wire.RevocationList) {
	a.lists[owner] = l
	for other, l := range a.lists {
		if a.stands(l.By) != nil {
			delete(a.lists, other)
		}
	}
	a.revoked = map[PeerID]bool{}
	for owner, l := range a.lists {
		for _, p := range l.Peers {
			if owner == a.founder || !a.owns(p) {
				a.revoked[p] = true
			}
		}
	}
}

// owns reports whether peer is a delegate, as far as is known.
func (a *authority) owns(peer PeerID) bool { return a.delegation(peer) != nil || a.lists[peer] != nil }

// owners returns those of whom there are lists, the founder first.
func (a *authority) owners() []PeerID {
	all := slices.Sorted(maps.Keys(a.lists))
	if i := slices.Index(all, a.founder); i > 0 {
		all = slices.Insert(slices.Delete(all, i, i+1), 0, a.founder)
	}
	return all
}

// digest is a number that tells which lists are held; 0: none.
func (a *authority) digest() uint64 {
	if len(a.lists) == 0 {
		return 0
	}
	sum := fnv.New64a()
	for _, owner := range a.owners() {
		sum.Write(binary.LittleEndian.AppendUint64([]byte(owner), a.lists[owner].Seq))
	}
	return max(sum.Sum64(), 1)
}

// held says of each owner which list is held.
func (a *authority) held() (list []wire.ListHeld) {
	for _, owner := range a.owners() {
		list = append(list, wire.ListHeld{Owner: owner, Seq: a.lists[owner].Seq})
	}
	return list
}

// listBytes is how much of a frame lists may take: Admitted has other fields beside them.
const listBytes = wire.MaxControl - 8<<10

// newer returns the lists that somebody lacks who holds some: as many as a frame has room for, the founder's first.
func (a *authority) newer(held []wire.ListHeld) (lists []wire.RevocationList) {
	size := 0
	for _, owner := range a.owners() {
		l := a.lists[owner]
		if slices.ContainsFunc(held, func(h wire.ListHeld) bool { return h.Owner == owner && h.Seq >= l.Seq }) {
			continue
		}
		if size += len(l.Data()); size > listBytes {
			break
		}
		lists = append(lists, *l)
	}
	return lists
}
