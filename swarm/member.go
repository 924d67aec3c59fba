package swarm

import (
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
	owners  *authority
	own     *wire.Certificate
	members map[PeerID]*wire.Certificate
	told    map[PeerID]uint64    // which revocation lists the member said to have: their digest
	asked   map[PeerID][2]uint64 // digests, the member's and ours, when it was last asked for its lists
	refused map[PeerID]error     // why peers that this node dialled last let it not in, or are none of this swarm
}

// loadMembership reads and checks what the store holds for self. It returns
// nil for a public swarm.
func loadMembership(store *Swarms, info *Info, self PeerID, log *slog.Logger) (*membership, error) {
	if info.Public {
		return nil, nil
	}
	m := &membership{store: store, info: info, self: self, log: log,
		members: map[PeerID]*wire.Certificate{}, told: map[PeerID]uint64{}, asked: map[PeerID][2]uint64{}, refused: map[PeerID]error{}}
	var err error
	if m.owners, err = store.authority(info); err != nil {
		return nil, err
	}
	if m.own, err = store.certificate(info.ID); err != nil {
		return nil, err
	}
	m.renewOwn()
	if err := m.owners.checkCertificate(m.own, self, time.Now()); err != nil {
		return nil, fmt.Errorf("%w; ask one of the swarm's owners for a new invite", err)
	}
	return m, nil
}

// proven reports whether cert is one that an owner of the swarm once gave to peer.
func (m *membership) proven(cert *wire.Certificate, peer PeerID) bool {
	return cert.Swarm == m.info.ID && cert.Peer == peer && m.owners.checkSignature(cert) == nil
}

// admit checks a certificate that peer just showed over an authenticated
// connection, and remembers it.
func (m *membership) admit(cert *wire.Certificate, peer PeerID, lists uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.owners.checkCertificate(cert, peer, time.Now()); err != nil {
		return err
	}
	m.members[peer], m.told[peer] = cert, lists
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
	case cert.Expires <= time.Now().Unix():
		return fmt.Errorf("the certificate of %s ran out", peer)
	}
	return m.owners.bars(cert, peer)
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
	if m.owners.revoked[peer] {
		return fmt.Errorf("%s was revoked", peer)
	}
	if c := m.shownLocked(peer); c != nil {
		if err := m.owners.bars(c, peer); err != nil {
			return err
		}
		if !c.Role.Serves() {
			return fmt.Errorf("%s may use the swarm, not serve it: its role is %v", peer, c.Role)
		}
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
	if m.owners.revoked[peer] {
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

// digest tells which revocation lists this node holds, 0 without one.
func (m *membership) digest() uint64 {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.owners.digest()
}

// newer returns the revocation lists that somebody lacks who holds some.
func (m *membership) newer(held []wire.ListHeld) []wire.RevocationList {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.owners.newer(held)
}

// differ says whether peer has told of other lists than ours, and hasn't been asked for them since, and what to ask it with: whoever gets true asks.
func (m *membership) differ(peer PeerID) (held []wire.ListHeld, ask bool) {
	if m == nil {
		return nil, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	theirs, ours := m.told[peer], m.owners.digest()
	if theirs == 0 || theirs == ours || m.asked[peer] == [2]uint64{theirs, ours} {
		return nil, false
	}
	m.asked[peer] = [2]uint64{theirs, ours}
	return m.owners.held(), true
}

// ask lets peer be asked again, after an attempt that failed.
func (m *membership) ask(peer PeerID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.asked, peer)
}

// heard notes which lists peer said to have, and reports whether they are others than ours.
func (m *membership) heard(peer PeerID, digest uint64) bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.members[peer] == nil {
		return false
	}
	m.told[peer] = digest
	return digest != 0 && digest != m.owners.digest()
}

// apply checks a list and takes it over, in memory and on disk. It returns whose it is.
func (m *membership) apply(l *wire.RevocationList) (owner PeerID, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if owner, err = m.owners.checkList(l); err != nil {
		return "", err
	}
	if err := m.store.put(m.info.ID, listName(m.info, owner), l.Data()); err != nil {
		return "", err
	}
	m.owners.take(owner, l)
	return owner, nil
}

// nextList returns what this node says next, as an owner.
func (m *membership) nextList(next func(*owner, *authority) (*wire.RevocationList, error)) (*wire.RevocationList, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, err := m.store.owner(m.owners)
	if err != nil {
		return nil, err
	}
	return next(o, m.owners)
}

// owner returns the key with which this node speaks for the swarm, or why it has none.
func (m *membership) owner() (*owner, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.store.owner(m.owners)
}

// renewal returns a fresh certificate for the member that showed cert, if this
// node is an owner and it is time.
func (m *membership) renewal(cert *wire.Certificate) *wire.Certificate {
	now := time.Now()
	if time.Unix(cert.Expires, 0).Sub(now) > CertificateLife/4 {
		return nil
	}
	o, err := m.owner()
	if err != nil || !o.renews(cert, now) {
		return nil
	}
	c := o.issue(cert.Peer, cert.Role, now)
	if err := m.store.record(c); err != nil {
		m.log.Warn("a renewed certificate is not on record", "error", err)
	}
	return c
}

// renewOwn renews this node's own certificate when it is time, even after its end, if the node is an owner.
func (m *membership) renewOwn() {
	own := m.certificate()
	if !m.proven(&own, m.self) {
		return
	}
	c := m.renewal(&own)
	if c == nil {
		return
	}
	if err := m.renew(c); err != nil {
		m.log.Warn("this node can't renew its certificate", "error", err)
	}
}

// renew takes over a certificate that an owner's node sent unasked.
func (m *membership) renew(cert *wire.Certificate) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.owners.checkCertificate(cert, m.self, time.Now()); err != nil {
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
