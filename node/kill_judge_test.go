package node

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/route"
	"github.com/starling-swarm/starling/swarm/wire"
)

// judge checks how one session ended.
func (s *killNet) judge(t *testing.T, a killAsk, got *control.Account, err error, bare, clientLost bool, report *killReport) {
	t.Helper()
	if err == nil {
		if got.Text != a.want.Text || !slices.Equal(got.NewTokens, a.want.NewTokens) {
			t.Errorf("%s: %q %v, unbroken %q %v", a.name, got.Text, got.NewTokens, a.want.Text, a.want.NewTokens)
		}
		if len(got.Recovered) == 0 && got.KVHash != a.want.KVHash && strings.Trim(got.KVHash, "0") != "" { // a stage's account may have been lost
			t.Errorf("%s: KV hash %s, unbroken %s", a.name, got.KVHash, a.want.KVHash)
		}
		report.add(func() {
			for _, r := range got.Recovered {
				switch {
				case strings.HasPrefix(r, "went on alone"):
					report.recovered["absorbed"]++
				case strings.HasPrefix(r, "went on over"):
					report.recovered["handed to a successor"]++
				case strings.HasPrefix(r, "prefilled"):
					report.recovered["prefilled again"]++
				case strings.HasPrefix(r, "handed"):
					report.recovered["handed over"]++
				case strings.HasPrefix(r, "decoder"):
					report.recovered["another decoder"]++
				}
			}
		})
		return
	}
	var refusal *wire.Refusal
	var none *route.NoRouteError
	typed := errors.As(err, &refusal) || errors.As(err, &none)
	switch {
	case clientLost:
	case bare && typed:
		report.add(func() { report.errors[cmp.Or(refusal, &wire.Refusal{Code: wire.CodePeerLost}).Code.String()]++ })
	default:
		t.Errorf("%s: %v (typed: %v)", a.name, err, typed)
	}
}

// noticedWithin is how soon a loss must be noticed by a node that runs, with [DefaultSilence], unless three chunks take longer (DESIGN §3,
// Failure).
const noticedWithin = 2 * time.Second

// late returns for how long a node didn't run between two times, as it has found out itself: that of which it was longest, since the others' words wait
// for a processor, too.
func (s *killNet) late(from, to time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	sums := map[string]time.Duration{"": 0}
	for _, l := range s.lates {
		if l.at.After(from) && !l.at.After(to) {
			sums[l.node] += l.by
		}
	}
	return slices.Max(slices.Collect(maps.Values(sums)))
}

// judgeBlame checks who was given up on, and how soon.
func (s *killNet) judgeBlame(t *testing.T, fallen []fault, sessions int, report *killReport) {
	t.Helper()
	s.mu.Lock()
	blamed := slices.Clone(s.blamed)
	s.mu.Unlock()
	for _, b := range blamed {
		if strings.Contains(b.why, "busy:") || strings.Contains(b.why, "no other route is left") {
			continue // it has no room, or nobody to go on with
		}
		by := s.byName[b.by].ID()
		var culprit *fault
		hit := false // the one who blames: what it sees is its own fault
		for i := range fallen {
			f := &fallen[i]
			hit = hit || f.node == by && slices.Contains([]string{"kill", "close", "stall"}, f.kind)
			if slices.Contains(f.blamable(), b.peer) {
				culprit = f
			}
		}
		switch {
		case hit || b.by == "client" && s.x.muted(by):
		case culprit == nil:
			t.Errorf("%s blames the %s %s, which is innocent: %s", b.by, b.role, s.name(b.peer), b.why)
		default:
			from := newer(culprit.at, b.since) // the session may have met the fault later
			d, busy := b.at.Sub(from), s.late(from, b.at)
			kind := culprit.kind
			if strings.Contains(b.why, "times what its chunk should take") {
				kind += ", of a slow chunk"
			} else if sessions > 1 {
				kind += ", beside other sessions"
			}
			report.add(func() { report.noticed[kind] = append(report.noticed[kind], notice{d, busy}) })
			limit := s.silence + s.slack
			if *soak {
				limit = noticedWithin
			}
			if busy > 0 { // a word that comes too late may be waited for until the next ping
				limit += busy + pingInterval
			}
			if d > limit && !strings.HasSuffix(kind, "slow chunk") {
				t.Errorf("%s noticed the loss of the %s %s after %v, in which some node didn't run for %v: %s", b.by, b.role, s.name(b.peer), d, busy, b.why)
			}
		}
	}
}

// free reports whether no node but one holds a session or KV.
func (s *killNet) free(but *Node) bool { return s.heldBut(but) == "" }

func (s *killNet) held() string { return s.heldBut(nil) }

func (s *killNet) heldBut(but *Node) (busy string) {
	s.mu.Lock()
	nodes := maps.Clone(s.byName)
	s.mu.Unlock()
	for name, n := range nodes {
		if n.ctx.Err() != nil || n == but {
			continue
		}
		if v := n.sessionViews(); len(v) > 0 {
			busy += fmt.Sprintf("%s holds %+v; ", name, v)
			continue
		}
		for _, m := range n.servedList() {
			m.prefixes.clear() // what ended sessions leave is nobody's
			if free := m.exec.FreeKVBytes(); free != n.cfg.Engine.MaxKVBytes {
				busy += fmt.Sprintf("%s has %d of %d KV bytes free; ", name, free, n.cfg.Engine.MaxKVBytes)
			}
		}
	}
	return busy
}

// goroutines returns all goroutines' stacks.
func goroutines() string {
	buf := make([]byte, 8<<20)
	return string(buf[:goruntime.Stack(buf, true)])
}

// nodeGoroutines returns the stacks of goroutines of nodes.
func nodeGoroutines() string {
	var list []string
	for g := range strings.SplitSeq(goroutines(), "\n\n") {
		if strings.Contains(g, "starling/node.") && !strings.Contains(g, "testing.") {
			list = append(list, g)
		}
	}
	return strings.Join(list, "\n\n")
}
