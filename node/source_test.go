package node

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
)

// testHub is a web server with the layout of the hub: files lie at OWNER/REPO/resolve/REVISION/FILE, which redirects to where the
// bytes are.
type testHub struct {
	*httptest.Server
	sent atomic.Int64
}

func startHub(t *testing.T, file string) *testHub {
	h := &testHub{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/owner/repo/resolve/main/tiny.gguf":
			w.Header().Set("X-Linked-Etag", `"0000"`)
			http.Redirect(w, r, "/cdn/abc?expires=1", http.StatusFound)
		case "/cdn/abc":
			w.Header().Set("ETag", `"abc"`)
			http.ServeFile(&countedWriter{w, &h.sent}, r, file)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(h.Close)
	return h
}

type countedWriter struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (w *countedWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.n.Add(int64(n))
	return n, err
}

// TestPullFromHub pulls a model that no node has made a manifest of, which fetches all of it once; the next node takes that manifest
// and its bytes from the swarm, and from the hub those that the swarm does not have any more.
func TestPullFromHub(t *testing.T) {
	tn := newTestNet(t)
	hub := startHub(t, tn.model)
	size := int64(len(mustRead(t, tn.model)))
	tn.start(nil)
	first, second, third := tn.start(nil), tn.start(nil), tn.start(nil)
	ctx := testContext(t)
	pull := func(n *Node, layers *control.Layers) (m *control.Model, card *control.Card) {
		t.Helper()
		m, err := engine{n}.Pull(ctx, control.PullRequest{Model: "hf:owner/repo/tiny.gguf", Hub: hub.URL, Layers: layers}, func(ev control.Event) error {
			switch {
			case ev.Card != nil:
				card = ev.Card
			case ev.Phase == "pull" && card == nil:
				t.Error("weights came before the card")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return m, card
	}
	m, card := pull(first, nil)
	if card == nil || card.NumLayers != tn.layers() || len(card.Cache) == 0 || card.Cache[0].Bytes <= 0 || card.Bytes != size {
		t.Errorf("card %+v", card)
	}
	if m.Held == nil || !bytes.Equal(mustRead(t, m.Path), mustRead(t, tn.model)) {
		t.Errorf("pulled %+v", m)
	}
	if sent := hub.sent.Load(); sent > 2*size {
		t.Errorf("the hub sent %d bytes of %d", sent, size)
	}

	id, err := artifacts.ParseID(m.ID)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first node's offer", func() bool { _ = second.host.Refresh(ctx); return len(second.holders(id)) > 0 })
	m2, _ := pull(second, &control.Layers{First: 0, Last: 0})
	if m2.ID != m.ID || *m2.Held != (control.Layers{First: 0, Last: 0}) {
		t.Errorf("pulled %+v", m2)
	}
	if _, err := os.Stat(filepath.Join(second.cfg.storeDir(), "incoming")); err == nil {
		t.Error("the second node fetched the file whole, though its manifest was in the swarm")
	}

	// a third one knows the manifest, and nobody who still has the bytes
	model, _ := first.store.Get(id)
	if _, err := third.store.AddBundle(model.Bundle()); err != nil {
		t.Fatal(err)
	}
	first.Close()
	second.Close()
	if m3, _ := pull(third, nil); m3.ID != m.ID || !bytes.Equal(mustRead(t, m3.Path), mustRead(t, tn.model)) {
		t.Errorf("pulled %+v", m3)
	}
}

// TestPullFromGatedHub pulls what the hub gives to nobody without a token: without one the error says what to do; the server that the hub
// redirects to never sees it. The web seed that a pull leaves behind shows it, too.
func TestPullFromGatedHub(t *testing.T) {
	const token = "hf_secret"
	tn := newTestNet(t)
	var leaked atomic.Bool
	var sent atomic.Int64
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			leaked.Store(true)
		}
		http.ServeFile(&countedWriter{w, &sent}, r, tn.model)
	}))
	t.Cleanup(files.Close)
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.Redirect(w, r, files.URL, http.StatusFound)
	}))
	t.Cleanup(hub.Close)
	q := control.PullRequest{Model: "hf:owner/repo/tiny.gguf", Hub: hub.URL}
	n := tn.start(nil)
	if _, err := (engine{n}).Pull(testContext(t), q, quiet); err == nil || !strings.Contains(err.Error(), "HF_TOKEN") {
		t.Errorf("without a token: %v", err)
	}
	q.Token = token
	m, err := engine{n}.Pull(testContext(t), q, quiet)
	if err != nil {
		t.Fatal(err)
	}
	id, err := artifacts.ParseID(m.ID)
	if err != nil {
		t.Fatal(err)
	}
	// one knows the manifest and nobody who has the bytes
	model, _ := n.store.Get(id)
	away := newTestNet(t).start(nil)
	if _, err := away.store.AddBundle(model.Bundle()); err != nil {
		t.Fatal(err)
	}
	if got, err := (engine{away}).Pull(testContext(t), q, quiet); err != nil || got.ID != m.ID || !bytes.Equal(mustRead(t, got.Path), mustRead(t, tn.model)) {
		t.Errorf("pulled %+v, %v", got, err)
	}
	if leaked.Load() || sent.Load() == 0 {
		t.Errorf("the other server sent %d bytes and saw the token: %v", sent.Load(), leaked.Load())
	}
}

