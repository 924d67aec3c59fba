package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node/control"
)

// nextBuild builds this command as its next version will be: of one source file the number that a pattern's group finds is one
// more. It returns the binary's path.
func nextBuild(t *testing.T, name, file, pattern string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.FromSlash(file))
	if err != nil {
		t.Fatal(err)
	}
	src, err := os.ReadFile(path)
	if err != nil {
		t.Skipf("the source isn't here: %v", err)
	}
	at := regexp.MustCompile(pattern).FindSubmatchIndex(src)
	if at == nil {
		t.Fatalf("%s has no %q", file, pattern)
	}
	n, err := strconv.Atoi(string(src[at[2]:at[3]]))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	next, overlay, bin := filepath.Join(dir, "next.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, name)
	if err := os.WriteFile(next, bytes.Join([][]byte{src[:at[2]], []byte(strconv.Itoa(n + 1)), src[at[3]:]}, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {path: next}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("building the next version: %v\n%s", err, out)
	}
	return bin
}

// A swarm is upgraded node by node: nodes of this version and of the next one, of a protocol or of the numerics, live in one
// swarm. Each kind plans with its own alone, says why the others are left out, and answers.
func TestRollingUpgrade(t *testing.T) {
	if testing.Short() {
		t.Skip("two more builds of the command take long")
	}
	dir := t.TempDir()
	model, err := writeSmoke(dir)
	if err != nil {
		t.Fatal(err)
	}
	run := func(bin string, args ...string) string {
		t.Helper()
		var errs bytes.Buffer
		cmd := exec.Command(bin, args...)
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s%s", filepath.Base(bin), strings.Join(args, " "), err, out, errs.Bytes())
		}
		return strings.TrimSpace(string(out))
	}
	// serve starts a node and returns what it says of itself.
	serve := func(bin, data string, args ...string) control.Status {
		t.Helper()
		ctx, cancel := context.WithCancel(context.Background())
		cmd := exec.CommandContext(ctx, bin, append([]string{"serve", "--data", data, "--listen", loopback, "--threads", "1"}, args...)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cancel()
			_ = cmd.Wait() // it was killed
		})
		var st control.Status
		waitFor(t, "a node on "+data, func() bool {
			st, err = status(ctx, data)
			return err == nil && (len(args) == 0 || len(st.Models) > 0 && st.Models[0].Serving != nil)
		})
		return st
	}
	folder := func(name string) string { return filepath.Join(dir, name) }
	run("starling", "swarm", "create", "--public", "town", "--data", folder("now"))
	now := serve("starling", folder("now"), "--publish", model)
	for _, next := range []struct{ name, file, pattern, why string }{
		{"protocol", "../../node/links.go", `"/starling/session/([0-9]+)"`, "has another version of starling: it doesn't speak /starling/session/"},
		{"numerics", "../../runtime/profile.go", `const RulesVersion = ([0-9]+)`, "computes by other numerics"},
	} {
		t.Run(next.name, func(t *testing.T) {
			bin := nextBuild(t, "starling-"+next.name, next.file, next.pattern)
			data := folder(next.name)
			run(bin, "swarm", "join", now.Swarm.ID, now.Addrs[0], "--data", data)
			later := serve(bin, data, "--model", now.Models[0].ID)
			for _, side := range []struct{ bin, data, own, other string }{{"starling", folder("now"), now.Peer, later.Peer}, {bin, data, later.Peer, now.Peer}} {
				waitFor(t, "the other version's offer, and why it is left out", func() bool {
					plan := run(side.bin, "plan", now.Models[0].ID, "--prompt-tokens", "20", "--new-tokens", "5", "--data", side.data)
					used := regexp.MustCompile(`(?m)^\+ ` + side.own + ` `).MatchString(plan)
					left := regexp.MustCompile(`(?m)^– ` + side.other + `  ` + next.why).MatchString(plan)
					return used && left
				})
				if out := run(side.bin, "run", "-m", now.Models[0].ID, "-n", "4", "--data", side.data, smokePrompt); out == "" {
					t.Error("no answer")
				}
			}
		})
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v in vain for %s", patience, what)
		}
	}
}
