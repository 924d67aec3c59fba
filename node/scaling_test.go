package node

import (
	"cmp"
	"container/heap"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/route"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm/wire"
)

var (
	scalingRTT = flag.Duration("rtt", 500*time.Microsecond, "with -v: the round trip between simulated peers")
	scalingBPS = flag.Float64("rate", 1e9, "with -v: bits per second of their links")
)

const chunkFile = "testdata/chunk-times.json"

// TestPrefillScaling lets 1 to 8 equal peers read prompts in virtual time: the planner's plans, the machines of sessions, links with a rate
// and a round trip, and steps that take as long as single chunks did on one thread. With 8192 tokens, n peers must be 0.9 n times
// as fast as one, or 0.9 times as fast as whole layers allow: of 30 layers seven peers have 5 at most, and can't be more than 6 times as fast.
// Of 40 such layers each number of peers can have shares that allow 0.95 n, so it must make 0.9 n, with long prompts at least.
func TestPrefillScaling(t *testing.T) {
	times, err := readChunkTimes()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s, one thread each of %s; %.0f Mbit/s, round trips of %v\nspeed-up, the same by peer, (rows in a chunk); above, what whole layers allow",
		times.Card.Name, times.Processor, *scalingBPS/1e6, *scalingRTT)
	t.Run(fmt.Sprint(times.Card.Layers, " layers"), func(t *testing.T) {
		from := times.scaling(t)
		for n := 2; n <= mostPeers; n++ {
			if k := from[n].allowed; k == 0 || k > 8192 {
				t.Errorf("%d peers aren't 0.9 · %.2f times as fast as one at 8192 tokens", n, times.allowed(n))
			}
		}
		t.Logf("6000 tokens: two peers are %.2f times as fast as one", times.read(t, 1, 6000, 0).took.Seconds()/times.read(t, 2, 6000, 0).took.Seconds())
		times.chosenChunks(t)
	})
	t.Run("40 layers", func(t *testing.T) {
		from := times.stacked(40).scaling(t)
		for n := 2; n <= mostPeers; n++ {
			if from[n].linear == 0 {
				t.Errorf("%d peers aren't 0.9 · %d times as fast as one at any length", n, n)
			}
		}
	})
}

const mostPeers = 8

// allowed returns how much faster n equal peers can be than one that computes all layers, if layers aren't divided.
func (c *chunkTimes) allowed(n int) float64 {
	return min(float64(n), float64(c.Card.Layers)/math.Ceil(float64(c.Card.Layers)/float64(n)))
}

// fastFrom are the shortest prompts from which on n peers are 0.9 n times as fast as one, and 0.9 times what whole layers allow; 0: none.
type fastFrom struct{ linear, allowed int }

// scaling prints a table of prompts and peers, and returns for each number of peers from when on they are fast enough.
func (c *chunkTimes) scaling(t *testing.T) (from [mostPeers + 1]fastFrom) {
	prompts := []int{512, 1024, 2048, 4096, 8192, 16384, 32768}
	head := "prompt"
	for n := 1; n <= mostPeers; n++ {
		head += fmt.Sprintf(" | %d (%.2f)", n, c.allowed(n))
	}
	table := []string{head}
	for _, prompt := range slices.Backward(prompts) {
		line, one := fmt.Sprint(prompt), c.read(t, 1, prompt, 0)
		for n := 1; n <= mostPeers; n++ {
			r := c.read(t, n, prompt, 0)
			speedup := one.took.Seconds() / r.took.Seconds()
			line += fmt.Sprintf(" | %.2f %.2f (%d)", speedup, speedup/float64(n), r.chunk)
			longer := func(from *int, bar float64) {
				if speedup >= 0.9*bar && (*from == 2*prompt || prompt == prompts[len(prompts)-1]) {
					*from = prompt
				}
			}
			longer(&from[n].linear, float64(n))
			longer(&from[n].allowed, c.allowed(n))
		}
		table = slices.Insert(table, 1, line)
	}
	t.Log("\n" + strings.Join(table, "\n"))
	for n := 2; n <= mostPeers; n++ {
		t.Logf("%d peers: 0.9 n from %d tokens on, 0.9 of %.2f from %d on (0: never)", n, from[n].linear, c.allowed(n), from[n].allowed)
	}
	return from
}

