package wire

import (
	"fmt"
	"time"
)

// Frame types of /starling/track/6.
const (
	TypeOffersPush  Type = 80 // peer → tracker: all of the sender's offers
	TypeOffersPull  Type = 81 // anyone → tracker
	TypeOffersReply Type = 82 // tracker → sender of either
)

// Limits of offers and of the messages that carry them.
const (
	MaxOfferTTL    = 10 * time.Minute // longer lives are cut to this on receipt
	MaxOwnOffers   = 16               // offers of one peer
	MaxOffersReply = 200              // offers in one reply
	MaxSwarmID     = 64               // text form of a swarm ID
	MaxModelName   = 128
	MaxAddrs       = 8    // addresses in an offer or invite
	MaxAddr        = 256  // text form of a multiaddr
	MaxTrust       = 64   // name of a trust class
	MaxOfferLinks  = 16   // measured links in an offer
	signatureBytes = 64   // Ed25519
	MaxLayers      = 1023 // layers of a model whose holders are told apart
	MaxHeld        = (MaxLayers + 1 + 7) / 8
	minOfferBytes  = 265 // every field of an offer at its shortest
	minLinkBytes   = 22  // … of a link
)

// DomainOffer separates offers from the other things that a peer's key signs.
const DomainOffer = "starling/offer/6"

// Offer says what one peer holds of one model and how fast it is. It is signed
// by Peer over SigningBytes; the layer range is half open.
type Offer struct {
	Swarm     string // the swarm it is made in
	Peer      string
	Seq       uint64 // grows with every offer of this peer
	TTL       uint32 // seconds; counts from receipt, at most MaxOfferTTL is believed
	Model     [32]byte
	ModelName string
	First     uint32
	Last      uint32
	// ClaimFirst and ClaimLast are layers that the peer is about to compute, and fetches now; equal: none.
	ClaimFirst uint32
	ClaimLast  uint32
	Held       []byte   // whose bytes are seeded: bit i%8 of byte i/8 is layer i, the one behind the last layer all other bytes; empty: not told
	Embed      bool     // holds the token embedding
	Head       bool     // holds the output head
	NoDecode   bool     // won't be a decoder
	Draft      [32]byte // model that guesses for this one where the peer decodes; zero: none
	Profile    [32]byte // numerics profile without rounding
	KVTypes    uint8    // in which it can compute instead: bit i says type i of Numerics
	SeamTypes  uint8
	Trust      string // trust class that the peer claims

	PrefillFlops      float64 // FLOP/s over many tokens
	DecodeBytesPerSec float64 // weight bytes per second for one token
	UpBytesPerSec     float64
	DownBytesPerSec   float64
	KVFreeBytes       int64
	Context           uint32  // longest context in tokens
	Load              float64 // 0 idle, 1 full

	Links     []OfferLink // to Peer, as it has measured them lately
	Addrs     []string    // multiaddrs without /p2p
	Signature [signatureBytes]byte
}

// OfferLink is the way from one peer to the maker of an offer.
type OfferLink struct {
	From        string
	RTTMicros   uint32  // round trip; 0: not measured
	BytesPerSec float64 // that came of large frames; 0: not measured
	Samples     uint32  // how many frames that says, at most those of late
	Age         uint32  // seconds since the latest of them came
}

func (l *OfferLink) encode(e *Encoder) {
	e.String(l.From)
	e.U32(l.RTTMicros)
	e.F64(l.BytesPerSec)
	e.U32(l.Samples)
	e.U32(l.Age)
}

func (l *OfferLink) decode(d *Decoder) {
	l.From = d.String(MaxPeerID)
	l.RTTMicros = d.U32()
	l.BytesPerSec = decodeRate(d)
	l.Samples = d.U32()
	l.Age = d.U32()
}

// SigningBytes returns what Signature covers: every other field, encoded.
func (o *Offer) SigningBytes() []byte {
	var e Encoder
	o.encodeUnsigned(&e)
	return e.Data()
}

