package swarm

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

// membership knows who is a member of a private swarm. A nil membership is a
// public swarm's: everyone is.
type membership struct {
	store *Swarms
	info  *Info
	self  PeerID
	log   *slog.Logger

	// redeeming is held while an invite is looked up and claimed: a newcomer may ask over two transports at once, and
	// both must find that the invite is its own. Taken without mu.
	redeeming sync.Mutex

	turnedAway refusalLog

	mu      sync.Mutex
	own     *wire.Certificate
	list    *wire.RevocationList // nil until someone is revoked
	revoked map[PeerID]bool      // = list.Peers
	members map[PeerID]*wire.Certificate
	seqs    map[PeerID]uint64 // newest revocation list that the member said to have
	refused map[PeerID]error  // why peers that this node dialled last let it not in, or are none of this swarm
}

// loadMembership reads and checks what the store holds for self. It returns
// nil for a public swarm.
func loadMembership(store *Swarms, info *Info, self PeerID, log *slog.Logger) (*membership, error) {
	if info.Public {
		return nil, nil
	}
	m := &membership{store: store, info: info, self: self, log: log,
		members: map[PeerID]*wire.Certificate{}, seqs: map[PeerID]uint64{}, refused: map[PeerID]error{}}
	list, err := store.list(info.ID)
	if err != nil {
		return nil, err
	}
	if list != nil {
		if err := checkList(list, info); err != nil {
			return nil, err
		}
		m.setListLocked(list)
	}
	own, err := store.certificate(info.ID)
	if err != nil {
		return nil, err
	}
	if err := m.checkLocked(own, self, time.Now()); err != nil {
		return nil, fmt.Errorf("%w; ask the swarm's owner for a new invite", err)
	}
	m.own = own
	return m, nil
}

// checkLocked reports why cert doesn't make peer a member now.
func (m *membership) checkLocked(cert *wire.Certificate, peer PeerID, now time.Time) error {
	if err := checkCertificate(cert, m.info.ID, m.info.Owner, peer, now); err != nil {
		return err
	}
	if m.revoked[peer] {
		return fmt.Errorf("%s is no longer a member of swarm %s: its certificate was revoked", peer, m.info.ID)
	}
	return nil
}

// proven reports whether cert is one that the swarm's owner once gave to peer.
func (m *membership) proven(cert *wire.Certificate, peer PeerID) bool {
	return cert.Swarm == m.info.ID && cert.Peer == peer &&
		VerifySignature(m.info.Owner, wire.DomainCertificate, cert.SigningBytes(), cert.Signature[:]) == nil
}

func checkCertificate(cert *wire.Certificate, swarm string, owner, peer PeerID, now time.Time) error {
	issued, expires := time.Unix(cert.Issued, 0), time.Unix(cert.Expires, 0)
	switch {
	case cert.Swarm != swarm:
		return fmt.Errorf("the certificate of %s is for swarm %s, not %s", peer, cert.Swarm, swarm)
	case cert.Peer != peer:
		return fmt.Errorf("%s shows the certificate of %s", peer, cert.Peer)
	case issued.After(now.Add(wire.ClockSkew)):
		return fmt.Errorf("the certificate of %s starts at %s, in the future; check the clocks", peer, issued.UTC().Format(time.RFC3339))
	case !expires.After(now):
		return fmt.Errorf("the certificate of %s ran out at %s", peer, expires.UTC().Format(time.RFC3339))
	}
	return VerifySignature(owner, wire.DomainCertificate, cert.SigningBytes(), cert.Signature[:])
}

// admit checks a certificate that peer just showed over an authenticated
// connection, and remembers it.
func (m *membership) admit(cert *wire.Certificate, peer PeerID, listSeq uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.checkLocked(cert, peer, time.Now()); err != nil {
		return err
	}
	m.members[peer], m.seqs[peer] = cert, listSeq
	return nil
}

// admits reports why peer, which is connected, may not use a protocol now. Its
// signature was checked when it connected.
func (m *membership) admits(peer PeerID) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	cert := m.members[peer]
	switch {
	case cert == nil:
		return fmt.Errorf("%s is not a member of swarm %s", peer, m.info.ID)
	case m.revoked[peer]:
		return fmt.Errorf("%s is no longer a member of swarm %s", peer, m.info.ID)
	case cert.Expires <= time.Now().Unix():
		return fmt.Errorf("the certificate of %s ran out", peer)
	}
	return nil
}

// noteRefusal keeps what the exchange with a peer that this node dialled came to.
func (m *membership) noteRefusal(peer PeerID, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		delete(m.refused, peer)
	} else if len(m.refused) < maxRefused {
		m.refused[peer] = err
	}
}

