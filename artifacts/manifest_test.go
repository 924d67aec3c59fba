package artifacts

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// tinyManifest is a manifest of two files made from given bytes: one of a single piece, one of three.
func tinyManifest(t testing.TB) (*Manifest, TorrentInfos) {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for i, n := range []int{5, 2*LeafSize + 1} {
		path := filepath.Join(dir, string(rune('a'+i)))
		if err := os.WriteFile(path, bytes.Repeat([]byte{byte('a' + i)}, n), 0o644); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	m, infos, err := Build(t.Context(), paths, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m, infos
}

const goldenID = "cdd5c71d4e8307f5fa305c52916d5305696db58854cf262cc316fcd5049e6cfd"

// The ID and the file were computed from docs/manifest.md with Python's hashlib by testdata/id.py.
func TestGoldenID(t *testing.T) {
	m, infos := tinyManifest(t)
	if got, want := m.ID().String(), goldenID; got != want {
		t.Errorf("ID %s, want %s", got, want)
	}
	b := &Bundle{Manifest: m, Torrents: infos}
	golden := mustRead(t, "testdata/tiny.bundle")
	if !bytes.Equal(b.Marshal(), golden) {
		t.Error("the bundle differs from testdata/tiny.bundle")
	}
}

func TestManifestRoundTrip(t *testing.T) {
	m, _ := tinyManifest(t)
	data := m.Marshal()
	got, err := ParseManifest(data, m.ID())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Marshal(), data) || got.ID() != m.ID() {
		t.Error("the manifest changed on its way")
	}
	if got.Parts[1].Name != "model-00002-of-00002.gguf" || len(got.Parts[1].Pieces) != 3 {
		t.Errorf("part 2: %+v", got.Parts[1])
	}
}

func TestManifestErrors(t *testing.T) {
	m, _ := tinyManifest(t)
	id, good := m.ID(), m.Marshal()
	edit := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(good)) }
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":           {nil, "0 bytes"},
		"magic":           {edit(func(b []byte) []byte { b[0] = 'X'; return b }), "does not begin"},
		"version":         {edit(func(b []byte) []byte { b[7] = 9; return b }), "version 9"},
		"no parts":        {edit(func(b []byte) []byte { b[8] = 0; return b }), "0 parts"},
		"too many parts":  {edit(func(b []byte) []byte { binary.LittleEndian.PutUint32(b[8:], 1<<31); return b }), "parts"},
		"more parts":      {edit(func(b []byte) []byte { b[8] = 200; return b }), "200 parts need"},
		"size 0":          {edit(func(b []byte) []byte { binary.LittleEndian.PutUint64(b[12:], 0); return b }), "part 1 has 0 bytes"},
		"huge size":       {edit(func(b []byte) []byte { binary.LittleEndian.PutUint64(b[12:], MaxPartSize); return b }), "hashes are left"},
		"absurd size":     {edit(func(b []byte) []byte { binary.LittleEndian.PutUint64(b[12:], 1<<63); return b }), "are allowed"},
		"one hash short":  {good[:len(good)-32], "3 pieces, only 2"},
		"one byte short":  {good[:len(good)-1], "3 pieces, only 2"},
		"one byte more":   {append(bytes.Clone(good), 0), "1 bytes too many"},
		"another size":    {edit(func(b []byte) []byte { b[12]++; return b }), "describes model"},
		"wrong root":      {edit(func(b []byte) []byte { b[30]++; return b }), "describes model"},
		"wrong piece":     {edit(func(b []byte) []byte { b[len(b)-1]++; return b }), "do not hash to the root"},
		"swapped pieces":  {edit(func(b []byte) []byte { return swapLast(b) }), "do not hash to the root"},
		"another's bytes": {[]byte(strings.Repeat("spam", 100)), "does not begin"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := ParseManifest(c.data, id)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q in one line", name, err, c.want)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%s: %d bytes allocated", name, n)
		}
	}
}

// swapLast swaps the last piece hash with the one before the one before it: two are equal here.
func swapLast(b []byte) []byte {
	n := len(b)
	last := bytes.Clone(b[n-32:])
	copy(b[n-32:], b[n-96:n-64])
	copy(b[n-96:], last)
	return b
}

