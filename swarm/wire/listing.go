package wire

import (
	"fmt"
	"time"
)

// Frame types of /starling/track/6 that carry listings.
const (
	TypeListingsPush  Type = 83 // publisher → tracker or peer: all of the sender's listings
	TypeListingsPull  Type = 84 // anyone → tracker or peer
	TypeListingsReply Type = 85 // tracker or peer → sender of either
)

// Limits of listings and of the messages that carry them.
const (
	MaxListingLife   = 24 * time.Hour // from now until Expires
	MaxOwnListings   = 64             // listings of one publisher
	MaxListingsReply = 200            // listings in one reply
	MaxFamily        = 64             // name of an architecture
	MaxQuant         = 32             // name of a tensor type
	MaxLicence       = 128
	MaxQuery         = 128 // words that are looked for
	minListingBytes  = 136 // every field of a listing at its shortest
)

// DomainListing separates listings from the other things that a peer's key signs.
const DomainListing = "starling/listing/1"

// Listing is what a publisher says of a model: everything but Model and Bytes is a hint. It is signed by Peer over SigningBytes.
type Listing struct {
	Swarm   string // the swarm it is made in
	Peer    string // the publisher
	Seq     uint64 // grows whenever the publisher makes its listings anew
	Expires int64  // Unix seconds; at most MaxListingLife ahead is believed

	Model   [32]byte
	Name    string // not empty
	Family  string // general.architecture
	Quant   string // the tensor type that most bytes have
	Licence string // may be empty
	Bytes   int64  // of all parts
	Layers  uint32

	Signature [signatureBytes]byte
}

// SigningBytes returns what Signature covers: every other field, encoded.
func (l *Listing) SigningBytes() []byte {
	var e Encoder
	l.encodeUnsigned(&e)
	return e.Data()
}

func (l *Listing) encodeUnsigned(e *Encoder) {
	e.String(l.Swarm)
	e.String(l.Peer)
	e.U64(l.Seq)
	e.I64(l.Expires)
	e.Hash(l.Model)
	e.String(l.Name)
	e.String(l.Family)
	e.String(l.Quant)
	e.String(l.Licence)
	e.I64(l.Bytes)
	e.U32(l.Layers)
}

func (l *Listing) encode(e *Encoder) {
	l.encodeUnsigned(e)
	e.Raw(l.Signature[:])
}

func (l *Listing) decode(d *Decoder) {
	l.Swarm = d.String(MaxSwarmID)
	l.Peer = d.String(MaxPeerID)
	l.Seq = d.U64()
	l.Expires = d.I64()
	l.Model = d.Hash()
	if l.Name = d.String(MaxModelName); l.Name == "" {
		d.Fail("a listing without a name")
	}
	l.Family = d.String(MaxFamily)
	l.Quant = d.String(MaxQuant)
	l.Licence = d.String(MaxLicence)
	if l.Bytes = d.I64(); l.Bytes <= 0 {
		d.Fail("a model of %d bytes", l.Bytes)
	}
	l.Layers = d.U32()
	if l.Layers == 0 || l.Layers > MaxLayers {
		d.Fail("%d layers, a model has 1 to %d", l.Layers, MaxLayers)
	}
	copy(l.Signature[:], d.take(signatureBytes))
}

// CheckListing reports the first field that a receiver would refuse; publishers use it before they sign.
func CheckListing(l *Listing) error {
	var e Encoder
	l.encode(&e)
	d := NewDecoder(e.Data())
	var back Listing
	back.decode(d)
	if err := d.Done(); err != nil {
		return fmt.Errorf("listing: %w", err)
	}
	return nil
}

func encodeListings(e *Encoder, list []Listing) {
	e.U32(uint32(len(list)))
	for i := range list {
		list[i].encode(e)
	}
}

func decodeListings(d *Decoder, max int) []Listing {
	n := d.Count(max, minListingBytes)
	if n == 0 {
		return nil
	}
	list := make([]Listing, n)
	for i := range list {
		list[i].decode(d)
	}
	return list
}

// ListingsPush replaces every listing of the sender that the receiver holds. Seq is the number of each listing in it.
type ListingsPush struct {
	Presence
	Seq      uint64
	Listings []Listing
}

// Type implements Message.
func (*ListingsPush) Type() Type { return TypeListingsPush }

func (m *ListingsPush) encode(e *Encoder) {
	m.Presence.encode(e)
	e.U64(m.Seq)
	encodeListings(e, m.Listings)
}

func (m *ListingsPush) decode(d *Decoder) {
	m.Presence.decode(d)
	m.Seq = d.U64()
	m.Listings = decodeListings(d, MaxOwnListings)
}

// ListingsPull asks for up to Max listings: of one model, or (Model all zero) of those that have all words of Query.
type ListingsPull struct {
	Presence
	Model [32]byte
	Query string // empty: any
	Max   uint32
}

// Type implements Message.
func (*ListingsPull) Type() Type { return TypeListingsPull }

func (m *ListingsPull) encode(e *Encoder) {
	m.Presence.encode(e)
	e.Hash(m.Model)
	e.String(m.Query)
	e.U32(m.Max)
}

func (m *ListingsPull) decode(d *Decoder) {
	m.Presence.decode(d)
	m.Model = d.Hash()
	m.Query = d.String(MaxQuery)
	m.Max = d.U32()
}

// ListingsReply answers a push (without listings) or a pull.
type ListingsReply struct {
	Presence
	Floor     uint64 // lowest number that the receiver believes of the asker
	Truncated bool   // more matched
	Listings  []Listing
}

// Type implements Message.
func (*ListingsReply) Type() Type { return TypeListingsReply }

func (m *ListingsReply) encode(e *Encoder) {
	m.Presence.encode(e)
	e.U64(m.Floor)
	e.Bool(m.Truncated)
	encodeListings(e, m.Listings)
}

func (m *ListingsReply) decode(d *Decoder) {
	m.Presence.decode(d)
	m.Floor = d.U64()
	m.Truncated = d.Bool()
	m.Listings = decodeListings(d, MaxListingsReply)
}
