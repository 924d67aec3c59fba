package swarm

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
)

// PeerID is the text form of a libp2p peer ID ("12D3KooW…").
type PeerID = string

// identityFile is the key's name in the data folder.
const identityFile = "identity.key"

// Identity is an Ed25519 key pair. Its public half is the peer ID.
type Identity struct {
	private ed25519.PrivateKey
	id      peer.ID
}

// LoadIdentity reads the identity in the data folder dir and creates it, for
// its owner's eyes only, on first use.
func LoadIdentity(dir string) (*Identity, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	return loadKey(filepath.Join(dir, identityFile), true)
}

// Ephemeral returns an identity that lives as long as the process.
func Ephemeral() *Identity {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic("swarm: no random numbers: " + err.Error()) // crypto/rand doesn't fail
	}
	i, err := newIdentity(private)
	if err != nil {
		panic("swarm: a fresh key is refused: " + err.Error())
	}
	return i
}

func newIdentity(private ed25519.PrivateKey) (*Identity, error) {
	public, err := crypto.UnmarshalEd25519PublicKey(private.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, err
	}
	id, err := peer.IDFromPublicKey(public)
	if err != nil {
		return nil, err
	}
	return &Identity{private, id}, nil
}

// loadKey reads a 32-byte Ed25519 seed from path. With create it makes one if
// there is none; two processes that race end up with the same key.
func loadKey(path string, create bool) (*Identity, error) {
	seed, err := os.ReadFile(path)
	if create && errors.Is(err, fs.ErrNotExist) {
		seed = Ephemeral().private.Seed()
		if err = writeNew(path, seed, 0o600); errors.Is(err, fs.ErrExist) {
			seed, err = os.ReadFile(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	if len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("key %s: %d bytes where %d belong; restore it from a backup, or move it away to get a new identity", path, len(seed), ed25519.SeedSize)
	}
	if st, err := os.Stat(path); err == nil && runtime.GOOS != "windows" && st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("key %s: others can read it (mode %04o); run chmod 600 on it", path, st.Mode().Perm())
	}
	return newIdentity(ed25519.NewKeyFromSeed(seed))
}

// ID returns the peer ID.
func (i *Identity) ID() PeerID { return i.id.String() }

// Sign signs msg within domain: a signature made for one purpose says nothing
// in another. What Ed25519 sees is u16 length of domain, domain, msg.
func (i *Identity) Sign(domain string, msg []byte) []byte {
	return ed25519.Sign(i.private, domainBytes(domain, msg))
}

// VerifySignature checks what Sign made against the key in the peer ID. Only
// Ed25519 peer IDs, which contain their key, are accepted.
func VerifySignature(peerID string, domain string, msg, sig []byte) error {
	public, err := publicKey(peerID)
	if err != nil {
		return err
	}
	if len(sig) != ed25519.SignatureSize || !ed25519.Verify(public, domainBytes(domain, msg), sig) {
		return fmt.Errorf("signature of %s (%s) is wrong", peerID, domain)
	}
	return nil
}

func domainBytes(domain string, msg []byte) []byte {
	b := make([]byte, 0, 2+len(domain)+len(msg))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(domain)))
	b = append(b, domain...)
	return append(b, msg...)
}

// CheckPeer reports why a text is no peer ID.
func CheckPeer(p PeerID) error {
	_, err := publicKey(p)
	return err
}

// publicKey extracts the Ed25519 key from a peer ID.
func publicKey(peerID string) (ed25519.PublicKey, error) {
	id, err := peer.Decode(peerID)
	if err != nil {
		return nil, fmt.Errorf("peer ID %q: %w", peerID, err)
	}
	if id.String() != peerID {
		return nil, fmt.Errorf("peer ID %q: not in its usual form %s", peerID, id)
	}
	key, err := id.ExtractPublicKey()
	if err != nil {
		return nil, fmt.Errorf("peer ID %s: %w", peerID, err)
	}
	if key.Type() != crypto.Ed25519 {
		return nil, fmt.Errorf("peer ID %s: its key is %s, only Ed25519 is used here", peerID, key.Type())
	}
	raw, err := key.Raw()
	if err != nil {
		return nil, fmt.Errorf("peer ID %s: %w", peerID, err)
	}
	return raw, nil
}

// libp2pKey returns the key as libp2p wants it.
func (i *Identity) libp2pKey() (crypto.PrivKey, error) {
	return crypto.UnmarshalEd25519PrivateKey(i.private)
}
