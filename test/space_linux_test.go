package test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// patience is how long a test waits for what must happen: others may have the processor meanwhile.
const patience = 2 * time.Minute

// space is a network namespace. A process holds it that ends with this one, so
// nothing is left behind, whatever happens here.
type space struct {
	t   *testing.T
	pid int
}

// newSpace makes a namespace with a loopback device, and removes it with the test.
func newSpace(t *testing.T) *space {
	t.Helper()
	cmd := exec.Command("unshare", "--net", "sh", "-c", "echo; exec cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the holder of a namespace: %v", err)
		}
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("no network namespace: %v", err)
	}
	s := &space{t, cmd.Process.Pid}
	s.run("ip link set lo up")
	return s
}

// needSpaces skips the test where no network can be built.
func needSpaces(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("building networks takes longer than -short allows")
	}
	if os.Getuid() != 0 {
		t.Skip("building networks takes root")
	}
	for _, program := range []string{"unshare", "nsenter", "ip", "nft"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("building networks takes %s (on Debian in the packages util-linux, iproute2 and nftables)", program)
		}
	}
	if out, err := exec.Command("unshare", "--net", "true").CombinedOutput(); err != nil {
		t.Skipf("no network namespaces here: %v %s", err, out)
	}
}

// command returns a command that runs in the namespace.
func (s *space) command(name string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{fmt.Sprintf("--net=/proc/%d/ns/net", s.pid), name}, args...)...)
}

// run runs lines of shell in the namespace.
func (s *space) run(format string, args ...any) {
	s.t.Helper()
	cmd := s.command("sh", "-e")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(format, args...))
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", fmt.Sprintf(format, args...), err, out)
	}
}

// join links two namespaces by a pair of devices with these addresses.
func join(a *space, deviceA, addrA string, b *space, deviceB, addrB string) {
	a.t.Helper()
	a.run("ip link add %s type veth peer name %s netns %d", deviceA, deviceB, b.pid)
	a.run("ip addr add %s dev %s nodad || ip addr add %s dev %s\nip link set %s up", addrA, deviceA, addrA, deviceA, deviceA)
	b.run("ip addr add %s dev %s nodad || ip addr add %s dev %s\nip link set %s up", addrB, deviceB, addrB, deviceB, deviceB)
}

// tail keeps what a process says, for when it fails.
type tail struct {
	t    *testing.T
	name string
}

// Write implements io.Writer.
func (l tail) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		l.t.Logf("%s: %s", l.name, strings.TrimRight(line, "\n"))
	}
	return len(b), nil
}

var _ io.Writer = tail{}
