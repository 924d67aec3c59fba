package swarm

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

// Role is what a member of a private swarm may do.
type Role = wire.Role

// The roles.
const (
	RoleMember    = wire.RoleMember    // everything
	RoleClient    = wire.RoleClient    // use the swarm
	RoleVolunteer = wire.RoleVolunteer // use it and serve models
	RoleTracker   = wire.RoleTracker   // use it and collect what others offer
)

// ParseRole returns the role of a name.
func ParseRole(name string) (Role, error) {
	for _, r := range wire.Roles {
		if name == r.String() {
			return r, nil
		}
	}
	return 0, fmt.Errorf("%q is not a role: use member, volunteer, tracker or client", name)
}

// errInvite is all that a stranger learns about an invite that isn't open.
var errInvite = errors.New("this invite is unknown here, used up or expired; ask for a new one")

// openInvite is the file <swarm>/invites/<SHA-256 of the secret>.json. When a
// peer redeems it the file is renamed to ….used, which only one peer can do.
type openInvite struct {
	Role    Role   `json:"role"`
	Expires int64  `json:"expires"`        // Unix seconds
	Peer    PeerID `json:"peer,omitempty"` // who redeemed it
}

// CreateInvite returns a text token with which one peer can join the swarm
// within ttl. addrs are this node's full multiaddrs; it must be running and
// reachable there when the invite is redeemed. For a private swarm it needs
// an owner's key. A public swarm's invite is only its description and
// bootstrap addresses (addrs are added), and serves any number of peers.
func (s *Swarms) CreateInvite(id string, role Role, ttl time.Duration, addrs []string) (string, error) {
	info, err := s.Load(id)
	if err != nil {
		return "", fmt.Errorf("invite: %w", err)
	}
	token := &wire.Invite{Swarm: info.ID, Name: info.Name}
	if info.Public {
		addrs = append(addrs[:len(addrs):len(addrs)], info.Bootstrap...)
	}
	if _, err := parseBootstrap(addrs); err != nil {
		return "", fmt.Errorf("invite: %w", err)
	}
	if len(addrs) == 0 {
		return "", errors.New("invite: it needs an address of this node at which the newcomer can reach it")
	}
	token.Addrs = addrs[:min(len(addrs), wire.MaxAddrs)]
	if info.Public {
		return token.String(), nil
	}
	if !role.Known() {
		return "", fmt.Errorf("invite: %v is not a role", role)
	}
	if ttl <= 0 {
		return "", fmt.Errorf("invite: a life of %v is none", ttl)
	}
	a, err := s.authority(info)
	if err == nil {
		_, err = s.owner(a)
	}
	if err != nil {
		return "", fmt.Errorf("invite: %w", err)
	}
	if _, err := rand.Read(token.Secret[:]); err != nil {
		return "", err
	}
	token.Expires = time.Now().Add(ttl).Unix()
	b, err := json.Marshal(openInvite{Role: role, Expires: token.Expires})
	if err != nil {
		return "", err
	}
	if err := s.put(info.ID, filepath.Join(inviteDir, inviteName(token.Secret)), b); err != nil {
		return "", err
	}
	return token.String(), nil
}

func inviteName(secret [wire.SecretBytes]byte) string {
	sum := sha256.Sum256(secret[:])
	return hex.EncodeToString(sum[:]) + ".json"
}

// redeem turns a secret into peer's certificate. Only the first peer succeeds;
// it may ask again while the invite lives, in case the answer got lost. Where it
// fails, told is what the peer may know, err is why.
func (m *membership) redeem(r *wire.Redeem, peer PeerID) (a *wire.Admitted, told, err error) {
	if r.Swarm != m.info.ID {
		return nil, errInvite, fmt.Errorf("%s has one of another swarm", peer)
	}
	o, err := m.owner()
	if err != nil {
		return nil, errors.New("this node doesn't admit new members; ask the node that made the invite"), err
	}
	if err := m.bars(peer); err != nil {
		return nil, errors.New("your peer ID was revoked; join with another identity"), err
	}
	m.redeeming.Lock()
	invite, err := m.store.useInvite(m.info.ID, r.Secret, peer, time.Now())
	m.redeeming.Unlock()
	if err != nil {
		return nil, errInvite, fmt.Errorf("of %s: %w", peer, err)
	}
	c := o.issue(peer, invite.Role, time.Now())
	if err := m.store.record(c); err != nil {
		return nil, errors.New("this node can't admit you now; ask again later"), err
	}
	return &wire.Admitted{
		Name:        m.info.Name,
		Owner:       m.info.Owner,
		Bootstrap:   m.info.Bootstrap[:min(len(m.info.Bootstrap), wire.MaxAddrs)],
		Certificate: *c,
		Lists:       m.newer(nil),
	}, nil, nil
}

// useInvite marks the invite as peer's.
func (s *Swarms) useInvite(id string, secret [wire.SecretBytes]byte, peer PeerID, now time.Time) (*openInvite, error) {
	open, err := s.path(id, inviteDir, inviteName(secret))
	if err != nil {
		return nil, err
	}
	used := open + ".used"
	invite, err := readInvite(open)
	first := err == nil
	if errors.Is(err, fs.ErrNotExist) {
		invite, err = readInvite(used)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("its secret is of no invite made here")
	case err != nil:
		return nil, err
	case invite.Expires <= now.Unix():
		return nil, fmt.Errorf("it ran out at %s", time.Unix(invite.Expires, 0).UTC().Format(time.RFC3339))
	case !first && invite.Peer != peer:
		return nil, fmt.Errorf("it was spent by %s", invite.Peer)
	case !first:
		return invite, nil
	}
	// Claim it: of several that try at once, one rename succeeds.
	claim := open + "." + peer
	if err := os.Rename(open, claim); err != nil {
		return nil, errors.New("it has just been spent by another peer")
	}
	invite.Peer = peer
	b, err := json.Marshal(invite)
	if err != nil {
		return nil, err
	}
	if err := replaceFile(used, b, 0o600); err != nil {
		return nil, err
	}
	os.Remove(claim)
	return invite, nil
}

func readInvite(path string) (*openInvite, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	i := new(openInvite)
	if err := json.Unmarshal(b, i); err != nil {
		return nil, fmt.Errorf("invite %s: %w", path, err)
	}
	return i, nil
}
