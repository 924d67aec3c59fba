package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-swarm/starling/node/metrics"
	"github.com/starling-swarm/starling/swarm"
	"github.com/starling-swarm/starling/swarm/wire"
)

// Protocols of the node's streams (docs/protocol.md).
const (
	protoSession = "/starling/session/13"
	protoStage   = "/starling/stage/10"
	protoKV      = "/starling/kv/3"
	protoBundle  = "/starling/bundle/2"
	protoTorrent = "/starling/torrent/2"
)

// Deadlines of links.
const (
	openTimeout  = 10 * time.Second // to reach a peer
	leaseTimeout = 15 * time.Second // of silence until a stream is given up
	writeTimeout = 15 * time.Second // to get 256 KiB out
	idleTimeout  = 10 * time.Second // until an unused outgoing stream is closed
	kvPatience   = time.Second      // a KV slice waits for seams, of which none is older
	writeStep    = 256 << 10
	bulkBytes    = 16 << 10 // only seams and rows have more

	// maxQueue is how many frames may wait for a peer before answers that it
	// provokes (Pong, Refusal) are dropped; everything else works against credits.
	maxQueue = 1024
)

// links carries frames between this node and others: one long-lived outgoing
// stream for each (peer, protocol), opened when first needed; replies come back
// on the other peer's own outgoing stream. Streams keep their order; seams and
// control frames never wait behind KV, which has a protocol of its own and
// gives way to pending seams on this node's uplink.
type links struct {
	host    *swarm.Host
	open    func(ctx context.Context, peer, protocol string) (stream, error)
	deliver func(from string, m wire.Message) // called in order for each stream
	lost    func(peer string, err error)      // a stream broke
	heard   func(peer string, f fragment)     // bytes of a frame have come
	alive   func(peer string) bool            // the peer was heard not long ago
	partner func(peer string) bool            // the peer has a part in one of this node's sessions: seams may be large

	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	out    map[linkKey]*link
	uplink uplink

	metrics *metrics.Metrics
	meter   *meter          // of what comes
	waiting [3]atomic.Int64 // jobs that wait or are being done, by purpose: seam, KV, control
}

type linkKey struct{ peer, protocol string }

// uplink makes KV wait while seams are on their way out.
type uplink struct {
	mu    sync.Mutex
	seams map[*time.Time]bool // that wait or are being written, by when they came
	done  chan struct{}       // closed when one of them has gone; nil: nobody waits for that
}

// seam notes a seam that has come at a time; in is whether it waits, or has gone.
func (u *uplink) seam(at *time.Time, in bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if in {
		if u.seams == nil {
			u.seams = map[*time.Time]bool{}
		}
		u.seams[at] = true
		return
	}
	delete(u.seams, at)
	if u.done != nil {
		close(u.done)
		u.done = nil
	}
}

