package sim

import (
	"errors"
	"math"

	"github.com/starling-swarm/starling/route"
)

const (
	attempts   = 8  // to open a route, before a session has failed
	recoveries = 32 // after losses
)

// session is one request.
type session struct {
	id          int
	prompt, new int // tokens
	made        int // tokens of the answer so far, when the present plan began
	plan        route.Plan
	peers       []*peer // of the plan that are needed still
	lives       []int
	kv          []int64 // bytes reserved at each
	token       float64 // seconds per token
	began       float64 // the request
	first       float64 // when the first token came; 0: not yet
	decoding    float64 // when the present plan's first token came; 0: not yet
	version     int     // what was scheduled for an earlier plan is void
	losses      int
}

// begin starts a session.
func (w *world) begin() {
	vary := func(n int) int { return max(1, int(float64(n)*math.Exp(0.7*w.rng.NormFloat64()))) }
	w.made++
	s := &session{id: int(w.made), prompt: vary(w.s.PromptTokens), new: vary(w.s.NewTokens), began: w.now}
	w.sessions[s] = true
	w.open(s, map[string]string{}, 1)
}

// end is a session's end; the next one begins.
func (w *world) end(s *session, why string) {
	w.release(s, s.peers)
	delete(w.sessions, s)
	if w.counting {
		switch why {
		case "":
			w.r.Sessions++
			w.r.tokensPerSec = append(w.r.tokensPerSec, 1/s.token)
		default:
			w.r.Failed++
			w.r.Failures[why]++
		}
		if s.losses > 0 {
			w.r.Recovered++
		}
	}
	pause := 0.0
	if why != "" {
		pause = 10 // the user tries again
	}
	w.after(pause, w.begin)
}

// open plans and asks the plan's peers.
func (w *world) open(s *session, excluded map[string]string, attempt int) {
	s.version++
	view := w.pull(nil)
	peers := make([]route.Peer, 0, len(view))
	var links []route.Link
	for _, p := range view {
		if p.said.Holds.Len() > 0 {
			peers = append(peers, p.said)
			links = append(links, p.links...)
		}
	}
	began := w.clock()
	plan, err := route.Make(w.model, peers, links, route.Request{PromptTokens: s.prompt + s.made, NewTokens: s.new - s.made, Chunk: w.s.Chunk, Exclude: excluded})
	if took := w.clock() - began; w.counting {
		w.r.Plans++
		w.r.planSeconds = append(w.r.planSeconds, took.Seconds())
	}
	if err != nil {
		why := "no plan"
		if errors.Is(err, route.ErrNoRoute) {
			why = "no route"
		}
		w.again(s, excluded, attempt, 1, why)
		return
	}
	delay := 0.0
	var members []*peer
	var kv []int64
	whole := plan.Shape != route.Pipelined || plan.KVToDecoder
	tokens := int64(s.prompt + s.new)
	for i := range plan.Ranges() {
		id, layers := plan.Decoder, plan.DecoderLayers
		if i < len(plan.Stages) {
			id, layers = plan.Stages[i].Peer, plan.Stages[i].Layers
		} else if whole {
			layers = route.Range{First: 0, Last: w.model.Layers}
		}
		p, need := w.byID[id], tokens*w.s.Model.KVBytes*int64(layers.Len())
		holds := layers
		if i == len(plan.Stages) {
			holds = plan.DecoderLayers
		}
		switch {
		case p == nil || !p.alive:
			excluded[id], delay = "doesn't answer", max(delay, notice)
		case !p.Holds.Contains(holds):
			excluded[id], delay = "has other layers now", max(delay, 0.1)
		case p.KVFreeBytes < need:
			excluded[id], delay = "has no room", max(delay, 0.1)
		default:
			members, kv = append(members, p), append(kv, need)
		}
	}
	if delay > 0 {
		w.again(s, excluded, attempt, delay, "peers that were planned with refused")
		return
	}
	w.start(s, plan, members, kv)
}

// again makes another attempt, or none.
func (w *world) again(s *session, excluded map[string]string, attempt int, delay float64, why string) {
	if attempt >= attempts {
		w.end(s, why)
		return
	}
	if w.counting {
		w.r.Retries++
	}
	version := s.version
	w.after(delay, func() {
		if w.sessions[s] && s.version == version {
			w.open(s, excluded, attempt+1)
		}
	})
}

// start runs a plan whose members have room.
func (w *world) start(s *session, plan route.Plan, members []*peer, kv []int64) {
	var real []route.Peer
	var links []route.Link
	for i, p := range members {
		real = append(real, p.Peer)
		for _, q := range members[:i] {
			links = append(links, route.Link{From: q.id, To: p.id, RTT: rtt(p, q)})
		}
	}
	cost, err := plan.Predict(w.model, real, links)
	if err != nil {
		w.again(s, map[string]string{}, attempts, 0, "no plan") // a bug of ours; the report shows it
		return
	}
	s.plan, s.peers, s.kv, s.lives, s.token, s.decoding = plan, members, kv, nil, max(cost.TokenSeconds, 1e-6), 0
	for i, p := range members {
		p.KVFreeBytes -= kv[i]
		p.Load++
		p.used[s] = true
		s.lives = append(s.lives, p.life)
		w.changed(p)
	}
	for i := range members { // what its neighbour and the decoder have measured
		if i > 0 {
			measure(members[i-1], members[i])
		}
	}
	setup := 0.0
	for _, p := range members {
		setup = max(setup, 2*rtt(p, members[len(members)-1])) // stages are opened and answer
	}
	version := s.version
	w.after(setup+cost.FirstTokenSeconds, func() {
		if !w.sessions[s] || s.version != version {
			return
		}
		s.decoding = w.now
		if s.first == 0 {
			s.first = w.now
			if w.counting {
				w.r.firstToken = append(w.r.firstToken, s.first-s.began)
				w.minute.ttft = append(w.minute.ttft, s.first-s.began)
			}
		}
		if plan.Shape != route.Pipelined { // the decoder goes on alone
			n := len(s.peers) - 1
			w.release(s, s.peers[:n])
			s.peers, s.kv, s.lives = s.peers[n:], s.kv[n:], s.lives[n:]
		}
		w.after(float64(s.new-s.made-1)*s.token, func() {
			if w.sessions[s] && s.version == version {
				w.end(s, "")
			}
		})
	})
}

// release frees what a session has at some of its peers: the first ones of s.peers.
func (w *world) release(s *session, peers []*peer) {
	for i, p := range peers {
		delete(p.used, s)
		p.KVFreeBytes += s.kv[i]
		if p.life == s.lives[i] && p.alive {
			p.Load--
			w.changed(p)
		}
	}
}

// lost lets a session go on without p.
func (w *world) lost(s *session, p *peer, late float64) {
	if w.counting {
		w.r.Losses++
	}
	if s.decoding > 0 {
		s.made = min(s.made+int((w.now-s.decoding)/s.token)+1, s.new-1)
	}
	s.version++
	w.release(s, s.peers)
	s.peers, s.kv, s.lives, s.decoding = nil, nil, nil, 0
	if s.losses++; s.losses > recoveries {
		w.end(s, "lost too often")
		return
	}
	version := s.version
	w.after(late, func() {
		if w.sessions[s] && s.version == version {
			w.open(s, map[string]string{p.id: "lost in this session"}, 1)
		}
	})
}
