package wire

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
)

// Frame types of /starling/join/2, and those that spread a private swarm's
// revocation lists over /starling/track/6.
const (
	TypeHello           Type = 90 // dialler → listener: its certificate
	TypeRedeem          Type = 91 // dialler → listener: an invite's secret
	TypeWelcome         Type = 92 // listener → dialler: its certificate
	TypeAdmitted        Type = 93 // listener → dialler: invite accepted
	TypeJoinRefused     Type = 94 // listener → dialler
	TypeListPull        Type = 95 // member → member
	TypeRevocationLists Type = 96 // member → member
)

// Limits of membership messages.
const (
	MaxJoin      = 4 << 10 // everything a peer may send before it is a member
	MaxRevoked   = 8192    // peers in a revocation list
	MaxOwners    = 16      // of a swarm, beside its founder
	MaxLists     = 1 + MaxOwners
	MaxInvite    = 4 << 10 // text of an invite
	MaxSwarmName = 64
	SecretBytes  = 16 // an invite's secret
)

// Domains of the owner keys' signatures.
const (
	DomainCertificate = "starling/certificate/1"
	DomainRevocation  = "starling/revocation/1"
	DomainDelegation  = "starling/delegation/1"
)

// Delegation makes the peer Owner another owner of a private swarm: with its
// peer key it signs certificates and a revocation list of its own. The swarm's
// founder signs SigningBytes. It counts unless a list of the founder with this
// number or a higher one doesn't name Owner.
type Delegation struct {
	Owner     string
	Seq       uint64 // of the founder's list that named it first
	Signature [signatureBytes]byte
}

// minDelegationBytes is the size of the shortest delegation.
const minDelegationBytes = 2 + 8 + signatureBytes

// SigningBytes returns what Signature covers in a swarm.
func (g *Delegation) SigningBytes(swarm string) []byte {
	var e Encoder
	e.String(swarm)
	e.String(g.Owner)
	e.U64(g.Seq)
	return e.Data()
}

func (g *Delegation) encode(e *Encoder) {
	e.String(g.Owner)
	e.U64(g.Seq)
	e.Raw(g.Signature[:])
}

func (g *Delegation) decode(d *Decoder) {
	g.Owner = d.String(MaxPeerID)
	g.Seq = d.U64()
	copy(g.Signature[:], d.take(signatureBytes))
}

// encodeBy writes who signed what comes before: the founder (nil), or an owner by delegation.
func encodeBy(e *Encoder, by *Delegation) {
	e.Bool(by != nil)
	if by != nil {
		by.encode(e)
	}
}

func decodeBy(d *Decoder) *Delegation {
	if !d.Bool() {
		return nil
	}
	by := new(Delegation)
	by.decode(d)
	return by
}

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

// Certificate makes Peer a member of a private swarm. One of the swarm's owners
// signs SigningBytes. Times are Unix seconds.
type Certificate struct {
	Swarm     string
	Peer      string
	Role      Role
	Issued    int64
	Expires   int64
	Signature [signatureBytes]byte
	By        *Delegation // of who signed; nil: the swarm's founder
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
	encodeBy(e, c.By)
}

func (c *Certificate) decode(d *Decoder) {
	c.decodeSigned(d)
	c.By = decodeBy(d)
}

