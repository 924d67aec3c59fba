package wire

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
)

// Frame types of /starling/join/1, and those that spread a private swarm's
// revocation list over /starling/track/5.
const (
	TypeHello          Type = 90 // dialler → listener: its certificate
	TypeRedeem         Type = 91 // dialler → listener: an invite's secret
	TypeWelcome        Type = 92 // listener → dialler: its certificate
	TypeAdmitted       Type = 93 // listener → dialler: invite accepted
	TypeJoinRefused    Type = 94 // listener → dialler
	TypeListPull       Type = 95 // member → member
	TypeRevocationList Type = 96 // member → member
)

// Limits of membership messages.
const (
	MaxJoin      = 4 << 10 // everything a peer may send before it is a member
	MaxRevoked   = 8192    // peers in a revocation list
	MaxInvite    = 4 << 10 // text of an invite
	MaxSwarmName = 64
	SecretBytes  = 16 // an invite's secret
)

// Domains of the owner key's signatures.
const (
	DomainCertificate = "starling/certificate/1"
	DomainRevocation  = "starling/revocation/1"
)

// Role is what a member may do in a private swarm.
type Role uint8

// The roles.
const (
	RoleMember    Role = 1 // everything
	RoleClient    Role = 2 // use the swarm
	RoleVolunteer Role = 3 // use it and serve models
	RoleTracker   Role = 4 // use it and collect what others offer
)

// Roles are all of them, from the one that may do most.
var Roles = []Role{RoleMember, RoleVolunteer, RoleTracker, RoleClient}

// String returns the role's name.
func (r Role) String() string {
	switch r {
	case RoleMember:
		return "member"
	case RoleClient:
		return "client"
	case RoleVolunteer:
		return "volunteer"
	case RoleTracker:
		return "tracker"
	}
	return fmt.Sprintf("role %d", uint8(r))
}

// Known reports whether r is a role.
func (r Role) Known() bool { return r >= RoleMember && r <= RoleTracker }

// Serves reports whether offers and listings of r count.
func (r Role) Serves() bool { return r == RoleMember || r == RoleVolunteer }

// Tracks reports whether r is believed to be a tracker.
func (r Role) Tracks() bool { return r == RoleMember || r == RoleTracker }

// Certificate makes Peer a member of a private swarm. The swarm's owner key
// signs SigningBytes. Times are Unix seconds.
type Certificate struct {
	Swarm     string
	Peer      string
	Role      Role
	Issued    int64
	Expires   int64
	Signature [signatureBytes]byte
}

// SigningBytes returns what Signature covers.
func (c *Certificate) SigningBytes() []byte {
	var e Encoder
	c.encodeUnsigned(&e)
	return e.Data()
}

func (c *Certificate) encodeUnsigned(e *Encoder) {
	e.String(c.Swarm)
	e.String(c.Peer)
	e.U8(uint8(c.Role))
	e.I64(c.Issued)
	e.I64(c.Expires)
}

func (c *Certificate) encode(e *Encoder) {
	c.encodeUnsigned(e)
	e.Raw(c.Signature[:])
}

func (c *Certificate) decode(d *Decoder) {
	c.Swarm = d.String(MaxSwarmID)
	c.Peer = d.String(MaxPeerID)
	c.Role = Role(d.U8())
	if !c.Role.Known() {
		d.Fail("unknown role %d", c.Role)
	}
	c.Issued = d.I64()
	c.Expires = d.I64()
	copy(c.Signature[:], d.take(signatureBytes))
}

// Data returns the certificate's bytes as they are stored on disk.
func (c *Certificate) Data() []byte {
	var e Encoder
	c.encode(&e)
	return e.Data()
}

// ParseCertificate reads what Data returned.
func ParseCertificate(b []byte) (*Certificate, error) {
	d, c := NewDecoder(b), new(Certificate)
	c.decode(d)
	if err := d.Done(); err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return c, nil
}

// RevocationList names the peers whose certificates no longer count, whatever
// they say. Of two lists of a swarm the one with the higher Seq counts. The
// owner key signs SigningBytes.
type RevocationList struct {
	Swarm     string
	Seq       uint64
	Issued    int64 // Unix seconds
	Peers     []string
	Signature [signatureBytes]byte
}

