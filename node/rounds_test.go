package node

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/starling-swarm/starling/runtime"
)

// table plays sessions at one model's rounds in virtual time: an executor whose rounds take base, and each row of a step in a
// layer so much more.
type table struct {
	t      *testing.T
	r      rounds
	now    time.Time
	base   time.Duration
	perRow time.Duration
	few    int            // rows that cost nothing beyond base, as where memory is the limit
	noise  func() float64 // how many times as long a round takes; nil: no longer

	events []tableEvent
	thens  map[*work]func() // what happens when they are done
	rows   int              // most rows of a round that had decoding steps
}

type tableEvent struct {
	at time.Time
	do func()
}

func newTable(t *testing.T, base, perRow time.Duration) *table {
	return &table{t: t, r: rounds{seats: map[*seat]bool{}}, thens: map[*work]func(){}, now: time.Unix(0, 0), base: base, perRow: perRow}
}

func (b *table) sit() *seat {
	s := &seat{}
	b.r.seats[s] = true
	return s
}

func (b *table) after(d time.Duration, do func()) {
	b.events = append(b.events, tableEvent{b.now.Add(d), do})
	slices.SortStableFunc(b.events, func(x, y tableEvent) int { return x.at.Compare(y.at) })
}

// ask queues a step of n rows in 4 layers; then is called when it is done.
func (b *table) ask(s *seat, n int, whole bool, then func()) *work {
	w := &work{seat: s, whole: whole, step: &runtime.Step{N: n, Layers: runtime.Range{First: 2, Last: 6}}}
	b.r.add(w, b.now)
	b.thens[w] = then
	return w
}

// decode makes a session ask for one row after the other, each pause after the one before; it returns when they were done.
func (b *table) decode(s *seat, pause time.Duration, done *[]time.Time) {
	var next func()
	next = func() {
		b.ask(s, 1, false, func() {
			*done = append(*done, b.now)
			b.after(pause, next)
		})
	}
	next()
}

// run lets things happen until the time is up or nothing is left to do.
func (b *table) run(until time.Duration) {
	end := time.Unix(0, 0).Add(until)
	for b.now.Before(end) {
		for len(b.events) > 0 && !b.events[0].at.After(b.now) {
			e := b.events[0]
			b.events = b.events[1:]
			e.do()
		}
		round, wait := b.r.pick(b.now)
		if len(round) > 0 {
			b.compute(round)
			continue
		}
		next := end
		if wait > 0 {
			next = b.now.Add(wait)
		}
		if len(b.events) > 0 && b.events[0].at.Before(next) {
			next = b.events[0].at
		}
		if len(b.r.queue) > 0 && wait == 0 {
			b.t.Fatal("steps wait, and there is no round")
		}
		if wait == 0 && len(b.events) == 0 {
			return
		}
		b.now = next
	}
}

func (b *table) compute(round []piece) {
	rows, short := 0, 0
	seen := map[*seat]bool{}
	for _, p := range round {
		w := p.w
		switch {
		case p.n < 1 || w.done+p.n > w.step.N:
			b.t.Fatalf("rows [%d, %d) of a step of %d", w.done, w.done+p.n, w.step.N)
		case w.whole && p.n != w.step.N:
			b.t.Fatalf("%d rows of a step of %d that is to be whole", p.n, w.step.N)
		case seen[w.seat]:
			b.t.Fatal("two steps of one session in a round")
		case b.r.queue[slices.IndexFunc(b.r.queue, func(o *work) bool { return o.seat == w.seat })] != w:
			b.t.Fatal("a step overtook another one of its session")
		}
		seen[w.seat] = true
		rows += p.n
		if w.short() {
			short += p.n
		}
	}
	if short > 0 {
		b.rows = max(b.rows, rows)
	}
	took := b.base + time.Duration(max(rows-b.few, 0))*b.perRow*4
	if b.noise != nil {
		took = time.Duration(float64(took) * b.noise())
	}
	b.now = b.now.Add(took)
	for _, w := range b.r.finish(round, took, b.now) {
		if w.done != w.step.N {
			b.t.Fatalf("a step is done after %d of %d rows", w.done, w.step.N)
		}
		b.thens[w]()
		delete(b.thens, w)
	}
}

// Sessions that decode share every round, however long each takes to come back, as long as that is short beside a round.
func TestDecodersShareRounds(t *testing.T) {
	b := newTable(t, 20*time.Millisecond, 100*time.Microsecond)
	done := make([][]time.Time, 16)
	for i := range done {
		s, pause := b.sit(), time.Duration(i)*200*time.Microsecond
		b.after(time.Duration(i)*7*time.Millisecond, func() { b.decode(s, pause, &done[i]) })
	}
	b.run(4 * time.Second)
	least, most := len(done[0]), 0
	for _, d := range done {
		least, most = min(least, len(d)), max(most, len(d))
	}
	// A round of 16 takes 26.4 ms and the slowest needs 3 ms to come back: 135 of them in 4 s.
	if least < 120 || most-least > 10 {
		t.Errorf("between %d and %d tokens in 4 s", least, most)
	}
}