// maxRefused bounds the refusals that are kept.
const maxRefused = 256

// refusal returns why the latest exchange with a peer that this node dialled failed; nil if it didn't, or if there was none.
func (m *membership) refusal(peer PeerID) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.refused[peer]
}

// mayServe reports why offers and listings of peer don't count.
func (m *membership) mayServe(peer PeerID) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.revoked[peer] {
		return fmt.Errorf("%s was revoked", peer)
	}
	if c := m.shownLocked(peer); c != nil && !c.Role.Serves() {
		return fmt.Errorf("%s may use the swarm, not serve it: its role is %v", peer, c.Role)
	}
	return nil
}

// mayTrack reports whether peer is believed to be a tracker.
func (m *membership) mayTrack(peer PeerID) bool {
	if m == nil {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.shownLocked(peer)
	return c != nil && c.Role.Tracks()
}

// shownLocked returns the certificate that peer has shown, or nil.
func (m *membership) shownLocked(peer PeerID) *wire.Certificate {
	if peer == m.self {
		return m.own
	}
	return m.members[peer]
}

// Member reports why peer, which is connected, isn't a member of this host's private swarm.
func (h *Host) Member(peer PeerID) error {
	if h.members == nil {
		return fmt.Errorf("swarm %s is public, so nobody is a member", h.info.Name)
	}
	return h.members.admits(peer)
}

// bars reports why peer isn't even dialled.
func (m *membership) bars(peer PeerID) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.revoked[peer] {
		return fmt.Errorf("%s is no longer a member of swarm %s: its certificate was revoked", peer, m.info.ID)
	}
	return nil
}

// certificate returns this node's own certificate.
func (m *membership) certificate() wire.Certificate {
	m.mu.Lock()
	defer m.mu.Unlock()
	return *m.own
}

// listSeq returns the sequence number of the newest list held, 0 without one.
func (m *membership) listSeq() uint64 {
	if l := m.revocations(); l != nil {
		return l.Seq
	}
	return 0
}

// revocations returns the newest list held, or nil.
func (m *membership) revocations() *wire.RevocationList {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.list
}

// behind says whether peer has told of a newer list than ours.
func (m *membership) behind(peer PeerID) bool {
	if m == nil {
		return false
	}
	seq := m.listSeq()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seqs[peer] > seq
}

// heard notes what peer said about its list.
func (m *membership) heard(peer PeerID, listSeq uint64) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.members[peer] != nil {
		m.seqs[peer] = listSeq
	}
}

// errStale is wrapped when a revocation list isn't newer than the one held.
var errStale = errors.New("stale revocation list")

// apply checks a list and takes it over, in memory and on disk.
func (m *membership) apply(l *wire.RevocationList) error {
	if m == nil {
		return errors.New("a public swarm has no revocation list")
	}
	if err := checkList(l, m.info); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.list != nil && l.Seq <= m.list.Seq {
		return fmt.Errorf("%w: number %d, this node has %d", errStale, l.Seq, m.list.Seq)
	}
	if err := m.store.put(m.info.ID, listFile, l.Data()); err != nil {
		return err
	}
	m.setListLocked(l)
	return nil
}

func (m *membership) setListLocked(l *wire.RevocationList) {
	m.list, m.revoked = l, make(map[PeerID]bool, len(l.Peers))
	for _, p := range l.Peers {
		m.revoked[p] = true
	}
}

func checkList(l *wire.RevocationList, info *Info) error {
	if l.Swarm != info.ID {
		return fmt.Errorf("revocation list is for swarm %s, not %s", l.Swarm, info.ID)
	}
	return VerifySignature(info.Owner, wire.DomainRevocation, l.SigningBytes(), l.Signature[:])
}

// renewal returns a fresh certificate for the member that showed cert, if less
// than a quarter of its life is left and this node holds the owner key.
func (m *membership) renewal(cert *wire.Certificate) *wire.Certificate {
	now := time.Now()
	if time.Unix(cert.Expires, 0).Sub(now) > CertificateLife/4 {
		return nil
	}
	owner, err := m.store.ownerKey(m.info.ID)
	if err != nil {
		return nil
	}
	c := issue(owner, cert.Peer, cert.Role, now)
	if err := m.store.record(c); err != nil {
		m.log.Warn("a renewed certificate is not on record", "error", err)
	}
	return c
}

// renew takes over a certificate that an owner node sent unasked.
func (m *membership) renew(cert *wire.Certificate) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.checkLocked(cert, m.self, time.Now()); err != nil {
		return err
	}
	if cert.Expires <= m.own.Expires {
		return nil
	}
	if err := m.store.put(m.info.ID, certificateFile, cert.Data()); err != nil {
		return err
	}
	m.own = cert
	return nil
}
