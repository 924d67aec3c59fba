package node

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/node/metrics"
	"github.com/starling-swarm/starling/route"
	"github.com/starling-swarm/starling/runtime/runtimetest"
	"github.com/starling-swarm/starling/swarm/wire"
)

// KV waits for seams, but not longer than kvPatience, and for each of them once: a peer that doesn't take
// up its seams must not stop every session's KV.
func TestUplink(t *testing.T) { synctest.Test(t, testUplink) }

func testUplink(t *testing.T) {
	var u uplink
	waited := func() time.Duration {
		began := time.Now()
		u.wait(context.Background())
		return time.Since(began)
	}
	if d := waited(); d > 0 {
		t.Errorf("KV waited %v for nothing", d)
	}
	seam := func() *time.Time {
		now := time.Now()
		u.seam(&now, true)
		return &now
	}
	first, second := seam(), seam()
	u.seam(second, false)
	time.AfterFunc(50*time.Millisecond, func() { u.seam(first, false) })
	if d := waited(); d != 50*time.Millisecond {
		t.Errorf("KV waited %v for a seam that took 50 ms", d)
	}
	hangs := seam()
	if d := waited(); d != kvPatience {
		t.Errorf("KV waited %v for a seam that hangs, want %v", d, kvPatience)
	}
	if d := waited(); d > 0 {
		t.Errorf("KV waited %v more for a seam that hangs", d)
	}
	u.seam(hangs, false)
	seam()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	began := time.Now()
	if u.wait(ctx); time.Since(began) > 0 {
		t.Error("KV waits for a seam while the node closes")
	}
}

// A peer that provokes answers and doesn't read them fills no memory.
func TestAnswersAreBounded(t *testing.T) {
	l := newLinks(nil, nil, metrics.New("test", nil))
	k := &link{wake: make(chan struct{}, 1)} // nobody serves it
	l.out[linkKey{"S", protoStage}] = k
	for range 3 * maxQueue {
		l.send("S", &wire.Pong{})
		l.send("S", &wire.Refusal{})
	}
	if len(k.queue) > maxQueue {
		t.Errorf("%d answers wait", len(k.queue))
	}
	before := len(k.queue)
	l.send("S", &wire.StageClose{})
	if len(k.queue) != before+1 {
		t.Error("a session's own frame was dropped")
	}

	s := &decoderSession{}
	s.outReady = sync.NewCond(&s.mu)
	for i := range uint64(1000) {
		s.pongLocked(i)
		s.tellLocked(&wire.Token{})
	}
	if len(s.out) != 1001 {
		t.Errorf("%d frames wait for a client, want 1000 tokens and one Pong", len(s.out))
	}
}

// scriptedReader times out where its script has nil.
type scriptedReader struct{ script [][]byte }

func (r *scriptedReader) SetReadDeadline(time.Time) error { return nil }

func (r *scriptedReader) Read(b []byte) (int, error) {
	if len(r.script) == 0 {
		return 0, io.EOF
	}
	next := r.script[0]
	r.script = r.script[1:]
	if next == nil {
		return 0, os.ErrDeadlineExceeded
	}
	n := copy(b, next)
	if n < len(next) {
		r.script = append([][]byte{next[n:]}, r.script...)
	}
	return n, nil
}

// A frame that takes long shows life with each piece, and a stream's silence
// isn't its peer's.
func TestPatientReader(t *testing.T) {
	frame := wire.Append(nil, &wire.Ping{Nonce: 7})
	heard, alive := 0, true
	r := &patientReader{s: &scriptedReader{[][]byte{frame[:3], nil, frame[3:5], nil, nil, frame[5:9], frame[9:], nil}},
		heard: func([]byte) { heard++ }, alive: func() bool { return alive }}
	m, err := wire.Read(r)
	if err != nil || m.(*wire.Ping).Nonce != 7 {
		t.Fatalf("read %v, %v", m, err)
	}
	if heard < 4 {
		t.Errorf("heard %d times", heard)
	}
	alive = false
	if _, err := wire.Read(r); !os.IsTimeout(err) {
		t.Errorf("silence of a silent peer gives %v", err)
	}
}

