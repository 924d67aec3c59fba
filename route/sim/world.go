package sim

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/starling-swarm/starling/route"
	"github.com/starling-swarm/starling/route/assign"
)

// world is a swarm at a moment.
type world struct {
	timeline
	s     *Scenario
	model route.Model
	rng   *rand.Rand
	clock func() time.Duration // for the planner's time
	sizes sizes

	made     uint64 // peers drawn
	alive    []*peer
	gone     []*peer           // machines that may come back, the latest last
	offers   []*peer           // that trackers have offers of
	at       map[*peer]int     // in offers
	byID     map[string]*peer  // likewise
	holders  []int             // by layer: peers that serve it
	trackers []traffic         // of each
	sessions map[*session]bool // under way
	counting bool              // the warmup is over
	r        *Report
	minute   minute
	perPeer  []float64 // control bytes/s of those that have gone
	busy     float64   // peer-seconds with sessions
	lived    float64   // peer-seconds
	changed1 float64   // when holders were last counted
}

// traffic is bytes, in and out.
type traffic struct{ sent, received float64 }

// minute is what has happened since the last point of the report's series.
type minute struct {
	ttft  []float64
	moves int
}

// Run plays a scenario. clock, where it isn't nil, times the planner; nothing else depends on it: the same scenario gives the same report.
// stop ends the run early where it returns an error, which Run returns; it is asked every simulated minute.
func Run(s *Scenario, clock func() time.Duration, stop func(done float64) error) (*Report, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if clock == nil {
		clock = func() time.Duration { return 0 }
	}
	w := &world{s: s, model: s.Model.model(), rng: rand.New(rand.NewPCG(s.Seed, 10)), clock: clock, at: map[*peer]int{}, byID: map[string]*peer{},
		sessions: map[*session]bool{}, trackers: make([]traffic, s.Trackers), r: newReport(s)}
	w.sizes = measureSizes(&w.model)
	w.holders = make([]int, s.Model.Layers)
	for range s.Peers {
		w.enter(w.draw(), true)
	}
	if s.ChurnPerHour > 0 {
		w.arrive()
	}
	for range s.Sessions {
		w.after(w.rng.Float64()*60, w.begin)
	}
	end := 60 * (s.WarmupMinutes + s.Minutes)
	for at := 0.0; at < end; at += 60 {
		if at >= 60*s.WarmupMinutes && !w.counting {
			w.startCounting()
		}
		w.run(min(at+60, end))
		w.point()
		if stop != nil {
			if err := stop(w.now / end); err != nil {
				return nil, err
			}
		}
	}
	w.finish()
	return w.r, nil
}

// arrive lets as many come as go, at random times.
func (w *world) arrive() {
	perSecond := float64(w.s.Peers) * w.s.ChurnPerHour / 3600
	w.after(w.rng.ExpFloat64()/perSecond, func() {
		p := (*peer)(nil)
		if len(w.gone) > 0 && w.rng.IntN(2) == 0 {
			i := w.rng.IntN(len(w.gone))
			p = w.gone[i]
			w.gone = slices.Delete(w.gone, i, i+1)
			w.forget(p)
			p.KVFreeBytes = max(p.KVFreeBytes, 0)
		} else {
			p = w.draw()
		}
		w.enter(p, false)
		w.arrive()
	})
}

// startCounting forgets what the warmup has told.
func (w *world) startCounting() {
	w.counting = true
	for _, p := range w.alive {
		p.sent, p.received, p.since = 0, 0, w.now
	}
	for i := range w.trackers {
		w.trackers[i] = traffic{}
	}
	w.minute = minute{}
	w.r.WorstHolders = slices.Min(w.holders)
}

// count notes that holders of layers have come or gone.
func (w *world) count(r route.Range, by int) {
	if w.counting {
		for _, n := range w.holders {
			if n == 0 {
				w.r.UncoveredLayerSeconds += w.now - w.changed1
			}
		}
	}
	w.changed1 = w.now
	for x := r.First; x < r.Last; x++ {
		w.holders[x] += by
	}
	if w.counting && r.Len() > 0 {
		w.r.WorstHolders = min(w.r.WorstHolders, slices.Min(w.holders[r.First:r.Last]))
	}
}

// view returns what somebody who pulls from trackers is told: of each at most so many offers, drawn at random. Those that died unnoticed are among them.
func (w *world) view(trackers, each int) (view []*peer) {
	if len(w.offers) <= each {
		return slices.Clone(w.offers)
	}
	seen := map[*peer]bool{}
	for range min(trackers, w.s.Trackers) {
		for range each {
			if p := w.offers[w.rng.IntN(len(w.offers))]; !seen[p] {
				seen[p] = true
				view = append(view, p)
			}
		}
	}
	return view
}

// assignView is what a volunteer sees of holders and claims; the pull counts.
func (w *world) assignView(p *peer) (peers []assign.Peer) {
	for _, o := range w.pull(p) {
		if o == p {
			continue
		}
		if o.said.Holds.Len() > 0 {
			peers = append(peers, assign.Peer{ID: o.id, Holds: o.said.Holds, PrefillFlops: o.said.PrefillFlops})
		}
		if o.claim.Len() > 0 {
			peers = append(peers, assign.Peer{ID: o.id, Holds: o.claim, Joining: true, PrefillFlops: o.said.PrefillFlops})
		}
	}
	return peers
}

// account ends the counting of p's control bytes.
func (w *world) account(p *peer) {
	if lived := w.now - p.since; w.counting && lived >= 60 {
		w.perPeer = append(w.perPeer, (p.sent+p.received)/lived)
	}
}

// point adds the past minute to the report's series, and to its sums.
func (w *world) point() {
	busy := 0
	for _, p := range w.alive {
		if p.Load > 0 {
			busy++
		}
	}
	if !w.counting {
		return
	}
	w.busy += 60 * float64(busy)
	w.lived += 60 * float64(len(w.alive))
	var all []assign.Peer
	for _, p := range w.alive {
		if p.Holds.Len() > 0 {
			all = append(all, assign.Peer{ID: p.id, Holds: p.Holds, PrefillFlops: p.PrefillFlops})
		}
	}
	rates := assign.Coverage(&w.model, all)
	worst := slices.Min(rates)
	mean := 0.0
	for _, r := range rates {
		mean += r / float64(len(rates))
	}
	w.r.Series = append(w.r.Series, Point{Minute: w.now / 60, Peers: len(w.alive), Sessions: len(w.sessions), WorstHolders: slices.Min(w.holders),
		WorstCoverage: worst, MeanCoverage: mean, FirstTokenSeconds: quantile(w.minute.ttft, 0.5), Moves: w.r.Moves - w.minute.moves, Busy: float64(busy) / float64(max(len(w.alive), 1))})
	w.minute = minute{moves: w.r.Moves}
}

// sorted returns sessions in the order of their beginning, so that runs are alike.
func sorted(m map[*session]bool) []*session {
	return slices.SortedFunc(maps.Keys(m), func(a, b *session) int { return cmp.Compare(a.id, b.id) })
}

// quantile returns the value below which a share q of v lies; v is sorted. 0: there is none.
func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[min(int(q*float64(len(v))), len(v)-1)]
}
