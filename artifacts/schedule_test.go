package artifacts

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const scheduleEnv = "STARLING_ARTIFACTS_TEST_SCHEDULE"

// operations of childSchedule, as often as it does them.
var operations = []string{"fetch", "publish", "release", "grow", "fetch", "remove", "release", "fetch"}

// childSchedule fetches, grows, releases, publishes and removes models in random order until it is killed, saying on standard output
// what it begins, and while it fetches how many bytes are held. args are the store's folder, a bundle file, the model's ID, the
// seeder's address, a GGUF file to publish, a seed and the first operation.
func childSchedule(args []string) error {
	seed, err := strconv.ParseUint(args[5], 10, 64)
	if err != nil {
		return err
	}
	s, tor, b, err := childStore(args)
	if err != nil {
		return err
	}
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(seed, 31))
	for op := args[6]; ; op = operations[rng.IntN(len(operations))] {
		m, err := s.AddBundle(b)
		if err != nil {
			return err
		}
		card, err := tor.FetchHeader(ctx, m, peersOf("seeder"), nil)
		if err != nil {
			return err
		}
		first := rng.IntN(card.Layers)
		r := LayerRange{first, first + 1 + rng.IntN(card.Layers-first)}
		held := func(int64, int64) { fmt.Println("held", m.HeldBytes()) }
		switch op {
		case "fetch":
			fmt.Println("fetch", r)
			err = tor.Fetch(ctx, m, card.Spans(r), peersOf("seeder"), held)
		case "grow":
			fmt.Println("grow")
			err = tor.Fetch(ctx, m, m.Manifest().All(), peersOf("seeder"), held)
		case "release":
			fmt.Println("release", r)
			_, err = tor.Release(m, card.Spans(r))
		case "publish":
			fmt.Println("publish")
			var p *Model
			if p, err = s.Publish(ctx, args[4:5], nil); err == nil {
				if err = tor.Seed(p); err == nil && rng.IntN(2) == 0 {
					fmt.Println("forget")
					err = tor.Remove(p)
				}
			}
		default:
			fmt.Println("remove")
			err = tor.Remove(m)
		}
		if err != nil {
			return err
		}
		fmt.Println("done")
	}
}

// Processes that fetch, grow, release, publish and remove are killed at random moments of these, one after the other on the same store. What
// the store calls verified afterwards hashes right, and of what a fetch had verified at most one piece is lost.
func TestKillSchedules(t *testing.T) {
	schedules := 100
	if testing.Short() {
		schedules = 8
	}
	_, src, paths := publish(t, testModel{layers: 24, parts: 2, seed: 25})
	other := writeModel(t, t.TempDir(), testModel{layers: 16, seed: 26})
	n := newTestNet()
	n.seeder(t, "seeder", src, 20<<20)
	bundle := filepath.Join(t.TempDir(), "bundle")
	if err := os.WriteFile(bundle, src.Bundle().Marshal(), 0o644); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(27, 28))
	killedIn := map[string]int{}
	took := map[string]time.Duration{} // by the last of each that came to its end
	var began time.Time
	for i := range schedules {
		cmd, first := exec.CommandContext(t.Context(), exe), operations[i%len(operations)]
		cmd.Env = append(os.Environ(), scheduleEnv+"="+strings.Join([]string{dir, bundle, src.ID().String(), n.addrs["seeder"], other[0], fmt.Sprint(i), first}, "|"))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// The clock starts with the first thing that the child does, however long it took to get there.
		most := 120 * time.Millisecond
		if d := took[first]; d > 0 {
			most = min(most, d)
		}
		wait := time.Duration(rng.Float64() * float64(most))
		op, held := "", int64(-1)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			word, rest, _ := strings.Cut(lines.Text(), " ")
			switch word {
			case "held":
				if held, err = strconv.ParseInt(rest, 10, 64); err != nil {
					t.Fatalf("the child says %q", lines.Text())
				}
			case "fetch", "grow", "release", "publish", "forget", "remove":
				if op == "" {
					time.AfterFunc(wait, func() { cmd.Process.Kill() })
				}
				op, held, began = word, -1, time.Now()
			case "done":
				took[op] = time.Since(began)
			default:
				t.Fatalf("schedule %d: the child says %q", i, lines.Text())
			}
		}
		if err := cmd.Wait(); op == "" || err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("schedule %d: the child ended in %q: %v", i, op, err)
		}
		killedIn[op]++

		s, err := OpenStore(dir)
		if err != nil {
			t.Fatal(err)
		}
		if problems := s.Problems(); len(problems) != 0 {
			t.Fatalf("schedule %d, killed in %s after %v: %v", i, op, time.Since(began), problems)
		}
		for _, m := range s.Models() {
			checkPieces(t, m)
			if m.Problem() != nil {
				t.Errorf("model %s: %v", m.ID().Short(), m.Problem())
			}
		}
		if m, ok := s.Get(src.ID()); held >= 0 && (!ok || m.HeldBytes() < held-PieceLength(src.Manifest().Parts[0].Size)) {
			t.Errorf("schedule %d: %d bytes were held when the process was killed, and are not now", i, held)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.Fatalf("schedule %d, killed in %s", i, op)
		}
	}
	t.Logf("%d processes killed in %v", schedules, killedIn)

	// The store is as good as any.
	s := openStore(t, dir)
	m := learn(t, s, src)
	tor := n.join(t, "leecher", s)
	if err := tor.Fetch(testContext(t), m, m.Manifest().All(), peersOf("seeder"), nil); err != nil {
		t.Fatal(err)
	}
	for i, path := range partPaths(m) {
		if string(mustRead(t, path)) != string(mustRead(t, paths[i])) {
			t.Errorf("part %d differs", i+1)
		}
	}
}