func TestPullFromHubErrors(t *testing.T) {
	tn := newTestNet(t)
	hub := startHub(t, tn.model)
	n := tn.start(nil)
	for source, want := range map[string]string{
		"hf:owner/repo/other.gguf":    "isn't there",
		"hf:owner":                    "hf:OWNER/REPO/FILE.gguf",
		hub.URL + "/cdn/abc#fragment": "fragment",
	} {
		if _, err := (engine{n}).Pull(testContext(t), control.PullRequest{Model: source, Hub: hub.URL}, quiet); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", source, err, want)
		}
	}
}

// TestPublishForOthers publishes with a web seed, and .torrent files; a node that has only such a file fetches over plain BitTorrent.
func TestPublishForOthers(t *testing.T) {
	tn := newTestNet(t)
	hub := startHub(t, tn.model)
	other := newTestNet(t)
	if err := os.WriteFile(other.model, append(mustRead(t, tn.model), make([]byte, 5)...), 0o644); err != nil {
		t.Fatal(err)
	}
	wrong := startHub(t, other.model)
	n := tn.start(func(c *Config) { c.TorrentListen = "127.0.0.1:0" })
	seed := hub.URL + "/owner/repo/resolve/main/tiny.gguf"
	ctx := testContext(t)
	if _, err := (engine{n}).Publish(ctx, control.PublishRequest{Path: tn.model, WebSeeds: []string{wrong.URL + "/owner/repo/resolve/main/tiny.gguf"}}, quiet); err == nil {
		t.Error("a web seed with another file was accepted")
	}
	m, err := engine{n}.Publish(ctx, control.PublishRequest{Path: tn.model, WebSeeds: []string{seed}, Torrents: true}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Torrents) != 1 || m.Torrents[0].Name != "tiny.gguf.torrent" || !strings.Contains(m.Torrents[0].Magnet, "ws=") {
		t.Fatalf("%d torrents: %+v", len(m.Torrents), m.Torrents)
	}
	file := filepath.Join(t.TempDir(), "m.torrent")
	if err := os.WriteFile(file, m.Torrents[0].Data, 0o644); err != nil {
		t.Fatal(err)
	}
	st, err := engine{n}.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// of another swarm, so that only the plain port leads here
	away := newTestNet(t).start(func(c *Config) { c.TorrentPeers = []string{st.Torrent} })
	got, err := engine{away}.Pull(ctx, control.PullRequest{Torrent: file}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if got.ID != m.ID || !bytes.Equal(mustRead(t, got.Path), mustRead(t, tn.model)) {
		t.Errorf("pulled %+v", got)
	}
	if hub.sent.Load() > 2*int64(len(mustRead(t, tn.model))) {
		t.Error("a web seed on this machine, which a bundle named, was used")
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
