package artifacts

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// webServer has the files of a folder, as the standard library serves them.
type webServer struct {
	*httptest.Server
	requests atomic.Int64
	sent     atomic.Int64
}

// serveFolder starts a server that has dir's files and lets wrap change how. It speaks HTTP/1.1.
func serveFolder(t testing.TB, dir string, wrap func(http.Handler) http.Handler) *webServer {
	t.Helper()
	s := &webServer{}
	var h http.Handler = http.FileServer(http.Dir(dir))
	if wrap != nil {
		h = wrap(h)
	}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		h.ServeHTTP(&countingWriter{w, &s.sent}, r)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections() // some handlers hang
		s.Close()
	})
	return s
}

type countingWriter struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (w *countingWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.n.Add(int64(n))
	return n, err
}

func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// quickWeb makes a web client that loses patience fast.
func quickWeb() *webClient {
	c := newWebClient(false)
	c.stall, c.pause = 300*time.Millisecond, 5*time.Millisecond
	return c
}

// webLeecher starts a node that knows src and web servers, and nobody else.
func webLeecher(t *testing.T, src *Model, urls ...string) (*Torrents, *Model) {
	t.Helper()
	s := openStore(t, t.TempDir())
	tor := newTestNet().join(t, "leecher", s)
	m := learn(t, s, src)
	for _, u := range urls {
		useRemote(t, tor, m, u, quickWeb())
	}
	return tor, m
}

// useRemote names a web server to a node as if it had been opened.
func useRemote(t *testing.T, tor *Torrents, m *Model, url string, web *webClient) {
	t.Helper()
	if err := tor.UseRemote(m, &Remote{first: url, web: web}); err != nil {
		t.Fatal(err)
	}
}

func sameFiles(t *testing.T, m *Model, paths []string) {
	t.Helper()
	for i, path := range partPaths(m) {
		if !bytes.Equal(mustRead(t, path), mustRead(t, paths[i])) {
			t.Errorf("part %d differs from the published file", i+1)
		}
	}
}

// once lets bad answer the first n requests.
func once(n int64, bad func(good http.Handler, w http.ResponseWriter, r *http.Request)) func(http.Handler) http.Handler {
	var count atomic.Int64
	return func(good http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if count.Add(1) <= n {
				bad(good, w, r)
				return
			}
			good.ServeHTTP(w, r)
		})
	}
}

const always = 1 << 60

// without takes a header off requests.
func without(key string, h http.Handler, w http.ResponseWriter, r *http.Request) {
	r.Header.Del(key)
	h.ServeHTTP(w, r)
}

