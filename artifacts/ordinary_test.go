package artifacts

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// testTracker is a BitTorrent tracker (BEP 3, compact answers of BEP 23).
type testTracker struct {
	mu    sync.Mutex
	peers map[string][]netip.AddrPort // by info hash
}

func startTracker(t *testing.T, host string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(&testTracker{peers: make(map[string][]netip.AddrPort)})
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return s.URL + "/announce"
}

// ownHost returns an address of this machine that isn't a loopback one: Transmission connects to none
// of these.
func ownHost(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() {
			return p.Addr().String()
		}
	}
	t.Skip("this machine has no IPv4 address but loopback ones, to which Transmission doesn't connect")
	return ""
}

func (tr *testTracker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	ip, err := netip.ParseAddrPort(r.RemoteAddr)
	port, err2 := strconv.ParseUint(q.Get("port"), 10, 16)
	if err != nil || err2 != nil {
		http.Error(w, "d14:failure reason3:whoe", http.StatusBadRequest)
		return
	}
	self := netip.AddrPortFrom(ip.Addr().Unmap(), uint16(port))
	tr.mu.Lock()
	defer tr.mu.Unlock()
	hash := q.Get("info_hash")
	var compact []byte
	for _, p := range tr.peers[hash] {
		if p != self {
			compact = binary.BigEndian.AppendUint16(append(compact, p.Addr().AsSlice()...), p.Port())
		}
	}
	if !slices.Contains(tr.peers[hash], self) && port > 0 {
		tr.peers[hash] = append(tr.peers[hash], self)
	}
	fmt.Fprintf(w, "d8:intervali2e12:min intervali1e5:peers%d:%se", len(compact), compact)
}

// ordinary is a BitTorrent client that others wrote.
type ordinary struct {
	command string
	args    func(dir, config, torrent string, port int) []string
}

var ordinaries = []ordinary{
	{"aria2c", func(dir, _, torrent string, port int) []string {
		return []string{"--no-conf", "--dir=" + dir, "--listen-port=" + strconv.Itoa(port), "--enable-dht=false", "--enable-dht6=false", "--bt-enable-lpd=false", "--enable-peer-exchange=false",
			"--disable-ipv6", "--check-integrity=true", "--allow-overwrite=true", "--seed-ratio=0.0", "--file-allocation=none", "--bt-hash-check-seed=true", "--summary-interval=0", torrent}
	}},
	{"transmission-cli", func(dir, config, torrent string, port int) []string {
		settings := `{"dht-enabled": false, "lpd-enabled": false, "pex-enabled": false, "utp-enabled": false, "port-forwarding-enabled": false, "rename-partial-files": false}`
		if err := os.WriteFile(filepath.Join(config, "settings.json"), []byte(settings), 0o644); err != nil {
			panic(err)
		}
		return []string{"-g", config, "-w", dir, "-p", strconv.Itoa(port), "-M", "-v", torrent}
	}},
}

// start runs the client on a torrent in dir and returns its address. It ends with the test.
func (o ordinary) start(t *testing.T, dir, torrent string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	config := t.TempDir()
	cmd := exec.CommandContext(ctx, o.command, o.args(dir, config, torrent, port)...)
	cmd.Env = append(os.Environ(), "HOME="+config)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			text := out.Bytes()
			t.Logf("%s said: …%s", o.command, text[max(0, len(text)-2000):])
		}
	})
	return "127.0.0.1:" + strconv.Itoa(port)
}

// eachOrdinary runs f with every client that is installed, and skips otherwise.
func eachOrdinary(t *testing.T, f func(t *testing.T, o ordinary)) {
	for _, o := range ordinaries {
		t.Run(o.command, func(t *testing.T) {
			if _, err := exec.LookPath(o.command); err != nil {
				t.Skipf("%s is not installed (Debian packages aria2 and transmission-cli): %v", o.command, err)
			}
			t.Parallel()
			f(t, o)
		})
	}
}