// chosenChunks tests that no other chunk is much better than the planner's, which knows two speeds of a peer, not those of each chunk.
func (c *chunkTimes) chosenChunks(t *testing.T) {
	for n := 2; n <= mostPeers; n++ {
		for _, prompt := range []int{1024, 4096} {
			chosen, best := c.read(t, n, prompt, 0), (*reading)(nil)
			for _, chunk := range []int{16, 32, 64, 128, 256} {
				if r := c.read(t, n, prompt, chunk); best == nil || r.took < best.took {
					best = r
				}
			}
			t.Logf("%d peers, %d tokens: %v in chunks of %d, %v in the planner's of %d", n, prompt, best.took.Round(time.Millisecond), best.chunk, chosen.took.Round(time.Millisecond), chosen.chunk)
			if float64(chosen.took) > 1.1*float64(best.took) {
				t.Errorf("%d peers read %d tokens in %v in chunks of %d, and in %v in the planner's of %d", n, prompt, best.took, best.chunk, chosen.took, chosen.chunk)
			}
		}
	}
}

// chunkTimes are how long single chunks of a model took, without the head.
type chunkTimes struct {
	Card      artifacts.Card
	Processor string
	Speed     runtime.Speed // as a peer would offer it
	Head      float64       // seconds for one row
	Chunks    []chunkTime   // ascending rows, then ascending depth
}

type chunkTime struct {
	Rows, Depth int
	Seconds     float64 // of all layers
}

func readChunkTimes() (c *chunkTimes, err error) {
	b, err := os.ReadFile(chunkFile)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	return c, err
}

// seconds returns how long n rows behind depth others take in all layers: linear in the depth, and between the sizes measured.
func (c *chunkTimes) seconds(n, depth int) float64 {
	at := func(i int) float64 {
		a, b := c.Chunks[i], c.Chunks[i+1]
		return a.Seconds + (b.Seconds-a.Seconds)*float64(depth-a.Depth)/float64(b.Depth-a.Depth)
	}
	for i := 0; ; i += 2 {
		hi := c.Chunks[i].Rows
		switch last := i+2 == len(c.Chunks); {
		case n == hi, last:
			return at(i) * float64(n) / float64(hi)
		case n < hi:
			lo := c.Chunks[i-2].Rows
			return at(i-2) + (at(i)-at(i-2))*float64(n-lo)/float64(hi-lo)
		}
	}
}

// stacked returns the times of a model that has n of c's layers, which are all alike.
func (c *chunkTimes) stacked(n int) *chunkTimes {
	s := *c
	by := float64(n) / float64(c.Card.Layers)
	s.Card.Layers, s.Card.Cuts = n, nil
	for cut := 1; cut < n; cut++ {
		s.Card.Cuts = append(s.Card.Cuts, cut)
	}
	s.Card.KVBytesPerToken = slices.Repeat(c.Card.KVBytesPerToken[:1], n)
	s.Card.KVWindow, s.Card.TailBytes = slices.Repeat(c.Card.KVWindow[:1], n), slices.Repeat(c.Card.TailBytes[:1], n)
	s.Card.LayerBytes = slices.Repeat(c.Card.LayerBytes[:1], n)
	s.Card.LayerFlops, s.Card.AttnFlops = slices.Repeat(c.Card.LayerFlops[:1], n), slices.Repeat(c.Card.AttnFlops[:1], n)
	s.Chunks = slices.Clone(c.Chunks)
	for i := range s.Chunks {
		s.Chunks[i].Seconds *= by
	}
	return &s
}

// reading is a prompt that is read by simulated peers.
type reading struct {
	t     *testing.T
	c     *chunkTimes
	chunk int
	took  time.Duration // from the first chunk to the first token

	now    time.Duration
	events events
	nth    int // of the latest event
	d      *decoding
	stages map[string]*staging
	up     map[string]*simUplink
	down   map[string]time.Duration // when the link to a peer is free
}

// events are what happens when, in order; of equal times the first one noted.
type events []event

type event struct {
	at   time.Duration
	nth  int
	what func()
}

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[i].at, e[j].at), cmp.Compare(e[i].nth, e[j].nth)) < 0
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	x := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return x
}

// simUplink sends one frame after the other; KV rows give way to everything else.
type simUplink struct {
	busy   bool
	queues [2][]simFrame // others, KV
}

type simFrame struct {
	to    string
	bytes float64
	m     wire.Message
}