// Web servers that are slow, odd or flaky, and have the right bytes: all of the model comes.
func TestWebSeeds(t *testing.T) {
	for name, wrap := range map[string]func(http.Handler) http.Handler{
		"ranges":          nil,
		"ignores ranges":  once(always, func(h http.Handler, w http.ResponseWriter, r *http.Request) { without("Range", h, w, r) }),
		"ranges at times": once(2, func(h http.Handler, w http.ResponseWriter, r *http.Request) { without("Range", h, w, r) }),
		"redirects": once(1, func(_ http.Handler, w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path+"?signed=1", http.StatusFound)
		}),
		"stalls": once(2, func(_ http.Handler, w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
		"stalls halfway": once(2, func(h http.Handler, w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(&cutWriter{ResponseWriter: w, left: 100_000, then: func() {
				_ = http.NewResponseController(w).Flush() // what is there gets there
				<-r.Context().Done()
			}}, r)
		}),
		"truncates": once(3, func(h http.Handler, w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(&cutWriter{ResponseWriter: w, left: 100_000, then: func() { panic(http.ErrAbortHandler) }}, r)
		}),
		"is busy": once(3, func(_ http.Handler, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
		}),
		"sends less": once(2, func(h http.Handler, w http.ResponseWriter, r *http.Request) {
			var first, last int64
			if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last); err != nil {
				panic(err)
			}
			r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", first, min(last, first+99_999)))
			h.ServeHTTP(w, r)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, parts := range []int{1, 2} {
				_, src, paths := publish(t, testModel{layers: 6, parts: parts, seed: 21})
				web := serveFolder(t, filepath.Dir(paths[0]), wrap)
				tor, m := webLeecher(t, src, web.URL+"/"+filepath.Base(paths[0]))
				card, err := tor.FetchHeader(testContext(t), m, peersOf(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := tor.Fetch(testContext(t), m, card.Spans(LayerRange{0, 6}), peersOf(), nil); err != nil {
					t.Fatal(err)
				}
				sameFiles(t, m, paths)
				if got := tor.Banned(); len(got) > 0 {
					t.Errorf("banned %q", got)
				}
			}
		})
	}
}

// cutWriter passes so many bytes on.
type cutWriter struct {
	http.ResponseWriter
	left int
	then func()
}

func (w *cutWriter) Write(b []byte) (int, error) {
	if len(b) <= w.left {
		w.left -= len(b)
		return w.ResponseWriter.Write(b)
	}
	n, _ := w.ResponseWriter.Write(b[:w.left])
	w.left = 0
	w.then()
	return n, io.ErrShortWrite
}

// A range of layers takes a range of bytes, and what came is kept and served.
func TestWebSeedRange(t *testing.T) {
	_, src, paths := publish(t, testModel{layers: 12, seed: 22, untied: true})
	web := serveFolder(t, filepath.Dir(paths[0]), nil)
	tor, m := webLeecher(t, src, web.URL+"/m.gguf")
	card, _ := src.Card()
	spans := card.Spans(LayerRange{4, 7})
	if err := tor.Fetch(testContext(t), m, spans, peersOf(), nil); err != nil {
		t.Fatal(err)
	}
	if h := m.Held(); h.Layers != (LayerRange{4, 7}) || h.Whole {
		t.Errorf("held %+v", h)
	}
	if sent, held := web.sent.Load(), m.HeldBytes(); sent != held {
		t.Errorf("the server sent %d bytes for %d that are held", sent, held)
	}
	tor.Close()
	s := reopen(t, m.store)
	if m = mustGet(t, s, m.ID()); !m.Have(spans) || s.HashedBytes() != 0 {
		t.Errorf("after a restart %d bytes were hashed", s.HashedBytes())
	}
}

// Peers and a web server together: what came from the server is served to peers by torrent.
func TestWebSeedBesidePeers(t *testing.T) {
	_, src, paths := publish(t, testModel{layers: 20, seed: 23})
	web := serveFolder(t, filepath.Dir(paths[0]), nil)
	n := newTestNet()
	n.seeder(t, "slow", src, 1<<20)
	var wg sync.WaitGroup
	names := []string{"a", "b"}
	for i, name := range names {
		s := openStore(t, t.TempDir())
		tor := n.join(t, name, s)
		m := learn(t, s, src)
		if i == 0 {
			useRemote(t, tor, m, web.URL+"/m.gguf", quickWeb())
		}
		wg.Go(func() {
			// a begins without peers, so with the server at once
			first := true
			peers := func() []string {
				if first {
					first = false
					return nil
				}
				return []string{"slow", "a", "b"}
			}
			if err := tor.Fetch(testContext(t), m, m.Manifest().All(), peers, nil); err != nil {
				t.Error(name, err)
			}
			sameFiles(t, m, paths)
		})
	}
	wg.Wait()
	if web.sent.Load() == 0 {
		t.Error("the server was not asked")
	}
}

// Web servers that lie or are another model's are given up, with a reason; nothing wrong is kept,
// and nothing verified is lost.
func TestHostileWebSeeds(t *testing.T) {
	other := writeModel(t, t.TempDir(), testModel{layers: 6, seed: 99})[0]
	for name, c := range map[string]struct {
		bad    func(good http.Handler, w http.ResponseWriter, r *http.Request)
		want   string
		banned bool
	}{
		"wrong bytes": {func(_ http.Handler, w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, other) }, "wrong bytes", true},
		"content range of elsewhere": {func(h http.Handler, w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(&headerWriter{w, func(h http.Header) { h.Set("Content-Range", "bytes 1-100/200") }}, r)
		}, "Content-Range", false},
		"content range of a larger file": {func(h http.Handler, w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(&headerWriter{w, func(h http.Header) {
				h.Set("Content-Range", strings.Split(h.Get("Content-Range"), "/")[0]+"/9999999999999999999")
			}}, r)
		}, "Content-Range", false},
		"no content range": {func(h http.Handler, w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(&headerWriter{w, func(h http.Header) { h.Del("Content-Range") }}, r)
		}, "no range", false},
		"encoding": {func(h http.Handler, w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(&headerWriter{w, func(h http.Header) { h.Set("Content-Encoding", "gzip") }}, r)
		}, "encoding", false},
		"another size":  {func(_ http.Handler, w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 1000)) }, "another file", false},
		"not there":     {func(_ http.Handler, w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }, "isn't there", false},
		"not for all":   {func(_ http.Handler, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, "to everybody", false},
		"always busy":   {func(_ http.Handler, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, "status 503, 5 times", false},
		"always stalls": {func(_ http.Handler, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "stopped sending", false},
		"endless detour": {func(_ http.Handler, w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		}, "redirects", false},
		"detour to a file": {func(_ http.Handler, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(302)
		}, "redirect", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, src, paths := publish(t, testModel{layers: 6, seed: 24})
			card, _ := src.Card()
			good := serveFolder(t, filepath.Dir(paths[0]), nil)
			bad := serveFolder(t, filepath.Dir(paths[0]), once(always, c.bad))
			tor, m := webLeecher(t, src, good.URL+"/m.gguf")
			if err := tor.Fetch(testContext(t), m, card.Spans(LayerRange{1, 2}), peersOf(), nil); err != nil {
				t.Fatal(err)
			}
			held := m.HeldBytes()
			good.Close()
			tor.mu.Lock()
			tor.named[m.id] = []namedSeed{{bad.URL + "/m.gguf", quickWeb()}}
			tor.mu.Unlock()
			err := tor.Fetch(testContext(t), m, m.Manifest().All(), peersOf(), nil)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), bad.URL) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want %q", err, c.want)
			}
			if got := tor.Banned(); slices.Contains(got, bad.URL+"/m.gguf") != c.banned {
				t.Errorf("banned %q", got)
			}
			if m.HeldBytes() != held {
				t.Errorf("%d bytes are held, %d before", m.HeldBytes(), held)
			}
			if c.banned {
				asked := bad.requests.Load()
				useRemote(t, tor, m, good.URL+"/m.gguf", quickWeb())
				_ = tor.Fetch(testContext(t), m, m.Manifest().All(), peersOf(), nil) // both are gone
				if bad.requests.Load() != asked {
					t.Error("a banned server was asked again")
				}
			}
			again := serveFolder(t, filepath.Dir(paths[0]), nil)
			useRemote(t, tor, m, again.URL+"/m.gguf", quickWeb())
			if err := tor.Fetch(testContext(t), m, m.Manifest().All(), peersOf(), nil); err != nil {
				t.Fatal(err)
			}
			sameFiles(t, m, paths)
		})
	}
}

