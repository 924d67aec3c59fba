package swarm

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/starling-swarm/starling/swarm/wire"
)

// Info describes a swarm: the file <data>/swarms/<id>.json.
type Info struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	Public    bool     `json:"public"`
	Owner     PeerID   `json:"owner,omitempty"`     // of the founder's owner key; private swarms only
	Bootstrap []string `json:"bootstrap,omitempty"` // full multiaddrs, …/p2p/<peer>
}

// The two kinds of swarm ID. A private swarm's ID is derived from its owner
// key, so whoever knows the ID can tell the owner's signatures; a public one
// is random.
const (
	publicPrefix  = "pub-"
	privatePrefix = "prv-"
	swarmIDBytes  = 15 // 24 characters
)

var swarmIDText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// privateID returns the ID of the private swarm that owner's key rules.
func privateID(owner PeerID) string {
	sum := sha256.Sum256([]byte("starling/swarm/1\n" + owner))
	return privatePrefix + swarmIDText.EncodeToString(sum[:swarmIDBytes])
}

// parseSwarmID says whether id names a public swarm.
func parseSwarmID(id string) (public bool, err error) {
	body, public := strings.CutPrefix(id, publicPrefix)
	if !public {
		var private bool
		if body, private = strings.CutPrefix(id, privatePrefix); !private {
			return false, fmt.Errorf("swarm ID %q starts with neither %s nor %s", id, publicPrefix, privatePrefix)
		}
	}
	if b, err := swarmIDText.DecodeString(body); err != nil || len(b) != swarmIDBytes {
		return false, fmt.Errorf("swarm ID %q is damaged; it has 24 letters and digits after the prefix", id)
	}
	return public, nil
}

// check reports what makes i unusable.
func (i *Info) check() error {
	public, err := parseSwarmID(i.ID)
	if err != nil {
		return err
	}
	if public != i.Public {
		return fmt.Errorf("swarm %s: ID and description disagree on whether it is public", i.ID)
	}
	if !public && privateID(i.Owner) != i.ID {
		return fmt.Errorf("swarm %s: its ID doesn't belong to the owner key %s", i.ID, i.Owner)
	}
	if err := checkName(i.Name); err != nil {
		return err
	}
	_, err = parseBootstrap(i.Bootstrap)
	return err
}

func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("a swarm needs a name")
	case len(name) > wire.MaxSwarmName:
		return fmt.Errorf("swarm name %q is longer than %d bytes", name, wire.MaxSwarmName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("swarm name %q contains control characters or isn't UTF-8", name)
	}
	return nil
}

// Swarms is what a data folder knows of swarms: descriptions in
// <dir>/swarms/<id>.json, and for private ones a folder <dir>/swarms/<id>
// with this node's certificate, the revocation lists, on the node that has it
// the founder's key, and on owners' nodes the invites and the certificates
// that were issued. Its methods may be called concurrently, also by several processes.
type Swarms struct{ dir string }

// OpenSwarms returns the swarms of the data folder dir.
func OpenSwarms(dir string) *Swarms { return &Swarms{filepath.Join(dir, "swarms")} }

