package node

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
	"github.com/starling-swarm/starling/swarm/wire"
)

func TestNgramGuesses(t *testing.T) {
	for _, c := range []struct {
		name   string
		tokens []int32
		want   []int32 // the first guesses
	}{
		{"nothing before", []int32{1, 2, 3, 4}, nil},
		{"one token is no run", []int32{7, 1, 2, 7}, nil},
		{"what followed", []int32{1, 2, 3, 4, 9, 1, 2}, []int32{3, 4, 9, 1}},
		{"the latest place", []int32{1, 2, 3, 5, 1, 2, 4, 6, 1, 2}, []int32{4, 6, 1, 2}},
		{"the longest run", []int32{8, 1, 2, 3, 5, 1, 2, 4, 6, 8, 1, 2}, []int32{3, 5, 1, 2}},
		{"a cycle goes on", []int32{4, 1, 2, 3, 1, 2, 3, 1, 2}, []int32{3, 1, 2, 3, 1, 2, 3, 1}},
		{"one token for ever", []int32{5, 5, 5}, []int32{5, 5, 5, 5}},
		{"too short", []int32{5}, nil},
		{"empty", nil, nil},
	} {
		g := newNgram(true)
		for i := range g.right {
			g.right[i] = 1
		}
		for n := range c.tokens { // as it grows in a session
			if most := n % 3; len(g.guess(c.tokens[:n], most)) > most {
				t.Errorf("%s: more than %d guesses", c.name, most)
			}
		}
		got := g.guess(c.tokens, 8)
		if len(got) < len(c.want) || len(c.want) == 0 && len(got) > 0 || !slices.Equal(got[:len(c.want)], c.want) {
			t.Errorf("%s: guesses %v, want %v", c.name, got, c.want)
		}
	}
}

// A guesser that goes through every place says which run is the longest.
func TestNgramFindsTheLongestRun(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		tokens := make([]int32, 2+rng.IntN(40))
		for i := range tokens {
			tokens[i] = int32(rng.IntN(3))
		}
		length, from := 0, 0
		for at := len(tokens) - 1; at >= minRun; at-- {
			if n := alike(tokens[:at], tokens); n > length {
				length, from = n, at
			}
		}
		g := newNgram(true)
		g.row = 0
		got := g.guess(tokens, 1)
		if length < minRun {
			if len(got) > 0 {
				t.Fatalf("%v: guesses %v without a run", tokens, got)
			}
		} else if len(got) != 1 || got[0] != tokens[from] {
			t.Fatalf("%v: guess %v, want %d", tokens, got, tokens[from])
		}
	}
}

// The window grows where guesses are right and rows cost little, and shrinks to
// nothing where they are wrong, but not for ever.
func TestNgramWindow(t *testing.T) {
	cycle := []int32{1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2}
	after := func(g *ngram, right bool, rounds int) int {
		n := 0
		for range rounds {
			if n = len(g.guess(cycle, 15)); right {
				g.learn(n, n)
			} else if n > 0 {
				g.learn(0, n)
			}
		}
		return n
	}
	dear, cheap := newNgram(true), newNgram(true)
	for range 100 {
		for _, g := range []*ngram{dear, cheap} {
			g.timed(1, 20*time.Millisecond)
		}
		dear.timed(5, 60*time.Millisecond)  // half a round for each further row
		cheap.timed(5, 21*time.Millisecond) // where the round is mostly the way
	}
	if d, c := len(dear.guess(cycle, 15)), len(cheap.guess(cycle, 15)); d == 0 || c < 8 || d >= c {
		t.Errorf("%d guesses where rows are dear, %d where they are cheap", d, c)
	}
	if n := after(dear, true, 200); n != 15 {
		t.Errorf("%d guesses after many that were right", n)
	}
	if n := after(dear, false, 100); n != 0 {
		t.Errorf("%d guesses after many that were wrong", n)
	}
	if n := after(cheap, false, 100); n == 0 {
		t.Error("no guess though it costs nearly nothing")
	}
	tried := false
	for range 1000 {
		tried = tried || len(dear.guess(cycle, 15)) > 0
	}
	if !tried {
		t.Error("it never tries again")
	}
}

