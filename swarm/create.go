package swarm

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

// CertificateLife is how long a membership certificate counts. Nodes that hold
// the owner key renew a member's certificate, unasked, when less than a
// quarter is left and they meet.
const CertificateLife = 365 * 24 * time.Hour

// CreateSwarm makes a swarm and stores it in the data folder dir. bootstrap
// are full multiaddrs of nodes that newcomers can reach. A private swarm gets
// an owner key, which stays in dir, and dir's identity becomes its first
// member.
func CreateSwarm(dir, name string, public bool, bootstrap []string) (*Info, error) {
	store := OpenSwarms(dir)
	if public {
		var raw [swarmIDBytes]byte
		if _, err := rand.Read(raw[:]); err != nil {
			return nil, err
		}
		i := &Info{ID: publicPrefix + swarmIDText.EncodeToString(raw[:]), Name: name, Public: true, Bootstrap: bootstrap}
		return i, store.saveNew(i)
	}
	self, err := LoadIdentity(dir)
	if err != nil {
		return nil, err
	}
	owner := Ephemeral()
	i := &Info{ID: privateID(owner.ID()), Name: name, Owner: owner.ID(), Bootstrap: bootstrap}
	if err := i.check(); err != nil {
		return nil, fmt.Errorf("create swarm: %w", err)
	}
	if err := store.put(i.ID, ownerFile, owner.private.Seed()); err != nil {
		return nil, err
	}
	cert := issue(owner, self.ID(), wire.RoleMember, time.Now())
	if err := store.put(i.ID, certificateFile, cert.Data()); err != nil {
		return nil, err
	}
	if err := store.record(cert); err != nil {
		return nil, err
	}
	return i, store.saveNew(i)
}

func (s *Swarms) saveNew(i *Info) error {
	if err := s.Save(i); err != nil {
		return fmt.Errorf("create swarm: %w", err)
	}
	return nil
}

// issue signs a certificate for peer.
func issue(owner *Identity, peer PeerID, role wire.Role, now time.Time) *wire.Certificate {
	c := &wire.Certificate{
		Swarm:   privateID(owner.ID()),
		Peer:    peer,
		Role:    role,
		Issued:  now.Unix(),
		Expires: now.Add(CertificateLife).Unix(),
	}
	copy(c.Signature[:], owner.Sign(wire.DomainCertificate, c.SigningBytes()))
	return c
}
