package swarm

import (
	"fmt"
	"math"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

// DefaultOfferTTL is an offer's life if its maker doesn't say. It isn't what keeps ghosts away: offers of peers whose last connection
// is gone don't count.
const DefaultOfferTTL = wire.MaxOfferTTL

// Offer says what one peer holds of one model, how fast it is and how much
// room it has. Offers are hints: speeds are for the reader to check.
type Offer struct {
	Peer      PeerID        // who made it; SetOffers fills it in
	Seq       uint64        // newer offers have higher numbers; SetOffers fills it in
	TTL       time.Duration // life from receipt, at most 10 minutes
	Model     [32]byte      // model ID
	ModelName string        // for people
	First     int           // layers [First, Last)
	Last      int
	// ClaimFirst and ClaimLast are layers [ClaimFirst, ClaimLast) that the peer is about to compute, and fetches now; equal: none.
	ClaimFirst int
	ClaimLast  int
	Held       []byte   // whose bytes are seeded, see wire.Offer; empty: not told
	Embed      bool     // has the token embedding
	Head       bool     // has the output head
	NoDecode   bool     // won't be a decoder
	Draft      [32]byte // model that guesses for this one where the peer decodes; zero: none
	Profile    [32]byte // numerics profile without rounding
	KVTypes    uint8    // sets of what else it can compute with, see wire.Offer
	SeamTypes  uint8
	Trust      string // trust class that the peer claims

	PrefillFlops      float64 // FLOP/s over many tokens
	DecodeBytesPerSec float64 // weight bytes per second for one token
	UpBytesPerSec     float64
	DownBytesPerSec   float64
	KVFreeBytes       int64
	Context           int     // longest context in tokens
	Load              float64 // 0 idle, 1 full

	Links []Link   // to Peer, as it has measured them lately
	Addrs []string // multiaddrs without /p2p; SetOffers fills them in
}

// Link is what a peer has measured of the way from another one to itself.
type Link struct {
	From        PeerID
	RTT         time.Duration // 0: not measured
	BytesPerSec float64       // 0: not measured
	Samples     int           // how many frames BytesPerSec rests on
	Age         time.Duration // since the latest of them, when the offer was made
}

// toWire makes the signed form.
func (o *Offer) toWire(swarm string, by *Identity) (wire.Offer, error) {
	if o.First < 0 || o.Last < o.First || o.Last > 1<<16 || o.Context < 0 {
		return wire.Offer{}, fmt.Errorf("offer: layers [%d,%d) with context %d make no sense", o.First, o.Last, o.Context)
	}
	if o.ClaimFirst < 0 || o.ClaimLast < o.ClaimFirst || o.ClaimLast > 1<<16 {
		return wire.Offer{}, fmt.Errorf("offer: a claim of layers [%d,%d) makes no sense", o.ClaimFirst, o.ClaimLast)
	}
	w := wire.Offer{
		Swarm: swarm, Peer: o.Peer, Seq: o.Seq, TTL: uint32(o.TTL / time.Second),
		Model: o.Model, ModelName: o.ModelName, First: uint32(o.First), Last: uint32(o.Last), ClaimFirst: uint32(o.ClaimFirst), ClaimLast: uint32(o.ClaimLast), Held: o.Held,
		Embed: o.Embed, Head: o.Head, NoDecode: o.NoDecode, Draft: o.Draft, Profile: o.Profile, KVTypes: o.KVTypes, SeamTypes: o.SeamTypes, Trust: o.Trust,
		PrefillFlops: o.PrefillFlops, DecodeBytesPerSec: o.DecodeBytesPerSec,
		UpBytesPerSec: o.UpBytesPerSec, DownBytesPerSec: o.DownBytesPerSec,
		KVFreeBytes: o.KVFreeBytes, Context: uint32(o.Context), Load: o.Load, Addrs: o.Addrs,
	}
	for _, l := range o.Links[:min(len(o.Links), wire.MaxOfferLinks)] {
		w.Links = append(w.Links, wire.OfferLink{From: l.From, RTTMicros: uint32(min(l.RTT.Microseconds(), math.MaxUint32)), BytesPerSec: l.BytesPerSec,
			Samples: uint32(l.Samples), Age: uint32(min(l.Age/time.Second, math.MaxUint32))})
	}
	if err := wire.CheckOffer(&w); err != nil {
		return wire.Offer{}, err
	}
	copy(w.Signature[:], by.Sign(wire.DomainOffer, w.SigningBytes()))
	return w, nil
}

// fromWire is toWire's inverse; the signature was checked when w came in.
func fromWire(w *wire.Offer) Offer {
	o := Offer{
		Peer: w.Peer, Seq: w.Seq, TTL: time.Duration(w.TTL) * time.Second,
		Model: w.Model, ModelName: w.ModelName, First: int(w.First), Last: int(w.Last), ClaimFirst: int(w.ClaimFirst), ClaimLast: int(w.ClaimLast), Held: w.Held,
		Embed: w.Embed, Head: w.Head, NoDecode: w.NoDecode, Draft: w.Draft, Profile: w.Profile, KVTypes: w.KVTypes, SeamTypes: w.SeamTypes, Trust: w.Trust,
		PrefillFlops: w.PrefillFlops, DecodeBytesPerSec: w.DecodeBytesPerSec,
		UpBytesPerSec: w.UpBytesPerSec, DownBytesPerSec: w.DownBytesPerSec,
		KVFreeBytes: w.KVFreeBytes, Context: int(w.Context), Load: w.Load, Addrs: w.Addrs,
	}
	for _, l := range w.Links {
		o.Links = append(o.Links, Link{From: l.From, RTT: time.Duration(l.RTTMicros) * time.Microsecond, BytesPerSec: l.BytesPerSec,
			Samples: int(l.Samples), Age: time.Duration(l.Age) * time.Second})
	}
	return o
}

// verifyOffer checks what makes an offer its peer's, in this swarm.
func verifyOffer(w *wire.Offer, swarm string) error {
	if w.Swarm != swarm {
		return fmt.Errorf("offer of %s is for swarm %s", w.Peer, w.Swarm)
	}
	return VerifySignature(w.Peer, wire.DomainOffer, w.SigningBytes(), w.Signature[:])
}