// decodeSigned reads all but By.
func (c *Certificate) decodeSigned(d *Decoder) {
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

// ParseCertificate reads what Data returned, and what it did when there were founders only: then nothing follows the signature.
func ParseCertificate(b []byte) (*Certificate, error) {
	d, c := NewDecoder(b), new(Certificate)
	c.decodeSigned(d)
	if d.Len() > 0 {
		c.By = decodeBy(d)
	}
	if err := d.Done(); err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return c, nil
}

// RevocationList is what one owner of a private swarm last said of it. It names
// the peers whose certificates no longer count, whatever they say; the
// founder's also names the other owners. Of two lists of an owner the one with
// the higher Seq counts; of several owners' lists, all. The owner signs
// SigningBytes.
type RevocationList struct {
	Swarm     string
	Seq       uint64
	Issued    int64 // Unix seconds
	Peers     []string
	Signature [signatureBytes]byte
	Owners    []Delegation // in the founder's list only; signed, too
	By        *Delegation  // of who signed; nil: the swarm's founder
}

// minListBytes is the size of the shortest list.
const minListBytes = 2 + 8 + 8 + 4 + signatureBytes + 4 + 1

// SigningBytes returns what Signature covers. A list without owners is signed as lists were before there could be any.
func (l *RevocationList) SigningBytes() []byte {
	var e Encoder
	l.encodeUnsigned(&e)
	if len(l.Owners) > 0 {
		l.encodeOwners(&e)
	}
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

func (l *RevocationList) encodeOwners(e *Encoder) {
	e.U32(uint32(len(l.Owners)))
	for i := range l.Owners {
		l.Owners[i].encode(e)
	}
}

func (l *RevocationList) encode(e *Encoder) {
	l.encodeUnsigned(e)
	e.Raw(l.Signature[:])
	l.encodeOwners(e)
	encodeBy(e, l.By)
}

func (l *RevocationList) decode(d *Decoder) {
	l.decodeOld(d)
	l.decodeRest(d)
}

// decodeOld reads what lists had before there were owners beside the founder.
func (l *RevocationList) decodeOld(d *Decoder) {
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

func (l *RevocationList) decodeRest(d *Decoder) {
	if n := d.Count(MaxOwners, minDelegationBytes); n > 0 {
		l.Owners = make([]Delegation, n)
		for i := range l.Owners {
			l.Owners[i].decode(d)
		}
	}
	l.By = decodeBy(d)
	if l.By != nil && len(l.Owners) > 0 {
		d.Fail("a list that isn't the founder's names owners")
	}
}

// Data returns the list's bytes as they are stored on disk.
func (l *RevocationList) Data() []byte {
	var e Encoder
	l.encode(&e)
	return e.Data()
}

// ParseRevocationList reads what Data returned, and what it did when there were founders only: then nothing follows the signature.
func ParseRevocationList(b []byte) (*RevocationList, error) {
	d, l := NewDecoder(b), new(RevocationList)
	l.decodeOld(d)
	if d.Len() > 0 {
		l.decodeRest(d)
	}
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
	Lists       uint64 // tells the revocation lists held, as in Presence
	Certificate Certificate
}

// Type implements Message.
func (*Hello) Type() Type { return TypeHello }

func (m *Hello) encode(e *Encoder) {
	e.U64(m.Lists)
	m.Certificate.encode(e)
}

func (m *Hello) decode(d *Decoder) {
	m.Lists = d.U64()
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
	Lists       uint64       // as in Hello
	Certificate Certificate  // the listener's
	Renewed     *Certificate // a fresh one for the dialler, if its own runs out soon
}

// Type implements Message.
func (*Welcome) Type() Type { return TypeWelcome }

func (m *Welcome) encode(e *Encoder) {
	e.U64(m.Lists)
	m.Certificate.encode(e)
	e.Bool(m.Renewed != nil)
	if m.Renewed != nil {
		m.Renewed.encode(e)
	}
}

func (m *Welcome) decode(d *Decoder) {
	m.Lists = d.U64()
	m.Certificate.decode(d)
	if d.Bool() {
		m.Renewed = new(Certificate)
		m.Renewed.decode(d)
	}
}

// Admitted answers Redeem.
type Admitted struct {
	Name        string // of the swarm
	Owner       string // peer ID of the founder's key
	Bootstrap   []string
	Certificate Certificate
	Lists       []RevocationList // those held, the founder's first; none if nobody was ever revoked
}

// Type implements Message.
func (*Admitted) Type() Type { return TypeAdmitted }

func (m *Admitted) encode(e *Encoder) {
	e.String(m.Name)
	e.String(m.Owner)
	encodeAddrs(e, m.Bootstrap)
	m.Certificate.encode(e)
	encodeLists(e, m.Lists)
}

func (m *Admitted) decode(d *Decoder) {
	m.Name = d.String(MaxSwarmName)
	m.Owner = d.String(MaxPeerID)
	m.Bootstrap = decodeAddrs(d)
	m.Certificate.decode(d)
	m.Lists = decodeLists(d)
}

// JoinRefused says why the listener cuts the connection.
type JoinRefused struct{ Text string }

// Type implements Message.
func (*JoinRefused) Type() Type { return TypeJoinRefused }

// Error returns the text.
func (m *JoinRefused) Error() string { return m.Text }

func (m *JoinRefused) encode(e *Encoder) { e.String(cut(m.Text, MaxText)) }
func (m *JoinRefused) decode(d *Decoder) { m.Text = d.String(MaxText) }

// ListHeld is the number of the list that a peer holds of an owner.
type ListHeld struct {
	Owner string // its key's peer ID
	Seq   uint64
}

// ListPull asks for revocation lists that are newer than those held.
type ListPull struct {
	Presence
	Held []ListHeld
}

// Type implements Message.
func (*ListPull) Type() Type { return TypeListPull }

func (m *ListPull) encode(e *Encoder) {
	m.Presence.encode(e)
	e.U32(uint32(len(m.Held)))
	for _, h := range m.Held {
		e.String(h.Owner)
		e.U64(h.Seq)
	}
}

func (m *ListPull) decode(d *Decoder) {
	m.Presence.decode(d)
	if n := d.Count(MaxLists, 2+8); n > 0 {
		m.Held = make([]ListHeld, n)
		for i := range m.Held {
			m.Held[i] = ListHeld{d.String(MaxPeerID), d.U64()}
		}
	}
}

// RevocationLists spreads lists that are news, or answers ListPull. Lists that don't fit are left out.
type RevocationLists struct{ Lists []RevocationList }

// Type implements Message.
func (*RevocationLists) Type() Type { return TypeRevocationLists }

func (m *RevocationLists) encode(e *Encoder) { encodeLists(e, m.Lists) }
func (m *RevocationLists) decode(d *Decoder) { m.Lists = decodeLists(d) }

func encodeLists(e *Encoder, lists []RevocationList) {
	e.U32(uint32(len(lists)))
	for i := range lists {
		lists[i].encode(e)
	}
}

func decodeLists(d *Decoder) []RevocationList {
	n := d.Count(MaxLists, minListBytes)
	if n == 0 {
		return nil
	}
	lists := make([]RevocationList, n)
	for i := range lists {
		lists[i].decode(d)
	}
	return lists
}
