package swarm

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
)

// peerIDOfRFC8032 is the peer ID of RFC 8032's first test key by the libp2p
// specification, base58btc(00 24 08 01 12 20 ‖ public key), computed in Python.
const peerIDOfRFC8032 = "12D3KooWQK1wnefoLrcVHbbnf5tLzbopUd3K3bFAoJpA7YJgL5pV"

func TestPeerIDOfKnownKey(t *testing.T) {
	t.Parallel()
	seed, _ := hex.DecodeString("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
	public := "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, identityFile), seed, 0o600); err != nil {
		t.Fatal(err)
	}
	id, err := LoadIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}
	if id.ID() != peerIDOfRFC8032 {
		t.Errorf("peer ID %s, want %s", id.ID(), peerIDOfRFC8032)
	}
	key, err := publicKey(id.ID())
	if err != nil || hex.EncodeToString(key) != public {
		t.Errorf("key %x in the peer ID, want %s (%v)", key, public, err)
	}
}

func TestIdentityPersists(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "folder")
	var wg sync.WaitGroup
	ids := make([]PeerID, 8)
	for i := range ids { // several processes may start at once
		wg.Go(func() {
			id, err := LoadIdentity(dir)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = id.ID()
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("identities %v differ", ids)
		}
	}
	st, err := os.Stat(filepath.Join(dir, identityFile))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode of the key: %v, %v", st.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDamagedIdentity(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		content string
		mode    os.FileMode
		want    string
	}{
		"empty":    {"", 0o600, "0 bytes"},
		"short":    {"abc", 0o600, "3 bytes"},
		"long":     {strings.Repeat("a", 33), 0o600, "33 bytes"},
		"readable": {strings.Repeat("a", 32), 0o640, "chmod 600"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, identityFile)
		if err := os.WriteFile(path, []byte(c.content), c.mode); err != nil {
			t.Fatal(err)
		}
		_, err := LoadIdentity(dir)
		if err == nil || !containsAll(err.Error(), path, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if b, _ := os.ReadFile(path); string(b) != c.content {
			t.Errorf("%s: the file was changed", name)
		}
	}
}

func TestSignatures(t *testing.T) {
	t.Parallel()
	id, other := Ephemeral(), Ephemeral()
	msg := []byte("work done")
	sig := id.Sign("starling/test/1", msg)
	if err := VerifySignature(id.ID(), "starling/test/1", msg, sig); err != nil {
		t.Fatal(err)
	}
	rsa, _, err := crypto.GenerateRSAKeyPair(2048, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaID, err := peer.IDFromPrivateKey(rsa)
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"another domain":  VerifySignature(id.ID(), "starling/test/2", msg, sig),
		"moved boundary":  VerifySignature(id.ID(), "starling/test/1w", msg[1:], sig),
		"another message": VerifySignature(id.ID(), "starling/test/1", []byte("work dona"), sig),
		"another peer":    VerifySignature(other.ID(), "starling/test/1", msg, sig),
		"changed":         VerifySignature(id.ID(), "starling/test/1", msg, append([]byte{sig[0] ^ 1}, sig[1:]...)),
		"cut":             VerifySignature(id.ID(), "starling/test/1", msg, sig[:63]),
		"none":            VerifySignature(id.ID(), "starling/test/1", msg, nil),
		"no peer ID":      VerifySignature("", "starling/test/1", msg, sig),
		"garbage peer ID": VerifySignature("12D3KooW", "starling/test/1", msg, sig),
		"RSA peer ID":     VerifySignature(rsaID.String(), "starling/test/1", msg, sig),
	} {
		if err == nil {
			t.Errorf("%s: the signature is accepted", name)
		}
	}
	// The peer ID as a CID is the same peer by another name: not accepted, or
	// one peer could have two.
	if err := VerifySignature(peer.ToCid(id.id).String(), "starling/test/1", msg, sig); err == nil {
		t.Error("a peer ID in its other form is accepted")
	}
	if !bytes.Equal(sig, ed25519.Sign(id.private, []byte("\x0f\x00starling/test/1work done"))) {
		t.Error("the signed bytes aren't those in the documentation")
	}
}
