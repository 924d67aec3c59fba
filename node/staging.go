package node

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash"
	"math"
	"slices"
	"time"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm/wire"
	"lukechampine.com/blake3"
)

// maxAhead is how many chunks a sender may be ahead of what its receiver has
// taken up: two seams in flight to the successor, and chunk j+2 waits for the
// KV of chunk j (DESIGN §3.4).
const maxAhead = 2

// staging is one stage's side of a session: a state machine without I/O or
// clock. Its owner serialises calls.
//
//	       Chunk (decoder)            Seam (predecessor)
//	             │                        │
//	             ▼                        ▼
//	announced ──────── matched by position and prefix ──► run ──► Seam to successor
//	                                       │                      rows to decoder
//	                                       └► SeamCredit to predecessor
//
// Invariants, in positions: computed ≤ taken ≤ announced ≤ capacity, and at
// most one run at a time.
//
// The first chunk says where the stage begins: at 0, or where the cache of an
// earlier session, which it has, agrees with the tokens.
//
// A chunk may end in guesses. Then it is the last one announced until the
// decoder has verified it, which takes all that every stage makes of it: when a
// Rewind or the next chunk comes, the chunk is computed. Only then is what was
// right pushed and accounted for, so that nobody ever holds rows of a wrong guess.
type staging struct {
	plan    *wire.Plan
	index   int
	layers  runtime.Range
	width   int
	in, out runtime.SeamType // of the seams that come and go
	seq     runtime.Sequence
	head    wire.Head

	begins []wire.Mark                  // ascending: up to where earlier caches go, beside 0
	fork   func(n int) runtime.Sequence // of an earlier cache, if it is still there; closes seq
	begun  bool
	marks  []wire.Mark // of what is announced: ascending, where pages end and where caches of earlier sessions did
	tip    wire.Mark   // … and its end

	announced uint32
	chunks    []*wire.Chunk // announced and not yet taken up, ascending
	seamEnd   uint32        // end of the last seam received
	seams     []*wire.Seam  // received and not yet taken up, ascending
	taken     *wire.Chunk   // being computed
	computed  uint32
	probe     wire.Probe
	guessed   *wire.Chunk // the last one announced, if its guesses may still be wrong
	made      []byte      // guessed's seam rows, once computed
	void      bool        // the guesses among them are none: something in them was no number
	sent      []uint32    // ends of the seams that the successor hasn't yet taken up, in order
	pushed    []uint32    // ends of the runs of rows that the decoder hasn't yet acknowledged, in order
	tailed    int         // where the decoder has the layers' tails, or is sent them; −1: nothing of the plan's has been pushed
	unpushed  int         // chunks computed behind the last of pushed, of which nothing is pushed

	given *taking // what the decoder hands over; nil: nothing, or all is here
	mixed bool    // part of the cache is of peers that the plan doesn't name

	stats    wire.StageStats
	seamHash hash.Hash
	leaving  *wire.Refusal // why the stage ends when nothing of it is under way any more
	failed   bool
}

// newStaging makes the machine of the stage that open, which has been checked,
// asks for. seq is empty, and owned by the caller until the
// stage has begun. earlier follows where there are caches.
func newStaging(open *wire.StageOpen, width int, seq runtime.Sequence) *staging {
	plan, st := &open.Plan, open.Plan.Stages[open.Index]
	return &staging{
		plan: plan, index: int(open.Index), head: plan.Head, probe: open.Probe, seq: seq, width: width,
		in: seq.Profile().SeamAt(int(st.First)), out: seq.Profile().SeamAt(int(st.Last)),
		layers:   runtime.Range{First: int(st.First), Last: int(st.Last)},
		tailed:   -1,
		stats:    wire.StageStats{Peer: st.Peer, First: st.First, Last: st.Last},
		seamHash: blake3.New(32, nil),
	}
}

func (s *staging) predecessor() string {
	if s.index == 0 {
		return ""
	}
	return s.plan.Stages[s.index-1].Peer
}

func (s *staging) successor() string {
	if s.index+1 < len(s.plan.Stages) {
		return s.plan.Stages[s.index+1].Peer
	}
	return s.plan.Decoder
}

