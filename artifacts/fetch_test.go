package artifacts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-swarm/starling/runtime/gguf"
)

// When the disk refuses, Fetch says so at once and keeps what it has; when the cause is gone the
// next Fetch ends the job.
func TestDiskRefuses(t *testing.T) {
	for _, what := range []string{"data", "journal"} {
		_, src, paths := publish(t, testModel{layers: 4, seed: 8})
		n := newTestNet()
		if err := n.join(t, "seeder", src.store).Seed(src); err != nil {
			t.Fatal(err)
		}
		s := openStore(t, t.TempDir())
		tor := n.join(t, "leecher", s)
		m := learn(t, s, src)
		blocked := m.Path()
		if what == "journal" {
			blocked = m.dir + "/journal"
		}
		if err := os.Mkdir(blocked, 0o755); err != nil { // a folder where a file should be
			t.Fatal(err)
		}
		err := tor.Fetch(testContext(t), m, m.Manifest().All(), peersOf("seeder"), nil)
		if err == nil || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), blocked) {
			t.Fatalf("%s: fetching: %v", what, err)
		}
		if m.HeldBytes() != 0 {
			t.Errorf("%s: %d bytes held", what, m.HeldBytes())
		}
		if err := os.Remove(blocked); err != nil {
			t.Fatal(err)
		}
		if err := tor.Fetch(testContext(t), m, m.Manifest().All(), peersOf("seeder"), nil); err != nil {
			t.Fatalf("%s: fetching again: %v", what, err)
		}
		if !bytes.Equal(mustRead(t, m.Path()), mustRead(t, paths[0])) {
			t.Errorf("%s: the file differs", what)
		}
		tor.Close()
		s = reopen(t, s)
		if got := mustGet(t, s, m.ID()).HeldBytes(); got != m.TotalBytes() || s.HashedBytes() != 0 {
			t.Errorf("%s: after a restart %d bytes held, %d hashed", what, got, s.HashedBytes())
		}
	}
}

// Several fetches of one model share the work; one that gives up takes nothing from the others.
func TestConcurrentFetches(t *testing.T) {
	_, src, _ := publish(t, testModel{layers: 8, seed: 9})
	card, _ := src.Card()
	n := newTestNet()
	s := openStore(t, t.TempDir())
	tor := n.join(t, "leecher", s)
	m := learn(t, s, src)
	quit, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	fetch := func(ctx context.Context, r LayerRange, want error) (ended <-chan struct{}) {
		var once sync.Once
		started, end := make(chan struct{}), make(chan struct{})
		wg.Go(func() {
			defer close(end)
			err := tor.Fetch(ctx, m, card.Spans(r), peersOf("seeder"), func(int64, int64) { once.Do(func() { close(started) }) })
			if !errors.Is(err, want) {
				t.Errorf("%v: %v, want %v", r, err, want)
			}
		})
		<-started
		return end
	}
	fetch(testContext(t), LayerRange{0, 4}, nil)
	fetch(testContext(t), LayerRange{2, 6}, nil)
	fetch(testContext(t), LayerRange{2, 6}, nil)
	quits := fetch(quit, LayerRange{0, 8}, context.Canceled)
	cancel()
	<-quits // nobody seeds yet
	if err := n.join(t, "seeder", src.store).Seed(src); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if h := m.Held(); h.Layers != (LayerRange{0, 6}) || h.Whole {
		t.Errorf("held %+v", h)
	}
	if got, want := received(tor, m.ID()), m.HeldBytes(); got != want {
		t.Errorf("received %d bytes for %d held: something was fetched twice", got, want)
	}
}

func TestDropEndsFetch(t *testing.T) {
	_, src, _ := publish(t, testModel{layers: 2})
	n := newTestNet()
	s := openStore(t, t.TempDir())
	tor := n.join(t, "leecher", s)
	m := learn(t, s, src)
	for _, end := range []func(){func() { tor.Drop(m.ID()) }, func() { tor.Close() }} {
		done := make(chan error)
		started := make(chan struct{}, 1)
		go func() {
			done <- tor.Fetch(testContext(t), m, m.Manifest().All(), peersOf(), func(int64, int64) {
				select {
				case started <- struct{}{}:
				default:
				}
			})
		}()
		<-started
		end()
		select {
		case err := <-done:
			if err == nil || !strings.Contains(err.Error(), "dropped") {
				t.Errorf("%v", err)
			}
		case <-time.After(patience):
			t.Fatal("Fetch goes on")
		}
	}
	if err := s.Remove(m.ID()); err != nil {
		t.Error(err)
	}
}