// headerWriter changes headers before they are sent.
type headerWriter struct {
	http.ResponseWriter
	change func(http.Header)
}

func (w *headerWriter) WriteHeader(status int) {
	w.change(w.Header())
	w.ResponseWriter.WriteHeader(status)
}

// Web seeds that a bundle names are hints of strangers: they are used where they are allowed, and
// lead to no address of this machine or its networks.
func TestWebSeedHints(t *testing.T) {
	_, src, paths := publish(t, testModel{layers: 2, seed: 25})
	web := serveFolder(t, filepath.Dir(paths[0]), nil)
	if err := src.AddWebSeeds([]string{web.URL + "/m.gguf"}); err != nil {
		t.Fatal(err)
	}
	tor, m := webLeecher(t, src)
	if got := m.Bundle().WebSeeds; len(got) != 1 {
		t.Fatalf("web seeds %q came with the bundle", got)
	}
	for _, allowed := range []bool{false, true} {
		if allowed {
			tor.hintWeb = newWebClient(true)
			tor.hintWeb.pause = time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		err := tor.Fetch(ctx, m, m.Manifest().All(), peersOf(), nil)
		cancel()
		if err == nil || allowed && !strings.Contains(err.Error(), "no public address") {
			t.Errorf("hints allowed: %v: %v", allowed, err)
		}
	}
	if n := web.requests.Load(); n != 0 {
		t.Errorf("%d requests got to a server on this machine", n)
	}
	tor.hintWeb = quickWeb() // as if it were public
	if err := tor.Fetch(testContext(t), m, m.Manifest().All(), peersOf(), nil); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, m, paths)
}