// publicNode starts a node that ordinary clients can connect to.
func publicNode(t *testing.T, s *Store, c PublicConfig) *Torrents {
	t.Helper()
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	tor, err := NewTorrents(TorrentConfig{Store: s, Public: &c, Dial: func(context.Context, string) (net.Conn, error) {
		return nil, errors.New("there is no swarm")
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tor.Close() })
	return tor
}

// writeTorrent writes the .torrent file of a model of one part.
func writeTorrent(t *testing.T, m *Model, trackers ...string) (path string) {
	t.Helper()
	data, err := m.Bundle().TorrentFile(0, trackers)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "m.torrent")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// ordinaryLimit is how long a client may take: it starts slowly, and announces when it likes.
const ordinaryLimit = 150 * time.Second

// hasAll waits until a file has the bytes of another.
func hasAll(t *testing.T, path, want string) {
	t.Helper()
	w := mustRead(t, want)
	for end := time.Now().Add(ordinaryLimit); ; time.Sleep(200 * time.Millisecond) {
		got, err := os.ReadFile(path)
		if err == nil && bytes.Equal(got, w) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s is not complete after %v: %d of %d bytes, %v", filepath.Base(path), ordinaryLimit, len(got), len(w), err)
		}
	}
}

// An ordinary client that knows the .torrent file alone gets the whole model from a node, which it
// learns of from the tracker.
func TestOrdinaryClientFetches(t *testing.T) {
	eachOrdinary(t, func(t *testing.T, o ordinary) {
		host := ownHost(t)
		tracker := startTracker(t, host)
		_, src, paths := publish(t, testModel{layers: 12, seed: 41})
		if err := publicNode(t, src.store, PublicConfig{Listen: net.JoinHostPort(host, "0"), Trackers: []string{tracker}}).Seed(src); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		o.start(t, dir, writeTorrent(t, src, tracker))
		hasAll(t, filepath.Join(dir, "model.gguf"), paths[0])
	})
}

// A node that knows the .torrent file, and an ordinary client's address, gets the whole model from
// it, and then seeds it into its swarm.
func TestNodeFetchesFromOrdinaryClient(t *testing.T) {
	eachOrdinary(t, func(t *testing.T, o ordinary) {
		_, src, paths := publish(t, testModel{layers: 12, seed: 42})
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "model.gguf"), mustRead(t, paths[0]), 0o644); err != nil {
			t.Fatal(err)
		}
		file := writeTorrent(t, src)
		addr := o.start(t, dir, file)
		b, err := ParseTorrentFile(mustRead(t, file))
		if err != nil {
			t.Fatal(err)
		}
		s := openStore(t, t.TempDir())
		m, err := s.AddBundle(b)
		if err != nil {
			t.Fatal(err)
		}
		n := newTestNet()
		tor, err := NewTorrents(TorrentConfig{Store: s, Public: &PublicConfig{Peers: []string{addr}}, Listener: n.listener(t, "node"),
			Dial: func(context.Context, string) (net.Conn, error) { return nil, errors.New("not needed") }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tor.Close() })
		ctx, cancel := context.WithTimeout(t.Context(), ordinaryLimit)
		defer cancel()
		if _, err := tor.FetchHeader(ctx, m, peersOf(), nil); err != nil {
			t.Fatal(err)
		}
		if err := tor.Fetch(ctx, m, m.Manifest().All(), peersOf(), nil); err != nil {
			t.Fatal(err)
		}
		sameFiles(t, m, paths)
		if got := tor.Banned(); len(got) > 0 {
			t.Errorf("banned %q", got)
		}
		s2 := openStore(t, t.TempDir())
		m2 := learn(t, s2, m)
		if err := n.join(t, "member", s2).Fetch(ctx, m2, m2.Manifest().All(), peersOf("node"), nil); err != nil {
			t.Errorf("a member of the swarm, from the node: %v", err)
		}
	})
}

// A node and an ordinary client that each have a part of the model complete each other.
func TestOrdinaryClientAndNodeComplete(t *testing.T) {
	eachOrdinary(t, func(t *testing.T, o ordinary) {
		_, src, paths := publish(t, testModel{layers: 12, seed: 43})
		whole := mustRead(t, paths[0])
		dir := t.TempDir()
		half := slices.Clone(whole)
		clear(half[:len(half)/2])
		if err := os.WriteFile(filepath.Join(dir, "model.gguf"), half, 0o644); err != nil {
			t.Fatal(err)
		}
		// the node has the first half, and some more
		s := openStore(t, t.TempDir())
		m := learn(t, s, src)
		n := newTestNet()
		if err := n.join(t, "seeder", src.store).Seed(src); err != nil {
			t.Fatal(err)
		}
		first := n.join(t, "first", s)
		if err := first.Fetch(testContext(t), m, []Span{{Length: int64(len(whole)/2 + len(whole)/10)}}, peersOf("seeder"), nil); err != nil {
			t.Fatal(err)
		}
		first.Close()
		addr := o.start(t, dir, writeTorrent(t, src))
		tor := publicNode(t, s, PublicConfig{Peers: []string{addr}})
		if err := tor.Seed(m); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), ordinaryLimit)
		defer cancel()
		if err := tor.Fetch(ctx, m, m.Manifest().All(), peersOf(), nil); err != nil {
			t.Fatal(err)
		}
		sameFiles(t, m, paths)
		hasAll(t, filepath.Join(dir, "model.gguf"), paths[0])
	})
}

