package main

import (
	"path/filepath"
	"syscall"
	"testing"
)

// A disk that is full, and a folder that can't be written, are found out by trying.
func TestDoctorTriesTheDisk(t *testing.T) {
	dir := t.TempDir()
	f := &facts{Data: filepath.Join(dir, "not", "there")}
	f.disk()
	if f.DataErr != nil || f.Free <= 0 || f.Free > diskFull+probeBytes && (f.Write <= 0 || f.Read <= 0) {
		t.Errorf("a usable disk: %+v", f)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mounting a small disk takes root: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	f = &facts{Data: dir}
	f.disk()
	if r := judgeSpace(f); f.DataErr != nil || r.Verdict != failure {
		t.Errorf("a full disk: %+v, %+v", f, r)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, "size=1m"); err != nil {
		t.Fatal(err)
	}
	f = &facts{Data: dir}
	f.disk()
	if r := judgeData(f); r.Verdict != failure || r.Next == "" {
		t.Errorf("a disk that can't be written: %+v, %+v", f, r)
	}
}