// A prompt of 4,096 tokens slows the tokens of others by a factor of at most 2, and gets done.
func TestPromptAmongDecoders(t *testing.T) {
	for _, c := range []struct {
		base, perRow time.Duration
		few          int
	}{
		{5 * time.Millisecond, 5 * time.Microsecond, 0},   // a small model
		{200 * time.Millisecond, time.Millisecond, 4},     // 7B on two cores
		{20 * time.Millisecond, 2 * time.Microsecond, 32}, // memory is slow, arithmetic isn't
		{time.Millisecond, 2500 * time.Microsecond, 0},    // arithmetic is all
	} {
		for _, decoders := range []int{1, 4, 16} {
			t.Run(fmt.Sprintf("%v+%v/%d", c.base, c.perRow, decoders), func(t *testing.T) {
				b := newTable(t, c.base, c.perRow)
				b.few = c.few
				done := make([][]time.Time, decoders)
				for i := range done {
					b.decode(b.sit(), 500*time.Microsecond, &done[i])
				}
				alone := b.base + time.Duration(max(decoders-c.few, 0))*4*c.perRow + 500*time.Microsecond
				from := 50 * alone
				var until time.Time
				prompt, left := b.sit(), 4096
				var next func()
				next = func() {
					if left == 0 {
						until = b.now
						return
					}
					left -= 512
					b.ask(prompt, 512, false, next)
				}
				b.after(from, next)
				for end := 10 * alone; until.IsZero() && end < 10000*alone; end += 10 * alone {
					b.run(end)
				}
				if until.IsZero() {
					t.Fatalf("the prompt isn't done: %d tokens left", left)
				}
				took := until.Sub(time.Unix(0, 0).Add(from))
				for i, d := range done {
					n, slowest := 0, time.Duration(0)
					for j := 1; j < len(d); j++ {
						if d[j-1].After(time.Unix(0, 0).Add(from)) && d[j].Before(until) {
							n, slowest = n+1, max(slowest, d[j].Sub(d[j-1]))
						}
					}
					if n > 0 && took/time.Duration(n) > 2*alone {
						t.Errorf("decoder %d: %d tokens within %v, alone each takes %v", i, n, took, alone)
					}
					if slowest > 5*alone/2 {
						t.Errorf("decoder %d: a token took %v, alone %v", i, slowest, alone)
					}
				}
				if pure := 4096 * 4 * c.perRow; took > 5*pure+4096/8*alone {
					t.Errorf("the prompt took %v, its rows alone %v", took, pure)
				}
			})
		}
	}
}

// noises are what other programs may do to the time of a round.
var noises = map[string]func(rng *rand.Rand) func() float64{
	"none": func(*rand.Rand) func() float64 { return func() float64 { return 1 } },
	"jitter": func(rng *rand.Rand) func() float64 {
		return func() float64 { return 1 + rng.ExpFloat64()/4 }
	},
	"outliers": func(rng *rand.Rand) func() float64 { // a third of the rounds, up to six times as long
		return func() float64 {
			if rng.IntN(3) > 0 {
				return 1
			}
			return 1 + 5*rng.Float64()
		}
	},
	"bursts": func(rng *rand.Rand) func() float64 { // somebody else computes for a while, then nobody
		factor := 1.0
		return func() float64 {
			if rng.IntN(30) == 0 {
				factor = 4 - factor
			}
			return factor * (1 + rng.ExpFloat64()/10)
		}
	},
	"stalls": func(rng *rand.Rand) func() float64 {
		return func() float64 {
			if rng.IntN(30) > 0 {
				return 1
			}
			return 20
		}
	},
	"drift": func(rng *rand.Rand) func() float64 {
		n := 0.0
		return func() float64 { n++; return min(1+n/200, 5) }
	},
}

