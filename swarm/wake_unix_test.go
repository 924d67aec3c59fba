//go:build unix

package swarm

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startChild starts a node of the swarm in folder dir in a process of its own. It writes to in and reads lines, of which the first was the
// child's peer ID and still is lines.Text.
func startChild(t *testing.T, dir string, listen []string, boot string) (child *exec.Cmd, in io.Writer, lines *bufio.Scanner) {
	t.Helper()
	child = exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+strings.Join([]string{t.TempDir(), dir, boot}, "|"), childListen+"="+strings.Join(listen, " "))
	child.Stderr = os.Stderr
	input, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.Process.Signal(syscall.SIGCONT) // it may be awake
		input.Close()
		if err := child.Wait(); err != nil {
			t.Errorf("the child ended with %v", err)
		}
	})
	lines = bufio.NewScanner(out)
	if !lines.Scan() || strings.HasPrefix(lines.Text(), "error") {
		t.Fatalf("the child said %q", lines.Text())
	}
	return child, input, lines
}

// TestSleep stops the process of a node for longer than its offers live. Nobody counts on it meanwhile, its dead connection is noticed by
// whoever asks, and when it wakes it is back under the same peer ID with newer offers.
func TestSleep(t *testing.T) {
	dir := t.TempDir()
	info, err := CreateSwarm(dir, "test", true, nil)
	if err != nil {
		t.Fatal(err)
	}
	awake := startNode(t, info, node{listen: tcpOnly})
	third := startNode(t, info, node{listen: tcpOnly, boot: awake.Addrs()})
	child, in, lines := startChild(t, dir, tcpOnly, awake.Addrs()[0])
	id := lines.Text()
	seq := func(h *Host) uint64 {
		for _, o := range h.Offers() {
			if o.Peer == id {
				return o.Seq
			}
		}
		return 0
	}
	for _, h := range []*Host{awake, third} {
		eventually(t, func() string {
			if _ = h.Refresh(t.Context()); seq(h) == 0 {
				return "no offer of the child"
			}
			return ""
		})
	}
	before := max(seq(awake), seq(third))

	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for _, h := range []*Host{awake, third} {
		eventually(t, func() string {
			if seq(h) != 0 {
				return "the child sleeps and is still there"
			}
			return ""
		})
	}
	awake.Wake(t.Context(), 0) // with a connection to one that sleeps now
	if slices.Contains(awake.Connected(), id) {
		t.Error("still connected to the child, which doesn't answer")
	}
	_ = third.Refresh(t.Context()) // nor does anybody pass it on
	if seq(awake) != 0 || seq(third) != 0 {
		t.Fatal("a ghost of the child")
	}

	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write([]byte("wake\n")); err != nil {
		t.Fatal(err)
	}
	if !lines.Scan() || lines.Text() != "awake" {
		t.Fatalf("the child said %q", lines.Text())
	}
	for _, h := range []*Host{awake, third} {
		eventually(t, func() string {
			if _ = h.Refresh(t.Context()); seq(h) <= before {
				return fmt.Sprintf("offer %d of the child, %d before it slept", seq(h), before)
			}
			return ""
		})
	}
}

// TestWake lets the monotonic clock miss a sleep: offers of peers that live are pulled anew, and one's own have a new number everywhere.
func TestWake(t *testing.T) {
	info := publicSwarm(t)
	a := startNode(t, info, node{})
	b := startNode(t, info, node{boot: a.Addrs()})
	offer := func(h *Host) Offer {
		return Offer{Model: [32]byte{1}, ModelName: short(h.ID()), Last: 3, Context: 64}
	}
	a.SetOffers([]Offer{offer(a)})
	b.SetOffers([]Offer{offer(b)})
	seqOf := func(h, of *Host) uint64 {
		for _, o := range h.Offers() {
			if o.Peer == of.ID() {
				return o.Seq
			}
		}
		return 0
	}
	known := func() string {
		if seqOf(a, b) == 0 || seqOf(b, a) == 0 {
			return "not both offers are known"
		}
		return ""
	}
	eventually(t, known)
	was := seqOf(b, a)
	a.Wake(testCtx(t), DefaultOfferTTL+time.Second)
	eventually(t, known) // one who lives says so
	eventually(t, func() string {
		if seqOf(b, a) <= was {
			return "no newer offer of the node that woke"
		}
		return ""
	})
	eventually(t, func() string {
		if c := a.Connected(); !slices.Contains(c, b.ID()) {
			return fmt.Sprintf("connected to %v", c)
		}
		return ""
	})
}