// List returns all swarms, ordered by name, then ID.
func (s *Swarms) List() ([]*Info, error) {
	files, err := filepath.Glob(filepath.Join(s.dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []*Info
	for _, f := range files {
		i, err := readInfo(f)
		if err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	sort.Slice(all, func(a, b int) bool {
		return all[a].Name < all[b].Name || all[a].Name == all[b].Name && all[a].ID < all[b].ID
	})
	return all, nil
}

// Load finds a swarm by ID, or by name if only one has it.
func (s *Swarms) Load(idOrName string) (*Info, error) {
	if _, err := parseSwarmID(idOrName); err == nil {
		i, err := readInfo(filepath.Join(s.dir, idOrName+".json"))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("swarm %s is not known here; join it with an invite", idOrName)
		}
		return i, err
	}
	all, err := s.List()
	if err != nil {
		return nil, err
	}
	var found []*Info
	var ids []string
	for _, i := range all {
		if i.Name == idOrName {
			found, ids = append(found, i), append(ids, i.ID)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, fmt.Errorf("no swarm here is called %q", idOrName)
	}
	return nil, fmt.Errorf("%d swarms here are called %q; use an ID: %s", len(found), idOrName, strings.Join(ids, ", "))
}

// Save writes a swarm's description.
func (s *Swarms) Save(i *Info) error {
	if err := i.check(); err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("swarm %s: %w", i.ID, err)
	}
	b, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(s.dir, i.ID+".json"), append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("swarm %s: %w", i.ID, err)
	}
	return nil
}

func readInfo(path string) (*Info, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	i := new(Info)
	if err := json.Unmarshal(b, i); err != nil {
		return nil, fmt.Errorf("swarm description %s: %w", path, err)
	}
	if err := i.check(); err != nil {
		return nil, fmt.Errorf("swarm description %s: %w", path, err)
	}
	return i, nil
}

// The files in a private swarm's folder.
const (
	ownerFile       = "owner.key"   // 32-byte seed of the founder's key
	certificateFile = "certificate" // wire.Certificate of this node
	listFile        = "revoked"     // newest wire.RevocationList of the founder; of another owner with "-" and its peer ID behind
	inviteDir       = "invites"
	issuedDir       = "members" // on the owner's node: the newest certificate that each peer got
)

// path returns a file in a private swarm's folder. IDs come from the network:
// they are checked before they name a file.
func (s *Swarms) path(id string, elem ...string) (string, error) {
	if _, err := parseSwarmID(id); err != nil {
		return "", err
	}
	return filepath.Join(append([]string{s.dir, id}, elem...)...), nil
}

// put writes a file in a private swarm's folder.
func (s *Swarms) put(id, name string, b []byte) error {
	path, err := s.path(id, name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("swarm %s: %w", id, err)
	}
	if err := replaceFile(path, b, 0o600); err != nil {
		return fmt.Errorf("swarm %s: %w", id, err)
	}
	return nil
}

// ownerKey returns the key of the swarm's founder if this node holds it.
func (s *Swarms) ownerKey(id string) (*Identity, error) {
	path, err := s.path(id, ownerFile)
	if err != nil {
		return nil, err
	}
	key, err := loadKey(path, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("swarm %s: this node doesn't hold its owner key; ask on the node that created the swarm", id)
	}
	if err != nil {
		return nil, err
	}
	if privateID(key.ID()) != id {
		return nil, fmt.Errorf("swarm %s: %s holds another swarm's key", id, path)
	}
	return key, nil
}

// Owns reports whether this node is one of the swarm's owners, so that it can
// make invites and revoke members.
func (s *Swarms) Owns(id string) bool {
	a, err := s.loadAuthority(id)
	if err == nil {
		_, err = s.owner(a)
	}
	return err == nil
}

// certificate returns this node's certificate, unchecked.
func (s *Swarms) certificate(id string) (*wire.Certificate, error) {
	path, err := s.path(id, certificateFile)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("swarm %s: this node is not a member; join with an invite", id)
	}
	if err != nil {
		return nil, err
	}
	return wire.ParseCertificate(b)
}

// listName returns the file of the newest revocation list of an owner of the swarm.
func listName(info *Info, owner PeerID) string {
	if owner == info.Owner {
		return listFile
	}
	return listFile + "-" + owner
}

// list reads a revocation list, unchecked; nil if there is none.
func (s *Swarms) list(id, file string) (*wire.RevocationList, error) {
	path, err := s.path(id, file)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return wire.ParseRevocationList(b)
}

// listFiles returns the names of the revocation lists that are held, the founder's first.
func (s *Swarms) listFiles(id string) ([]string, error) {
	path, err := s.path(id, listFile)
	if err != nil {
		return nil, err
	}
	more, err := filepath.Glob(path + "-*")
	if err != nil {
		return nil, err
	}
	files := []string{listFile}
	for _, f := range more {
		files = append(files, filepath.Base(f))
	}
	return files, nil
}

// authority reads and checks the revocation lists that are held. Lists of owners that the founder has ended are left out.
func (s *Swarms) authority(info *Info) (*authority, error) {
	a := newAuthority(info)
	files, err := s.listFiles(info.ID)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		l, err := s.list(info.ID, f)
		if err != nil {
			return nil, err
		}
		if l == nil || l.By != nil && a.stands(l.By) != nil {
			continue
		}
		owner, err := a.checkList(l)
		if err != nil {
			return nil, fmt.Errorf("swarm %s: file %s: %w", info.ID, f, err)
		}
		a.take(owner, l)
	}
	return a, nil
}

// loadAuthority is authority for a private swarm's ID.
func (s *Swarms) loadAuthority(id string) (*authority, error) {
	info, err := s.Load(id)
	if err != nil {
		return nil, err
	}
	if info.Public {
		return nil, fmt.Errorf("swarm %s is public: it has no owners", info.Name)
	}
	return s.authority(info)
}