func (o *Offer) encodeUnsigned(e *Encoder) {
	e.String(o.Swarm)
	e.String(o.Peer)
	e.U64(o.Seq)
	e.U32(o.TTL)
	e.Hash(o.Model)
	e.String(o.ModelName)
	e.U32(o.First)
	e.U32(o.Last)
	e.U32(o.ClaimFirst)
	e.U32(o.ClaimLast)
	e.Bytes(o.Held)
	e.Bool(o.Embed)
	e.Bool(o.Head)
	e.Bool(o.NoDecode)
	e.Hash(o.Draft)
	e.Hash(o.Profile)
	e.U8(o.KVTypes)
	e.U8(o.SeamTypes)
	e.String(o.Trust)
	for _, v := range []float64{o.PrefillFlops, o.DecodeBytesPerSec, o.UpBytesPerSec, o.DownBytesPerSec} {
		e.F64(v)
	}
	e.I64(o.KVFreeBytes)
	e.U32(o.Context)
	e.F64(o.Load)
	e.U32(uint32(len(o.Links)))
	for i := range o.Links {
		o.Links[i].encode(e)
	}
	encodeAddrs(e, o.Addrs)
}

func (o *Offer) encode(e *Encoder) {
	o.encodeUnsigned(e)
	e.Raw(o.Signature[:])
}

func (o *Offer) decode(d *Decoder) {
	o.Swarm = d.String(MaxSwarmID)
	o.Peer = d.String(MaxPeerID)
	o.Seq = d.U64()
	o.TTL = d.U32()
	o.Model = d.Hash()
	o.ModelName = d.String(MaxModelName)
	o.First = d.U32()
	o.Last = d.U32()
	if o.First > o.Last {
		d.Fail("layer range [%d,%d) is reversed", o.First, o.Last)
	}
	o.ClaimFirst = d.U32()
	o.ClaimLast = d.U32()
	if o.ClaimFirst > o.ClaimLast {
		d.Fail("claimed layer range [%d,%d) is reversed", o.ClaimFirst, o.ClaimLast)
	}
	if held := d.Bytes(MaxHeld); len(held) > 0 {
		o.Held = held
	}
	o.Embed = d.Bool()
	o.Head = d.Bool()
	o.NoDecode = d.Bool()
	o.Draft = d.Hash()
	o.Profile = d.Hash()
	o.KVTypes = d.U8()
	o.SeamTypes = d.U8()
	o.Trust = d.String(MaxTrust)
	for _, v := range []*float64{&o.PrefillFlops, &o.DecodeBytesPerSec, &o.UpBytesPerSec, &o.DownBytesPerSec} {
		*v = decodeRate(d)
	}
	o.KVFreeBytes = d.I64()
	if o.KVFreeBytes < 0 {
		d.Fail("%d free KV bytes", o.KVFreeBytes)
	}
	o.Context = d.U32()
	o.Load = decodeRate(d)
	if n := d.Count(MaxOfferLinks, minLinkBytes); n > 0 {
		o.Links = make([]OfferLink, n)
		for i := range o.Links {
			o.Links[i].decode(d)
		}
	}
	o.Addrs = decodeAddrs(d)
	copy(o.Signature[:], d.take(signatureBytes))
}

func decodeRate(d *Decoder) float64 {
	v := d.F64()
	if v < 0 {
		d.Fail("%g is negative", v)
	}
	return v
}

func encodeAddrs(e *Encoder, addrs []string) {
	e.U32(uint32(len(addrs)))
	for _, a := range addrs {
		e.String(a)
	}
}

func decodeAddrs(d *Decoder) []string {
	n := d.Count(MaxAddrs, 2)
	if n == 0 {
		return nil
	}
	addrs := make([]string, n)
	for i := range addrs {
		addrs[i] = d.String(MaxAddr)
	}
	return addrs
}