// Two nodes that know each other as ordinary clients only; then one whose bytes are wrong, and one
// whose bundle lies about SHA-1.
func TestPublicTorrents(t *testing.T) {
	_, src, paths := publish(t, testModel{layers: 8, seed: 44})
	seeder := publicNode(t, src.store, PublicConfig{})
	if err := seeder.Seed(src); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, t.TempDir())
	m := learn(t, s, src)
	leecher := publicNode(t, s, PublicConfig{Peers: []string{seeder.PublicAddr()}})
	card, _ := src.Card()
	if err := leecher.Fetch(testContext(t), m, card.Spans(LayerRange{2, 4}), peersOf(), nil); err != nil {
		t.Fatal(err)
	}
	if h := m.Held(); h.Layers != (LayerRange{2, 4}) || h.Whole {
		t.Errorf("held %+v", h)
	}
	if err := leecher.Fetch(testContext(t), m, m.Manifest().All(), peersOf(), nil); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, m, paths)

	_, bad, badPaths := publish(t, testModel{layers: 8, seed: 44})
	corrupt(t, badPaths[0])
	liar := publicNode(t, bad.store, PublicConfig{})
	if err := liar.Seed(bad); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, t.TempDir())
	m = learn(t, s, src)
	leecher = publicNode(t, s, PublicConfig{Peers: []string{liar.PublicAddr()}})
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	if err := leecher.Fetch(ctx, m, m.Manifest().All(), func() []string { // asked every second
		if len(leecher.Banned()) > 0 {
			cancel()
		}
		return nil
	}, nil); err == nil {
		t.Error("wrong bytes were accepted")
	}
	if got := leecher.Banned(); !slices.Equal(got, []string{"127.0.0.1"}) {
		t.Errorf("banned %q", got)
	}
	if _, err := os.Stat(m.Path()); err == nil && bytes.Contains(mustRead(t, m.Path()), []byte("wrong")) {
		t.Error("wrong bytes got into the file")
	}
}

// SHA-1 hashes that agree with wrong bytes: what comes has the SHA-1 that the bundle says, and is
// refused, since the manifest says something else.
func TestPublicTorrentOfALiar(t *testing.T) {
	_, src, _ := publish(t, testModel{layers: 3, seed: 45})
	forged, forgedModel, _ := publish(t, testModel{layers: 3, seed: 46}) // the same size, other bytes
	liar := publicNode(t, forged, PublicConfig{})
	if err := liar.Seed(forgedModel); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, t.TempDir())
	m, err := s.AddBundle(&Bundle{Manifest: src.Manifest(), Torrents: forgedModel.Bundle().Torrents})
	if err != nil {
		t.Fatal(err)
	}
	leecher := publicNode(t, s, PublicConfig{Peers: []string{liar.PublicAddr()}})
	err = leecher.Fetch(testContext(t), m, m.Manifest().All(), peersOf(), nil)
	if err == nil || !strings.Contains(err.Error(), "whoever sent the bundle lied") {
		t.Errorf("%v", err)
	}
	if m.HeldBytes() != 0 {
		t.Errorf("%d bytes are held", m.HeldBytes())
	}
}

func TestPublicErrors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := openStore(t, t.TempDir())
	for want, c := range map[string]PublicConfig{
		"--torrent-listen": {Listen: l.Addr().String()},
		"HOST:PORT":        {Peers: []string{"nowhere"}},
		"udp URL":          {Trackers: []string{"ftp://tracker.example/announce"}},
	} {
		_, err := NewTorrents(TorrentConfig{Store: s, Public: &c, Dial: func(context.Context, string) (net.Conn, error) { return nil, errors.New("no") }})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