// wait returns when no seam waits, but after kvPatience in any case. Nor does it wait for a seam that came so long ago: a peer that
// takes up its seams slowly, or is dead, must not hold up the KV of all sessions.
func (u *uplink) wait(ctx context.Context) {
	t := time.NewTimer(kvPatience)
	defer t.Stop()
	for {
		fresh := false
		u.mu.Lock()
		for at := range u.seams {
			fresh = fresh || time.Since(*at) < kvPatience
		}
		if !fresh {
			u.mu.Unlock()
			return
		}
		if u.done == nil {
			u.done = make(chan struct{})
		}
		done := u.done
		u.mu.Unlock()
		select {
		case <-done:
		case <-t.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// job writes frames to a stream when its turn comes.
type job struct {
	purpose metrics.Purpose
	came    *time.Time // a seam, which this pointer stands for
	answer  bool       // provoked by the peer
	do      func(write func(wire.Message) error) error
}

// link is one outgoing stream and what waits for it.
type link struct {
	key   linkKey
	mu    sync.Mutex
	queue []job
	busy  bool          // jobs are being done
	move  bool          // a better connection than the stream's has come about
	gone  bool          // nobody adds to queue any more
	wake  chan struct{} // holds one token when queue may have grown, or gone is set
}

// newLinks makes a node's links; open opens their streams.
func newLinks(host *swarm.Host, open func(ctx context.Context, peer, protocol string) (stream, error), m *metrics.Metrics) *links {
	ctx, stop := context.WithCancel(context.Background())
	return &links{host: host, open: open, ctx: ctx, stop: stop, out: map[linkKey]*link{}, metrics: m, meter: newMeter()}
}

// listen takes other peers' streams from now on, each through wrap. The callbacks are set.
func (l *links) listen(wrap func(*swarm.Stream) stream) {
	for _, protocol := range []string{protoStage, protoKV} {
		l.host.Handle(protocol, func(s *swarm.Stream) { l.receive(wrap(s), protocol) })
	}
}

// Close ends all links; no callback runs afterwards.
func (l *links) Close() {
	l.mu.Lock()
	l.stop()
	l.mu.Unlock()
	l.wg.Wait()
}

// begin counts a goroutine in, unless the links are closed.
func (l *links) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return false
	}
	l.wg.Add(1)
	return true
}

// send queues m for peer; it never blocks. Queues stay short because every
// sender of bulk data works against credits.
func (l *links) send(peer string, m wire.Message) {
	now := time.Now()
	j := job{purpose: purpose(m.Type()), came: &now, do: func(write func(wire.Message) error) error { return write(m) }}
	switch m.(type) {
	case *wire.Pong, *wire.Refusal:
		j.answer = true
	}
	l.enqueue(linkKey{peer, protoStage}, j)
}

// prepare opens the stream to a peer for which there will be seams, which then don't wait for a connection.
func (l *links) prepare(peer string) {
	l.enqueue(linkKey{peer, protoStage}, job{purpose: metrics.Control, do: func(func(wire.Message) error) error { return nil }})
}

// sendKV queues a job that writes KV slices to peer.
func (l *links) sendKV(peer string, do func(write func(wire.Message) error) error) {
	l.enqueue(linkKey{peer, protoKV}, job{purpose: metrics.KV, do: do})
}

func (l *links) enqueue(key linkKey, j job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
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
	if !j.answer || len(k.queue) < maxQueue {
		k.queue = append(k.queue, j)
		l.count(j, 1)
	}
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// forget gives up idle streams to a peer whose connection has ended: the next
// frame for it, perhaps in its next life, must not find a dead one.
func (l *links) forget(peer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, k := range l.out {
		k.mu.Lock()
		unused := !k.busy && len(k.queue) == 0
		k.mu.Unlock()
		if key.peer == peer && unused { // nothing is queued but under l.mu
			l.giveUpLocked(k)
		}
	}
}

// renew gives up all streams to a peer that has said that it reads one of them no
// longer. What waits for them is lost; the next frame goes on a new one.
func (l *links) renew(peer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, k := range l.out {
		if key.peer == peer {
			l.giveUpLocked(k)
		}
	}
}

// reopen moves the streams to a peer, which are inside a relayed connection, to the direct one that has come about since.
func (l *links) reopen(peer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, k := range l.out {
		if key.peer == peer {
			k.mu.Lock()
			k.move = true
			k.mu.Unlock()
			select {
			case k.wake <- struct{}{}:
			default:
			}
		}
	}
}

// giveUpLocked makes a link end after what it is writing.
func (l *links) giveUpLocked(k *link) {
	k.mu.Lock()
	k.gone = true
	k.mu.Unlock()
	delete(l.out, k.key)
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// pending returns how many jobs wait or are being done.
func (l *links) pending() (n int64) {
	for p := range l.waiting {
		n += l.waiting[p].Load()
	}
	return n
}

// count counts a job that waits (1), and that is done or won't be (-1).
func (l *links) count(j job, n int) {
	l.waiting[j.purpose].Add(int64(n))
	if j.purpose == metrics.Seam {
		l.uplink.seam(j.came, n > 0)
	}
}

// drop forgets jobs that won't be done.
func (l *links) drop(jobs []job) {
	for _, j := range jobs {
		l.count(j, -1)
	}
}

// queued returns how many jobs wait or are being done, by purpose.
func (l *links) queued() map[metrics.Purpose]int {
	q := map[metrics.Purpose]int{}
	for p := range l.waiting {
		q[metrics.Purpose(p)] = int(l.waiting[p].Load())
	}
	return q
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
	stream, stop, err := l.reach(k)
	if err != nil {
		return err
	}
	defer func() { stop() }()
	broken := heed(stream)
	counted := &tally{deadlineWriter: stream}
	move := func() error {
		k.mu.Lock()
		wanted := k.move
		k.move = false
		k.mu.Unlock()
		if !wanted {
			return nil
		}
		if err := endStream(stream, broken); err != nil {
			return fmt.Errorf("moving to a direct connection: %w", err)
		}
		stop()
		next, end, err := l.reach(k)
		if err != nil {
			return err
		}
		stream, stop, broken, counted.deadlineWriter = next, end, heed(next), next
		return nil
	}
	write := func(m wire.Message) error {
		if err := move(); err != nil {
			return err
		}
		if k.key.protocol == protoKV {
			l.uplink.wait(l.ctx)
		}
		before := counted.bytes
		err := writeFrame(counted, m)
		l.metrics.Sent(purpose(m.Type()), counted.bytes-before)
		return err
	}
	idle := time.NewTimer(idleTimeout)
	defer idle.Stop()
	for {
		k.mu.Lock()
		jobs, gone := k.queue, k.gone
		k.queue, k.busy = nil, len(k.queue) > 0
		k.mu.Unlock()
		if gone {
			l.drop(jobs)
			_ = stream.Close() // its connection is dead most of the time
			return nil
		}
		if err := move(); err != nil {
			stream.Reset()
			l.drop(jobs)
			return err
		}
		for i, j := range jobs {
			err := j.do(write)
			l.count(j, -1)
			if err != nil {
				stream.Reset()
				l.drop(jobs[i+1:])
				return err
			}
		}
		k.mu.Lock()
		k.busy = false
		k.mu.Unlock()
		idle.Reset(idleTimeout)
		select {
		case <-k.wake:
		case err := <-broken:
			stream.Reset()
			return err
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

// reach opens a link's stream. It is reset when the node closes, whatever it waits for then, until stop is called.
func (l *links) reach(k *link) (s stream, stop func() bool, err error) {
	ctx, cancel := context.WithTimeout(l.ctx, openTimeout)
	defer cancel()
	s, err = l.open(ctx, k.key.peer, k.key.protocol)
	if err != nil {
		return nil, nil, fmt.Errorf("can't reach it: %w", err)
	}
	return s, context.AfterFunc(l.ctx, func() { s.Reset() }), nil
}

// heed waits for the end of what a peer sends on a stream that only this node has something to say on, and then says how it came. A peer
// that gives the stream up, after a silence for example, is noticed by that before the next frame is lost on it.
func heed(s stream) <-chan error {
	ended := make(chan error, 1)
	go func() {
		n, err := s.Read(make([]byte, 1))
		if n > 0 {
			err = errors.New("it answers on a stream that has no answers")
		}
		ended <- err
	}()
	return ended
}

// endStream ends a stream and returns when the peer has taken all that was written, as it shows by ending its side, which ended tells: what
// goes over another stream from then on comes after that.
func endStream(s stream, ended <-chan error) error {
	defer s.Reset() // nothing is left, or nobody takes it
	if err := s.CloseWrite(); err != nil {
		return err
	}
	late := time.NewTimer(leaseTimeout)
	defer late.Stop()
	select {
	case err := <-ended:
		if err != io.EOF {
			return err
		}
		return nil
	case <-late.C:
		return errors.New("the peer doesn't end the relayed stream")
	}
}

// receive reads one incoming stream of a protocol. Bytes that aren't a frame end it: its peer
// is told why, and counts as lost.
func (l *links) receive(s stream, protocol string) {
	defer s.Close()
	if !l.begin() {
		s.Reset()
		return
	}
	defer l.wg.Done()
	defer context.AfterFunc(l.ctx, func() { s.Reset() })()
	before, seen := 0, 0 // bytes of earlier frames, and of earlier pieces
	head := make([]byte, 0, wire.FrameHead)
	words := protocol == protoStage
	var first, last arrival
	r := &patientReader{s: s, alive: func() bool { return l.alive(s.Peer()) }, budget: s, free: func() bool { return l.partner(s.Peer()) }}
	r.heard = func(b []byte) {
		head = append(head, b[:min(len(b), wire.FrameHead-len(head))]...)
		l.heard(s.Peer(), fragment{words: words, large: r.bytes-before > bulkBytes, rows: wire.RowsFor(head)})
		last = l.meter.piece(s.Peer(), r.bytes-seen, time.Now())
		if seen == before {
			first = last
		}
		seen = r.bytes
	}
	for {
		before, head = r.bytes, head[:0]
		m, err := wire.Read(r)
		if err == nil && r.bytes-before > bulkBytes {
			l.meter.frame(s.Peer(), first, last)
		}
		switch {
		case err == nil:
			l.metrics.Received(purpose(m.Type()), r.bytes-before)
			l.deliver(s.Peer(), m)
		case errors.Is(err, wire.ErrFormat):
			l.send(s.Peer(), wire.Refuse(wire.CodeBadFrame, "%v", err))
			if l.ctx.Err() == nil {
				l.lost(s.Peer(), err)
			}
			// The sender isn't stopped at once, it would take this node for the one that broke the stream: told so it opens another one.
			_ = s.SetReadDeadline(time.Now().Add(leaseTimeout))
			_, _ = io.Copy(io.Discard, s)
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