// read has n peers read a prompt, by the plan that uses all of them; chunk 0 is the planner's choice.
func (c *chunkTimes) read(t *testing.T, n, prompt, chunk int) *reading {
	t.Helper()
	r := &reading{t: t, c: c, stages: map[string]*staging{}, up: map[string]*simUplink{}, down: map[string]time.Duration{}}
	req := route.Request{PromptTokens: prompt, NewTokens: 1, Decoder: simDecoder, Shape: route.Local, Chunk: chunk}
	var peers []route.Peer
	var links []route.Link
	for i := range n {
		p := route.Peer{ID: simDecoder, Holds: route.Range{First: 0, Last: c.Card.Layers}, Head: true, Embed: true, PrefillFlops: c.Speed.PrefillFlops,
			DecodeBytesPerSec: c.Speed.DecodeBytesPerSec, KVFreeBytes: 1 << 50, Up: *scalingBPS / 8, Down: *scalingBPS / 8}
		if i > 0 {
			p.ID = fmt.Sprint("S", i)
			req.Shape = route.Across
		}
		for _, q := range peers {
			links = append(links, route.Link{From: q.ID, To: p.ID, RTT: scalingRTT.Seconds()})
		}
		peers, req.Include = append(peers, p), append(req.Include, p.ID)
	}
	card := c.Card
	card.Context = 1 << 20
	plan, err := route.Make(planModel(&card, prompt, prompt, runtime.KVF16, runtime.SeamF32), peers, links, req)
	if err != nil {
		t.Fatal(err)
	}
	r.chunk = plan.Chunk
	cfg := runtime.Config{Layers: card.Layers, Width: 1, Vocab: 2, Context: card.Context, LayerFlops: card.LayerFlops, AttnFlops: card.AttnFlops[0]}
	for range cfg.Layers {
		cfg.Cache = append(cfg.Cache, runtime.LayerCache{Heads: 1, Key: 1, Value: 1})
	}
	open := &wire.SessionOpen{Head: wire.Head{Epoch: wire.Epoch{Client: 1}}, Route: wireRoute(plan), Tokens: make([]int32, prompt), MaxNew: 1}
	open.Grant = wire.Grant{ClientEpoch: 1, Budget: uint32(prompt + 1), Decoder: simDecoder}
	profile := runtime.NewProfile(runtime.KVF16).ID()
	d, refusal := newDecoding(simDecoder, open, runtime.Sampling{}, profile, cfg, func(*wire.Plan) {})
	if refusal != nil {
		t.Fatal(refusal)
	}
	r.d = d
	all := runtime.Range{First: 0, Last: cfg.Layers}
	d.reserved(all, all, &hollow{rows: make([]int, cfg.Layers), most: prompt + 1}, 0, nil)
	var began time.Duration // when all stages are open
	r.do(simDecoder, d.start(profile))
	for r.took == 0 {
		if len(r.events) == 0 {
			t.Fatalf("%d peers stall at position %d of %d", n, d.computed, prompt)
		}
		e := heap.Pop(&r.events).(event)
		if r.now = e.at; began == 0 && d.announced > 0 {
			began = r.now
		}
		e.what()
	}
	r.took -= began
	return r
}

// after lets something happen some seconds from now.
func (r *reading) after(seconds float64, what func()) {
	r.nth++
	heap.Push(&r.events, event{r.now + time.Duration(seconds*1e9), r.nth, what})
}

// do carries out what a peer's machine asks for.
func (r *reading) do(self string, acts []action) {
	for _, a := range acts {
		switch a := a.(type) {
		case send:
			bytes := 100.0 // with what encryption and transport add
			if m, ok := a.Msg.(*wire.Seam); ok {
				bytes += float64(m.Count) * float64(r.c.Card.SeamBytesPerToken)
			}
			r.send(self, simFrame{a.To, bytes, a.Msg}, false)
		case pushKV:
			for _, p := range a.Parts {
				m := &wire.KVSlice{Head: a.Head, Layer: uint32(p.layer), Start: uint32(p.start), Count: uint32(p.count), Prefix: a.Prefix,
					Total: uint32(p.count), Rows: make([]byte, p.count)}
				r.send(self, simFrame{a.To, float64(p.count) * float64(r.c.Card.KVBytesPerToken[p.layer]), m}, true)
			}
		case run:
			r.after(r.cost(self, a.Step), func() { r.finish(self, a.Step) })
		case emit:
			if _, ok := a.Msg.(*wire.Token); ok {
				r.took = r.now
			}
		case finish:
			if a.Err != nil {
				r.t.Fatal(a.Err)
			}
		}
	}
}