func TestBundleErrors(t *testing.T) {
	m, infos := tinyManifest(t)
	id := m.ID()
	b := &Bundle{Manifest: m, Torrents: infos}
	good := b.Marshal()
	if got, err := ParseBundle(good, id, len(good)); err != nil || !bytes.Equal(got.Marshal(), good) {
		t.Fatalf("round trip: %v", err)
	}
	other := id
	other[0]++
	for name, c := range map[string]struct {
		data  []byte
		id    ID
		limit int
		want  string
	}{
		"limit":       {good, id, len(good) - 1, "are allowed"},
		"empty":       {nil, id, 100, "does not begin"},
		"version":     {append([]byte("STARBN\x00\x03"), good[8:]...), id, 1000, "version 3"},
		"manifest":    {append(bytes.Clone(good[:8]), 255, 255, 255, 255), id, 1000, "only 0 are left"},
		"cut":         {good[:len(good)-1], id, 1000, "SHA-1 hashes are left"},
		"more":        {append(bytes.Clone(good), 1), id, 1000, "too many"},
		"other model": {good, other, 1000, "describes model"},
	} {
		if _, err := ParseBundle(c.data, c.id, c.limit); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestParseID(t *testing.T) {
	m, _ := tinyManifest(t)
	id := m.ID()
	got, err := ParseID(id.String())
	if err != nil || got != id {
		t.Errorf("%v, %v", got, err)
	}
	if !strings.HasPrefix(id.String(), id.Short()) || len(id.Short()) != 12 {
		t.Errorf("short form %q", id.Short())
	}
	text, _ := id.MarshalText()
	var back ID
	if err := back.UnmarshalText(text); err != nil || back != id {
		t.Errorf("%v, %v", back, err)
	}
	for _, s := range []string{"", "abc", strings.Repeat("x", 64), id.String()[:63], id.String() + "0"} {
		if _, err := ParseID(s); err == nil {
			t.Errorf("%q was accepted", s)
		}
	}
}

func TestBuildErrors(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, paths := range [][]string{nil, {empty}, {filepath.Join(dir, "missing")}, {dir}} {
		if _, _, err := Build(t.Context(), paths, nil); err == nil {
			t.Errorf("Build(%q) succeeded", paths)
		}
	}
}

func FuzzParseManifest(f *testing.F) {
	m, _ := tinyManifest(f)
	f.Add(m.Marshal())
	one := &Manifest{Parts: m.Parts[:1]}
	f.Add(one.Marshal())
	f.Add(m.Marshal()[:50])
	f.Fuzz(func(t *testing.T, data []byte) {
		shape, err := decodeManifest(data)
		if err != nil {
			return
		}
		got, err := ParseManifest(data, shape.ID())
		if err != nil {
			return
		}
		if !bytes.Equal(got.Marshal(), data) {
			t.Error("an accepted manifest is not canonical")
		}
		for i := range got.Parts {
			if rootOf(got.Parts[i].Pieces, got.Parts[i].Size) != got.Parts[i].Root {
				t.Error("an accepted manifest is not consistent")
			}
		}
	})
}

func FuzzParseBundle(f *testing.F) {
	m, infos := tinyManifest(f)
	id := m.ID()
	b := &Bundle{Manifest: m, Torrents: infos}
	f.Add(b.Marshal())
	f.Add(b.Marshal()[:20])
	b.WebSeeds = []string{"http://a/m-00001-of-00002.gguf", "https://b/m-00001-of-00002.gguf?c=d"}
	f.Add(b.Marshal())
	f.Add([]byte("STARBN\x00\x01\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ParseBundle(data, id, 1<<16)
		if err != nil {
			return
		}
		if !bytes.Equal(got.Marshal(), data) || got.Manifest.ID() != id {
			t.Error("an accepted bundle is not canonical")
		}
	})
}

func FuzzJournal(f *testing.F) {
	f.Add(appendJournal(appendJournal(nil, 0, 3), 1, 0))
	f.Add(appendJournal(nil, 0, 3)[:11])
	f.Add(appendJournal(nil, 9, 9))
	f.Fuzz(func(t *testing.T, data []byte) {
		have := []bitmap{newBitmap(10), newBitmap(1)}
		n := parseJournal(data, have)
		if got := have[0].count() + have[1].count(); got > n || n > len(data)/journalEntry {
			t.Errorf("%d pieces from %d entries in %d bytes", got, n, len(data))
		}
	})
}
