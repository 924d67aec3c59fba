package node

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/metrics"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm/wire"
)

// stageSession drives one staging machine: it runs steps, sends frames and
// exports KV. It ends when the decoder closes it, is lost or falls silent; its
// KV is free from then on.
type stageSession struct {
	n        *Node
	log      *slog.Logger
	decoder  string
	client   string
	model    artifacts.ID
	prefixes *prefixes
	room     *room // where its KV is
	seat     *seat // at the model's batcher
	ctx      context.Context
	cancel   context.CancelFunc
	began    time.Time

	mu      sync.Mutex
	m       *staging
	steps   sync.WaitGroup // being computed
	waits   waiting
	closed  bool
	heir    bool          // another session has the cache
	opening bool          // a file is read; nothing but the end may come
	done    bool          // the decoder closed it
	kept    bool          // the cache has gone to prefixes
	times   *timing       // nil: the client doesn't ask
	absent  int           // pings in a row that didn't list the session
	rounds  int64         // of the executor, at the latest ping
	pinged  time.Time     // when that was
	rows    rowSigns      // of its predecessor, or of what it is handed
	listed  time.Time     // when the decoder last said that it drives the session
	freed   chan struct{} // closed when the KV is free again
}

// openStage admits a stage session, or says why not. An older epoch of the same
// session makes room for the newer one. The answer is nil where it follows later.
func (n *Node) openStage(from string, m *wire.StageOpen) (*wire.StageOpened, *wire.Refusal) {
	if r := checkStageOpen(m, from, n.ID(), time.Now()); r != nil {
		return nil, r
	}
	if r := n.heeds(&m.Grant); r != nil {
		return nil, r
	}
	st := m.Plan.Stages[m.Index]
	layers := runtime.Range{First: int(st.First), Last: int(st.Last)}
	s, r := n.servedFor(m.Plan.Model, layers)
	if r != nil {
		return nil, r
	}
	profile, r := profileOf(s.exec, m.Grant.Numerics)
	switch {
	case r != nil:
		return nil, r
	case profile.ID() != m.Plan.Profile:
		return nil, wire.Refuse(wire.CodeProfile, "this node computes the session with %v", profile)
	case s.exec.Config().Layers != int(m.Plan.Layers):
		return nil, wire.Refuse(wire.CodeBadGrant, "the plan has %d layers, the model %d", m.Plan.Layers, s.exec.Config().Layers)
	case s.root(layers) != st.RangeRoot:
		return nil, wire.Refuse(wire.CodeUnknownModel, "the bytes of %v differ from the plan's", layers)
	}
	if _, r := newProbed(m.Probe, s.exec.Config().Layers, s.exec.Config().Width, s.exec.Config().Vocab, int(m.Plan.Capacity)); r != nil {
		return nil, r
	}
	old := n.stage(m.Session)
	if r := mayReplace(old, m); r != nil {
		return nil, r
	}
	capacity := int(m.Plan.Capacity)
	w := known{client: m.Grant.Client, profile: m.Plan.Profile, makers: makers(&m.Plan, int(m.Index)), session: m.Session, layers: layers, marks: m.Marks}
	var begins []wire.Mark
	var seq runtime.Sequence
	goesOn, err := old != nil && old.endFor(m), error(nil) // else its KV makes room
	if goesOn {
		seq = old.m.seq
	} else if seq, err = s.room.reserve(n.ctx, 0, func() (runtime.Sequence, error) {
		if seq, _, _ := s.prefixes.take(w, capacity, capacity); seq != nil {
			begins = s.prefixes.begins(w)
			return seq, nil
		}
		return s.prefixes.reserve(profile, capacity, layers)
	}); err != nil {
		return nil, asRefusal(err)
	}
	ctx, cancel := context.WithCancel(n.ctx)
	ss := &stageSession{n: n, log: n.sessionLog(m.Session, metrics.Stage), decoder: from, client: m.Grant.Client, model: artifacts.ID(m.Plan.Model), prefixes: s.prefixes, room: s.room, seat: s.batcher.sit(), ctx: ctx, cancel: cancel,
		times: newTiming(m.Times), began: time.Now(), listed: time.Now(), waits: waiting{what: waitInput, since: time.Now()}, freed: make(chan struct{}), m: newStaging(m, s.exec.Config().Width, seq)}
	have := held(seq, layers)
	if goesOn {
		ss.m.follows(old.m, m)
	} else {
		ss.m.earlier(begins, ss.fork)
		onDisk, _ := s.prefixes.onDisk(w, capacity, have, capacity)
		ss.opening = onDisk != nil
	}
	if r := n.addStage(m.Session, ss); r != nil {
		cancel()
		ss.seat.leave()
		s.room.free(seq)
		return nil, r
	}
	if next := ss.m.successor(); next != from {
		n.links.prepare(next)
	}
	if ss.opening {
		n.spawn(func() { ss.load(w, have) })
		return nil, nil
	}
	ss.log.Debug("stage opened", "epoch", m.Epoch.String(), "model", ss.model.Short(), "layers", layers.String(), "decoder", from)
	return &wire.StageOpened{Head: m.Head, Begins: positions(ss.m.begins)}, nil
}

