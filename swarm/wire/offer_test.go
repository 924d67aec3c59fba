package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

func sampleOffer() Offer {
	o := Offer{
		Swarm: "pub-x", Peer: "P", Seq: 0x0102030405060708, TTL: 180,
		Model: [32]byte{0xaa}, ModelName: "smoke", First: 2, Last: 9, ClaimFirst: 3, ClaimLast: 7, Held: []byte{0xfc, 1}, Embed: true, NoDecode: true,
		Draft: [32]byte{0xdd}, Profile: [32]byte{0xbb}, KVTypes: 5, SeamTypes: 15, Trust: "any", PrefillFlops: 1, DecodeBytesPerSec: 2, UpBytesPerSec: 0.5, DownBytesPerSec: 0,
		KVFreeBytes: 1 << 32, Context: 2048, Load: 0.25, Links: []OfferLink{{"Q", 3, 0.5, 4, 5}}, Addrs: []string{"/a", "/bc"},
	}
	for i := range o.Signature {
		o.Signature[i] = byte(i)
	}
	return o
}

func sampleListing() Listing {
	return Listing{Swarm: "pub-x", Peer: "P", Seq: 0x0102030405060708, Expires: 10_000_000, Model: [32]byte{0xaa}, Name: "smoke", Family: "llama", Quant: "Q4_1",
		Licence: "mit", Bytes: 1 << 28, Layers: 9, Signature: sampleOffer().Signature}
}

func samplePresence() Presence {
	return Presence{Swarm: "pub-x", Instance: 7, Lists: 3, Tracker: true}
}

func sampleCertificate() Certificate {
	c := Certificate{Swarm: "prv-x", Peer: "P", Role: RoleClient, Issued: 1, Expires: 2}
	c.Signature[0], c.Signature[63] = 0xcc, 0xdd
	return c
}

func sampleDelegation() *Delegation {
	return &Delegation{Owner: "Q", Seq: 6, Signature: [64]byte{0xee}}
}

// sampleLists has the founder's list, that of another owner, and an empty one.
func sampleLists() []RevocationList {
	return []RevocationList{
		{Swarm: "prv-x", Seq: 4, Issued: 5, Peers: []string{"A", "B"}, Signature: [64]byte{1}, Owners: []Delegation{*sampleDelegation()}},
		{Swarm: "prv-x", Seq: 7, Issued: 8, Peers: []string{"C"}, Signature: [64]byte{2}, By: sampleDelegation()},
		{Swarm: "prv-x", Seq: 1},
	}
}

// swarmMessages has every message of types 80–99, full and empty.
func swarmMessages() map[string]Message {
	cert := sampleCertificate()
	delegated := cert
	delegated.By = sampleDelegation()
	return map[string]Message{
		"OffersPush":         &OffersPush{samplePresence(), 9, []Offer{sampleOffer(), sampleOffer()}},
		"OffersPush none":    &OffersPush{samplePresence(), 9, nil},
		"OffersPull":         &OffersPull{samplePresence(), [32]byte{1}, 200},
		"OffersReply":        &OffersReply{samplePresence(), 5, true, true, []HeldOffer{{60, sampleOffer()}}},
		"OffersReply none":   &OffersReply{Presence: samplePresence()},
		"ListingsPush":       &ListingsPush{samplePresence(), 9, []Listing{sampleListing(), sampleListing()}},
		"ListingsPush none":  &ListingsPush{samplePresence(), 9, nil},
		"ListingsPull":       &ListingsPull{samplePresence(), [32]byte{1}, "smollm2 q4", 200},
		"ListingsReply":      &ListingsReply{samplePresence(), 5, true, []Listing{sampleListing()}},
		"ListingsReply none": &ListingsReply{Presence: samplePresence()},
		"Hello":              &Hello{3, cert},
		"Hello, delegated":   &Hello{3, delegated},
		"Redeem":             &Redeem{"prv-x", [SecretBytes]byte{1, 2, 3}},
		"Welcome":            &Welcome{3, cert, nil},
		"Welcome renewed":    &Welcome{3, cert, &delegated},
		"Admitted":           &Admitted{"friends", "O", []string{"/a"}, delegated, sampleLists()},
		"Admitted, no list":  &Admitted{"friends", "O", nil, cert, nil},
		"JoinRefused":        &JoinRefused{"no"},
		"ListPull":           &ListPull{samplePresence(), []ListHeld{{"O", 4}, {"Q", 7}}},
		"ListPull, none":     &ListPull{Presence: samplePresence()},
		"RevocationLists":    &RevocationLists{sampleLists()},
		"Lists, none":        &RevocationLists{},
	}
}

func TestSwarmMessages(t *testing.T) {
	for name, m := range swarmMessages() {
		frame := Append(nil, m)
		back, err := Read(bytes.NewReader(frame))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !reflect.DeepEqual(back, m) {
			t.Errorf("%s: came back as %+v, was %+v", name, back, m)
		}
		// Every cut, and every surplus byte, is an error.
		body := frame[5:]
		for n := range len(body) {
			if _, err := Decode(m.Type(), body[:n]); !errors.Is(err, ErrFormat) {
				t.Errorf("%s cut to %d of %d bytes: %v", name, n, len(body), err)
			}
		}
		if _, err := Decode(m.Type(), append(body[:len(body):len(body)], 0)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s with a surplus byte: %v", name, err)
		}
	}
}