// A node guesses boldly where a round of many rows takes hardly longer than one of few, and not where it takes longer in proportion;
// less boldly where others wait for the round, too, and never while a prompt is read.
func TestGuessesPayTheirRounds(t *testing.T) {
	cycle := []int32{1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2}
	now := time.Unix(100, 0)
	guesses := func(row time.Duration, others int, right float64, prompt bool) int {
		r := rounds{seats: map[*seat]bool{}}
		own := &seat{}
		r.seats[own] = true
		for range others {
			r.seats[&seat{last: now}] = true
		}
		step := func(n int) piece {
			return piece{&work{seat: own, step: &runtime.Step{N: n, Layers: runtime.Range{Last: 4}}}, n}
		}
		for i := range 200 {
			if n := 1 + others + i%16; n%3 > 0 { // not every size has come up
				var round []piece
				for left := n; left > 0; left -= shortRows {
					round = append(round, step(min(left, shortRows)))
				}
				took := 20*time.Millisecond + time.Duration(n)*row
				if i%10 == 0 {
					took *= 5
				}
				r.finish(round, took, now)
			}
		}
		if prompt {
			r.finish([]piece{step(1), {&work{seat: own, step: &runtime.Step{N: 500, Layers: runtime.Range{Last: 4}}}, 8}}, 30*time.Millisecond, now)
		}
		g := newNgram(true)
		for i := range g.right {
			g.right[i] = right
		}
		g.load = r.load(own, now)
		return len(g.guess(cycle, 15))
	}
	for _, c := range []struct {
		row         time.Duration
		others      int
		right       float64
		prompt      bool
		least, most int
	}{
		{100 * time.Microsecond, 0, 0.9, false, 10, 15},
		{100 * time.Microsecond, 0, 0.1, false, 1, 2},
		{5 * time.Millisecond, 0, 0.9, false, 3, 10},
		{5 * time.Millisecond, 0, 0.1, false, 0, 0},
		{50 * time.Millisecond, 0, 0.6, false, 0, 0},
		{5 * time.Millisecond, 15, 0.9, false, 0, 3},
		{5 * time.Millisecond, 15, 0.5, false, 0, 0},
		{200 * time.Microsecond, 15, 0.95, false, 8, 15},
		{100 * time.Microsecond, 0, 0.9, true, 0, 0},
	} {
		if n := guesses(c.row, c.others, c.right, c.prompt); n < c.least || n > c.most {
			t.Errorf("%+v: %d guesses", c, n)
		}
	}
	if n := len(newNgram(true).guess(cycle, 15)); n == 0 {
		t.Error("no guess before anything has been measured")
	}
}