// handle takes a frame from peer from. A refusal means that nothing changed.
func (s *staging) handle(from string, m wire.Message) ([]action, *wire.Refusal) {
	switch m := m.(type) {
	case *wire.Chunk:
		if r := s.admit(from, s.plan.Decoder, m.Head); r != nil {
			return nil, r
		}
		return s.onChunk(m)
	case *wire.Rewind:
		if r := s.admit(from, s.plan.Decoder, m.Head); r != nil {
			return nil, r
		}
		return s.onRewind(m)
	case *wire.Handover:
		if r := s.admit(from, s.plan.Decoder, m.Head); r != nil {
			return nil, r
		}
		return s.onHandover(m)
	case *wire.KVSlice:
		if r := s.admit(from, s.plan.Decoder, m.Head); r != nil {
			return nil, r
		}
		return s.onGiven(m)
	case *wire.Seam:
		if r := s.admit(from, s.predecessor(), m.Head); r != nil {
			return nil, r
		}
		return s.onSeam(m)
	case *wire.SeamCredit:
		if r := s.admit(from, s.successor(), m.Head); r != nil {
			return nil, r
		}
		if !upto(&s.sent, m.Upto) {
			return nil, wire.Refuse(wire.CodeBadFrame, "seam credit to %d, sent are seams to %d", m.Upto, s.sent)
		}
	case *wire.KVAck:
		if r := s.admit(from, s.plan.Decoder, m.Head); r != nil {
			return nil, r
		}
		if !upto(&s.pushed, m.Upto) {
			return nil, wire.Refuse(wire.CodeBadFrame, "KV acknowledged to %d, sent are rows to %d", m.Upto, s.pushed)
		}
		if len(s.pushed) == 0 {
			s.unpushed = 0
		}
	default:
		return nil, wire.Refuse(wire.CodeBadFrame, "a stage gets no frame of type %d", m.Type())
	}
	return s.next(), nil
}

// upto takes what ends at position end, and all before it, from a list of ends;
// false where the list has no such. Positions are used again after a Rewind, so
// that the order counts, not the number.
func upto(ends *[]uint32, end uint32) bool {
	i := slices.Index(*ends, end)
	*ends = (*ends)[i+1:]
	return i >= 0
}

// admit checks that a frame comes from the peer that the plan names, for the
// epoch that the session is in.
func (s *staging) admit(from, want string, h wire.Head) *wire.Refusal {
	if r := fence(s.head, h); r != nil {
		return r
	}
	if from != want || want == "" {
		return wire.Refuse(wire.CodeWrongPeer, "the plan of epoch %v names another sender", s.head.Epoch)
	}
	if s.failed {
		return wire.Refuse(wire.CodeUnknownSession, "the stage has failed")
	}
	return nil
}

func (s *staging) onChunk(m *wire.Chunk) ([]action, *wire.Refusal) {
	switch {
	case m.Start != s.announced && !s.mayBegin(m.Start):
		return nil, wire.Refuse(wire.CodeBadFrame, "chunk at position %d, expected %d", m.Start, s.announced)
	case uint64(m.Start)+uint64(m.Count) > uint64(s.plan.Capacity):
		return nil, wire.Refuse(wire.CodeBadGrant, "chunk ends at %d, reserved are %d positions", uint64(m.Start)+uint64(m.Count), s.plan.Capacity)
	case s.guessed != nil && (s.computed != s.announced || s.void):
		return nil, wire.Refuse(wire.CodeBadFrame, "chunk at position %d behind guesses that nobody can have verified", m.Start)
	case len(s.chunks) >= int(s.plan.Window):
		return nil, wire.Refuse(wire.CodeBadFrame, "more than %d chunks announced", s.plan.Window)
	case (s.index == 0) != (len(m.Tokens) > 0):
		return nil, wire.Refuse(wire.CodeBadFrame, "stage %d got %d token IDs with a chunk", s.index, len(m.Tokens))
	case m.Held && m.Guessed > 0:
		return nil, wire.Refuse(wire.CodeBadFrame, "guesses in a chunk that the decoder holds")
	case !s.begun && len(s.seams) > 0 && s.seams[0].Start != m.Start:
		return nil, wire.Refuse(wire.CodePrefix, "a seam at position %d came, the first chunk starts at %d", s.seams[0].Start, m.Start)
	}
	for _, seam := range s.seams { // a seam may be quicker than its announcement
		switch {
		case seam.Start == m.Start:
			if r := match(m, seam); r != nil {
				return nil, r
			}
		case seam.Start < m.Start && len(s.chunks) == 0:
			return nil, wire.Refuse(wire.CodePrefix, "a seam at position %d came, the chunk starts at %d", seam.Start, m.Start)
		}
	}
	var acts []action
	if !s.begun && !s.begin(m.Start) {
		s.failed = true
		return []action{finish{Err: wire.Refuse(wire.CodeBusy, "the cache of the tokens before position %d had to make room", m.Start)}}, nil
	}
	if s.guessed != nil { // all were right
		acts = s.keep(s.guessed.Count, s.guessed.Prefix)
	}
	s.note(m)
	s.announced += m.Count
	s.chunks = append(s.chunks, m)
	if m.Guessed > 0 {
		s.guessed = m
	}
	return append(acts, s.next()...), nil
}

