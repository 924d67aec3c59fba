package wire

import (
	"errors"
	"strings"
	"testing"
)

func TestListingLimits(t *testing.T) {
	for name, change := range map[string]func(*Listing){
		"no name":       func(l *Listing) { l.Name = "" },
		"long name":     func(l *Listing) { l.Name = strings.Repeat("x", MaxModelName+1) },
		"not UTF-8":     func(l *Listing) { l.Name = "\xff" },
		"long family":   func(l *Listing) { l.Family = strings.Repeat("x", MaxFamily+1) },
		"long quant":    func(l *Listing) { l.Quant = strings.Repeat("x", MaxQuant+1) },
		"long licence":  func(l *Listing) { l.Licence = strings.Repeat("x", MaxLicence+1) },
		"long swarm ID": func(l *Listing) { l.Swarm = strings.Repeat("x", MaxSwarmID+1) },
		"long peer ID":  func(l *Listing) { l.Peer = strings.Repeat("x", MaxPeerID+1) },
		"no bytes":      func(l *Listing) { l.Bytes = 0 },
		"fewer bytes":   func(l *Listing) { l.Bytes = -1 },
		"no layers":     func(l *Listing) { l.Layers = 0 },
		"many layers":   func(l *Listing) { l.Layers = MaxLayers + 1 },
	} {
		l := sampleListing()
		change(&l)
		if err := CheckListing(&l); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	l := sampleListing()
	if err := CheckListing(&l); err != nil {
		t.Error(err)
	}
	var e Encoder
	new(Listing).encode(&e)
	if len(e.Data()) != minListingBytes {
		t.Errorf("the shortest listing has %d bytes, minListingBytes is %d", len(e.Data()), minListingBytes)
	}
	list := make([]Listing, MaxListingsReply)
	for i := range list {
		list[i] = Listing{Swarm: strings.Repeat("x", MaxSwarmID), Peer: strings.Repeat("x", MaxPeerID), Name: strings.Repeat("x", MaxModelName),
			Family: strings.Repeat("x", MaxFamily), Quant: strings.Repeat("x", MaxQuant), Licence: strings.Repeat("x", MaxLicence), Bytes: 1, Layers: 1}
	}
	if frame := Append(nil, &ListingsReply{Listings: list}); len(frame) > MaxControl {
		t.Errorf("the largest reply has %d bytes", len(frame))
	}
}
