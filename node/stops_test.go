package node

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// TestStops compares what is told piece by piece with what the whole answer says, for random answers, texts and cuts.
func TestStops(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	word := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "ab"[rng.IntN(2)]
		}
		return string(b)
	}
	found := 0
	for range 20000 {
		answer := word(rng.IntN(20))
		var texts []string
		for range rng.IntN(4) {
			texts = append(texts, word(1+rng.IntN(4)))
		}
		s, err := NewStops(texts)
		if err != nil {
			t.Fatal(err)
		}
		told := ""
		for rest := answer; rest != "" && s.Found == ""; {
			n := 1 + rng.IntN(len(rest))
			told += s.Push(rest[:n])
			rest = rest[n:]
		}
		told += s.Flush()
		if s.Found != "" {
			found++
		}
		for _, x := range texts {
			if strings.Contains(told, x) || s.Found == "" && strings.Contains(answer, x) {
				t.Fatalf("%q with %q: told %q, found %q", answer, texts, told, s.Found)
			}
		}
		if s.Found == "" && told != answer || !strings.HasPrefix(answer, told+s.Found) || s.Push("x")+s.Flush() != "" && s.Found != "" {
			t.Fatalf("%q with %q: told %q, found %q", answer, texts, told, s.Found)
		}
	}
	if found < 1000 {
		t.Errorf("%d answers were ended", found)
	}
	for _, bad := range [][]string{{""}, {strings.Repeat("x", 1025)}, make([]string, 17)} {
		if _, err := NewStops(bad); err == nil {
			t.Errorf("%d texts such as %.20q are accepted", len(bad), bad[0])
		}
	}
}
