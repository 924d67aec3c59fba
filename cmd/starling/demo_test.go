package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// demo returns the command that runs the demo with its folders in a folder of
// their own, which it also returns.
func demo(t *testing.T, args ...string) (*exec.Cmd, string) {
	t.Helper()
	tmp, err := os.MkdirTemp("", "demo")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	cmd := exec.Command("starling", append([]string{"demo"}, args...)...)
	cmd.Env = append(cleanEnv(os.Environ(), tmp), "TMPDIR="+tmp, "TMP="+tmp)
	return cmd, tmp
}

// leftovers fails the test if a process of the demo lives or a file of it is
// left.
func leftovers(t *testing.T, tmp string, pids []int) {
	t.Helper()
	if len(pids) == 0 {
		t.Error("no process was told of")
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
	if left, err := filepath.Glob(filepath.Join(tmp, "*")); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

// runDemo runs the demo with --json and checks what must hold of every one.
func runDemo(t *testing.T, args ...string) demoReport {
	t.Helper()
	cmd, tmp := demo(t, append([]string{"--json"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("demo %v: %v: %s", args, err, stderr.Bytes())
	}
	var r demoReport
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, p := range r.Processes {
		pids = append(pids, p.PID)
	}
	leftovers(t, tmp, pids)
	if len(r.Runs) != 2 || r.Runs[0].Shape != "across" || r.Runs[1].Shape != "pipelined" {
		t.Fatalf("runs %+v", r.Runs)
	}
	for _, run := range r.Runs {
		a := run.Account
		if !run.Identical || !run.Tokens || !run.Logits || !run.KV || a.LogitsHash == "" || a.KVHash == "" || a.Text != r.Reference.Text ||
			!slices.Equal(a.NewTokens, r.Reference.NewTokens) {
			t.Errorf("demo %v, %s: not identical to the single-process run: %+v", args, run.Shape, run)
		}
		for _, st := range a.Stages {
			if st.SeamHash == "" || st.SeamBytes == 0 || st.TokensS <= 0 {
				t.Errorf("demo %v, %s: stage %+v", args, run.Shape, st)
			}
		}
	}
	return r
}

// TestDemo is what "make demo" shows.
func TestDemo(t *testing.T) {
	cmd, tmp := demo(t)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("it took %v", time.Since(began).Round(time.Millisecond))
	if n := bytes.Count(out, []byte("identical to single-process run: yes\n")); n != 2 {
		t.Errorf("%d shapes are identical, want 2", n)
	}
	for _, want := range []string{"prompt: " + smokePrompt, "across plan", "pipelined plan", "first token", "tokens/s", "fetched layers 0–1 (2) by torrent",
		"on disk (3", "volunteer-1 → volunteer-2", "volunteer-2 → decoder", "logits ", "SEAMS SENT"} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("the output lacks %q", want)
		}
	}
	leftovers(t, tmp, pidsIn(out))
	if t.Failed() {
		t.Logf("%s", out)
	}
}

var pidText = regexp.MustCompile(`pid (\d+)`)

func pidsIn(out []byte) (pids []int) {
	for _, m := range pidText.FindAllSubmatch(out, -1) {
		pid, err := strconv.Atoi(string(m[1]))
		if err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestDemoSplits runs other splits: one cut, a decoder that computes only the
// head, a stage per layer, and other chunks and settings.
func TestDemoSplits(t *testing.T) {
	layers := smokeLayers(t)
	var all []string
	for l := 1; l <= layers; l++ {
		all = append(all, strconv.Itoa(l))
	}
	for _, args := range [][]string{
		{"--cuts", "1"},
		{"--cuts", all[len(all)-1], "--chunk", "3"},
		{"--cuts", strings.Join(all, ","), "--chunk", "1", "-n", "8"},
		{"--cuts", "1,2,3,5", "--chunk", "7", "--temperature", "0.8", "--seed", "7", "--top-k", "20", "--threads", "2"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			r := runDemo(t, args...)
			cuts := strings.Split(args[1], ",")
			last, err := strconv.Atoi(cuts[len(cuts)-1])
			if err != nil {
				t.Fatal(err)
			}
			for i, run := range r.Runs {
				a := run.Account
				if len(a.Stages) != len(cuts) || a.Decoder.Layers.First != last {
					t.Errorf("%s: %d stages, the decoder has %+v", run.Shape, len(a.Stages), a.Decoder.Layers)
				}
				if want := 2 + len(cuts) + 1; i == 0 && len(r.Processes) != want {
					t.Errorf("%d processes, want %d", len(r.Processes), want)
				}
			}
		})
	}
}

// TestDemoOnlyLayers checks how little a volunteer has on its disk: its layers'
// share of the file, and for the edges of the model some more.
func TestDemoOnlyLayers(t *testing.T) {
	r := runDemo(t)
	for _, p := range r.Processes {
		if p.Layers == nil || p.Layers.Last-p.Layers.First+1 == r.Model.NumLayers {
			continue
		}
		if p.Allocated <= 0 || p.Allocated > r.Model.Bytes/2 {
			t.Errorf("%s with %s has %d of %d bytes on its disk", p.Name, layersText(p.Layers), p.Allocated, r.Model.Bytes)
		}
	}
}

func TestDemoRefuses(t *testing.T) {
	for _, test := range []struct {
		args   []string
		want   string
		status int
	}{
		{[]string{"--cuts", "99"}, "cuts 99: they must ascend and lie within 1 and the model's", exitUsage},
		{[]string{"--cuts", "3,2"}, "cuts 3,2", exitUsage},
		{[]string{"--cuts", "0"}, "cuts 0", exitUsage},
		{[]string{"--prompt", strings.Repeat("Count. ", 4000)}, "context", exitFailure},
		{[]string{"--temperature=-1"}, "temperature", exitFailure},
	} {
		cmd, tmp := demo(t, test.args...)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != test.status || !bytes.Contains(out, []byte(test.want)) {
			t.Errorf("demo %.40v: %v: %.400s", test.args, err, out)
		}
		if pids := pidsIn(out); len(pids) > 0 {
			leftovers(t, tmp, pids)
		}
	}
}

// TestDemoInterrupted ends the demo at several moments: nothing may be left.
func TestDemoInterrupted(t *testing.T) {
	for _, moment := range []string{"tracker ", "volunteer-", "prompt:", "STAGE"} {
		t.Run(strings.TrimSpace(moment), func(t *testing.T) {
			for tries := 1; !interruptDemo(t, moment); tries++ {
				if tries == 10 {
					t.Fatal("an interrupt doesn't end the demo")
				}
				t.Log("the demo was over before it was interrupted: once more")
			}
		})
	}
}

// interruptDemo ends the demo when it prints a line that begins so. It returns false if the demo was quicker.
func interruptDemo(t *testing.T, moment string) bool {
	t.Helper()
	cmd, tmp := demo(t)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var seen bytes.Buffer
	lines := bufio.NewScanner(io.TeeReader(out, &seen))
	for lines.Scan() && !strings.HasPrefix(lines.Text(), moment) {
	}
	if err := interrupt(cmd.Process); err != nil {
		t.Skip(err)
	}
	_, _ = io.Copy(&seen, out) // the pipe ends with the process
	err = cmd.Wait()
	leftovers(t, tmp, pidsIn(seen.Bytes()))
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != exitInterrupted) {
		t.Fatalf("it ended with %v", err)
	}
	return err != nil
}

// TestDemoKilled kills the demo, which then can't clean up: its nodes must end
// by themselves.
func TestDemoKilled(t *testing.T) {
	cmd, _ := demo(t, "--keep")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var seen bytes.Buffer
	lines := bufio.NewScanner(io.TeeReader(out, &seen))
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "STAGE") {
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	pids := pidsIn(seen.Bytes())
	if len(pids) < 5 {
		t.Fatalf("%d processes", len(pids))
	}
	deadline := time.Now().Add(patience)
	for slices.ContainsFunc(pids, alive) {
		if time.Now().After(deadline) {
			t.Fatal("the nodes outlive the demo")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestDemoSmolLM2 asks a real model, over five peers.
func TestDemoSmolLM2(t *testing.T) {
	file := smolLM2(t)
	if testing.Short() {
		t.Skip("computes for half a minute: not with -short")
	}
	r := runDemo(t, "--model", file, "--prompt", paris, "--cuts", "5,11,20,29", "--chunk", "7", "-n", "16")
	if !strings.Contains(r.Runs[0].Account.Text, "Paris") {
		t.Errorf("the answer is %q", r.Runs[0].Account.Text)
	}
}

const paris = "What is the capital of France?"

// smolLM2 returns the model that lies beside the repository, or skips.
func smolLM2(t *testing.T) string {
	t.Helper()
	file, err := filepath.Abs("../../../shared/models/smollm2-135m-instruct-q4_1.gguf")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Skipf("no SmolLM2 here: %v", err)
	}
	return file
}

// TestNames keeps the names that plans are printed with plain.
func TestNames(t *testing.T) {
	got := fmt.Sprint(members([]int{2, 4}, 6))
	if want := "[{volunteer-1 {0 1}} {volunteer-2 {2 3}} {decoder {0 5}} {decoder-2 {4 5}}]"; got != want {
		t.Errorf("members %s, want %s", got, want)
	}
	if got := fmt.Sprint(members([]int{6}, 6)); got != "[{volunteer-1 {0 5}} {decoder {0 5}} {decoder-2 {6 5}}]" {
		t.Errorf("members with a decoder that has only the head: %s", got)
	}
}

func TestChooseCuts(t *testing.T) {
	for layers, want := range map[int]string{1: "[1]", 2: "[1]", 3: "[1 2]", 6: "[2 4]", 30: "[10 20]"} {
		if got, err := chooseCuts(nil, layers); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%d layers: %v, %v, want %s", layers, got, err, want)
		}
	}
}