// Type implements Message.
func (*RevocationList) Type() Type { return TypeRevocationList }

// SigningBytes returns what Signature covers.
func (l *RevocationList) SigningBytes() []byte {
	var e Encoder
	l.encodeUnsigned(&e)
	return e.Data()
}

func (l *RevocationList) encodeUnsigned(e *Encoder) {
	e.String(l.Swarm)
	e.U64(l.Seq)
	e.I64(l.Issued)
	e.U32(uint32(len(l.Peers)))
	for _, p := range l.Peers {
		e.String(p)
	}
}

func (l *RevocationList) encode(e *Encoder) {
	l.encodeUnsigned(e)
	e.Raw(l.Signature[:])
}

func (l *RevocationList) decode(d *Decoder) {
	l.Swarm = d.String(MaxSwarmID)
	l.Seq = d.U64()
	l.Issued = d.I64()
	if n := d.Count(MaxRevoked, 2); n > 0 {
		l.Peers = make([]string, n)
		for i := range l.Peers {
			l.Peers[i] = d.String(MaxPeerID)
		}
	}
	copy(l.Signature[:], d.take(signatureBytes))
}

// Data returns the list's bytes as they are stored on disk.
func (l *RevocationList) Data() []byte {
	var e Encoder
	l.encode(&e)
	return e.Data()
}

// ParseRevocationList reads what Data returned.
func ParseRevocationList(b []byte) (*RevocationList, error) {
	d, l := NewDecoder(b), new(RevocationList)
	l.decode(d)
	if err := d.Done(); err != nil {
		return nil, fmt.Errorf("revocation list: %w", err)
	}
	return l, nil
}

// Invite is a text token that lets one peer join a swarm. A public swarm's
// invite has no secret and any number of peers may use it.
type Invite struct {
	Swarm   string
	Name    string
	Addrs   []string // of the issuer (private) or of bootstrap nodes: full multiaddrs
	Secret  [SecretBytes]byte
	Expires int64 // Unix seconds, 0 for never
}

const (
	invitePrefix  = "starling-invite-"
	inviteVersion = 1
	inviteSum     = 4 // bytes of SHA-256 that catch typing errors
)

var inviteText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// String returns the token.
func (i *Invite) String() string {
	var e Encoder
	e.U8(inviteVersion)
	e.String(i.Swarm)
	e.String(i.Name)
	encodeAddrs(&e, i.Addrs)
	e.Raw(i.Secret[:])
	e.I64(i.Expires)
	return sealInvite(e.Data())
}

// sealInvite appends the checksum to b and makes text of it.
func sealInvite(b []byte) string {
	sum := sha256.Sum256(b)
	return invitePrefix + inviteText.EncodeToString(append(b[:len(b):len(b)], sum[:inviteSum]...))
}

// ParseInvite reads a token. Surrounding space is ignored.
func ParseInvite(s string) (*Invite, error) {
	s = strings.TrimSpace(s)
	body, ok := strings.CutPrefix(s, invitePrefix)
	if !ok {
		return nil, fmt.Errorf("invite: %w: it doesn't start with %q", ErrFormat, invitePrefix)
	}
	if len(body) > MaxInvite {
		return nil, fmt.Errorf("invite: %w: %d characters exceed the limit of %d", ErrFormat, len(body), MaxInvite)
	}
	b, err := inviteText.DecodeString(body)
	if err != nil || len(b) < inviteSum || inviteText.EncodeToString(b) != body {
		return nil, fmt.Errorf("invite: %w: it is damaged; copy it again as a whole", ErrFormat)
	}
	b, tail := b[:len(b)-inviteSum], b[len(b)-inviteSum:]
	if sum := sha256.Sum256(b); string(sum[:inviteSum]) != string(tail) {
		return nil, fmt.Errorf("invite: %w: its checksum is wrong; copy it again as a whole", ErrFormat)
	}
	d, i := NewDecoder(b), new(Invite)
	if v := d.U8(); d.Err() == nil && v != inviteVersion {
		return nil, fmt.Errorf("invite: version %d is not known to this program", v)
	}
	i.Swarm = d.String(MaxSwarmID)
	i.Name = d.String(MaxSwarmName)
	i.Addrs = decodeAddrs(d)
	copy(i.Secret[:], d.take(SecretBytes))
	i.Expires = d.I64()
	if err := d.Done(); err != nil {
		return nil, fmt.Errorf("invite: %w", err)
	}
	return i, nil
}