// A client's inbox takes all that an answer has, however slow its reader, and
// no more.
func TestInbox(t *testing.T) {
	b := newInbox(3, &probed{})
	for i := range uint32(1000) {
		if !b.put(&wire.Progress{Upto: i}, nil) || !b.put(&wire.Pong{}, nil) {
			t.Fatal("progress fills the inbox")
		}
	}
	for range 3 {
		b.put(&wire.Token{}, nil)
	}
	b.put(&wire.Done{}, nil)
	b.put(nil, io.EOF)
	if m, err := b.take(); err != nil || m.(*wire.Progress).Upto != 999 {
		t.Errorf("took %v, %v, want the last progress", m, err)
	}
	for range 3 {
		if m, err := b.take(); err != nil || m.Type() != wire.TypeToken {
			t.Errorf("took %v, %v", m, err)
		}
	}
	if m, err := b.take(); err != nil || m.Type() != wire.TypeDone {
		t.Errorf("took %v, %v", m, err)
	}
	if _, err := b.take(); err != io.EOF {
		t.Errorf("the end is %v", err)
	}
	b = newInbox(3, &probed{})
	for i := 0; b.put(&wire.Token{}, nil); i++ {
		if i > 100 {
			t.Fatal("an inbox for 3 tokens takes everything")
		}
	}
}

// A node that closes ends the sessions that it decodes, also when they wait for
// a stage, and its own client's.
func TestCloseWhileWaiting(t *testing.T) {
	tn, stage, id := stageNode(t, time.Hour, 0) // a row takes an hour
	cfg := stage.served(id).exec.Config()
	decoder := tn.start(func(c *Config) {
		c.Backend = &slowBackend{runtimetest.Fake{Config: cfg, Tokenizer: tn.tokenizer()}}
	})
	tn.serve(decoder, id, 0, cfg.Layers)
	eventually(t, "two offers", func() bool {
		_ = decoder.host.Refresh(context.Background())
		p, _ := decoder.planPeers(id)
		return len(p) == 2
	})
	ended := make(chan error, 1)
	go func() {
		k := control.Constraints{Shape: "across", Cuts: []int{1}, Assign: []string{stage.ID()}, Decoder: decoder.ID(), Chunk: 4}
		_, err := tn.run(context.Background(), decoder, id, k, nil)
		ended <- err
	}()
	eventually(t, "the stage to work", func() bool {
		for _, s := range stage.stageMap() {
			s.mu.Lock()
			taken := s.m.taken
			s.mu.Unlock()
			if taken != nil {
				return true
			}
		}
		return false
	})
	closed := make(chan error, 1)
	go func() { closed <- decoder.Close() }()
	for range 2 {
		select {
		case err := <-ended:
			if err == nil {
				t.Error("the session of a closed node gave an answer")
			}
		case <-closed:
		case <-time.After(patience):
			t.Fatal("a closing node waits for its sessions")
		}
	}
	eventually(t, "the stage's end", func() bool { return len(stage.stageMap()) == 0 })
}

// A reader that pauses doesn't end its session, also where decoder and client
// are one node.
func TestPausedReader(t *testing.T) {
	tn, n, id := stageNode(t, 0, 0)
	tn.serve(n, id, 0, tn.layers())
	first, frames := true, 0
	a, err := tn.run(context.Background(), n, id, control.Constraints{Shape: "local", Decoder: n.ID()}, func(ev control.Event) error {
		if ev.Kind == "text" && first {
			first = false
			eventually(t, "the decoder to be done with us", func() bool { return len(n.decoderList()) == 0 })
		}
		frames++
		return nil
	})
	if err != nil || len(a.NewTokens) == 0 || frames < 3 {
		t.Errorf("answer %+v, %v", a, err)
	}
}

// What waits for streams that are given up holds nobody's rows back.
func TestRenewedLinks(t *testing.T) {
	opened := make(chan struct{})
	l := newLinks(nil, func(ctx context.Context, _, _ string) (stream, error) {
		<-opened
		return nullStream{}, nil
	}, metrics.New("test", nil))
	defer l.Close()
	l.send("S", &wire.Seam{Count: 1})
	l.send("S", &wire.Seam{Count: 1})
	l.renew("S")
	close(opened)
	eventually(t, "the seams to be forgotten", func() bool { return l.pending() == 0 })
	l.uplink.mu.Lock()
	defer l.uplink.mu.Unlock()
	if n := len(l.uplink.seams); n > 0 {
		t.Errorf("%d seams hold up rows", n)
	}
}

// nullStream swallows what is written to it.
type nullStream struct{}