// A prompt of 4,096 tokens among 1 to 16 decoding sessions on a machine that others use, too: it gets its share of the time, tokens
// take at most twice as long on average, and hardly any much longer than twice what the machine itself does to them.
func TestPromptOnABusyMachine(t *testing.T) {
	for name, noise := range noises {
		for _, c := range []struct {
			base, perRow time.Duration
			few          int
		}{
			{5 * time.Millisecond, 5 * time.Microsecond, 0},
			{200 * time.Millisecond, time.Millisecond, 4},
			{20 * time.Millisecond, 200 * time.Microsecond, 16},
			{time.Millisecond, 2500 * time.Microsecond, 0},
		} {
			for _, decoders := range []int{1, 8, 16} {
				t.Run(fmt.Sprintf("%s/%v+%v/%d", name, c.base, c.perRow, decoders), func(t *testing.T) {
					b := newTable(t, c.base, c.perRow)
					var factors []float64 // of rounds since the prompt came
					factor := noise(rand.New(rand.NewPCG(uint64(decoders), 7)))
					b.few, b.noise = c.few, func() float64 { factors = append(factors, factor()); return factors[len(factors)-1] }
					done := make([][]time.Time, decoders)
					for i := range done {
						b.decode(b.sit(), 500*time.Microsecond, &done[i])
					}
					alone := float64(b.base+time.Duration(max(decoders-c.few, 0))*4*c.perRow) + 500e3
					from := time.Duration(100 * alone)
					prompt, left, until := b.sit(), 4096, time.Time{}
					var next func()
					next = func() {
						if left == 0 {
							until = b.now
							return
						}
						left -= 512
						b.ask(prompt, 512, false, next)
					}
					b.after(from, func() { factors = nil; next() })
					for end := 10 * alone; until.IsZero() && end < 1e5*alone; end += 10 * alone {
						b.run(time.Duration(end))
					}
					if until.IsZero() {
						t.Fatalf("the prompt isn't done: %d tokens left", left)
					}
					noise, noise99 := meanAnd99(factors)
					took := until.Sub(time.Unix(0, int64(from)))
					// A fourth of the time is the least, where its rows take longer than as many of the decoding steps.
					if own := noise * 4096 * (4*float64(c.perRow) + alone/float64(decoders)); float64(took) > 4*own {
						t.Errorf("the prompt took %v, its rows alone %v", took, time.Duration(own))
					}
					for i, d := range done {
						var gaps []float64
						for j := 1; j < len(d); j++ {
							if d[j-1].After(time.Unix(0, int64(from))) && d[j].Before(until) {
								gaps = append(gaps, float64(d[j].Sub(d[j-1]))/alone)
							}
						}
						if len(gaps) < 20 {
							t.Fatalf("decoder %d: %d tokens", i, len(gaps))
						}
						mean, most := meanAnd99(gaps)
						if mean > 2*noise || most > 2.5*noise99 {
							t.Errorf("decoder %d: tokens take %.2f times as long, 1 %% of them %.2f times; the machine's own noise makes %.2f and %.2f", i, mean, most, noise, noise99)
						}
					}
				})
			}
		}
	}
}

// meanAnd99 returns the mean, and what only one of a hundred exceeds.
func meanAnd99(list []float64) (mean, p99 float64) {
	for _, x := range list {
		mean += x / float64(len(list))
	}
	slices.Sort(list)
	return mean, list[len(list)*99/100]
}

// Sessions whose tokens walk a route are not waited for, once that is known.
func TestNobodyWaitsForARoute(t *testing.T) {
	b := newTable(t, 10*time.Millisecond, 10*time.Microsecond)
	var far, near []time.Time
	b.decode(b.sit(), 100*time.Millisecond, &far)
	b.decode(b.sit(), 100*time.Microsecond, &near)
	b.run(5 * time.Second)
	if len(near) < 485 || len(far) < 40 { // 10.14 ms each, 493 of them; 111 ms and up to a round's wait
		t.Errorf("%d and %d tokens", len(near), len(far))
	}
}

// Whatever comes in whatever order: every step is computed once, in the order of its session, and none waits for ever.
func TestRoundsComputeEverythingOnce(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		b := newTable(t, time.Duration(rng.IntN(20000))*time.Microsecond, time.Duration(rng.IntN(400))*time.Microsecond)
		b.few = rng.IntN(20)
		asked, done, dropped := 0, 0, 0
		for range 1 + rng.IntN(100) {
			s := b.sit()
			for n := rng.IntN(8); n > 0; n-- {
				rows := 1 + rng.IntN(4)
				if rng.IntN(3) == 0 {
					rows = 1 + rng.IntN(1200)
				}
				whole, leaves := rng.IntN(8) == 0, rng.IntN(10) == 0
				b.after(time.Duration(rng.IntN(3000))*time.Millisecond, func() {
					asked++
					w := b.ask(s, rows, whole, func() { done++ })
					if leaves {
						b.after(time.Duration(rng.IntN(300))*time.Millisecond, func() {
							if b.r.drop(w) {
								dropped++
							}
						})
					}
				})
			}
			if rng.IntN(4) == 0 {
				b.after(time.Duration(rng.IntN(3000))*time.Millisecond, func() { delete(b.r.seats, s) })
			}
		}
		b.run(time.Hour)
		if done+dropped != asked || len(b.r.queue) > 0 {
			t.Fatalf("seed %d: of %d steps %d were done and %d given up; %d wait", seed, asked, done, dropped, len(b.r.queue))
		}
	}
}

// Many more decoding sessions than fit a round: all go on at the same pace, and so does a prompt.
func TestNobodyStarves(t *testing.T) {
	b := newTable(t, 5*time.Millisecond, 20*time.Microsecond)
	done := make([][]time.Time, 3*roundShort)
	for i := range done {
		b.decode(b.sit(), 300*time.Microsecond, &done[i])
	}
	finished := false
	b.ask(b.sit(), 512, false, func() { finished = true })
	b.run(20 * time.Second)
	least, most := len(done[0]), 0
	for _, d := range done {
		least, most = min(least, len(d)), max(most, len(d))
	}
	if least == 0 || most > 2*least {
		t.Errorf("between %d and %d tokens", least, most)
	}
	if !finished {
		t.Error("the prompt isn't done")
	}
	if b.rows > roundShort+roundLong {
		t.Errorf("a round of %d rows", b.rows)
	}
}