// HeldOffer is an offer in a tracker's hands.
type HeldOffer struct {
	Remaining uint32 // seconds of its life left, by the tracker's clock
	Offer     Offer
}

// Presence is what every message of /starling/track/6 says of its sender.
type Presence struct {
	Swarm    string
	Instance uint64 // drawn at random at each start; tells two nodes with one key apart
	Lists    uint64 // tells the revocation lists held: another number, other lists; 0 without one
	Tracker  bool   // sender has the tracker role
}

func (p *Presence) encode(e *Encoder) {
	e.String(p.Swarm)
	e.U64(p.Instance)
	e.U64(p.Lists)
	e.Bool(p.Tracker)
}

func (p *Presence) decode(d *Decoder) {
	p.Swarm = d.String(MaxSwarmID)
	p.Instance = d.U64()
	p.Lists = d.U64()
	p.Tracker = d.Bool()
}

// OffersPush replaces everything that the receiver holds from the sender;
// without offers it withdraws them. Seq is the number of each offer in it.
type OffersPush struct {
	Presence
	Seq    uint64
	Offers []Offer
}

// Type implements Message.
func (*OffersPush) Type() Type { return TypeOffersPush }

func (m *OffersPush) encode(e *Encoder) {
	m.Presence.encode(e)
	e.U64(m.Seq)
	e.U32(uint32(len(m.Offers)))
	for i := range m.Offers {
		m.Offers[i].encode(e)
	}
}

func (m *OffersPush) decode(d *Decoder) {
	m.Presence.decode(d)
	m.Seq = d.U64()
	n := d.Count(MaxOwnOffers, minOfferBytes)
	if n == 0 {
		return
	}
	m.Offers = make([]Offer, n)
	for i := range m.Offers {
		m.Offers[i].decode(d)
	}
}

// OffersPull asks for up to Max offers, of one model or (Model all zero) of
// any.
type OffersPull struct {
	Presence
	Model [32]byte
	Max   uint32
}

// Type implements Message.
func (*OffersPull) Type() Type { return TypeOffersPull }

func (m *OffersPull) encode(e *Encoder) {
	m.Presence.encode(e)
	e.Hash(m.Model)
	e.U32(m.Max)
}

func (m *OffersPull) decode(d *Decoder) {
	m.Presence.decode(d)
	m.Model = d.Hash()
	m.Max = d.U32()
}

// OffersReply answers a push (without offers) or a pull.
type OffersReply struct {
	Presence
	Floor     uint64 // lowest sequence number that the receiver believes of the asker
	Conflict  bool   // another node is running with the asker's key
	Truncated bool   // more matched
	Offers    []HeldOffer
}

// Type implements Message.
func (*OffersReply) Type() Type { return TypeOffersReply }

func (m *OffersReply) encode(e *Encoder) {
	m.Presence.encode(e)
	e.U64(m.Floor)
	e.Bool(m.Conflict)
	e.Bool(m.Truncated)
	e.U32(uint32(len(m.Offers)))
	for i := range m.Offers {
		e.U32(m.Offers[i].Remaining)
		m.Offers[i].Offer.encode(e)
	}
}

func (m *OffersReply) decode(d *Decoder) {
	m.Presence.decode(d)
	m.Floor = d.U64()
	m.Conflict = d.Bool()
	m.Truncated = d.Bool()
	n := d.Count(MaxOffersReply, 4+minOfferBytes)
	if n == 0 {
		return
	}
	m.Offers = make([]HeldOffer, n)
	for i := range m.Offers {
		m.Offers[i].Remaining = d.U32()
		m.Offers[i].Offer.decode(d)
	}
}

// CheckOffer reports the first field that a receiver would refuse; senders use
// it before they sign.
func CheckOffer(o *Offer) error {
	var e Encoder
	o.encode(&e)
	d := NewDecoder(e.Data())
	var back Offer
	back.decode(d)
	if err := d.Done(); err != nil {
		return fmt.Errorf("offer: %w", err)
	}
	return nil
}
