package artifacts

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// testNet connects nodes by name over loopback TCP. The dialing side sends its name in a first
// line, so that the listener can name it.
type testNet struct {
	mu    sync.Mutex
	addrs map[string]string
	conns []net.Conn
	dials atomic.Int64

	upload int64 // bytes per second that each node sends; 0: no bound
}

func newTestNet() *testNet { return &testNet{addrs: make(map[string]string)} }

type nameAddr string

func (a nameAddr) Network() string { return "test" }
func (a nameAddr) String() string  { return string(a) }

type namedConn struct {
	net.Conn
	r    *bufio.Reader
	peer nameAddr
}

func (c *namedConn) Read(b []byte) (int, error) { return c.r.Read(b) }
func (c *namedConn) RemoteAddr() net.Addr       { return c.peer }

type namedListener struct{ net.Listener }

func (l namedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		r := bufio.NewReader(c)
		name, err := r.ReadString('\n')
		if err != nil {
			c.Close()
			continue
		}
		return &namedConn{Conn: c, r: r, peer: nameAddr(strings.TrimSpace(name))}, nil
	}
}

// join starts a node's torrents.
func (n *testNet) join(t testing.TB, name string, s *Store) *Torrents {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.mu.Lock()
	n.addrs[name] = l.Addr().String()
	n.mu.Unlock()
	tor, err := NewTorrents(TorrentConfig{Store: s, Listener: namedListener{l}, MaxUpload: n.upload, Dial: func(ctx context.Context, peer string) (net.Conn, error) {
		n.dials.Add(1)
		n.mu.Lock()
		addr, ok := n.addrs[peer]
		n.mu.Unlock()
		if !ok {
			return nil, errors.New("no such peer")
		}
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		if _, err := c.Write([]byte(name + "\n")); err != nil {
			c.Close()
			return nil, err
		}
		n.mu.Lock()
		n.conns = append(n.conns, c)
		n.mu.Unlock()
		return c, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tor.Close() })
	return tor
}

func peersOf(names ...string) func() []string { return func() []string { return names } }

// partly starts a node that has a range of src's layers and seeds them. Who fetches more from it alone comes to no end.
func (n *testNet) partly(t testing.TB, name string, src *Model, r LayerRange) {
	t.Helper()
	whole := n.join(t, "the whole for "+name, src.store)
	if err := whole.Seed(src); err != nil {
		t.Fatal(err)
	}
	card, ok := src.Card()
	if !ok {
		t.Fatal("a published model has no card")
	}
	s := openStore(t, t.TempDir())
	if err := n.join(t, name, s).Fetch(testContext(t), learn(t, s, src), card.Spans(r), peersOf("the whole for "+name), nil); err != nil {
		t.Fatal(err)
	}
	whole.Close()
}

// patience is how long tests wait for what must happen: others may have the processor meanwhile.
const patience = 2 * time.Minute

// testContext ends before the test binary does.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// learn makes a model known to another store, as if its bundle had come over the wire.
func learn(t testing.TB, s *Store, m *Model) *Model {
	t.Helper()
	b, err := ParseBundle(m.Bundle().Marshal(), m.ID(), MaxBundle)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.AddBundle(b)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// received returns the payload bytes that came in for a model.
func received(t *Torrents, id ID) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	var n int64
	for _, tor := range t.models[id].parts {
		st := tor.Stats()
		n += st.BytesReadData.Int64()
	}
	return n
}

// partPaths returns the paths of a model's files.
func partPaths(m *Model) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var paths []string
	for i := range m.parts {
		paths = append(paths, m.parts[i].path)
	}
	return paths
}

