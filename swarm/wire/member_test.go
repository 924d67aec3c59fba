package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func sampleInvite() *Invite {
	return &Invite{Swarm: "prv-x", Name: "friends", Addrs: []string{"/ip4/127.0.0.1/tcp/1/p2p/P"}, Secret: [SecretBytes]byte{1, 2, 3}, Expires: 1_700_000_000}
}

func TestInviteText(t *testing.T) {
	i := sampleInvite()
	text := i.String()
	// Computed by a Python script from docs/protocol.md's description.
	const want = "starling-invite-aecqa4dsoywxqbyamzzgszlomrzqcaaaaanaal3joa2c6mjsg4xdalrqfyys65ddoaxtcl3qgjyc6uabaibqaaaaaaaaaaaaaaaaaaaaadyvgziaaaaaahlw5uqa"
	if text != want {
		t.Errorf("the invite is\n%s, want\n%s", text, want)
	}
	for _, s := range []string{text, "  " + text + "\n"} {
		back, err := ParseInvite(s)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back, i) {
			t.Errorf("came back as %+v", back)
		}
	}
	for name, s := range map[string]string{
		"empty":           "",
		"prefix only":     "starling-invite-",
		"other text":      "https://example.org",
		"cut":             text[:len(text)-1],
		"upper case":      strings.ToUpper(text),
		"a letter more":   text + "a",
		"not base32":      text[:20] + "!" + text[21:],
		"too long":        "starling-invite-" + strings.Repeat("a", MaxInvite+1),
		"unknown version": reseal(t, text, func(b []byte) []byte { b[0] = 9; return b }),
		"surplus":         reseal(t, text, func(b []byte) []byte { return append(b, 0) }),
		"short":           reseal(t, text, func(b []byte) []byte { return b[:len(b)-3] }),
		"many addresses":  reseal(t, text, func(b []byte) []byte { b[17] = 200; return b }),
	} {
		if _, err := ParseInvite(s); err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error has several lines: %v", name, err)
		}
	}
	// Any single wrong letter is noticed.
	for at := len(invitePrefix); at < len(text); at++ {
		c := byte('a')
		if text[at] == c {
			c = 'b'
		}
		if _, err := ParseInvite(text[:at] + string(c) + text[at+1:]); err == nil {
			t.Errorf("a wrong letter at %d is not noticed", at)
		}
	}
}

// reseal changes an invite's bytes and makes its checksum right again.
func reseal(t *testing.T, text string, change func([]byte) []byte) string {
	t.Helper()
	b, err := inviteText.DecodeString(strings.TrimPrefix(text, invitePrefix))
	if err != nil {
		t.Fatal(err)
	}
	return sealInvite(change(b[:len(b)-inviteSum]))
}

func TestStoredMembership(t *testing.T) {
	c := sampleCertificate()
	back, err := ParseCertificate(c.Data())
	if err != nil || *back != c {
		t.Errorf("certificate came back as %+v, %v", back, err)
	}
	delegated := c
	delegated.By = sampleDelegation()
	if back, err := ParseCertificate(delegated.Data()); err != nil || !reflect.DeepEqual(*back, delegated) {
		t.Errorf("a delegate's certificate came back as %+v, %v", back, err)
	}
	for n := range len(delegated.Data()) {
		_, err := ParseCertificate(delegated.Data()[:n])
		if old := n == len(c.Data())-1; old != (err == nil) || err != nil && !errors.Is(err, ErrFormat) { // as it was stored once
			t.Errorf("certificate cut to %d bytes: %v", n, err)
		}
	}
	for _, l := range sampleLists() {
		lback, err := ParseRevocationList(l.Data())
		if err != nil || !reflect.DeepEqual(*lback, l) {
			t.Errorf("list came back as %+v, %v", lback, err)
		}
		var old Encoder
		l.encodeUnsigned(&old)
		old.Raw(l.Signature[:])
		for n := range len(l.Data()) {
			_, err := ParseRevocationList(l.Data()[:n])
			if old := n == len(old.Data()); old != (err == nil) || err != nil && !errors.Is(err, ErrFormat) {
				t.Errorf("list cut to %d bytes: %v", n, err)
			}
		}
	}
	both := sampleLists()[1]
	both.Owners = []Delegation{*sampleDelegation()}
	if _, err := ParseRevocationList(both.Data()); !errors.Is(err, ErrFormat) {
		t.Errorf("a delegate's list names owners: %v", err)
	}
	if plain := sampleLists()[2]; !bytes.Equal(plain.SigningBytes(), plain.Data()[:len(plain.SigningBytes())]) || len(plain.Data()) != minListBytes+len("prv-x") {
		t.Errorf("a plain list's signature covers %x of %x", plain.SigningBytes(), plain.Data())
	}
	for role := range Role(8) {
		c.Role = role
		if _, err := ParseCertificate(c.Data()); slices.Contains(Roles, role) != (err == nil) || err != nil && !errors.Is(err, ErrFormat) {
			t.Errorf("role %d: %v", role, err)
		}
	}
	if got, want := hex.EncodeToString(sampleCertPtr().SigningBytes()), "0500"+"7072762d78"+"0100"+"50"+"02"+"0100000000000000"+"0200000000000000"; got != want {
		t.Errorf("a certificate's signature covers %s, want %s", got, want)
	}
}