// Hello presents the dialler's certificate.
type Hello struct {
	ListSeq     uint64 // newest revocation list held
	Certificate Certificate
}

// Type implements Message.
func (*Hello) Type() Type { return TypeHello }

func (m *Hello) encode(e *Encoder) {
	e.U64(m.ListSeq)
	m.Certificate.encode(e)
}

func (m *Hello) decode(d *Decoder) {
	m.ListSeq = d.U64()
	m.Certificate.decode(d)
}

// Redeem asks for a certificate in exchange for an invite's secret.
type Redeem struct {
	Swarm  string
	Secret [SecretBytes]byte
}

// Type implements Message.
func (*Redeem) Type() Type { return TypeRedeem }

func (m *Redeem) encode(e *Encoder) {
	e.String(m.Swarm)
	e.Raw(m.Secret[:])
}

func (m *Redeem) decode(d *Decoder) {
	m.Swarm = d.String(MaxSwarmID)
	copy(m.Secret[:], d.take(SecretBytes))
}

// Welcome answers Hello: the dialler is a member here, and so is the listener.
type Welcome struct {
	ListSeq     uint64
	Certificate Certificate  // the listener's
	Renewed     *Certificate // a fresh one for the dialler, if its own runs out soon
}

// Type implements Message.
func (*Welcome) Type() Type { return TypeWelcome }

func (m *Welcome) encode(e *Encoder) {
	e.U64(m.ListSeq)
	m.Certificate.encode(e)
	e.Bool(m.Renewed != nil)
	if m.Renewed != nil {
		m.Renewed.encode(e)
	}
}

func (m *Welcome) decode(d *Decoder) {
	m.ListSeq = d.U64()
	m.Certificate.decode(d)
	if d.Bool() {
		m.Renewed = new(Certificate)
		m.Renewed.decode(d)
	}
}

// Admitted answers Redeem.
type Admitted struct {
	Name        string // of the swarm
	Owner       string // peer ID of the owner key
	Bootstrap   []string
	Certificate Certificate
	List        *RevocationList // nil if nobody was ever revoked
}

// Type implements Message.
func (*Admitted) Type() Type { return TypeAdmitted }

func (m *Admitted) encode(e *Encoder) {
	e.String(m.Name)
	e.String(m.Owner)
	encodeAddrs(e, m.Bootstrap)
	m.Certificate.encode(e)
	e.Bool(m.List != nil)
	if m.List != nil {
		m.List.encode(e)
	}
}

func (m *Admitted) decode(d *Decoder) {
	m.Name = d.String(MaxSwarmName)
	m.Owner = d.String(MaxPeerID)
	m.Bootstrap = decodeAddrs(d)
	m.Certificate.decode(d)
	if d.Bool() {
		m.List = new(RevocationList)
		m.List.decode(d)
	}
}

// JoinRefused says why the listener cuts the connection.
type JoinRefused struct{ Text string }

// Type implements Message.
func (*JoinRefused) Type() Type { return TypeJoinRefused }

// Error returns the text.
func (m *JoinRefused) Error() string { return m.Text }

func (m *JoinRefused) encode(e *Encoder) { e.String(cut(m.Text, MaxText)) }
func (m *JoinRefused) decode(d *Decoder) { m.Text = d.String(MaxText) }

// ListPull asks for the newest revocation list.
type ListPull struct{ Presence }

// Type implements Message.
func (*ListPull) Type() Type { return TypeListPull }

func (m *ListPull) encode(e *Encoder) { m.Presence.encode(e) }
func (m *ListPull) decode(d *Decoder) { m.Presence.decode(d) }