// onRewind forgets what came of wrong guesses. The first seam behind them may
// be here already.
func (s *staging) onRewind(m *wire.Rewind) ([]action, *wire.Refusal) {
	c := s.guessed
	switch {
	case c == nil || s.computed != s.announced || m.Upto < c.Start || m.Upto >= s.announced || s.void && m.Upto > s.announced-c.Guessed:
		return nil, wire.Refuse(wire.CodeBadFrame, "rewind to position %d of %d, no guesses are there that can have been verified", m.Upto, s.announced)
	case len(s.seams) > 0 && s.seams[0].Start != m.Upto:
		return nil, wire.Refuse(wire.CodePrefix, "rewind to position %d, a seam at %d came", m.Upto, s.seams[0].Start)
	}
	if n := s.seq.Truncate(int(m.Upto)); n != int(m.Upto) {
		s.failed = true
		return []action{finish{Err: wire.Refuse(wire.CodeInternal, "rewind to position %d: the layers go back to %d only", m.Upto, n)}}, nil
	}
	acts := s.keep(m.Upto-c.Start, m.Prefix)
	s.follow(wire.Mark{Position: m.Upto, Prefix: m.Prefix})
	s.announced, s.computed = m.Upto, m.Upto
	if len(s.seams) == 0 {
		s.seamEnd = m.Upto
	}
	return acts, nil
}

// rewinds reports whether a seam is the first one behind wrong guesses, whose
// Rewind has yet to come.
func (s *staging) rewinds(m *wire.Seam) bool {
	c := s.guessed
	return c != nil && s.computed == s.announced && len(s.seams) == 0 && m.Start >= c.Start && m.Start < s.seamEnd && (m.Start != c.Start || m.Prefix != c.Prefix)
}

func (s *staging) onSeam(m *wire.Seam) ([]action, *wire.Refusal) {
	switch {
	case m.Cut != uint32(s.layers.First):
		return nil, wire.Refuse(wire.CodeBadFrame, "seam into layer %d, this stage starts at %d", m.Cut, s.layers.First)
	case m.Start != s.seamEnd && !s.rewinds(m) && !(len(s.seams) == 0 && s.mayBegin(m.Start)):
		return nil, wire.Refuse(wire.CodeBadFrame, "seam at position %d, expected %d", m.Start, s.seamEnd)
	case len(s.seams) >= maxAhead:
		return nil, wire.Refuse(wire.CodeBadFrame, "more than %d seams without credit", maxAhead)
	case uint64(len(m.Rows)) != uint64(m.Count)*uint64(s.in.Bytes(s.width)):
		return nil, wire.Refuse(wire.CodeBadFrame, "seam of %d rows in %d bytes, a row in %v has %d", m.Count, len(m.Rows), s.in, s.in.Bytes(s.width))
	case uint64(m.Start)+uint64(m.Count) > uint64(s.plan.Capacity):
		return nil, wire.Refuse(wire.CodeBadGrant, "seam ends beyond the %d reserved positions", s.plan.Capacity)
	}
	for _, c := range s.chunks {
		if c.Start == m.Start {
			if r := match(c, m); r != nil {
				return nil, r
			}
		}
	}
	s.seamEnd = m.Start + m.Count
	s.seams = append(s.seams, m)
	return s.next(), nil
}

// match checks that a seam belongs to the announced chunk at its position.
func match(c *wire.Chunk, m *wire.Seam) *wire.Refusal {
	if c.Count != m.Count {
		return wire.Refuse(wire.CodeBadFrame, "seam of %d rows at position %d, announced are %d", m.Count, m.Start, c.Count)
	}
	if c.Prefix != m.Prefix {
		return wire.Refuse(wire.CodePrefix, "seam at position %d belongs to other tokens", m.Start)
	}
	return nil
}