func sampleCertPtr() *Certificate { c := sampleCertificate(); return &c }

// The exchange before membership fits its limit with room to spare, at the
// longest fields that are allowed.
func TestJoinFits(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	c := Certificate{Swarm: long(MaxSwarmID), Peer: long(MaxPeerID), Role: RoleMember, By: &Delegation{Owner: long(MaxPeerID)}}
	for _, m := range []Message{&Hello{1, c}, &Redeem{Swarm: long(MaxSwarmID)}, &Welcome{1, c, &c}, &JoinRefused{long(2 * MaxText)}} {
		if n := len(Append(nil, m)); n > MaxJoin-512 {
			t.Errorf("type %d can have %d bytes, the limit is %d with a protocol header", m.Type(), n, MaxJoin)
		}
	}
	l := RevocationList{Swarm: long(MaxSwarmID)}
	for range MaxRevoked {
		l.Peers = append(l.Peers, long(52)) // an Ed25519 peer ID
	}
	for range MaxOwners {
		l.Owners = append(l.Owners, *c.By)
	}
	if n := len(Append(nil, &Admitted{Certificate: c, Lists: []RevocationList{l, {Swarm: l.Swarm, Peers: l.Peers, By: c.By}}})); n > MaxControl {
		t.Errorf("two full lists need %d bytes, the limit is %d", n, MaxControl)
	}
}

// What is stored of a membership, or was in a backup, is foreign like a frame.
func FuzzStoredMembership(f *testing.F) {
	c := sampleCertificate()
	f.Add(c.Data())
	c.By = sampleDelegation()
	f.Add(c.Data())
	for _, l := range sampleLists() {
		f.Add(l.Data())
		f.Add(l.Data()[:len(l.Data())/2])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := ParseCertificate(b); err == nil && !bytes.HasPrefix(c.Data(), b) {
			t.Fatalf("certificate %x was read and written as %x", b, c.Data())
		}
		if l, err := ParseRevocationList(b); err == nil && !bytes.HasPrefix(l.Data(), b) {
			t.Fatalf("list %x was read and written as %x", b, l.Data())
		}
	})
}

func FuzzParseInvite(f *testing.F) {
	f.Add(sampleInvite().String())
	f.Add((&Invite{Swarm: "pub-x"}).String())
	f.Add("starling-invite-aaaaaaaa")
	f.Fuzz(func(t *testing.T, s string) {
		i, err := ParseInvite(s)
		if err != nil {
			return
		}
		if again := i.String(); again != strings.TrimSpace(s) {
			t.Fatalf("%q was read and written as %q", s, again)
		}
	})
}

// Fuzzers rarely hit a checksum: this one fuzzes what is below it.
func FuzzInviteBytes(f *testing.F) {
	b, _ := inviteText.DecodeString(strings.TrimPrefix(sampleInvite().String(), invitePrefix))
	f.Add(b[:len(b)-inviteSum])
	f.Add(bytes.Repeat([]byte{1}, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		text := sealInvite(b)
		i, err := ParseInvite(text)
		if err == nil && i.String() != text {
			t.Fatalf("%x was read and written differently", b)
		}
	})
}
