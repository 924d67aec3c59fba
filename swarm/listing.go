package swarm

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/starling-swarm/starling/swarm/wire"
)

// Listing is what a publisher says of a model, so that it is found by name. Names are hints: the model ID alone says which bytes are
// meant.
type Listing struct {
	Publisher PeerID    // SetListings fills it in, and the next two
	Seq       uint64    // grows whenever the publisher makes its listings anew
	Expires   time.Time // at most 24 h ahead
	Model     [32]byte
	Name      string
	Family    string // of architectures
	Quant     string // the tensor type that most bytes have
	Licence   string // may be empty
	Bytes     int64
	Layers    int
}

// Words returns what names are compared by: their runs of letters and digits, in lower case.
func Words(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// Matches reports whether each word of a query begins a word of text.
func Matches(text, query string) bool { return matches(Words(text), Words(query)) }

func matches(words, query []string) bool {
	for _, q := range query {
		if !slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, q) }) {
			return false
		}
	}
	return true
}

// wordKey is under what the DHT has the publishers of models whose names have a word.
func wordKey(word string) [32]byte { return sha256.Sum256([]byte("starling/listing/1" + word)) }

// toWire makes the signed form.
func (l *Listing) toWire(swarm string, by *Identity) (wire.Listing, error) {
	if l.Layers < 1 || l.Layers > wire.MaxLayers {
		return wire.Listing{}, fmt.Errorf("listing of %q: %d layers, 1 to %d can be listed", l.Name, l.Layers, wire.MaxLayers)
	}
	w := wire.Listing{Swarm: swarm, Peer: l.Publisher, Seq: l.Seq, Expires: l.Expires.Unix(), Model: l.Model, Name: l.Name, Family: l.Family, Quant: l.Quant,
		Licence: l.Licence, Bytes: l.Bytes, Layers: uint32(l.Layers)}
	if err := wire.CheckListing(&w); err != nil {
		return wire.Listing{}, err
	}
	copy(w.Signature[:], by.Sign(wire.DomainListing, w.SigningBytes()))
	return w, nil
}

// listingFromWire is toWire's inverse; the signature was checked when w came in.
func listingFromWire(w *wire.Listing) Listing {
	return Listing{Publisher: w.Peer, Seq: w.Seq, Expires: time.Unix(w.Expires, 0), Model: w.Model, Name: w.Name, Family: w.Family, Quant: w.Quant,
		Licence: w.Licence, Bytes: w.Bytes, Layers: int(w.Layers)}
}

// verifyListing checks what makes a listing its publisher's, in this swarm.
func verifyListing(w *wire.Listing, swarm string) error {
	if w.Swarm != swarm {
		return fmt.Errorf("listing of %s is for swarm %s", w.Peer, w.Swarm)
	}
	return VerifySignature(w.Peer, wire.DomainListing, w.SigningBytes(), w.Signature[:])
}
