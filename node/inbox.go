package node

import (
	"fmt"
	"sync"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

// inbox holds what a decoder has said and its client hasn't read. A person may
// pause the output for as long as they like: the decoder isn't held up by it,
// and goes on being heard.
type inbox struct {
	mu    sync.Mutex
	ready *sync.Cond
	max   int
	rows  uint64 // bytes of a probe's that may still come
	queue []wire.Message
	heard time.Time // when bytes last came, or could have been expected; zero before
	err   error     // why nothing more comes
}

// newInbox returns an inbox for an answer of so many tokens, and for what a probe asks for.
func newInbox(tokens int, p *probed) *inbox {
	b := &inbox{max: tokens + 8, rows: p.bytes()} // and a few words around them
	b.max += int(p.asked.Last-p.asked.First) * (len(p.asked.Layers) + 1)
	b.ready = sync.NewCond(&b.mu)
	return b
}

// fill reads conn until it ends.
func (b *inbox) fill(conn sessionConn) {
	r := &patientReader{s: conn, heard: func([]byte) {
		b.mu.Lock()
		b.heard = time.Now()
		b.mu.Unlock()
	}}
	for {
		m, err := wire.Read(r)
		if err != nil {
			err = fmt.Errorf("the decoder is gone: %w", err)
		}
		if !b.put(m, err) {
			return
		}
	}
}

// put adds a frame, or the error that ends the session; it reports whether more
// is wanted. Of several words about progress the last one counts.
func (b *inbox) put(m wire.Message, err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return false
	}
	switch m := m.(type) {
	case *wire.Rows:
		if n := uint64(len(m.Rows)); n > b.rows {
			err = wire.Refuse(wire.CodeBadFrame, "a decoder sends more rows than it was asked for")
		} else {
			b.rows -= n
		}
	case *wire.Pong, *wire.SessionOpened:
		return true
	case *wire.Progress:
		if n := len(b.queue); n > 0 && b.queue[n-1].Type() == wire.TypeProgress {
			b.queue[n-1] = m
			return true
		}
	}
	if err == nil && len(b.queue) >= 2*b.max {
		err = wire.Refuse(wire.CodeBadFrame, "a decoder sends more than it was asked for")
	}
	if err != nil {
		b.err = err
	} else {
		b.queue = append(b.queue, m)
	}
	b.ready.Signal()
	return err == nil
}

// silent returns for how long nothing has come at time now: 0 before the first
// bytes, for which the question may have to travel long.
func (b *inbox) silent(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.heard.IsZero() {
		return 0
	}
	return now.Sub(b.heard)
}

// excuse moves when bytes last came forward by d, for which this machine was busy or asleep.
func (b *inbox) excuse(now time.Time, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.heard.IsZero() {
		b.heard = later(b.heard, d, now)
	}
}

// take returns the next frame; after the last one, why there is no other.
func (b *inbox) take() (wire.Message, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queue) == 0 && b.err == nil {
		b.ready.Wait()
	}
	if len(b.queue) == 0 {
		return nil, b.err
	}
	m := b.queue[0]
	b.queue = b.queue[1:]
	return m, nil
}