// guessing is simSetup with guesses that are right as often as they should be for
// each case to come up: the answer itself, with errors.
func guessing(t *testing.T, u simSetup, seed uint64) *simulation {
	told, _, _ := u.alone(t)
	all := slices.Clone(u.prompt)
	for _, m := range told {
		all = append(all, m.ID)
	}
	u.guess = true
	s := u.start(t, seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	s.d.propose = func(tokens []int32, most int) (list []int32) {
		for i := len(tokens); i < len(tokens)+min(most, rng.IntN(8)); i++ {
			id := int32(rng.IntN(256))
			if i < len(all) && rng.IntN(6) > 0 {
				id = all[i]
			}
			list = append(list, id)
		}
		return list
	}
	return s
}

// stageStats are what must not depend on guesses: what each stage accounts for.
func (s *simulation) stageStats() map[string]string {
	m := map[string]string{}
	for _, st := range append(slices.Clone(s.d.stats.Stages), s.d.stats.Decoder) {
		m[st.Peer] = fmt.Sprintf("%d tokens, seams %x", st.Tokens, st.SeamHash[:4])
	}
	return m
}

// guessSetups are sessions in whose answers every setting, and every way to
// end, has a part.
func guessSetups() map[string]simSetup {
	u := simSetup{prompt: somePrompt(23), maxNew: 24, chunk: 7, cuts: []int{2, 4}, how: simSampling}
	all := map[string]simSetup{}
	with := func(name string, f func(*simSetup)) {
		v := u
		f(&v)
		all[name] = v
	}
	with("plain", func(*simSetup) {})
	with("greedy", func(v *simSetup) { v.how = runtime.Sampling{} })
	with("hot", func(v *simSetup) { v.how.Temperature = 3 })
	with("penalties", func(v *simSetup) {
		v.how.PenaltyLastN, v.how.RepetitionPenalty, v.how.FrequencyPenalty, v.how.PresencePenalty = -1, 1.3, 0.7, -0.4
	})
	with("DRY", func(v *simSetup) { v.how.DRY = runtime.DRY{Multiplier: 2, Base: 1.5, AllowedLength: 1, LastN: -1} })
	with("bias and XTC", func(v *simSetup) {
		v.how.Bias = []runtime.TokenBias{{ID: 7, Bias: runtime.Ban}, {ID: 9, Bias: 4}}
		v.how.XTCProbability, v.how.XTCThreshold = 0.5, 0.1
	})
	with("log-probabilities", func(v *simSetup) { v.logprobs = 3 })
	with("stops", func(v *simSetup) { v.stopAt = 33 })
	with("one token", func(v *simSetup) { v.maxNew = 1 })
	with("two tokens", func(v *simSetup) { v.maxNew = 2 })
	with("alone", func(v *simSetup) { v.cuts, v.local, v.whole = nil, true, true })
	with("alone after a route", func(v *simSetup) { v.local, v.whole = true, true })
	with("many stages", func(v *simSetup) { v.cuts = []int{1, 2, 3, 4, 5} })
	with("head alone", func(v *simSetup) { v.cuts = []int{3, 6} })
	for name, v := range maps.Clone(all) {
		v.whole = true
		all[name+", rows pushed"] = v
	}
	for name, v := range maps.Clone(all) {
		v.tails = true
		all[name+", tails"] = v
	}
	return all
}

// TestGuessesChangeNothing: tokens, log-probabilities, logits, KV and what stages
// account for are the same bits with guesses as without, in every order of events.
func TestGuessesChangeNothing(t *testing.T) {
	for name, u := range guessSetups() {
		t.Run(name, func(t *testing.T) {
			right, wrong := 0, 0
			for seed := range uint64(12) {
				bare := u.start(t, seed)
				bare.run()
				s := guessing(t, u, seed)
				s.run()
				s.mustEqual()
				if len(s.refused) > 0 {
					t.Errorf("frames of an honest session were refused: %v", s.refused)
				}
				if got, want := s.stageStats(), bare.stageStats(); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("accounts %v, without guesses %v", got, want)
				}
				st := s.d.stats
				right, wrong = right+int(st.Accepted), wrong+int(st.Guessed-st.Accepted)
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			if u.maxNew > 2 && (right == 0 || wrong == 0) {
				t.Errorf("%d guesses were right and %d wrong: the test did not reach both", right, wrong)
			}
		})
	}
}

// Rows that stages push become the decoder's, so that it goes on alone from where
// it verified last: never beyond, and not from far before.
func TestGuessesAndCheckpoints(t *testing.T) {
	u := simSetup{prompt: somePrompt(23), maxNew: 30, chunk: 7, cuts: []int{2, 4}, whole: true, how: simSampling}
	latest := 0
	for seed := range uint64(60) {
		s := guessing(t, u, seed)
		for s.d.generated < 15 && s.step() {
		}
		for range seed % 17 {
			s.step()
		}
		if s.done != nil {
			t.Fatal("the session was over before the loss")
		}
		for l := range s.d.plan.DecoderFirst { // the rows of the others' layers
			if n := s.d.seq.Len(int(l)); n > len(s.d.tokens)-1 {
				t.Fatalf("seed %d: %d rows of layer %d are of right tokens, %d held", seed, len(s.d.tokens)-1, l, n)
			}
		}
		latest = max(latest, s.d.checkpoint()-len(u.prompt))
		s.kill("S1")
		s.run()
		s.mustEqual()
	}
	if latest < 10 {
		t.Errorf("the latest checkpoint is %d tokens into the answer", latest)
	}
}

// Whatever stage is lost at whatever moment of a window, the answer is the same.
func TestGuessesSurviveLosses(t *testing.T) {
	for _, whole := range []bool{true, false} {
		for _, tails := range []bool{true, false} {
			u := simSetup{prompt: somePrompt(11), maxNew: 20, chunk: 4, cuts: []int{2, 3, 5}, whole: whole, tails: tails, how: simSampling}
			told, _, _ := u.alone(t)
			for _, victim := range []string{"S0", "S1", "S2"} {
				for when := 30; when < 400; when += 7 {
					s := guessing(t, u, uint64(when))
					s.spare = []string{"T0", "T1"}
					for i := 0; i < when && s.step(); i++ {
					}
					if s.done != nil {
						continue
					}
					ended := s.d.ended
					s.kill(victim)
					s.run()
					if s.done.Err != nil {
						t.Fatalf("%v %s %d: session failed: %v", whole, victim, when, s.done.Err)
					}
					s.mustTell(told)
					if whole && (!ended || s.d.account().KVHash != [32]byte{}) { // else only its account of layers that the decoder lacks tails of is lost
						s.mustEqual()
					}
					if t.Failed() {
						t.Fatalf("whole %v, tails %v, %s lost after %d steps", whole, tails, victim, when)
					}
				}
			}
		}
	}
}

// TestGuessesOfRealCaches has tails, which can't be undone, windows shorter than a chunk, and latents: with guesses, and with a
// stage lost among them, they give what they give without.
func TestGuessesOfRealCaches(t *testing.T) {
	for _, arch := range []string{"qwen35moe", "gemma3", "gpt-oss", "deepseek2", "llama"} {
		t.Run(arch, func(t *testing.T) {
			model := filepath.Join(t.TempDir(), "tiny.gguf")
			if err := (runtimetest.TinyModel{Arch: arch, Layers: 4}).Write(model); err != nil {
				t.Fatal(err)
			}
			u := simSetup{prompt: somePrompt(19), maxNew: 16, chunk: 8, cuts: []int{1, 3}, how: simSampling, model: model}
			u.how.Bias = []runtime.TokenBias{{ID: runtimetest.FakeTokenizer().EOS(), Bias: runtime.Ban}}
			right, wrong := uint32(0), uint32(0)
			for seed := range uint64(6) {
				u.whole = seed%2 == 0
				s := guessing(t, u, seed)
				if seed >= 4 {
					s.spare = []string{"T0"}
					for s.d.generated < 8 && s.step() {
					}
					s.kill("S1")
				}
				s.run()
				s.mustEqual()
				right, wrong = right+s.d.stats.Accepted, wrong+s.d.stats.Guessed-s.d.stats.Accepted
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			if right == 0 || wrong == 0 {
				t.Errorf("%d guesses were right and %d wrong: the test did not reach both", right, wrong)
			}
		})
	}
}

// TestGuessesTravel asks real peers for an answer that repeats itself, and for one that does so with exceptions.
func TestGuessesTravel(t *testing.T) {
	tn := newTestNet(t)
	tracker := tn.start(nil)
	id := tn.publish(tracker)
	first, second, last, client := tn.start(nil), tn.start(nil), tn.start(nil), tn.start(func(c *Config) { c.Client = true })
	tn.serve(first, id, 0, 1)
	tn.serve(second, id, 1, 2)
	tn.serve(last, id, 2, 3)
	ctx := testContext(t)
	eventually(t, "three offers", func() bool { _ = client.host.Refresh(ctx); p, _ := client.planPeers(id); return len(p) == 3 })
	right, wrong := 0, 0
	for _, bias := range []float32{1000, 7, 6, 5} {
		ask := func(noGuess bool) *control.Account {
			a, err := client.run(ctx, control.RunRequest{Model: id.String(), Prompt: "Again and again and again.", MaxNew: 40, Proof: true, NoGuess: noGuess,
				Sampling:    control.Sampling{Temperature: 0.7, Seed: 5, LogitBias: []control.LogitBias{{Token: 'a', Bias: bias}, {Token: 256, Ban: true}, {Token: 258, Ban: true}}, Logprobs: 2},
				Constraints: control.Constraints{Shape: "pipelined", Cuts: []int{1, 2}, Decoder: last.ID()}}, quiet)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		got, want := ask(false), ask(true)
		for tries := 0; tries < 20 && bias == 1000 && got.Stages[0].Chunks > want.Stages[0].Chunks/2; tries++ {
			got = ask(false) // rounds of many rows took long, by the clock, and it stopped to guess
		}
		sameAnswer(t, got, want)
		for i, st := range got.Stages {
			if bare := want.Stages[i]; st.SeamHash != bare.SeamHash || st.Tokens != bare.Tokens || bare.Chunks < 40 || bias == 1000 && st.Chunks > bare.Chunks/2 {
				t.Errorf("stage %+v, without guesses %+v", st, bare)
			}
		}
		if want.Guessed != 0 {
			t.Errorf("%d guesses without guessing", want.Guessed)
		}
		right, wrong = right+got.Accepted, wrong+got.Guessed-got.Accepted
		t.Logf("bias %v: %d of %d guesses right, %d chunks instead of %d", bias, got.Accepted, got.Guessed, got.Stages[0].Chunks, want.Stages[0].Chunks)
	}
	if right == 0 || wrong == 0 {
		t.Errorf("%d guesses were right and %d wrong: the test did not reach both", right, wrong)
	}
	tn.mustBeIdle()
}

// TestGuessesAlone asks a peer that decodes alone.
func TestGuessesAlone(t *testing.T) {
	tn := newTestNet(t)
	n := tn.start(nil)
	id := tn.publish(n)
	tn.serve(n, id, 0, tn.layers())
	for _, bias := range []float32{1000, 6} {
		ask := func(noGuess bool) *control.Account {
			a, err := n.run(testContext(t), control.RunRequest{Model: id.String(), Prompt: "Again and again and again.", MaxNew: 60, Proof: true, NoGuess: noGuess,
				Sampling: control.Sampling{Temperature: 0.7, Seed: 5, LogitBias: []control.LogitBias{{Token: 'a', Bias: bias}, {Token: 256, Ban: true}, {Token: 258, Ban: true}}, Logprobs: 2}}, quiet)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		got, want := ask(false), ask(true)
		for tries := 0; tries < 20 && bias == 1000 && got.Accepted == 0; tries++ {
			got = ask(false) // by the clock, guesses didn't pay
		}
		sameAnswer(t, got, want)
		t.Logf("bias %v: %d of %d guesses right", bias, got.Accepted, got.Guessed)
		if want.Guessed != 0 || bias == 1000 && got.Accepted == 0 {
			t.Errorf("%d of %d guesses right, %d without guessing", got.Accepted, got.Guessed, want.Guessed)
		}
	}
	tn.mustBeIdle()
}

// Any one frame of a stage that is lost: the decoder knows for whom it waits.
func TestGuessesNeverWaitForNobody(t *testing.T) {
	u := simSetup{prompt: somePrompt(9), maxNew: 9, chunk: 4, cuts: []int{2, 4}, whole: true, how: simSampling}
	told, _, _ := u.alone(t)
	for nth := 0; ; nth++ {
		s := guessing(t, u, uint64(nth))
		s.spare = []string{"T0", "T1"}
		sent := 0
		s.deaf = func(q simQueue, _ wire.Message) bool {
			if q.from == simDecoder {
				return false
			}
			sent++
			return sent == nth+1
		}
		s.drain()
		for s.done == nil {
			if s.d.ended { // the driver doesn't wait long for accounts
				s.decoderDo(s.d.giveUpAccounts())
				continue
			}
			p, _ := s.d.behind()
			if p == "" {
				t.Fatalf("after losing frame %d the session stalls and waits for nobody", nth)
			}
			s.deaf = nil
			s.decoderDo(s.d.gone(p, "it got nothing done"))
			s.drain()
		}
		if s.done.Err != nil {
			t.Fatalf("after losing frame %d: %v", nth, s.done.Err)
		}
		s.mustTell(told)
		if sent <= nth {
			break
		}
	}
}

// TestForeignRewinds: stages rewind once, to where they may, at their decoder's
// word alone, and take no frame twice.
func TestForeignRewinds(t *testing.T) {
	u := simSetup{prompt: somePrompt(23), maxNew: 24, chunk: 7, cuts: []int{2, 4}, how: simSampling}
	rewinds, replays := 0, 0
	for seed := range uint64(20) {
		s := guessing(t, u, seed)
		try := func(from, to string, m wire.Message, want wire.Code) {
			t.Helper()
			st := s.stages[to]
			if st == nil {
				return
			}
			if _, r := st.handle(from, m); r == nil || r.Code != want {
				t.Fatalf("frame %T %+v from %s to %s: %v, want %v", m, m, from, to, r, want)
			}
		}
		var last wire.Message
		var lastQ simQueue
		s.onFrame = func(q simQueue, m wire.Message) {
			switch last.(type) {
			case *wire.Seam, *wire.Chunk, *wire.Rewind:
				if h, _ := headOf(last); h == s.d.head && lastQ.to != simDecoder {
					try(lastQ.from, lastQ.to, last, wire.CodeBadFrame)
					replays++
				}
			}
			last, lastQ = m, q
			r, ok := m.(*wire.Rewind)
			if !ok {
				return
			}
			rewinds++
			try("X", q.to, r, wire.CodeWrongPeer)
			c := *r
			c.Epoch.Plan--
			try(q.from, q.to, &c, wire.CodeStaleEpoch)
			for _, upto := range []uint32{0, s.stages[q.to].guessed.Start - 1, s.stages[q.to].announced, 1 << 31} {
				c = *r
				c.Upto = upto
				try(q.from, q.to, &c, wire.CodeBadFrame)
			}
		}
		s.run()
		s.mustEqual()
	}
	if rewinds == 0 || replays == 0 {
		t.Errorf("%d rewinds, %d replays: the test did not reach its frames", rewinds, replays)
	}
}

// FuzzGuesses runs sessions with every kind of guess, order of events and loss.
func FuzzGuesses(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, uint8(seed*3), uint16(seed*40), seed%2 == 0, seed%3 == 0)
	}
	f.Fuzz(func(t *testing.T, seed uint64, shape uint8, when uint16, whole, tails bool) {
		cuts := [][]int{{1}, {3}, {6}, {2, 4}, {1, 6}, {2, 3, 5}, {1, 2, 3, 4, 5}}[shape%7]
		u := simSetup{prompt: somePrompt(1 + int(seed%40)), maxNew: 1 + int(seed>>8%24), chunk: 1 + int(shape/7), cuts: cuts,
			whole: whole, tails: tails, how: simSampling, stopAt: int(seed >> 16 % 80)}
		u.how.Seed = seed
		told, _, _ := u.alone(t)
		s := guessing(t, u, seed)
		s.spare = []string{"T0", "T1"}
		for i := 0; i < int(when) && s.step(); i++ {
		}
		if s.done == nil && when > 0 {
			s.kill(fmt.Sprintf("S%d", int(when)%len(cuts)))
		}
		s.run()
		if s.done.Err != nil {
			t.Fatalf("session failed: %v", s.done.Err)
		}
		s.mustTell(told)
	})
}

func TestRewindable(t *testing.T) {
	cfg := runtimetest.FakeConfig()
	if steady, most := rewindable(cfg); !steady || most != maxGuessed {
		t.Errorf("full attention: %v, %d rows", steady, most)
	}
	cfg.Cache[2].Window = 5
	cfg.Cache[4].State = 8
	if steady, most := rewindable(cfg); steady || most != 4 {
		t.Errorf("a window of 5 and a tail: %v, %d rows", steady, most)
	}
}