// Nodes that fetch the same model at the same time connect to each other in both directions and
// all come to an end.
func TestSwarmOfFetchers(t *testing.T) {
	_, src, paths := publish(t, testModel{layers: 10, seed: 10})
	n := newTestNet()
	if err := n.join(t, "seeder", src.store).Seed(src); err != nil {
		t.Fatal(err)
	}
	names := []string{"a", "b", "c"}
	all := peersOf("seeder", "a", "b", "c")
	var wg sync.WaitGroup
	for _, name := range names {
		s := openStore(t, t.TempDir())
		tor := n.join(t, name, s)
		m := learn(t, s, src)
		wg.Go(func() {
			if _, err := tor.FetchHeader(testContext(t), m, all, nil); err != nil {
				t.Error(name, err)
			}
			if err := tor.Fetch(testContext(t), m, m.Manifest().All(), all, nil); err != nil {
				t.Error(name, err)
			} else if !bytes.Equal(mustRead(t, m.Path()), mustRead(t, paths[0])) {
				t.Errorf("%s: the file differs", name)
			}
		})
	}
	wg.Wait()
}

// Volunteers of the real model get their layers, header and tokenizer, and at most 3 % more.
func TestFetchSmolLM2Range(t *testing.T) {
	path := smolLM2(t)
	pub := openStore(t, t.TempDir())
	src, err := pub.Publish(t.Context(), []string{path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	set, err := gguf.OpenSet(path)
	if err != nil {
		t.Fatal(err)
	}
	n := newTestNet()
	if err := n.join(t, "seeder", pub).Seed(src); err != nil {
		t.Fatal(err)
	}
	for _, r := range []LayerRange{{0, 10}, {10, 20}, {29, 30}} {
		s := openStore(t, t.TempDir())
		tor := n.join(t, r.String(), s)
		m := learn(t, s, src)
		card, err := tor.FetchHeader(testContext(t), m, peersOf("seeder"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := tor.Fetch(testContext(t), m, card.Spans(r), peersOf("seeder"), nil); err != nil {
			t.Fatal(err)
		}
		need, runs := neededBytes(set, 30, r)
		got := received(tor, m.ID())
		most := max(need*103/100, need+int64(2*runs)*PieceLength(m.TotalBytes()))
		if got < need || got > most || m.HeldBytes() != got || m.AllocatedBytes() > got+1<<20 {
			t.Errorf("%v: needs %d bytes, received %d, holds %d, allocated %d", r, need, got, m.HeldBytes(), m.AllocatedBytes())
		}
		t.Logf("%v: needs %d bytes, received %d (%+.2f %%), allocated %d of %d", r, need, got,
			100*float64(got-need)/float64(need), m.AllocatedBytes(), m.TotalBytes())
		if h := m.Held(); h.Layers != r || !h.Header || h.Embed != (r.First == 0 || r.Last == 30) {
			t.Errorf("held %+v", h)
		}
		tor.Close()
	}
}

func TestFetchAfterCancel(t *testing.T) {
	_, src, _ := publish(t, testModel{layers: 8, seed: 12})
	n := newTestNet()
	s := openStore(t, t.TempDir())
	tor := n.join(t, "leecher", s)
	m := learn(t, s, src)
	for i := range 3 {
		name := fmt.Sprint("peer ", i)
		n.partly(t, name, src, LayerRange{0, 2 * (i + 1)})
		ctx, cancel := context.WithCancel(testContext(t))
		had := m.HeldBytes()
		err := tor.Fetch(ctx, m, m.Manifest().All(), peersOf(name), func(int64, int64) {
			if m.HeldBytes() > had {
				cancel()
			}
		})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if err := n.join(t, "seeder", src.store).Seed(src); err != nil {
		t.Fatal(err)
	}
	if err := tor.Fetch(testContext(t), m, m.Manifest().All(), peersOf("seeder"), nil); err != nil {
		t.Fatal(err)
	}
}
