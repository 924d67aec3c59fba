package main

import (
	"flag"
	"fmt"
	"strings"
	"testing"
)

var soak = flag.Bool("soak", false, "run the long matrix of splits and chunks (make soak)")

// TestSoak compares SmolLM2 over the swarm with the single-process run: cut at
// every boundary, and over five peers in every chunk size.
func TestSoak(t *testing.T) {
	if !*soak {
		t.Skip("computes for about an hour: make soak")
	}
	file := smolLM2(t)
	ask := func(t *testing.T, prompt string, args ...string) {
		r := runDemo(t, append([]string{"--model", file, "--prompt", prompt, "-n", "16"}, args...)...)
		if strings.HasSuffix(prompt, paris) && !strings.Contains(r.Runs[0].Account.Text, "Paris") {
			t.Errorf("the answer is %q", r.Runs[0].Account.Text)
		}
	}
	for cut := 1; cut <= 30; cut++ {
		t.Run(fmt.Sprintf("cut before layer %d", cut), func(t *testing.T) {
			ask(t, paris, "--cuts", fmt.Sprint(cut), "--chunk", fmt.Sprint(1+cut%9))
		})
	}
	// About 300 tokens, so that every chunk size makes several chunks.
	long := strings.Repeat("The lighthouse keeper climbed the last stair, lit the lamp, and wrote in the log that all was well. ", 12)
	for _, chunk := range []int{1, 7, 64, 256, 8192} {
		for _, cuts := range []string{"6,12,18,24", "1,2,3,4", "5,11,20,30", "26,27,28,29"} {
			t.Run(fmt.Sprintf("chunks of %d, cuts %s", chunk, cuts), func(t *testing.T) {
				prompt := long + paris
				if chunk == 1 {
					prompt = paris // a token at a time is slow
				}
				r := runDemo(t, "--model", file, "--prompt", prompt, "-n", "8", "--cuts", cuts, "--chunk", fmt.Sprint(chunk))
				if r.Runs[0].Account.Text == "" {
					t.Error("no answer")
				}
			})
		}
	}
}