func (nullStream) Read([]byte) (int, error)         { return 0, io.EOF }
func (nullStream) Write(b []byte) (int, error)      { return len(b), nil }
func (nullStream) Close() error                     { return nil }
func (nullStream) CloseWrite() error                { return nil }
func (nullStream) Reset() error                     { return nil }
func (nullStream) Peer() string                     { return "S" }
func (nullStream) Reserve(int) error                { return nil }
func (nullStream) Release(int)                      {}
func (nullStream) SetReadDeadline(time.Time) error  { return nil }
func (nullStream) SetWriteDeadline(time.Time) error { return nil }

// When a direct connection has come about, what waits for a peer goes over it, but not before the peer has taken what went the old way.
func TestMovedLinks(t *testing.T) {
	streams := make(chan *slowStream, 2)
	l := newLinks(nil, func(ctx context.Context, _, _ string) (stream, error) {
		s := &slowStream{ended: make(chan struct{}), taken: make(chan struct{}), end: io.EOF}
		streams <- s
		return s, nil
	}, metrics.New("test", nil))
	defer l.Close()
	l.lost = func(peer string, err error) { t.Errorf("%s is lost: %v", peer, err) }
	l.send("S", &wire.Ping{Nonce: 1})
	first := <-streams
	eventually(t, "the first frame", func() bool { return first.frames() == 1 })
	l.reopen("S")
	<-first.ended
	l.send("S", &wire.Ping{Nonce: 2})
	time.Sleep(20 * time.Millisecond)
	if len(streams) > 0 {
		t.Fatal("a new stream opens while the old one isn't read")
	}
	close(first.taken)
	second := <-streams
	t.Cleanup(func() { close(second.taken) }) // who reads it ends
	eventually(t, "the second frame", func() bool { return second.frames() == 1 })
	if n := first.frames(); n != 1 {
		t.Errorf("%d frames went over the first stream", n)
	}
	l.send("S", &wire.Ping{Nonce: 3})
	eventually(t, "the third frame", func() bool { return second.frames() == 2 })
}

// slowStream is a stream whose peer takes what was written, or does what else end says, only when taken is closed.
type slowStream struct {
	nullStream
	mu           sync.Mutex
	written      int
	ended, taken chan struct{}
	end          error
}

func (s *slowStream) frames() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written
}

func (s *slowStream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written++
	return len(b), nil
}

func (s *slowStream) CloseWrite() error {
	close(s.ended)
	return nil
}

func (s *slowStream) Read([]byte) (int, error) {
	<-s.taken
	return 0, s.end
}

// A stream that the peer gives up while nothing is on its way is noticed then: the next frame goes on a new one.
func TestGivenUpLinks(t *testing.T) {
	streams := make(chan *slowStream, 2)
	l := newLinks(nil, func(ctx context.Context, _, _ string) (stream, error) {
		s := &slowStream{taken: make(chan struct{}), end: errors.New("given up")}
		streams <- s
		return s, nil
	}, metrics.New("test", nil))
	defer l.Close()
	lost := make(chan error, 2)
	l.lost = func(_ string, err error) { lost <- err }
	l.send("S", &wire.Ping{Nonce: 1})
	first := <-streams
	eventually(t, "the first frame", func() bool { return first.frames() == 1 && l.pending() == 0 })
	close(first.taken)
	if err := <-lost; err != first.end {
		t.Errorf("the loss is %v", err)
	}
	l.send("S", &wire.Ping{Nonce: 2})
	second := <-streams
	t.Cleanup(func() { close(second.taken) }) // who reads it ends
	eventually(t, "the second frame", func() bool { return second.frames() == 1 })
	if n := first.frames(); n != 1 {
		t.Errorf("%d frames went over the stream that was given up", n)
	}
}

// A link through a relay is priced as measured, or low, and says so.
func TestRelayedLinks(t *testing.T) {
	got := relayedLinks([]route.Link{{From: "a", To: "b", RTT: 0.01, BytesPerSec: 5e6, Basis: "measured 9 times"}, {From: "a", To: "c", BytesPerSec: 1}}, "a", "b")
	want := []route.Link{
		{From: "a", To: "b", RTT: 0.01, BytesPerSec: 5e6, Basis: "through a relay, measured 9 times"},
		{From: "a", To: "c", BytesPerSec: 1},
		{From: "b", To: "a", BytesPerSec: relayedBytesPerSec, Basis: "through a relay, throughput not measured"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("links %+v, want %+v", got, want)
	}
}