func TestFetchWhole(t *testing.T) {
	for _, parts := range []int{1, 3} {
		_, src, paths := publish(t, testModel{layers: 6, parts: parts, seed: 1})
		n := newTestNet()
		seeder := n.join(t, "seeder", src.store)
		if err := seeder.Seed(src); err != nil {
			t.Fatal(err)
		}
		s := openStore(t, t.TempDir())
		leecher := n.join(t, "leecher", s)
		m := learn(t, s, src)
		if _, ok := m.Card(); ok {
			t.Fatal("a card before there is a header")
		}
		card, err := leecher.FetchHeader(testContext(t), m, peersOf("nobody", "seeder"), nil)
		if err != nil {
			t.Fatal(err)
		}
		var calls, lastDone, lastTotal int64
		err = leecher.Fetch(testContext(t), m, card.Spans(LayerRange{0, 6}), peersOf("seeder"), func(done, total int64) {
			if done < lastDone || done > total {
				t.Errorf("progress went from %d to %d of %d", lastDone, done, total)
			}
			calls, lastDone, lastTotal = calls+1, done, total
		})
		if err != nil {
			t.Fatal(err)
		}
		if calls < 2 || lastDone != lastTotal || lastTotal != m.TotalBytes() {
			t.Errorf("%d progress calls, the last %d of %d; the model has %d bytes", calls, lastDone, lastTotal, m.TotalBytes())
		}
		for i, path := range partPaths(m) {
			if !bytes.Equal(mustRead(t, path), mustRead(t, paths[i])) {
				t.Errorf("%d parts: part %d differs from the published file", parts, i+1)
			}
		}
		if h := m.Held(); !h.Whole || !h.Embed || !h.Head || h.Layers != (LayerRange{0, 6}) {
			t.Errorf("held %+v", h)
		}
		if got := received(leecher, m.ID()); got != m.TotalBytes() {
			t.Errorf("received %d bytes of %d", got, m.TotalBytes())
		}
		leecher.Close()
		seeder.Close()
	}
}

func TestFetchRangeThenGrow(t *testing.T) {
	_, src, paths := publish(t, testModel{layers: 8, seed: 2, untied: true})
	n := newTestNet()
	if err := n.join(t, "seeder", src.store).Seed(src); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := openStore(t, dir)
	leecher := n.join(t, "leecher", s)
	m := learn(t, s, src)
	card, err := leecher.FetchHeader(testContext(t), m, peersOf("seeder"), nil)
	if err != nil {
		t.Fatal(err)
	}
	middle := card.Spans(LayerRange{3, 5})
	if m.Have(middle) {
		t.Fatal("held before it was fetched")
	}
	if err := leecher.Fetch(testContext(t), m, middle, peersOf("seeder"), nil); err != nil {
		t.Fatal(err)
	}
	h := m.Held()
	if h.Layers != (LayerRange{3, 5}) || h.Embed || h.Head || h.Whole || !h.Header {
		t.Errorf("held %+v", h)
	}
	if got, want := received(leecher, m.ID()), m.HeldBytes(); got != want {
		t.Errorf("received %d bytes, %d are held", got, want)
	}
	if got := m.AllocatedBytes(); got > m.HeldBytes()+64<<10 {
		t.Errorf("%d bytes allocated, %d held", got, m.HeldBytes())
	}
	if a, b := m.Manifest().RangeRoot(middle), src.Manifest().RangeRoot(middle); a != b {
		t.Error("range roots of the same bytes differ")
	}
	got, want := mustRead(t, m.Path()), mustRead(t, paths[0])
	if len(got) != len(want) {
		t.Fatalf("the file has %d bytes, expected %d", len(got), len(want))
	}
	for _, sp := range middle {
		if !bytes.Equal(got[sp.Offset:sp.Offset+sp.Length], want[sp.Offset:sp.Offset+sp.Length]) {
			t.Errorf("span %+v differs", sp)
		}
	}

	// Growing fetches the difference, also after a restart, which hashes nothing.
	before := m.HeldBytes()
	leecher.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, dir)
	if s.HashedBytes() != 0 {
		t.Errorf("the restart hashed %d bytes", s.HashedBytes())
	}
	m, ok := s.Get(src.ID())
	if !ok || m.Held() != h || m.HeldBytes() != before {
		t.Fatalf("after the restart %+v (%d bytes), before %+v (%d)", m.Held(), m.HeldBytes(), h, before)
	}
	leecher = n.join(t, "leecher2", s)
	if err := leecher.Fetch(testContext(t), m, card.Spans(LayerRange{0, 8}), peersOf("seeder"), nil); err != nil {
		t.Fatal(err)
	}
	if got, want := received(leecher, m.ID()), m.TotalBytes()-before; got != want {
		t.Errorf("growing received %d bytes, %d were missing", got, want)
	}
	if !bytes.Equal(mustRead(t, m.Path()), want) {
		t.Error("the grown file differs from the published one")
	}
	// What was fetched can be fetched again from here, by someone who knows nobody else.
	if err := leecher.Seed(m); err != nil {
		t.Fatal(err)
	}
	s3 := openStore(t, t.TempDir())
	third := n.join(t, "third", s3)
	m3 := learn(t, s3, src)
	if err := third.Fetch(testContext(t), m3, middle, peersOf("leecher2"), nil); err != nil {
		t.Fatal(err)
	}
	if !m3.Have(middle) {
		t.Error("fetched from a fetcher, but not held")
	}
}