// makers names the peers whose word a stage takes for what its cache is made of. A cache is used again only where they are the same, or in
// the same session, so that no answer rests on a peer that has no part in it.
func makers(p *wire.Plan, index int) string {
	names := []string{p.Decoder}
	for _, s := range p.Stages[:index] {
		names = append(names, s.Peer)
	}
	return strings.Join(names, " ")
}

// load reads into the sequence, which holds the first n positions of w's tokens, what the disk has of them, and opens the stage.
func (s *stageSession) load(w known, n int) {
	_, marks := s.prefixes.load(s.ctx, w, int(s.m.plan.Capacity), n, upTo(w.marks, n), s.m.seq)
	begins := append(s.prefixes.begins(w), reachable(s.m.seq, marks)...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.opening = false
	s.m.earlier(sorted(begins), s.fork)
	s.n.links.send(s.decoder, &wire.StageOpened{Head: s.m.head, Begins: positions(s.m.begins)})
}

// positions returns where marks are.
func positions(marks []wire.Mark) (list []uint32) {
	for _, k := range marks {
		list = append(list, k.Position)
	}
	return list
}

// fork changes the session's sequence for one that holds the first n positions, as an earlier session left them; nil if that is gone.
func (s *stageSession) fork(n int) runtime.Sequence {
	for _, k := range s.m.begins {
		if int(k.Position) == n {
			s.m.seq.Close()
			seq, _, _ := s.prefixes.take(s.known([]wire.Mark{k}), n, int(s.m.plan.Capacity))
			return seq
		}
	}
	return nil
}

// mayReplace checks that a stage may be opened where the session has one
// already: the client is the same, and the epoch is newer.
func mayReplace(old *stageSession, m *wire.StageOpen) *wire.Refusal {
	switch {
	case old == nil:
		return nil
	case old.client != m.Grant.Client:
		return wire.Refuse(wire.CodeBusy, "session %v is open here for another client", m.Session)
	case old.m.head.Epoch.Compare(m.Epoch) >= 0:
		return wire.Refuse(wire.CodeStaleEpoch, "session %v is open in epoch %v", m.Session, old.m.head.Epoch)
	}
	return nil
}

// deliver takes a frame. A refused frame changes nothing; its sender is told.
func (s *stageSession) deliver(from string, m wire.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	switch m := m.(type) {
	case *wire.StageClose:
		if r := s.m.admit(from, s.decoder, m.Head); r != nil && r.Code != wire.CodeUnknownSession {
			s.n.refuse(from, m.Head, r)
			return
		}
		s.done = true
		st := s.m.account(m.Proof)
		st.InputNanos, st.CreditNanos, st.RowsNanos = s.waits.nanos(waitInput), s.waits.nanos(waitCredit), s.waits.nanos(waitRows)
		if s.times != nil {
			st.Times = slices.Clone(s.times.chunks)
		}
		s.keepIdleLocked() // before the client can ask on
		s.n.links.send(s.decoder, &wire.StageClosed{Head: s.m.head, Stats: st})
		s.closeLocked()
		return
	case *wire.Refusal:
		s.refused(from, m)
		return
	}
	acts, r := []action(nil), wire.Refuse(wire.CodeBadFrame, "the stage hasn't opened yet")
	if !s.opening {
		acts, r = s.m.handle(from, m)
	}
	if r != nil {
		h, _ := headOf(m)
		s.n.refuse(from, h, r)
		if breaks(r.Code) && (from == s.m.predecessor() || from == s.m.successor()) {
			s.lostLocked(from, "it sent what it mustn't: "+r.Error())
		}
		return
	}
	s.times.arrived(m)
	s.do(acts)
}

// refused takes the refusal of a frame of this stage. A neighbour's is the
// decoder's to mend. After the decoder's own the stage can't go on; unless the
// session is over there, the decoder is told so.
func (s *stageSession) refused(from string, m *wire.Refusal) {
	if fence(s.m.head, m.Head) != nil {
		return
	}
	switch from {
	case s.decoder:
		if m.Code != wire.CodeUnknownSession {
			r := *m
			r.Peer = s.n.ID()
			s.n.refuse(s.decoder, s.m.head, &r)
		}
		s.closeLocked()
	case s.m.successor(), s.m.predecessor():
		s.n.refuse(s.decoder, s.m.head, m)
	}
}

func (s *stageSession) do(acts []action) {
	for _, a := range acts {
		switch a := a.(type) {
		case send:
			s.n.links.send(a.To, a.Msg)
		case pushKV:
			s.n.links.sendKV(a.To, func(write func(wire.Message) error) error { return s.push(a, write) })
		case run:
			s.steps.Add(1)
			if !s.n.spawn(func() { s.compute(a) }) {
				s.steps.Done()
			}
		case finish:
			s.n.refuse(s.decoder, s.m.head, a.Err)
			s.closeLocked()
		}
	}
	s.waits.set(s.m.waitsFor(), time.Now())
}

func (s *stageSession) compute(a run) {
	defer s.steps.Done()
	step := a.Step
	took, err := s.seat.run(s.ctx, step, a.Whole)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		prefill := min(max(int(s.m.plan.Known)-step.Start, 0), step.N)
		s.n.metrics.Computed(s.model.Short(), metrics.Stage, took, prefill, step.N-prefill)
	}
	if !s.closed {
		if err == nil {
			s.times.computed(step, math.MaxInt, took)
		}
		s.do(s.m.ran(step, took, err))
	}
}

