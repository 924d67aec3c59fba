package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/starling-swarm/starling/swarm"
	"github.com/starling-swarm/starling/swarm/wire"
)

// Protocols of the node's streams (docs/protocol.md).
const (
	protoSession = "/starling/session/1"
	protoStage   = "/starling/stage/1"
	protoKV      = "/starling/kv/1"
	protoBundle  = "/starling/bundle/1"
	protoTorrent = "/starling/torrent/1"
)

// Deadlines of links.
const (
	openTimeout  = 10 * time.Second // to reach a peer
	leaseTimeout = 15 * time.Second // of silence until a stream is given up
	writeTimeout = 15 * time.Second // to get 256 KiB out
	idleTimeout  = 10 * time.Second // until an unused outgoing stream is closed
	writeStep    = 256 << 10
)

// links carries frames between this node and others: one long-lived outgoing
// stream for each (peer, protocol), opened when first needed; replies come back
// on the other peer's own outgoing stream. Streams keep their order; seams and
// control frames never wait behind KV, which has a protocol of its own and
// gives way to pending seams on this node's uplink.
type links struct {
	host    *swarm.Host
	deliver func(from string, m wire.Message) // called in order for each stream
	lost    func(peer string, err error)      // a stream broke

	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	out    map[linkKey]*link
	uplink uplink
}

type linkKey struct{ peer, protocol string }

// uplink makes KV wait while seams are on their way out.
type uplink struct {
	mu    sync.Mutex
	idle  *sync.Cond
	seams int
}

func (u *uplink) seam(n int) {
	u.mu.Lock()
	if u.seams += n; u.seams == 0 {
		u.idle.Broadcast()
	}
	u.mu.Unlock()
}

func (u *uplink) waitIdle() {
	u.mu.Lock()
	for u.seams > 0 {
		u.idle.Wait()
	}
	u.mu.Unlock()
}

// job writes frames to a stream when its turn comes.
type job struct {
	seam bool
	do   func(write func(wire.Message) error) error
}

// link is one outgoing stream and what waits for it.
type link struct {
	key    linkKey
	mu     sync.Mutex
	queue  []job
	wake   chan struct{} // holds one token when queue may have grown
	closed bool
}

func newLinks(host *swarm.Host, deliver func(string, wire.Message), lost func(string, error)) *links {
	ctx, stop := context.WithCancel(context.Background())
	l := &links{host: host, deliver: deliver, lost: lost, ctx: ctx, stop: stop, out: map[linkKey]*link{}}
	l.uplink.idle = sync.NewCond(&l.uplink.mu)
	host.Handle(protoStage, l.receive)
	host.Handle(protoKV, l.receive)
	return l
}

// Close ends all links.
func (l *links) Close() {
	l.stop()
	l.wg.Wait()
}

// send queues m for peer; it never blocks. Queues stay short because every
// sender of bulk data works against credits.
func (l *links) send(peer string, m wire.Message) {
	_, seam := m.(*wire.Seam)
	if seam {
		l.uplink.seam(1)
	}
	l.enqueue(linkKey{peer, protoStage}, job{seam, func(write func(wire.Message) error) error { return write(m) }})
}

// sendKV queues a job that writes KV slices to peer.
func (l *links) sendKV(peer string, do func(write func(wire.Message) error) error) {
	l.enqueue(linkKey{peer, protoKV}, job{false, do})
}

func (l *links) enqueue(key linkKey, j job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		l.drop([]job{j})
		return
	}
	k := l.out[key]
	if k == nil {
		k = &link{key: key, wake: make(chan struct{}, 1)}
		l.out[key] = k
		l.wg.Add(1)
		go l.routineSend(k)
	}
	k.mu.Lock()
	k.queue = append(k.queue, j)
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// drop forgets jobs that won't be done.
func (l *links) drop(jobs []job) {
	for _, j := range jobs {
		if j.seam {
			l.uplink.seam(-1)
		}
	}
}

// routineSend writes one link's jobs until it has been idle for a while or its
// stream breaks.
func (l *links) routineSend(k *link) {
	defer l.wg.Done()
	err := l.serve(k)
	l.mu.Lock()
	k.mu.Lock()
	rest := k.queue
	k.queue = nil
	if l.out[k.key] == k {
		delete(l.out, k.key)
	}
	k.mu.Unlock()
	l.mu.Unlock()
	l.drop(rest)
	if err != nil && l.ctx.Err() == nil {
		l.lost(k.key.peer, err)
	}
}

func (l *links) serve(k *link) error {
	ctx, cancel := context.WithTimeout(l.ctx, openTimeout)
	stream, err := l.host.Open(ctx, k.key.peer, k.key.protocol)
	cancel()
	if err != nil {
		return fmt.Errorf("can't reach it: %w", err)
	}
	write := func(m wire.Message) error {
		if k.key.protocol == protoKV {
			l.uplink.waitIdle()
		}
		return writeFrame(stream, m)
	}
	idle := time.NewTimer(idleTimeout)
	defer idle.Stop()
	for {
		k.mu.Lock()
		jobs := k.queue
		k.queue = nil
		k.mu.Unlock()
		for i, j := range jobs {
			err := j.do(write)
			if j.seam {
				l.uplink.seam(-1)
			}
			if err != nil {
				stream.Reset()
				l.drop(jobs[i+1:])
				return err
			}
		}
		idle.Reset(idleTimeout)
		select {
		case <-k.wake:
		case <-l.ctx.Done():
			stream.Reset()
			return l.ctx.Err()
		case <-idle.C:
			l.mu.Lock()
			k.mu.Lock()
			unused := len(k.queue) == 0
			if unused {
				delete(l.out, k.key)
			}
			k.mu.Unlock()
			l.mu.Unlock()
			if unused {
				return stream.Close()
			}
		}
	}
}

type deadlineWriter interface {
	io.Writer
	SetWriteDeadline(time.Time) error
}

// writeFrame writes m in pieces, each with a deadline of its own, so that a
// slow link is no dead one.
func writeFrame(s deadlineWriter, m wire.Message) error {
	b := wire.Append(nil, m)
	for len(b) > 0 {
		n := min(len(b), writeStep)
		if err := s.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return err
		}
		if _, err := s.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// receive reads one incoming stream. Bytes that aren't a frame end the stream
// and tell its peer why; they change nothing else.
func (l *links) receive(s *swarm.Stream) {
	defer s.Close()
	done := context.AfterFunc(l.ctx, func() { s.Reset() })
	defer done()
	for {
		if err := s.SetReadDeadline(time.Now().Add(leaseTimeout)); err != nil {
			return
		}
		m, err := wire.Read(s)
		switch {
		case err == nil:
			l.deliver(s.Peer(), m)
		case errors.Is(err, wire.ErrFormat):
			l.send(s.Peer(), wire.Refuse(wire.CodeBadFrame, "%v", err))
			s.Reset()
			return
		case err == io.EOF:
			return
		default:
			s.Reset()
			if l.ctx.Err() == nil {
				l.lost(s.Peer(), err)
			}
			return
		}
	}
}