// The bytes of these messages are what other versions of the program sent.
func TestSwarmGolden(t *testing.T) {
	cert := "0500" + "7072762d78" + "0100" + "50" + "02" + "0100000000000000" + "0200000000000000" +
		"cc" + strings.Repeat("00", 62) + "dd" + "00"
	delegation := "0100" + "51" + "0600000000000000" + "ee" + strings.Repeat("00", 63)
	delegated := strings.TrimSuffix(cert, "00") + "01" + delegation
	presence := "0500" + "7075622d78" + "0700000000000000" + "0300000000000000" + "01"
	zeros := strings.Repeat("00", 31)
	signature := ""
	for i := range 64 {
		signature += hex.EncodeToString([]byte{byte(i)})
	}
	offer := "0500" + "7075622d78" + "0100" + "50" + "0807060504030201" + "b4000000" + "aa" + zeros + "0500" + hex.EncodeToString([]byte("smoke")) +
		"02000000" + "09000000" + "03000000" + "07000000" + "02000000fc01" + "010001" + "dd" + zeros + "bb" + zeros + "050f" + "0300" + hex.EncodeToString([]byte("any")) +
		"000000000000f03f" + "0000000000000040" + "000000000000e03f" + "0000000000000000" + "0000000001000000" + "00080000" + "000000000000d03f" +
		"01000000" + "010051" + "03000000" + "000000000000e03f" + "04000000" + "05000000" +
		"02000000" + "0200" + hex.EncodeToString([]byte("/a")) + "0300" + hex.EncodeToString([]byte("/bc")) + signature
	listing := "0500" + "7075622d78" + "0100" + "50" + "0807060504030201" + "8096980000000000" + "aa" + zeros + "0500" + hex.EncodeToString([]byte("smoke")) +
		"0500" + hex.EncodeToString([]byte("llama")) + "0400" + hex.EncodeToString([]byte("Q4_1")) + "0300" + hex.EncodeToString([]byte("mit")) + "0000001000000000" + "09000000" + signature
	lists := "03000000" +
		"0500" + "7072762d78" + "0400000000000000" + "0500000000000000" + "02000000" + "010041" + "010042" + "01" + strings.Repeat("00", 63) + "01000000" + delegation + "00" +
		"0500" + "7072762d78" + "0700000000000000" + "0800000000000000" + "01000000" + "010043" + "02" + strings.Repeat("00", 63) + "00000000" + "01" + delegation +
		"0500" + "7072762d78" + "0100000000000000" + strings.Repeat("00", 8+4+64+4+1)
	messages := swarmMessages()
	for name, want := range map[string]string{
		"OffersPush":       presence + "0900000000000000" + "02000000" + offer + offer,
		"OffersPull":       presence + "01" + zeros + "c8000000",
		"OffersReply":      presence + "0500000000000000" + "0101" + "01000000" + "3c000000" + offer,
		"ListingsPush":     presence + "0900000000000000" + "02000000" + listing + listing,
		"ListingsPull":     presence + "01" + zeros + "0a00" + hex.EncodeToString([]byte("smollm2 q4")) + "c8000000",
		"ListingsReply":    presence + "0500000000000000" + "01" + "01000000" + listing,
		"Hello":            "0300000000000000" + cert,
		"Hello, delegated": "0300000000000000" + delegated,
		"Redeem":           "0500" + "7072762d78" + "010203" + strings.Repeat("00", 13),
		"Welcome":          "0300000000000000" + cert + "00",
		"Welcome renewed":  "0300000000000000" + cert + "01" + delegated,
		"Admitted":         "0700" + hex.EncodeToString([]byte("friends")) + "01004f" + "01000000" + "02002f61" + delegated + lists,
		"JoinRefused":      "02006e6f",
		"ListPull":         presence + "02000000" + "01004f" + "0400000000000000" + "010051" + "0700000000000000",
		"RevocationLists":  lists,
	} {
		if got := hex.EncodeToString(Append(nil, messages[name])[5:]); got != want {
			t.Errorf("%s is\n%s, want\n%s", name, got, want)
		}
	}
	o := sampleOffer()
	l := sampleListing()
	if got, want := hex.EncodeToString(l.SigningBytes()), strings.TrimSuffix(listing, signature); got != want {
		t.Errorf("a listing's signature covers\n%s, want\n%s", got, want)
	}
	if got, want := hex.EncodeToString(o.SigningBytes()), strings.TrimSuffix(offer, signature); got != want {
		t.Errorf("an offer's signature covers\n%s, want\n%s", got, want)
	}
}