func TestFetchFromPartialPeers(t *testing.T) {
	_, src, _ := publish(t, testModel{layers: 6, seed: 3})
	n := newTestNet()
	seeder := n.join(t, "seeder", src.store)
	if err := seeder.Seed(src); err != nil {
		t.Fatal(err)
	}
	card, _ := src.Card()
	for name, r := range map[string]LayerRange{"low": {0, 3}, "high": {3, 6}} {
		s := openStore(t, t.TempDir())
		tor := n.join(t, name, s)
		m := learn(t, s, src)
		if err := tor.Fetch(testContext(t), m, card.Spans(r), peersOf("seeder"), nil); err != nil {
			t.Fatal(err)
		}
	}
	seeder.Close()
	s := openStore(t, t.TempDir())
	m := learn(t, s, src)
	tor := n.join(t, "both", s)
	if err := tor.Fetch(testContext(t), m, append(card.Spans(LayerRange{0, 3}), card.Spans(LayerRange{3, 6})...), peersOf("low", "high"), nil); err != nil {
		t.Fatal(err)
	}
	if h := m.Held(); h.Layers != (LayerRange{0, 6}) {
		t.Errorf("held %+v", h)
	}
}

// A seeder whose bytes are not what it published is banned, and the honest one serves the rest.
func TestHostileSeederIsBanned(t *testing.T) {
	_, src, _ := publish(t, testModel{layers: 4, seed: 4})
	bad, badModel, badPaths := publish(t, testModel{layers: 4, seed: 4})
	if src.ID() != badModel.ID() {
		t.Fatal("the same model has two IDs")
	}
	corrupt(t, badPaths[0])
	n := newTestNet()
	if err := n.join(t, "bad", bad).Seed(badModel); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, t.TempDir())
	leecher := n.join(t, "leecher", s)
	m := learn(t, s, src)
	spans := m.Manifest().All()
	ctx, cancel := context.WithCancel(testContext(t))
	go func() {
		for ctx.Err() == nil && len(leecher.Banned()) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
	}()
	if err := leecher.Fetch(ctx, m, spans, peersOf("bad"), nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("fetching from a hostile seeder alone: %v", err)
	}
	if got := leecher.Banned(); !slices.Equal(got, []string{"bad"}) {
		t.Errorf("banned %q", got)
	}
	if err := n.join(t, "good", src.store).Seed(src); err != nil {
		t.Fatal(err)
	}
	if err := leecher.Fetch(testContext(t), m, spans, peersOf("bad", "good"), nil); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(mustRead(t, m.Path()), mustRead(t, src.Path())) {
		t.Error("wrong bytes got into the file")
	}
}

