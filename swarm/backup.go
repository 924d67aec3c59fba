package swarm

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/starling-swarm/starling/swarm/wire"
)

// A backup is a PEM block of type "STARLING KEYS":
//
//	version u8 (1) · iterations u32 · salt 16 B · nonce 12 B · sealed
//
// little endian. Sealed is a keys as JSON, by AES-256-GCM with all before it as additional data; the key is the passphrase's,
// by PBKDF2 with HMAC-SHA-256, that salt and so many iterations.
const (
	backupType     = "STARLING KEYS"
	backupVersion  = 1
	backupRounds   = 600_000 // OWASP's advice for PBKDF2-HMAC-SHA256, of 2023
	backupMost     = 10 * backupRounds
	backupHead     = 1 + 4 + 16 + 12
	maxBackup      = 4 << 20
	leastPassword  = 12 // characters
	maxBackedSwarm = 256
)

// keys is what a backup has of a data folder.
type keys struct {
	Identity []byte `json:"identity,omitempty"` // seed; none in a backup of an owner key alone
	Swarms   []kept `json:"swarms"`
}

// kept is what a backup has of one swarm.
type kept struct {
	Info        *Info    `json:"info"`
	Owner       []byte   `json:"owner,omitempty"`       // seed
	Certificate []byte   `json:"certificate,omitempty"` // of the identity
	Revoked     []byte   `json:"revoked,omitempty"`     // the founder's newest list
	Lists       [][]byte `json:"lists,omitempty"`       // the newest of the other owners
}

// Backup seals, with a passphrase, the keys of the data folder dir: its identity, its swarms, memberships and owner keys. With
// ownerOf, not empty, it has the owner key of that swarm alone, for another machine that is to invite and revoke.
func Backup(dir, passphrase, ownerOf string) ([]byte, error) {
	if utf8.RuneCountInString(passphrase) < leastPassword {
		return nil, fmt.Errorf("backup: the passphrase has fewer than %d characters: whoever gets the file can try passphrases at leisure", leastPassword)
	}
	store := OpenSwarms(dir)
	var k keys
	list, err := store.List()
	if ownerOf != "" {
		var one *Info
		one, err = store.Load(ownerOf)
		list = []*Info{one}
	}
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	for _, i := range list {
		s := kept{Info: i}
		if !i.Public {
			owner, err := store.ownerKey(i.ID)
			if err == nil {
				s.Owner = owner.private.Seed()
			} else if ownerOf != "" {
				return nil, fmt.Errorf("backup: %w", err)
			}
			if err := store.keep(&s); err != nil {
				return nil, fmt.Errorf("backup: %w", err)
			}
		} else if ownerOf != "" {
			return nil, fmt.Errorf("backup: swarm %s is public: it has no owner key", i.ID)
		}
		if ownerOf != "" {
			s.Certificate = nil // this machine's, not the other one's
		}
		k.Swarms = append(k.Swarms, s)
	}
	if ownerOf == "" {
		id, err := loadKey(filepath.Join(dir, identityFile), false)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("backup: %w", err)
		}
		if err == nil {
			k.Identity = id.private.Seed()
		}
		if err != nil && len(list) == 0 {
			return nil, fmt.Errorf("backup: data folder %s has no key yet", dir)
		}
	}
	return seal(&k, passphrase)
}

// keep reads a private swarm's certificate and lists.
func (s *Swarms) keep(k *kept) error {
	path, err := s.path(k.Info.ID, certificateFile)
	if err != nil {
		return err
	}
	if k.Certificate, err = os.ReadFile(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	a, err := s.authority(k.Info)
	if err != nil {
		return err
	}
	for _, owner := range a.owners() {
		if b := a.lists[owner].Data(); owner == a.founder {
			k.Revoked = b
		} else {
			k.Lists = append(k.Lists, b)
		}
	}
	return nil
}

// lists returns the revocation lists of a backup, the founder's first.
func (k *kept) lists() [][]byte {
	if k.Revoked == nil {
		return k.Lists
	}
	return append([][]byte{k.Revoked}, k.Lists...)
}

// seal encrypts keys.
func seal(k *keys, passphrase string) ([]byte, error) {
	plain, err := json.Marshal(k)
	if err != nil {
		return nil, err
	}
	head := make([]byte, backupHead)
	head[0] = backupVersion
	binary.LittleEndian.PutUint32(head[1:], backupRounds)
	_, _ = rand.Read(head[5:]) // it doesn't fail
	aead, err := backupCipher(passphrase, head)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: backupType, Bytes: aead.Seal(head, head[21:backupHead], plain, head[:backupHead:backupHead])}), nil
}