// next starts the oldest announced chunk if its input is here and neither the
// successor nor the decoder is too far behind.
func (s *staging) next() []action {
	if s.leaving != nil {
		return s.mayLeave()
	}
	if s.failed || s.taken != nil || len(s.chunks) == 0 || max(len(s.sent), s.unacknowledged()) >= maxAhead {
		return nil
	}
	c := s.chunks[0]
	step := &runtime.Step{Seq: s.seq, Layers: s.layers, Start: int(c.Start), N: int(c.Count),
		KeepHidden: s.layers.Last == int(s.plan.Layers), Probe: probeOf(&s.probe, uint32(s.layers.First), uint32(s.layers.Last-1), int(c.Start), int(c.Count))}
	var acts []action
	if s.index == 0 {
		step.Tokens = c.Tokens
	} else {
		if len(s.seams) == 0 || s.seams[0].Start != c.Start {
			return nil
		}
		step.Seam = s.in.Decode(s.seams[0].Rows, s.width)
		s.seams = s.seams[1:]
		acts = append(acts, send{s.predecessor(), &wire.SeamCredit{Head: s.head, Upto: c.Start + c.Count}})
	}
	s.chunks, s.taken = s.chunks[1:], c
	return append(acts, run{Step: step, Whole: forgets(s.seq, s.layers)})
}

// leave ends the stage for a reason as soon as the chunk under way is computed and the decoder holds all rows: who takes its place, or
// the decoder, goes on from there.
func (s *staging) leave(r *wire.Refusal) []action {
	s.leaving = r
	return s.mayLeave()
}

func (s *staging) mayLeave() []action {
	if s.failed || s.taken != nil || len(s.pushed) > 0 {
		return nil
	}
	s.failed = true
	return []action{finish{Err: s.leaving}}
}

// waitsFor says what keeps the stage from computing.
func (s *staging) waitsFor() wait {
	switch {
	case s.failed || s.taken != nil:
		return waitNone
	case max(len(s.sent), s.unacknowledged()) < maxAhead:
		return waitInput
	case len(s.sent) >= maxAhead:
		return waitCredit
	}
	return waitRows
}

// ran takes the result of the step that next asked for, and the time that was
// spent on it.
func (s *staging) ran(step *runtime.Step, took time.Duration, err error) []action {
	c := s.taken
	s.taken = nil
	if s.failed || c == nil {
		return nil
	}
	if err != nil && c.Guessed > 0 && step.N == int(c.Count) { // what a wrong guess leads to need not be a number
		s.taken = c
		return []action{run{Step: cutGuesses(step, int(c.Guessed), s.width), Whole: forgets(s.seq, s.layers)}}
	}
	if err != nil {
		s.failed = true
		r := asRefusal(err)
		if badSeam(err) {
			r.Peer = s.predecessor()
		}
		return []action{finish{Err: r}}
	}
	s.computed = c.Start + c.Count
	s.stats.Chunks++
	s.stats.ComputeNanos += uint64(took)
	last, void := s.successor() == s.plan.Decoder, step.N < int(c.Count)
	var rows []byte
	var acts []action
	for _, m := range rowsOf(&s.probe, s.head, step) {
		acts = append(acts, send{s.plan.Decoder, m})
	}
	if !c.Held || !last {
		s.sent = append(s.sent, s.computed)
		rows = s.out.Append(nil, step.Out, s.width)
		if void { // whoever needs the guesses' rows finds that there are none: bytes of ones are no number in any type
			rows = append(rows, bytes.Repeat([]byte{0xff}, (int(c.Count)-step.N)*s.out.Bytes(s.width))...)
		}
		s.stats.SeamBytes += uint64(len(rows))
		acts = append(acts, send{s.successor(), &wire.Seam{Head: s.head, Cut: uint32(s.layers.Last),
			Start: c.Start, Count: c.Count, Prefix: c.Prefix, Rows: rows}})
	}
	switch {
	case c.Guessed > 0:
		s.made, s.void = rows, void
	case c.Held:
		s.count(c.Count, rows)
	default:
		acts = append(acts, s.push(c.Start, c.Count, c.Prefix, c.Tails, rows)...)
	}
	if c.Held || !last {
		acts = append(acts, send{s.plan.Decoder, &wire.Progress{Head: s.head, Upto: s.computed}})
	}
	return append(acts, s.next()...)
}