func TestOfferLimits(t *testing.T) {
	for name, change := range map[string]func(*Offer){
		"reversed layers":   func(o *Offer) { o.First, o.Last = 9, 2 },
		"negative speed":    func(o *Offer) { o.UpBytesPerSec = -1 },
		"infinite speed":    func(o *Offer) { o.PrefillFlops = math.Inf(1) },
		"NaN load":          func(o *Offer) { o.Load = math.NaN() },
		"negative KV":       func(o *Offer) { o.KVFreeBytes = -1 },
		"much held":         func(o *Offer) { o.Held = make([]byte, MaxHeld+1) },
		"long name":         func(o *Offer) { o.ModelName = strings.Repeat("x", MaxModelName+1) },
		"name not UTF-8":    func(o *Offer) { o.ModelName = "\xff" },
		"long swarm ID":     func(o *Offer) { o.Swarm = strings.Repeat("x", MaxSwarmID+1) },
		"long peer ID":      func(o *Offer) { o.Peer = strings.Repeat("x", MaxPeerID+1) },
		"long trust":        func(o *Offer) { o.Trust = strings.Repeat("x", MaxTrust+1) },
		"many addresses":    func(o *Offer) { o.Addrs = make([]string, MaxAddrs+1) },
		"long address":      func(o *Offer) { o.Addrs = []string{strings.Repeat("x", MaxAddr+1)} },
		"name beyond a u16": func(o *Offer) { o.ModelName = strings.Repeat("x", 1<<16+1) },
	} {
		o := sampleOffer()
		change(&o)
		if err := CheckOffer(&o); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	o := sampleOffer()
	if err := CheckOffer(&o); err != nil {
		t.Error(err)
	}
	var e Encoder
	new(Offer).encode(&e)
	if len(e.Data()) != minOfferBytes {
		t.Errorf("the shortest offer has %d bytes, minOfferBytes is %d", len(e.Data()), minOfferBytes)
	}
	if MaxOfferTTL != 10*time.Minute {
		t.Error("DESIGN §7 allows an offer ten minutes")
	}
}

// Counts beyond the limits or the bytes at hand cost nothing.
func TestSwarmCountsAreChecked(t *testing.T) {
	many := func(m Message, at int, n uint32) []byte {
		b := Append(nil, m)[5:]
		b[at], b[at+1], b[at+2], b[at+3] = byte(n), byte(n>>8), byte(n>>16), byte(n>>24)
		return b
	}
	push, lists := &OffersPush{Presence: Presence{Swarm: "s"}}, &RevocationLists{}
	one, pull := &RevocationLists{[]RevocationList{{Swarm: "s"}}}, &ListPull{Presence: Presence{Swarm: "s"}}
	listings := &ListingsPush{Presence: Presence{Swarm: "s"}}
	allocs := testing.AllocsPerRun(10, func() {
		for _, n := range []uint32{1, MaxOwnOffers, MaxOwnOffers + 1, 1 << 31, 1<<32 - 1} {
			if _, err := Decode(TypeOffersPush, many(push, 3+17+8, n)); !errors.Is(err, ErrFormat) {
				t.Errorf("%d offers in no bytes: %v", n, err)
			}
			if _, err := Decode(TypeListingsPush, many(listings, 3+17+8, n)); !errors.Is(err, ErrFormat) {
				t.Errorf("%d listings in no bytes: %v", n, err)
			}
			if _, err := Decode(TypeRevocationLists, many(lists, 0, n)); !errors.Is(err, ErrFormat) {
				t.Errorf("%d lists in no bytes: %v", n, err)
			}
			if _, err := Decode(TypeRevocationLists, many(one, 4+3+16, n*40)); !errors.Is(err, ErrFormat) && n*40 != 0 {
				t.Errorf("%d revoked in no bytes: %v", n*40, err)
			}
			if _, err := Decode(TypeRevocationLists, many(one, 4+3+16+4+64, n)); !errors.Is(err, ErrFormat) {
				t.Errorf("%d owners in no bytes: %v", n, err)
			}
			if _, err := Decode(TypeListPull, many(pull, 3+17, n)); !errors.Is(err, ErrFormat) {
				t.Errorf("%d numbers in no bytes: %v", n, err)
			}
		}
	})
	if allocs > 20*5*6 { // by message, all of which are written anew; not one for each item that is claimed
		t.Errorf("%v allocations for messages of no bytes", allocs)
	}
}

func FuzzSwarmMessage(f *testing.F) {
	for _, m := range swarmMessages() {
		f.Add(uint8(m.Type()), Append(nil, m)[5:])
	}
	f.Add(uint8(TypeOffersPush), bytes.Repeat([]byte{0xff}, 64))
	f.Fuzz(func(t *testing.T, typ uint8, body []byte) {
		if newSwarmMessage(Type(typ)) == nil {
			return
		}
		m, err := Decode(Type(typ), body)
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("error %v isn't ErrFormat", err)
			}
			return
		}
		if again := Append(nil, m)[5:]; !bytes.Equal(again, body) {
			t.Fatalf("type %d: %x was decoded and encoded as %x", typ, body, again)
		}
	})
}