func backupCipher(passphrase string, head []byte) (cipher.AEAD, error) {
	key, err := pbkdf2.Key(sha256.New, passphrase, head[5:21], int(binary.LittleEndian.Uint32(head[1:])), 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// unseal is seal's inverse.
func unseal(file []byte, passphrase string) (*keys, error) {
	if len(file) > maxBackup {
		return nil, fmt.Errorf("it has %d bytes, a backup has at most %d", len(file), maxBackup)
	}
	block, _ := pem.Decode(file)
	if block == nil || block.Type != backupType || len(block.Bytes) < backupHead {
		return nil, errors.New("it is no backup of keys, or damaged: it begins with -----BEGIN " + backupType + "-----")
	}
	head, sealed := block.Bytes[:backupHead:backupHead], block.Bytes[backupHead:]
	if head[0] != backupVersion {
		return nil, fmt.Errorf("format version %d, this build reads version %d: update starling", head[0], backupVersion)
	}
	if n := binary.LittleEndian.Uint32(head[1:]); n == 0 || n > backupMost {
		return nil, fmt.Errorf("%d iterations, at most %d are done", n, backupMost)
	}
	aead, err := backupCipher(passphrase, head)
	if err != nil {
		return nil, err
	}
	plain, err := aead.Open(nil, head[21:], sealed, head)
	if err != nil {
		return nil, errors.New("the passphrase is another one, or the file is damaged")
	}
	return parseKeys(plain)
}

// parseKeys reads and checks what was sealed.
func parseKeys(plain []byte) (*keys, error) {
	k := new(keys)
	if err := json.Unmarshal(plain, k); err != nil {
		return nil, err
	}
	if k.Identity != nil && len(k.Identity) != ed25519.SeedSize || len(k.Swarms) > maxBackedSwarm {
		return nil, errors.New("its identity is no key, or it has too many swarms")
	}
	for _, s := range k.Swarms {
		if s.Info == nil {
			return nil, errors.New("a swarm has no description")
		}
		if err := s.Info.check(); err != nil {
			return nil, err
		}
		if s.Owner != nil {
			if len(s.Owner) != ed25519.SeedSize {
				return nil, fmt.Errorf("the owner key of swarm %s has %d bytes", s.Info.ID, len(s.Owner))
			}
			owner, err := newIdentity(ed25519.NewKeyFromSeed(s.Owner))
			if err != nil {
				return nil, err
			}
			if privateID(owner.ID()) != s.Info.ID {
				return nil, fmt.Errorf("the owner key of swarm %s is another swarm's", s.Info.ID)
			}
		}
		if s.Certificate != nil {
			if _, err := wire.ParseCertificate(s.Certificate); err != nil {
				return nil, fmt.Errorf("the certificate for swarm %s: %w", s.Info.ID, err)
			}
		}
		if len(s.Lists) > wire.MaxOwners {
			return nil, fmt.Errorf("swarm %s has revocation lists of %d owners", s.Info.ID, len(s.Lists))
		}
		a := newAuthority(s.Info)
		for _, b := range s.lists() {
			l, err := wire.ParseRevocationList(b)
			if err != nil {
				return nil, fmt.Errorf("a revocation list of swarm %s: %w", s.Info.ID, err)
			}
			owner, err := a.checkList(l)
			if err != nil {
				return nil, err
			}
			a.take(owner, l)
		}
	}
	return k, nil
}

// Restored says what Restore has brought back.
type Restored struct {
	Peer   PeerID // "": the backup has no identity
	Swarms []*Info
	Owned  []string // IDs of those whose owner key came back
}

// Restore opens a backup and puts what it has into the data folder dir. A key that is there and differs is never overwritten,
// and a newer revocation list stays. Nothing is written before all was checked.
func Restore(dir, passphrase string, file []byte) (*Restored, error) {
	k, err := unseal(file, passphrase)
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	store, r := OpenSwarms(dir), new(Restored)
	if k.Identity != nil {
		if err := sameOrNone(filepath.Join(dir, identityFile), k.Identity); err != nil {
			return nil, fmt.Errorf("restore: %w", err)
		}
	}
	for _, s := range k.Swarms {
		if s.Owner == nil {
			continue
		}
		path, err := store.path(s.Info.ID, ownerFile)
		if err == nil {
			err = sameOrNone(path, s.Owner)
		}
		if err != nil {
			return nil, fmt.Errorf("restore: %w", err)
		}
	}
	if k.Identity != nil {
		if err := errors.Join(os.MkdirAll(dir, 0o700), replaceFile(filepath.Join(dir, identityFile), k.Identity, 0o600)); err != nil {
			return nil, fmt.Errorf("restore: %w", err)
		}
		id, err := newIdentity(ed25519.NewKeyFromSeed(k.Identity))
		if err != nil {
			return nil, fmt.Errorf("restore: %w", err)
		}
		r.Peer = id.ID()
	}
	for _, s := range k.Swarms {
		if err := store.restore(&s); err != nil {
			return nil, fmt.Errorf("restore: %w", err)
		}
		r.Swarms = append(r.Swarms, s.Info)
		if s.Owner != nil {
			r.Owned = append(r.Owned, s.Info.ID)
		}
	}
	return r, nil
}

// restore writes one swarm's files.
func (s *Swarms) restore(k *kept) error {
	if k.Owner != nil {
		if err := s.put(k.Info.ID, ownerFile, k.Owner); err != nil {
			return err
		}
	}
	if k.Certificate != nil {
		if err := s.put(k.Info.ID, certificateFile, k.Certificate); err != nil {
			return err
		}
	}
	a, err := s.authority(k.Info)
	if err != nil {
		return err
	}
	for _, b := range k.lists() {
		l, err := wire.ParseRevocationList(b)
		if err != nil {
			return err
		}
		owner, err := a.checkList(l)
		if err != nil {
			continue // it is here, or a newer one
		}
		if err := s.put(k.Info.ID, listName(k.Info, owner), b); err != nil {
			return err
		}
		a.take(owner, l)
	}
	if _, err := readInfo(filepath.Join(s.dir, k.Info.ID+".json")); errors.Is(err, fs.ErrNotExist) {
		return s.Save(k.Info)
	} else if err != nil {
		return err
	}
	return nil // its addresses are newer
}

// sameOrNone refuses to lose a key: the file must be missing or have these bytes.
func sameOrNone(path string, seed []byte) error {
	have, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !bytes.Equal(have, seed):
		return fmt.Errorf("%s has another key: move it away first, or restore into another data folder", path)
	}
	return nil
}