// corrupt changes bytes all over a file without a trace in its stamp.
func corrupt(t testing.TB, path string) {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for off := int64(1000); off < fi.Size(); off += 10_000 {
		if _, err := f.WriteAt([]byte("wrong"), off); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(path, fi.ModTime(), fi.ModTime()); err != nil {
		t.Fatal(err)
	}
}

func TestFetchErrors(t *testing.T) {
	_, src, _ := publish(t, testModel{layers: 4, seed: 5})
	n := newTestNet()
	s := openStore(t, t.TempDir())
	tor := n.join(t, "leecher", s)
	m := learn(t, s, src)
	card, _ := src.Card()

	err := tor.Fetch(t.Context(), m, card.Spans(LayerRange{2, 9}), peersOf(), nil)
	if err == nil || !strings.Contains(err.Error(), "layer range") {
		t.Errorf("a wrong range: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = tor.Fetch(ctx, m, card.Spans(LayerRange{1, 2}), peersOf(), nil)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no peer") {
		t.Errorf("no peers: %v", err)
	}
	tor.Close()
	if err := tor.Fetch(t.Context(), m, card.Spans(LayerRange{1, 2}), peersOf(), nil); err == nil {
		t.Error("fetching after Close")
	}
	if err := tor.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}

// A fetch that is cancelled leaves verified pieces. In a copy of the store's folder the files have
// other inodes and times, so every recorded piece is hashed, none is lost, and the next fetch gets
// the others only.
func TestResumeFromCopy(t *testing.T) {
	_, src, paths := publish(t, testModel{layers: 20, seed: 6})
	n := newTestNet()
	n.partly(t, "half", src, LayerRange{0, 10})
	s := openStore(t, t.TempDir())
	tor := n.join(t, "leecher", s)
	m := learn(t, s, src)
	ctx, cancel := context.WithCancel(t.Context())
	err := tor.Fetch(ctx, m, m.Manifest().All(), peersOf("half"), func(done, total int64) {
		if done > total/3 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "are here and kept") {
		t.Fatalf("a cancelled fetch: %v", err)
	}
	tor.Close()
	held := m.HeldBytes()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(s.Dir())); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, copied)
	m = mustGet(t, s, src.ID())
	if held == 0 || held == m.TotalBytes() || m.HeldBytes() != held || s.HashedBytes() != held {
		t.Errorf("%d of %d bytes held before; in the copy %d, %d hashed", held, m.TotalBytes(), m.HeldBytes(), s.HashedBytes())
	}
	if err := n.join(t, "fast", src.store).Seed(src); err != nil {
		t.Fatal(err)
	}
	tor = n.join(t, "leecher2", s)
	if err := tor.Fetch(testContext(t), m, m.Manifest().All(), peersOf("fast"), nil); err != nil {
		t.Fatal(err)
	}
	if got, want := received(tor, m.ID()), m.TotalBytes()-held; got != want {
		t.Errorf("received %d bytes, %d were missing", got, want)
	}
	if !bytes.Equal(mustRead(t, m.Path()), mustRead(t, paths[0])) {
		t.Error("the resumed file differs")
	}
}

// listener makes a named listener for a node made by hand.
func (n *testNet) listener(t testing.TB, name string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.mu.Lock()
	n.addrs[name] = l.Addr().String()
	n.mu.Unlock()
	return namedListener{l}
}

// seeder seeds a model under a name, at some bytes a second.
func (n *testNet) seeder(t testing.TB, name string, src *Model, maxUpload int64) {
	t.Helper()
	seeder, err := NewTorrents(TorrentConfig{
		Store: src.store, MaxUpload: maxUpload, Listener: n.listener(t, name),
		Dial: func(context.Context, string) (net.Conn, error) { return nil, errors.New("not needed") },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { seeder.Close() })
	if err := seeder.Seed(src); err != nil {
		t.Fatal(err)
	}
}

// What something else sends and receives is taken from what torrents may.
func TestYield(t *testing.T) {
	tor := &Torrents{upload: newLimiter(1 << 20), download: newLimiter(1 << 20)}
	tor.Yield(100<<20, 0)
	if left := tor.upload.Tokens(); left > -90<<20 {
		t.Errorf("%.0f bytes may be sent at once", left)
	}
	if left := tor.download.Tokens(); left < float64(tor.download.Burst()) {
		t.Errorf("%.0f bytes may be fetched at once", left)
	}
	new(Torrents).Yield(1<<20, 1<<20) // without a bound it is none
}