func TestCheckPublic(t *testing.T) {
	for _, a := range []string{"127.0.0.1:80", "10.1.2.3:80", "192.168.1.1:80", "172.20.0.1:80", "169.254.169.254:80", "0.0.0.0:80", "100.64.0.1:80", "224.0.0.1:80",
		"[::1]:80", "[fe80::1]:80", "[fd00::1]:80", "[::ffff:127.0.0.1]:80", "[::]:80", "nothing"} {
		if checkPublic(a) == nil {
			t.Errorf("%s passes as a public address", a)
		}
	}
	for _, a := range []string{"93.184.216.34:443", "[2606:2800:220:1::1]:443"} {
		if err := checkPublic(a); err != nil {
			t.Error(err)
		}
	}
}

// A disk that refuses ends the fetch, and is not the server's fault.
func TestWebSeedDiskRefuses(t *testing.T) {
	_, src, paths := publish(t, testModel{layers: 4, seed: 26})
	web := serveFolder(t, filepath.Dir(paths[0]), nil)
	tor, m := webLeecher(t, src, web.URL+"/m.gguf")
	blocked := m.Path()
	if err := os.Mkdir(blocked, 0o755); err != nil {
		t.Fatal(err)
	}
	err := tor.Fetch(testContext(t), m, m.Manifest().All(), peersOf(), nil)
	if err == nil || !strings.Contains(err.Error(), blocked) || m.HeldBytes() != 0 {
		t.Fatalf("%v; %d bytes held", err, m.HeldBytes())
	}
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	if err := tor.Fetch(testContext(t), m, m.Manifest().All(), peersOf(), nil); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, m, paths)
}

// FuzzWebAnswer: whatever a server's headers say, what is believed fits what was asked for.
func FuzzWebAnswer(f *testing.F) {
	f.Add(206, "bytes 10-19/100", "", int64(10), int64(100))
	f.Add(206, "bytes 10-19/*", "", int64(-1), int64(100))
	f.Add(206, "bytes 10-12/100", "identity", int64(3), int64(0))
	f.Add(206, "bytes */100", "", int64(0), int64(100))
	f.Add(200, "", "gzip", int64(100), int64(0))
	f.Add(200, "", "", int64(100), int64(100))
	f.Add(503, "", "", int64(0), int64(0))
	f.Fuzz(func(t *testing.T, status int, contentRange, encoding string, length, size int64) {
		const from, to = 10, 20
		if size != 0 && size < to {
			return
		}
		h := http.Header{"Content-Range": {contentRange}, "Content-Encoding": {encoding}, "Retry-After": {contentRange}}
		first, total, err := checkAnswer(status, h, length, from, to, size)
		if err != nil {
			if strings.Contains(err.Error(), "\n") || len(err.Error()) > 500 {
				t.Errorf("an unfit message: %q", err)
			}
			return
		}
		if first != 0 && first != from || total < 1 || total > MaxPartSize || size != 0 && total != size || first == from && total <= from {
			t.Errorf("status %d, %q, %d bytes of %d: the body begins at %d of %d", status, contentRange, length, size, first, total)
		}
	})
}
