package artifacts

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// A disk that is too small is noticed before, one that fills up during the fetch; what was verified
// stays, and the fetch can be finished when there is room again.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=3m"); err != nil {
		t.Skipf("mounting a small disk takes root: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	_, src, paths := publish(t, testModel{layers: 20, seed: 11})
	card, _ := src.Card()
	n := newTestNet()
	n.partly(t, "half", src, LayerRange{0, 5})
	if err := n.join(t, "whole", src.store).Seed(src); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, dir)
	tor := n.join(t, "leecher", s)
	m := learn(t, s, src)

	err := tor.Fetch(testContext(t), m, m.Manifest().All(), peersOf("whole"), nil)
	if err == nil || !strings.Contains(err.Error(), "make room") || m.HeldBytes() != 0 {
		t.Errorf("a model larger than the disk: %v", err)
	}
	spans := card.Spans(LayerRange{0, 11})
	filler := filepath.Join(dir, "filler")
	var filled atomic.Bool
	peers := func() []string { // half of it comes before the disk is full
		if filled.Load() {
			return []string{"half", "whole"}
		}
		return []string{"half"}
	}
	err = tor.Fetch(testContext(t), m, spans, peers, func(done, _ int64) {
		if done > 0 && filled.CompareAndSwap(false, true) {
			if err := os.WriteFile(filler, make([]byte, 4<<20), 0o644); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("filling the disk: %v", err)
			}
		}
	})
	if !errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("a disk that fills up: %v", err)
	}
	held := m.HeldBytes()
	if held == 0 {
		t.Error("nothing was kept")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := tor.Fetch(testContext(t), m, spans, peersOf("whole"), nil); err != nil {
		t.Fatal(err)
	}
	got, want := mustRead(t, m.Path()), mustRead(t, paths[0])
	for _, sp := range spans {
		if !bytes.Equal(got[sp.Offset:sp.Offset+sp.Length], want[sp.Offset:sp.Offset+sp.Length]) {
			t.Errorf("span %+v differs", sp)
		}
	}
	tor.Close()
	if s = reopen(t, s); !mustGet(t, s, m.ID()).Have(spans) || s.HashedBytes() != 0 {
		t.Errorf("after a restart %d bytes were hashed", s.HashedBytes())
	}
}

// A disk that is too small, or can't be written any more, ends a fetch from a web server with the
// system's error; what was verified stays, and the fetch can be finished.
func TestWebSeedDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=3m"); err != nil {
		t.Skipf("mounting a small disk takes root: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	_, src, paths := publish(t, testModel{layers: 20, seed: 51})
	web := serveFolder(t, filepath.Dir(paths[0]), nil)
	card, _ := src.Card()
	s := openStore(t, dir)
	r, err := openRemote(t.Context(), quickWeb(), web.URL+"/m.gguf", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Download(t.Context(), r, nil, nil); err == nil || !strings.Contains(err.Error(), "make room") {
		t.Errorf("a model larger than the disk: %v", err)
	}
	tor := newTestNet().join(t, "leecher", s)
	m := learn(t, s, src)
	useRemote(t, tor, m, web.URL+"/m.gguf", quickWeb())
	some, more := card.Spans(LayerRange{0, 4}), card.Spans(LayerRange{0, 11})
	if err := tor.Fetch(testContext(t), m, some, peersOf(), nil); err != nil {
		t.Fatal(err)
	}
	held := m.HeldBytes()
	filler := filepath.Join(dir, "filler")
	filled := false
	err = tor.Fetch(testContext(t), m, more, func() []string { // asked for just after the check for room
		if !filled {
			filled = true
			if err := os.WriteFile(filler, make([]byte, 4<<20), 0o644); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("filling the disk: %v", err)
			}
		}
		return nil
	}, nil)
	if !errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "\n") {
		t.Errorf("a disk that fills up: %v", err)
	}
	if m.HeldBytes() < held {
		t.Errorf("%d bytes are held, %d before", m.HeldBytes(), held)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := tor.Fetch(testContext(t), m, more, peersOf(), nil); err != nil {
		t.Fatal(err)
	}
	got, want := mustRead(t, m.Path()), mustRead(t, paths[0])
	for _, sp := range more {
		if !bytes.Equal(got[sp.Offset:sp.Offset+sp.Length], want[sp.Offset:sp.Offset+sp.Length]) {
			t.Errorf("span %+v differs", sp)
		}
	}
}

// readOnly makes a folder read-only for what is opened there from now on, and returns what undoes it. Files that are open stay writable.
func readOnly(t *testing.T, dir string) (undo func()) {
	t.Helper()
	if err := syscall.Mount(dir, dir, "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	over := false
	undo = func() {
		if !over {
			over = true
			if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(undo)
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	return undo
}

// A disk that is read-only, from the beginning of a fetch or from its middle, ends the fetch with the system's error. What was verified
// stays and is served, and the fetch can be finished when the disk can be written again.
func TestReadOnlyDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=32m"); err != nil {
		t.Skipf("mounting a disk takes root: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	_, src, paths := publish(t, testModel{layers: 20, seed: 12})
	card, _ := src.Card()
	n := newTestNet()
	n.partly(t, "some", src, LayerRange{5, 8})
	if err := n.join(t, "whole", src.store).Seed(src); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, dir)
	tor := n.join(t, "leecher", s)
	first := card.Spans(LayerRange{0, 5})
	if err := tor.Fetch(testContext(t), learn(t, s, src), first, peersOf("whole"), nil); err != nil {
		t.Fatal(err)
	}
	tor.Close()

	s = reopen(t, s)
	m := mustGet(t, s, src.ID())
	held := m.HeldBytes()
	tor = n.join(t, "leecher", s)
	if err := tor.Seed(m); err != nil {
		t.Fatal(err)
	}
	undo := readOnly(t, dir)
	if _, err := OpenStore(dir); !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), "choose a data folder that can be written") {
		t.Errorf("a store on a read-only disk: %v", err)
	}
	err := tor.Fetch(testContext(t), m, m.Manifest().All(), peersOf("whole"), nil)
	if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "kept") || strings.Contains(err.Error(), "\n") {
		t.Errorf("a read-only disk: %v", err)
	}
	if m.HeldBytes() != held {
		t.Errorf("%d bytes are held, %d before", m.HeldBytes(), held)
	}
	other := openStore(t, t.TempDir())
	if err := n.join(t, "other", other).Fetch(testContext(t), learn(t, other, src), first, peersOf("leecher"), nil); err != nil {
		t.Errorf("what is held is not served: %v", err)
	}
	undo()

	turned := false // read-only, after some pieces and before the others
	peers := func() []string {
		if turned {
			return []string{"some", "whole"}
		}
		return []string{"some"}
	}
	err = tor.Fetch(testContext(t), m, m.Manifest().All(), peers, func(int64, int64) {
		if !turned && m.HeldBytes() > held {
			turned, undo = true, readOnly(t, dir)
		}
	})
	if !errors.Is(err, syscall.EROFS) || strings.Contains(err.Error(), "\n") {
		t.Errorf("a disk that becomes read-only: %v", err)
	}
	if m.HeldBytes() <= held {
		t.Errorf("%d bytes are held, %d before", m.HeldBytes(), held)
	}
	undo()
	if err := tor.Fetch(testContext(t), m, m.Manifest().All(), peersOf("whole"), nil); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, m, paths)
	tor.Close()
	if s = reopen(t, s); !mustGet(t, s, m.ID()).Have(m.Manifest().All()) || s.HashedBytes() != 0 {
		t.Errorf("after a restart %d bytes were hashed", s.HashedBytes())
	}
}