// cost returns the seconds that a step takes. The decoder also receives what others have of the chunk; see the package comment of route.
func (r *reading) cost(self string, s *runtime.Step) float64 {
	seconds := r.c.seconds(s.N, s.Start)*float64(s.Layers.Len())/float64(r.c.Card.Layers) + route.PassOverhead
	if len(s.LogitRows) > 0 {
		seconds += r.c.Head
	}
	if self == simDecoder && s.Layers.First > 0 {
		bytes := float64(r.c.Card.SeamBytesPerToken)
		for _, n := range r.c.Card.KVBytesPerToken[:s.Layers.First] {
			bytes += float64(n)
		}
		seconds += route.ReceiveReads * float64(s.N) * bytes / r.c.Speed.DecodeBytesPerSec
	}
	return seconds
}

// finish ends a step.
func (r *reading) finish(self string, s *runtime.Step) {
	for l := s.Layers.First; l < s.Layers.Last; l++ {
		s.Seq.(*hollow).rows[l] += s.N
	}
	s.Out = make([]float32, s.N)
	for range s.LogitRows {
		s.Logits = append(s.Logits, make([]float32, 2))
	}
	if self == simDecoder {
		r.do(self, r.d.ran(s, 0, nil))
		return
	}
	r.do(self, r.stages[self].ran(s, 0, nil))
}

// send queues a frame on a peer's uplink.
func (r *reading) send(from string, f simFrame, kv bool) {
	u := r.up[from]
	if u == nil {
		u = &simUplink{}
		r.up[from] = u
	}
	lane := 0
	if kv {
		lane = 1
	}
	if u.queues[lane] = append(u.queues[lane], f); !u.busy {
		r.transmit(from, u)
	}
}

// transmit sends the next frame of an uplink that is free. Its first byte goes on while others leave, so a frame needs its time once,
// unless it waits for the peer's downlink.
func (r *reading) transmit(from string, u *simUplink) {
	lane := 0
	if len(u.queues[0]) == 0 {
		lane = 1
	}
	if u.busy = len(u.queues[lane]) > 0; !u.busy {
		return
	}
	f := u.queues[lane][0]
	u.queues[lane] = u.queues[lane][1:]
	seconds := f.bytes * 8 / *scalingBPS
	r.after(seconds, func() {
		here := max(r.now, r.down[f.to]+time.Duration(seconds*1e9))
		r.down[f.to] = here
		r.after((here-r.now).Seconds()+scalingRTT.Seconds()/2, func() { r.deliver(from, f.to, f.m) })
		r.transmit(from, u)
	})
}

// deliver hands a frame to a peer's machine.
func (r *reading) deliver(from, to string, m wire.Message) {
	var acts []action
	var refusal *wire.Refusal
	switch open, ok := m.(*wire.StageOpen); {
	case to == simDecoder:
		acts, refusal = r.d.handle(from, m)
	case ok:
		r.stages[to] = newStaging(open, 1, &hollow{rows: make([]int, r.c.Card.Layers), most: int(open.Plan.Capacity)})
		acts = []action{send{from, &wire.StageOpened{Head: open.Head}}}
	case m.Type() == wire.TypeStageClose:
	default:
		acts, refusal = r.stages[to].handle(from, m)
	}
	if refusal != nil {
		r.t.Fatalf("frame type %d from %s to %s: %v", m.Type(), from, to, refusal)
	}
	r.do(to, acts)
}

// hollow is a cache without bytes: a row has one.
type hollow struct {
	runtime.Sequence // the machines ask nothing else of it
	rows             []int
	most             int
}

func (h *hollow) Len(layer int) int                    { return h.rows[layer] }
func (h *hollow) Capacity() int                        { return h.most }
func (h *hollow) Profile() runtime.Profile             { return runtime.NewProfile(runtime.KVF16) }
func (h *hollow) RowBytes(int) int                     { return 1 }
func (h *hollow) TailBytes(int) int                    { return 0 }
func (h *hollow) KVBytes(_, first, last int) int       { return last - first }
func (h *hollow) Digest(int) (none [32]byte)           { return none }
func (h *hollow) ImportKV(l, _, n int, _ []byte) error { h.rows[l] += n; return nil }

func (h *hollow) Truncate(n int) int {
	for l := range h.rows {
		h.rows[l] = min(h.rows[l], n)
	}
	return n
}
