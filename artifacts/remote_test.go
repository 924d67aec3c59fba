package artifacts

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/runtime/gguf"
)

// A model on a server is known by its header, which is had without weights, whatever the server.
func TestOpenRemote(t *testing.T) {
	for _, parts := range []int{1, 3} {
		_, src, paths := publish(t, testModel{layers: 9, parts: parts, seed: 31, vocab: 60_000})
		_, other, _ := publish(t, testModel{layers: 9, parts: parts, seed: 32, vocab: 60_000}) // another training of it
		want, _ := src.Card()
		for _, ranges := range []bool{true, false} {
			web := serveFolder(t, filepath.Dir(paths[0]), once(always, func(h http.Handler, w http.ResponseWriter, r *http.Request) {
				if !ranges {
					r.Header.Del("Range")
				}
				h.ServeHTTP(w, r)
			}))
			r, err := openRemote(t.Context(), quickWeb(), web.URL+"/"+filepath.Base(paths[0]), nil)
			if err != nil {
				t.Fatal(err)
			}
			if c := r.Card(); c.Layers != want.Layers || c.TotalBytes != want.TotalBytes || c.Name != want.Name || c.Vocab != want.Vocab {
				t.Errorf("card %+v", c)
			}
			if sent := web.sent.Load(); ranges && sent > src.TotalBytes()*3/4 {
				t.Errorf("%d bytes were sent for the headers of a model of %d", sent, src.TotalBytes())
			}
			if same, err := r.Matches(t.Context(), src.Manifest()); err != nil || !same {
				t.Errorf("%d parts, ranges %v: its own manifest doesn't match: %v", parts, ranges, err)
			}
			if same, err := r.Matches(t.Context(), other.Manifest()); ranges && (err != nil || same) {
				t.Errorf("%d parts: another model's manifest matches, or %v", parts, err)
			}
		}
	}
}

func TestOpenRemoteErrors(t *testing.T) {
	dir := t.TempDir()
	paths := writeModel(t, dir, testModel{layers: 3, parts: 3, seed: 33})
	whole := mustRead(t, paths[0])
	for name, data := range map[string][]byte{"no.gguf": []byte("<html>please log in</html>"), "cut.gguf": whole[:200], "alone.gguf": whole, "empty.gguf": nil} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	web := serveFolder(t, dir, nil)
	for name, want := range map[string]string{
		"/no.gguf": "GGUF", "/cut.gguf": "cut short", "/missing.gguf": "isn't there", "/empty.gguf": "", "/alone.gguf": "-00001-of-00003.gguf",
		"/" + filepath.Base(paths[1]): "-00001-of-00003.gguf",
	} {
		_, err := openRemote(t.Context(), quickWeb(), web.URL+name, nil)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), web.URL) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// Where nobody has made the manifest, all of the model is fetched once, over interruptions, and is
// then as if it had been published and fetched.
func TestDownload(t *testing.T) {
	for _, parts := range []int{1, 2} {
		_, src, paths := publish(t, testModel{layers: 6, parts: parts, seed: 34})
		web := serveFolder(t, filepath.Dir(paths[0]), once(12, func(h http.Handler, w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(&cutWriter{ResponseWriter: w, left: 200_000, then: func() { panic(http.ErrAbortHandler) }}, r)
		}))
		s := openStore(t, t.TempDir())
		r, err := openRemote(t.Context(), quickWeb(), web.URL+"/"+filepath.Base(paths[0]), nil)
		if err != nil {
			t.Fatal(err)
		}
		before := web.sent.Load()
		var done, total int64
		m, err := s.Download(testContext(t), r, func(d, of int64) { done, total = d, of }, nil)
		if err != nil {
			t.Fatal(err)
		}
		if m.ID() != src.ID() || done != total || total != src.TotalBytes() {
			t.Errorf("downloaded %s, %d of %d bytes; published %s", m.ID(), done, total, src.ID())
		}
		if sent := web.sent.Load() - before; sent > src.TotalBytes()*5/4 {
			t.Errorf("%d bytes were sent for a model of %d", sent, src.TotalBytes())
		}
		if !bytes.Equal(m.Bundle().Marshal(), src.Bundle().Marshal()) {
			t.Error("its bundle differs from the publisher's")
		}
		sameFiles(t, m, paths)
		if left, _ := filepath.Glob(filepath.Join(s.Dir(), "incoming", "*")); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		s = reopen(t, s)
		if m = mustGet(t, s, m.ID()); !m.Held().Whole || m.Published() || s.HashedBytes() != 0 {
			t.Errorf("after a restart %+v, published %v, %d bytes hashed", m.Held(), m.Published(), s.HashedBytes())
		}
		// others fetch it from here
		n := newTestNet()
		if err := n.join(t, "seeder", s).Seed(m); err != nil {
			t.Fatal(err)
		}
		s2 := openStore(t, t.TempDir())
		m2 := learn(t, s2, m)
		if err := n.join(t, "leecher", s2).Fetch(testContext(t), m2, m2.Manifest().All(), peersOf("seeder"), nil); err != nil {
			t.Fatal(err)
		}
	}
}