// push writes the rows that a names, layer by layer in slices. Rows of a
// session that has ended meanwhile are nobody's loss.
func (s *stageSession) push(a pushKV, write func(wire.Message) error) error {
	var rows []byte
	for _, p := range a.Parts {
		var err error
		if rows, err = s.m.seq.ExportKV(rows[:0], p.layer, p.start, p.start+p.count); err != nil {
			return nil
		}
		m := wire.KVSlice{Head: a.Head, Layer: uint32(p.layer), Start: uint32(p.start), Count: uint32(p.count), Prefix: a.Prefix}
		if err := inSlices(m, rows, wire.MaxSlice, write); err != nil {
			return err
		}
	}
	if s.times != nil {
		s.mu.Lock()
		s.times.pushed(a.Start)
		s.mu.Unlock()
	}
	return nil
}

// peerGone says that a peer can't be reached: the decoder's loss ends the
// session, a neighbour's is reported to the decoder. So is the end if only a
// stream to the decoder broke, of which its own side may hear nothing.
func (s *stageSession) peerGone(peer string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lostLocked(peer, err.Error())
}

func (s *stageSession) lostLocked(peer, why string) {
	switch {
	case s.closed:
	case peer == s.decoder:
		if slices.Contains(s.n.host.Connected(), peer) {
			s.n.refuse(peer, s.m.head, wire.Refuse(wire.CodePeerLost, "%s", why))
		}
		s.closeLocked()
	case peer == s.m.successor() || peer == s.m.predecessor():
		r := wire.Refuse(wire.CodePeerLost, "%s", why)
		r.Peer = peer
		s.n.refuse(s.decoder, s.m.head, r)
	}
}