// keep takes the first n positions of the chunk with guesses for good: prefix is
// of all tokens before their end.
func (s *staging) keep(n uint32, prefix wire.Prefix) []action {
	c := s.guessed
	rows := s.made[:int(n)*s.out.Bytes(s.width)]
	s.guessed, s.made, s.void = nil, nil, false
	if n == 0 {
		return nil
	}
	return s.push(c.Start, n, prefix, c.Tails && n == c.Count, rows)
}

// push accounts for positions whose tokens are certain, seam is their rows, and
// sends what the cache has of them where the plan says so. A layer with a tail
// goes with chunks that have tails only, with all its positions since the last
// one: each tail replaces the one before.
func (s *staging) push(start, n uint32, prefix wire.Prefix, tails bool, seam []byte) []action {
	s.count(n, seam)
	if !s.plan.PushKV {
		return nil
	}
	if s.tailed < 0 {
		s.tailed = int(start)
	}
	end := int(start + n)
	var parts []kvPart
	for l := s.layers.First; l < s.layers.Last; l++ {
		switch {
		case s.seq.TailBytes(l) == 0:
			parts = append(parts, kvPart{l, int(start), int(n)})
		case tails:
			parts = append(parts, kvPart{l, s.tailed, end - s.tailed})
		}
	}
	if tails {
		s.tailed = end
	}
	if len(parts) == 0 {
		if len(s.pushed) > 0 {
			s.unpushed++
		}
		return nil
	}
	for _, p := range parts {
		s.stats.KVBytes += uint64(s.seq.KVBytes(p.layer, p.start, end))
	}
	s.pushed = append(s.pushed, uint32(end))
	return []action{pushKV{s.plan.Decoder, s.head, int(start), parts, prefix}}
}

// unacknowledged returns how many chunks have been computed since the oldest one whose rows the decoder may lack: a tail can be exported
// until its layer has run twice more.
func (s *staging) unacknowledged() int { return len(s.pushed) + s.unpushed }

// count accounts for so many positions, seam is their rows.
func (s *staging) count(n uint32, seam []byte) {
	s.seamHash.Write(seam)
	s.stats.Tokens += uint64(n)
}

// account returns what the stage did; with proof also its KV digests. It is
// asked for when the session is over: guesses that nobody rewound were right.
func (s *staging) account(proof bool) wire.StageStats {
	if s.guessed != nil && s.computed == s.announced && !s.void {
		s.count(s.guessed.Count, s.made)
		s.guessed, s.made = nil, nil
	}
	st := s.stats
	copy(st.SeamHash[:], s.seamHash.Sum(nil))
	if proof {
		for l := s.layers.First; l < s.layers.Last; l++ {
			st.KVDigests = append(st.KVDigests, s.seq.Digest(l))
		}
	}
	return st
}

// encodeRows writes floats as hashes take them: f32, little endian.
func encodeRows(x []float32) []byte {
	b := make([]byte, 4*len(x))
	for i, v := range x {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
	}
	return b
}

// badSeam reports whether err is about a seam that came with numbers which an
// honest peer's runtime doesn't let out.
func badSeam(err error) bool {
	var nan *runtime.NonFiniteError
	return errors.As(err, &nan) && nan.What == "seam"
}

// asRefusal gives an error of this node's runtime the type under which other
// peers learn of it.
func asRefusal(err error) *wire.Refusal {
	var (
		r        *wire.Refusal
		nan      *runtime.NonFiniteError
		profile  *runtime.ProfileError
		capacity *runtime.CapacityError
		ctx      *runtime.ContextError
	)
	switch {
	case errors.As(err, &r):
		return r
	case errors.As(err, &nan):
		return wire.Refuse(wire.CodeNonFinite, "%v", err)
	case errors.As(err, &profile):
		return wire.Refuse(wire.CodeProfile, "%v", err)
	case errors.As(err, &capacity):
		return wire.Refuse(wire.CodeBusy, "%v", err)
	case errors.As(err, &ctx):
		return wire.Refuse(wire.CodeContext, "%v", err)
	}
	return wire.Refuse(wire.CodeInternal, "%v", err)
}
