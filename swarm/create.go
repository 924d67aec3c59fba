package swarm

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

// CertificateLife is how long a membership certificate counts. Owners' nodes
// renew a member's certificate, unasked, when they meet and less than a quarter
// is left, less than an eighth where the owner isn't the founder.
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
	founder := Ephemeral()
	i := &Info{ID: privateID(founder.ID()), Name: name, Owner: founder.ID(), Bootstrap: bootstrap}
	if err := i.check(); err != nil {
		return nil, fmt.Errorf("create swarm: %w", err)
	}
	if err := store.put(i.ID, ownerFile, founder.private.Seed()); err != nil {
		return nil, err
	}
	cert := (&owner{swarm: i.ID, key: founder}).issue(self.ID(), wire.RoleMember, time.Now())
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