// An interrupted download goes on where it was, unless the file is another one by then.
func TestDownloadGoesOn(t *testing.T) {
	for name, change := range map[string]bool{"the same file": false, "a changed file": true} {
		dir := t.TempDir()
		path := writeModel(t, dir, testModel{layers: 6, seed: 35})[0]
		again := false
		web := serveFolder(t, dir, func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if again && !change && strings.HasPrefix(r.Header.Get("Range"), "bytes=0-") && r.Header.Get("If-Range") != "" {
					t.Errorf("%s: it begins again", name)
				}
				h.ServeHTTP(w, r)
			})
		})
		s := openStore(t, t.TempDir())
		c := quickWeb()
		r, err := openRemote(t.Context(), c, web.URL+"/m.gguf", nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if _, err = s.Download(ctx, r, func(done, _ int64) {
			if done > 600_000 {
				cancel()
			}
		}, nil); err == nil {
			t.Fatal("the first download got everything")
		}
		s, again = reopen(t, s), true
		if change {
			writeModel(t, dir, testModel{layers: 6, seed: 36})
			later := time.Now().Add(time.Hour)
			if err := os.Chtimes(path, later, later); err != nil {
				t.Fatal(err)
			}
		}
		if r, err = openRemote(t.Context(), c, web.URL+"/m.gguf", nil); err != nil {
			t.Fatal(err)
		}
		m, err := s.Download(testContext(t), r, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		sameFiles(t, m, []string{path})
	}
}

func TestSourceURL(t *testing.T) {
	for source, want := range map[string]string{
		"hf:o/r/f.gguf":             "https://huggingface.co/o/r/resolve/main/f.gguf",
		"hf:o/r@v1.0/a/b c.gguf":    "https://huggingface.co/o/r/resolve/v1.0/a/b%20c.gguf",
		"https://a.example/x.gguf":  "https://a.example/x.gguf",
		"http://a.example/x?y=z":    "http://a.example/x?y=z",
		"hf:o/r/f-00001-of-2.gguf":  "https://huggingface.co/o/r/resolve/main/f-00001-of-2.gguf",
		"hf:o/r":                    "",
		"hf:o/../f":                 "",
		"hf:o/r/../../etc/passwd":   "",
		"hf:o//f":                   "",
		"hf:":                       "",
		"hf:o/r@/f":                 "",
		"ftp://a/b":                 "",
		"https://u:p@a.example/x.g": "",
	} {
		got, err := SourceURL(source, "")
		if got != want && want != "" || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v, want %q", source, got, err, want)
		}
	}
	if got, err := SourceURL("hf:o/r/f.gguf", "http://127.0.0.1:80/hub/"); err != nil || got != "http://127.0.0.1:80/hub/o/r/resolve/main/f.gguf" {
		t.Errorf("%s, %v", got, err)
	}
}

// FuzzCard: whatever a header says, the card it makes is one whose spans lie in the file.
func FuzzCard(f *testing.F) {
	for _, c := range []testModel{{layers: 1}, {layers: 2, untied: true, vocab: 3}} {
		data := mustRead(f, writeModel(f, f.TempDir(), c)[0])
		f.Add(data[:4096], int64(len(data)))
	}
	f.Fuzz(func(t *testing.T, head []byte, size int64) {
		file, err := gguf.Read(zeroPadded(head), min(max(size, int64(len(head))), 1<<20), "fuzz.gguf") // of larger ones a header may be 256 MiB, which takes too long
		if err != nil {
			return
		}
		set, err := gguf.NewSet([]*gguf.File{file})
		if err != nil {
			return
		}
		card, err := NewCard(set)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("an unfit message: %q", err)
			}
			return
		}
		for l := range card.Layers + 1 {
			for _, s := range card.Spans(LayerRange{l, card.Layers}) {
				if s.Part != 0 || s.Offset < 0 || s.Length < 1 || s.Offset+s.Length > file.Size {
					t.Fatalf("layers %d to %d: span %+v of a file of %d", l, card.Layers, s, file.Size)
				}
			}
			if l > 64 {
				break
			}
		}
	})
}

// zeroPadded is bytes with zeros behind them.
type zeroPadded []byte

func (z zeroPadded) ReadAt(b []byte, off int64) (int, error) {
	clear(b)
	if off < int64(len(z)) {
		copy(b, z[off:])
	}
	return len(b), nil
}

var _ io.ReaderAt = zeroPadded(nil)

// What a real model's card, and ten of its layers, take from a web server.
func TestRemoteSmolLM2(t *testing.T) {
	path := smolLM2(t)
	web := serveFolder(t, filepath.Dir(path), nil)
	url := web.URL + "/" + filepath.Base(path)
	r, err := openRemote(t.Context(), quickWeb(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	header, requests := web.sent.Load(), web.requests.Load()
	src, err := openStore(t, t.TempDir()).Publish(t.Context(), []string{path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if same, err := r.Matches(t.Context(), src.Manifest()); err != nil || !same {
		t.Fatalf("its own manifest doesn't match: %v", err)
	}
	compared := web.sent.Load() - header
	if header > r.Card().TotalBytes/20 || compared > samples*PieceLength(r.Card().TotalBytes) {
		t.Errorf("%d bytes for the header and %d to compare, of %d", header, compared, r.Card().TotalBytes)
	}
	tor, m := webLeecher(t, src, url)
	before, asked := web.sent.Load(), web.requests.Load()
	if err := tor.Fetch(testContext(t), m, r.Card().Spans(LayerRange{10, 20}), peersOf(), nil); err != nil {
		t.Fatal(err)
	}
	if sent := web.sent.Load() - before; sent != m.HeldBytes() {
		t.Errorf("%d bytes were sent for %d that are held", sent, m.HeldBytes())
	}
	t.Logf("header: %d bytes in %d requests; samples: %d bytes; layers 10 to 19: %d bytes in %d requests, of %d",
		header, requests, compared, m.HeldBytes(), web.requests.Load()-asked, r.Card().TotalBytes)
}
