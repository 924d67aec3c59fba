package artifacts

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const childEnv = "STARLING_ARTIFACTS_TEST_CHILD"

// TestMain does what a test started this binary for, instead of the tests.
func TestMain(m *testing.M) {
	for name, child := range map[string]func(args []string) error{childEnv: childFetch, scheduleEnv: childSchedule} {
		args := os.Getenv(name)
		if args == "" {
			continue
		}
		if err := child(strings.Split(args, "|")); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// childFetch fetches a whole model into a store, printing the verified bytes as they grow. args are
// the store's folder, a bundle file, the model's ID and the seeder's address.
func childFetch(args []string) error {
	s, tor, b, err := childStore(args)
	if err != nil {
		return err
	}
	m, err := s.AddBundle(b)
	if err != nil {
		return err
	}
	return tor.Fetch(context.Background(), m, m.Manifest().All(), peersOf("seeder"), func(done, _ int64) { fmt.Println(done) })
}

// childStore opens what a child process works with: a store, torrents that reach the seeder alone, and a bundle. args are as for
// childFetch.
func childStore(args []string) (*Store, *Torrents, *Bundle, error) {
	id, err := ParseID(args[2])
	if err != nil {
		return nil, nil, nil, err
	}
	data, err := os.ReadFile(args[1])
	if err != nil {
		return nil, nil, nil, err
	}
	b, err := ParseBundle(data, id, MaxBundle)
	if err != nil {
		return nil, nil, nil, err
	}
	s, err := OpenStore(args[0])
	if err != nil {
		return nil, nil, nil, err
	}
	tor, err := NewTorrents(TorrentConfig{Store: s, Dial: func(context.Context, string) (net.Conn, error) {
		c, err := net.Dial("tcp", args[3])
		if err == nil {
			_, err = c.Write([]byte("child\n"))
		}
		return c, err
	}})
	return s, tor, b, err
}

// A process that is killed in the middle of a fetch loses nothing that it reported as verified, and
// the next one hashes only what was not synced yet.
func TestKilledProcess(t *testing.T) {
	_, src, paths := publish(t, testModel{layers: 20, seed: 7})
	n := newTestNet()
	n.upload = 2 << 20 // so that more is on its way when the process ends
	n.partly(t, "most", src, LayerRange{0, 15})
	bundle := filepath.Join(t.TempDir(), "bundle")
	if err := os.WriteFile(bundle, src.Bundle().Marshal(), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(testContext(t), exe)
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join([]string{dir, bundle, src.ID().String(), n.addrs["most"]}, "|"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var reported int64
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if _, err := fmt.Sscan(lines.Text(), &reported); err != nil {
			t.Fatalf("the child says %q", lines.Text())
		}
		if reported > src.TotalBytes()/2 {
			break
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()

	s := openStore(t, dir)
	m := mustGet(t, s, src.ID())
	held := m.HeldBytes()
	if reported == 0 || held < reported || held == m.TotalBytes() {
		t.Errorf("%d bytes held, the killed process had reported %d of %d", held, reported, m.TotalBytes())
	}
	t.Logf("killed at %d of %d bytes; %d held, %d hashed at the start", reported, m.TotalBytes(), held, s.HashedBytes())
	if s.HashedBytes() > held {
		t.Errorf("%d bytes were hashed for %d held", s.HashedBytes(), held)
	}
	s = reopen(t, s)
	if s.HashedBytes() != 0 {
		t.Errorf("the start after that hashed %d bytes", s.HashedBytes())
	}
	m = mustGet(t, s, src.ID())
	if err := n.join(t, "seeder", src.store).Seed(src); err != nil {
		t.Fatal(err)
	}
	tor := n.join(t, "leecher", s)
	if err := tor.Fetch(testContext(t), m, m.Manifest().All(), peersOf("seeder"), nil); err != nil {
		t.Fatal(err)
	}
	if got, want := received(tor, m.ID()), m.TotalBytes()-held; got != want {
		t.Errorf("received %d bytes, %d were missing", got, want)
	}
	if !bytes.Equal(mustRead(t, m.Path()), mustRead(t, paths[0])) {
		t.Error("the resumed file differs")
	}
}
