package swarm

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

// node describes a host for a test.
type node struct {
	dir    string
	id     *Identity
	listen []string
	boot   []string
	change func(*Config)
}

var (
	both     = []string{"/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"}
	tcpOnly  = both[:1]
	quicOnly = both[1:]
)

// startNode starts a host on loopback and closes it with the test.
func startNode(t *testing.T, info *Info, n node) *Host {
	t.Helper()
	if n.dir == "" {
		n.dir = t.TempDir()
	}
	if n.id == nil {
		id, err := LoadIdentity(n.dir)
		if err != nil {
			t.Fatal(err)
		}
		n.id = id
	}
	if n.listen == nil {
		n.listen = both
	}
	log := &testLog{t: t}
	cfg := Config{Identity: n.id, Dir: n.dir, Swarm: info, Listen: n.listen, Bootstrap: n.boot, admitTimeout: patience,
		Log: slog.New(slog.NewTextHandler(log, nil)).With("node", short(n.id.ID()))}
	if n.change != nil {
		n.change(&cfg)
	}
	h, err := Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.Close()
		log.end()
	})
	return h
}

// testLog writes a node's log to its test's, as long as that runs.
type testLog struct {
	mu   sync.Mutex
	t    *testing.T
	done bool
}

// Write implements io.Writer.
func (l *testLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.done {
		l.t.Log(strings.TrimSpace(string(b)))
	}
	return len(b), nil
}

func (l *testLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = true
}

func short(id PeerID) string { return id[len(id)-6:] }

// publicSwarm is a swarm that needs no certificates.
func publicSwarm(t *testing.T) *Info {
	t.Helper()
	i, err := CreateSwarm(t.TempDir(), "test", true, nil)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// patience is how long tests wait for what must happen: others may have the processor meanwhile.
const patience = 2 * time.Minute

// eventually waits until ok returns "", which otherwise says what is missing.
func eventually(t *testing.T, ok func() string) {
	t.Helper()
	var missing string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if missing = ok(); missing == "" {
			return
		}
	}
	t.Fatalf("after %v: %s", patience, missing)
}

func testCtx(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// refreshed pulls h's offers, and again where nobody has answered in time.
func refreshed(t *testing.T, h *Host) {
	t.Helper()
	eventually(t, func() string {
		if err := h.Refresh(testCtx(t)); err != nil {
			return err.Error()
		}
		return ""
	})
}

// ownLoopback is an address of this machine that other sockets don't use, where the system has many, so that a port that is
// free stays free.
func ownLoopback() string {
	if goruntime.GOOS != "linux" {
		return "127.0.0.1"
	}
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}

// echo serves a protocol that returns what it gets.
const echoProtocol = "/starling/test-echo/1"

func serveEcho(h *Host) {
	h.Handle(echoProtocol, func(s *Stream) {
		defer s.Close()
		io.Copy(s, s)
	})
}

// callEcho reports whether an echo of text comes back.
func callEcho(ctx context.Context, h *Host, peer PeerID, text string) error {
	s, err := h.Open(ctx, peer, echoProtocol)
	if err != nil {
		return err
	}
	defer s.Close()
	s.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(s, text); err != nil {
		return err
	}
	if err := s.CloseWrite(); err != nil {
		return err
	}
	b, err := io.ReadAll(s)
	if err == nil && string(b) != text {
		return fmt.Errorf("echo of %q is %q", text, b)
	}
	return err
}

// mustEcho calls until an echo comes back: a dial may take longer than it is given.
func mustEcho(t *testing.T, h *Host, peer PeerID, text string) {
	t.Helper()
	eventually(t, func() string {
		if err := callEcho(testCtx(t), h, peer, text); err != nil {
			return err.Error()
		}
		return ""
	})
}

// TestMain fails if goroutines of any test outlive its hosts. It is a node instead, if a test started this binary for that.
func TestMain(m *testing.M) {
	if args := os.Getenv(childEnv); args != "" {
		childNode(strings.Split(args, "|"))
	}
	before := goruntime.NumGoroutine()
	code := m.Run()
	const allowed = 3 // libp2p lets a few finish on their own
	now := 0
	for end := time.Now().Add(patience); code == 0 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if now = goruntime.NumGoroutine(); now <= before+allowed {
			os.Exit(0)
		}
	}
	if code == 0 {
		buf := make([]byte, 1<<20)
		fmt.Printf("%d goroutines before, %d after:\n%s", before, now, buf[:goruntime.Stack(buf, true)])
		code = 1
	}
	os.Exit(code)
}

func containsAll(s string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

func mustPeer(t *testing.T, p PeerID) peer.ID {
	t.Helper()
	id, err := decodePeer(p)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
