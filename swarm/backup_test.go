package swarm

import (
	"bytes"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const passphrase = "correct horse battery"

// A folder that is lost comes back from a backup: the same peer, member and owner.
func TestBackup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	info, err := CreateSwarm(dir, "friends", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := CreateSwarm(dir, "town", true, nil); err != nil {
		t.Fatal(err)
	}
	id, err := LoadIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := OpenSwarms(dir).Revoke(info.ID, Ephemeral().ID()); err != nil {
		t.Fatal(err)
	}
	file, err := Backup(dir, passphrase, "")
	if err != nil {
		t.Fatal(err)
	}
	again := filepath.Join(t.TempDir(), "new")
	r, err := Restore(again, passphrase, file)
	if err != nil {
		t.Fatal(err)
	}
	if r.Peer != id.ID() || len(r.Swarms) != 2 || len(r.Owned) != 1 || r.Owned[0] != info.ID {
		t.Errorf("restored: %+v", r)
	}
	store := OpenSwarms(again)
	if m := store.Membership(info, id.ID()); m.Err != nil || !store.Owns(info.ID) {
		t.Errorf("the restored folder's membership is %+v, owner %v", m, store.Owns(info.ID))
	}
	if l, err := store.list(info.ID, listFile); err != nil || l == nil || l.Seq != 1 {
		t.Errorf("the restored revocation list is %+v, %v", l, err)
	}
	host := startNode(t, info, node{dir: again})
	if host.ID() != id.ID() {
		t.Error("the restored node is another peer")
	}
	if _, err := Restore(again, passphrase, file); err != nil {
		t.Errorf("restoring what is there: %v", err)
	}
	if err := store.Revoke(info.ID, Ephemeral().ID()); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(again, passphrase, file); err != nil {
		t.Fatal(err)
	}
	if l, _ := store.list(info.ID, listFile); l.Seq != 2 {
		t.Errorf("an old backup takes back a revocation: list %d", l.Seq)
	}

	// Another key is never overwritten, and nothing else is written then.
	other := t.TempDir()
	if _, err := LoadIdentity(other); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(filepath.Join(other, identityFile))
	if _, err := Restore(other, passphrase, file); err == nil || !strings.Contains(err.Error(), "has another key") {
		t.Errorf("restoring over another key: %v", err)
	}
	if after, _ := os.ReadFile(filepath.Join(other, identityFile)); !bytes.Equal(before, after) || OpenSwarms(other).Owns(info.ID) {
		t.Error("a refused restore has changed something")
	}

	// The owner key alone goes to a folder that has an identity.
	file, err = Backup(dir, passphrase, "friends")
	if err != nil {
		t.Fatal(err)
	}
	if r, err := Restore(other, passphrase, file); err != nil || r.Peer != "" || !OpenSwarms(other).Owns(info.ID) {
		t.Errorf("an owner key for another machine: %+v, %v", r, err)
	}
	if after, _ := os.ReadFile(filepath.Join(other, identityFile)); !bytes.Equal(before, after) {
		t.Error("an owner key brings another identity")
	}
}

func TestBackupRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := Backup(dir, passphrase, ""); err == nil {
		t.Error("a backup of nothing")
	}
	info, err := CreateSwarm(dir, "friends", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Backup(dir, "short", ""); err == nil {
		t.Error("a short passphrase")
	}
	file, err := Backup(dir, passphrase, "")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(file, []byte(info.ID)) {
		t.Error("a backup shows what it has")
	}
	changed := func(change func(b []byte) []byte) []byte {
		block, _ := pem.Decode(file)
		return pem.EncodeToMemory(&pem.Block{Type: backupType, Bytes: change(bytes.Clone(block.Bytes))})
	}
	for name, test := range map[string]struct {
		file []byte
		pass string
		want string
	}{
		"another passphrase": {file, passphrase + "x", "passphrase is another one"},
		"no backup":          {[]byte("hello"), passphrase, "no backup of keys"},
		"cut":                {changed(func(b []byte) []byte { return b[:len(b)-1] }), passphrase, "damaged"},
		"bit":                {changed(func(b []byte) []byte { b[len(b)/2] ^= 1; return b }), passphrase, "damaged"},
		"newer":              {changed(func(b []byte) []byte { b[0]++; return b }), passphrase, "format version 2"},
		"endless":            {changed(func(b []byte) []byte { b[4] = 0xff; return b }), passphrase, "iterations"},
		"huge":               {make([]byte, maxBackup+1), passphrase, "at most"},
	} {
		to := filepath.Join(t.TempDir(), "x")
		if _, err := Restore(to, test.pass, test.file); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(to); err == nil {
			t.Errorf("%s: something was written", name)
		}
	}
}

func FuzzParseKeys(f *testing.F) {
	for _, s := range []string{`{}`, `{"identity":"AAAA"}`, `{"swarms":[{"info":null}]}`, `{"swarms":[{"info":{"id":"pub-abcdefghijklmnopqrstuvwx","name":"x","public":true},"owner":"AA=="}]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, plain []byte) {
		if k, err := parseKeys(plain); err == nil {
			for _, s := range k.Swarms {
				if s.Info.check() != nil {
					t.Error("a swarm that is none")
				}
			}
		}
	})
}
