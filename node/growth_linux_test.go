package node

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A decoder whose disk is full stays on its route, and can fetch when there is room again.
func TestGrowDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=6m"); err != nil {
		t.Skipf("mounting a small disk takes root: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	g := newGrowNet(t, "", func(c *Config) { c.Grow, c.DataDir = GrowAny, dir })
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 8<<20), 0o644); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	g.mustStayPipelined(t, g.client)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	g.last.grow(t.Context(), g.last.served(g.id))
	if r := g.last.served(g.id).exec.Layers(); r.First != 0 {
		t.Errorf("with room on the disk the decoder has %v", r)
	}
}