// onPing notes a decoder's list of its sessions; one that it no longer knows is
// freed. Of one that is at work the decoder is told so: the executor gets on, or
// computes the session's first chunk, for which weights may have to be read, or
// the input that it waits for is on its way, or the connection that it comes on.
func (s *stageSession) onPing(listed bool, holdUp func(peer string, since time.Time) time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rounds := s.seat.b.done.Load()
	sender := s.m.predecessor()
	if s.m.given != nil {
		sender = s.decoder
	}
	input := holdUp(sender, s.rows.since(sender, s.waits.since))
	arrives := s.waits.what == waitInput && input.After(s.waits.since) && input.After(s.pinged)
	if s.waits.what == waitInput && time.Since(s.waits.since) < openTimeout && !slices.Contains(s.n.host.Connected(), sender) { // it is being dialled
		arrives = true
	}
	if s.m.taken != nil && (rounds != s.rounds || s.m.computed == 0) || arrives {
		s.n.links.send(s.decoder, &wire.Progress{Head: s.m.head, Upto: s.m.computed})
	}
	s.rounds, s.pinged = rounds, time.Now()
	if s.absent++; listed {
		s.absent, s.listed = 0, time.Now()
	}
	if s.absent >= 2 {
		s.closeLocked()
	}
}

// busyLease is how long a decoder that speaks of other things may leave a
// session unlisted: its pings may wait behind long seams.
const busyLease = time.Minute

// checkLease frees the session if its decoder is silent or has long not listed it.
func (s *stageSession) checkLease(now, heard time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease := busyLease
	if now.Sub(heard) > leaseTimeout {
		lease = leaseTimeout
	}
	if now.Sub(s.listed) > lease {
		s.closeLocked()
	}
}

// excuse moves the last sign of life forward by d, but not beyond now.
func (s *stageSession) excuse(now time.Time, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed = later(s.listed, d, now)
	s.rows.excuse(now, d)
}

// keepIdleLocked keeps the session's cache unless a step is in progress.
func (s *stageSession) keepIdleLocked() {
	if !s.kept && s.m.taken == nil {
		s.kept = true
		s.keep()
	}
}

// keep leaves the session's cache for the client's next one, which may begin alike.
// What is not of the plan's peers alone is for nobody else.
func (s *stageSession) keep() {
	if s.m.mixed {
		return
	}
	s.prefixes.keep(s.known(s.m.holds()), s.m.seq)
}

func (s *stageSession) known(marks []wire.Mark) known {
	return known{client: s.client, profile: s.m.plan.Profile, makers: makers(s.m.plan, s.m.index), session: s.m.head.Session, layers: s.m.layers, marks: marks}
}

// endFor ends the session for the opening of its next epoch, and reports whether that goes on with its cache, which has gone back to
// where it begins then. Else the cache is free.
func (s *stageSession) endFor(m *wire.StageOpen) bool {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.freed
		return false
	}
	s.heir = true
	s.closeLocked()
	s.mu.Unlock()
	s.steps.Wait()
	if s.m.goBack(m) {
		return true
	}
	s.keep()
	s.room.free(s.m.seq)
	return false
}

func (s *stageSession) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeLocked()
}

func (s *stageSession) closeLocked() {
	if s.closed {
		return
	}
	s.closed = true
	s.n.metrics.Ended(metrics.Stage, !s.done && !s.heir)
	s.log.Info("stage closed", "done", s.done, "epoch", s.m.head.Epoch.String(), "tokens", s.m.stats.Tokens, "chunks", s.m.stats.Chunks,
		"compute", time.Duration(s.m.stats.ComputeNanos))
	s.cancel()
	s.n.removeStage(s.m.head.Session, s)
	s.seat.leave()
	if s.heir {
		close(s.freed)
		return
	}
	s.keepIdleLocked()
	kept := s.kept
	go func() {
		if !kept {
			s.keep() // waits for the step in progress
		}
		s.room.free(s.m.seq)
		close(s.freed)
	}()
}
