package test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// What 'starling doctor' says of a machine that everybody can dial, of one whose firewall lets nobody in, and of one behind a router.
func TestDoctorOfReachability(t *testing.T) {
	net := newNetwork(t, symmetric, cone)
	t.Parallel()
	dir := t.TempDir()
	starling := filepath.Join(dir, "starling")
	if out, err := exec.Command("go", "build", "-o", starling, "../cmd/starling").CombinedOutput(); err != nil {
		t.Fatalf("building the command: %v\n%s", err, out)
	}
	r := net.r.start("r", childConfig{Listen: onBoth, Reachability: "public", Create: true, CreatePublic: true})
	public := func(name, subnet string) *space {
		s := newSpace(t)
		join(net.internet, name, subnet+".1/24", s, "eth0", subnet+".2/24")
		s.run("ip route add default via %s.1", subnet)
		return s
	}
	open, shut := public("open", "5.9.4"), public("shut", "5.9.5")
	shut.run(`nft -f - <<END
table ip wall {
	chain in {
		type filter hook input priority 0; policy drop;
		iifname "lo" accept
		ct state established,related accept
	}
}
END`)
	for _, c := range []struct {
		name    string
		machine *space
		says    string
	}{
		{"open", open, `(?m)^ok +reachability +peers dial this node directly$`},
		{"blocked", shut, `(?m)^warn +reachability +this machine has a public address, and peers can't dial it: a firewall.*\n +→ open the port for TCP and UDP`},
		{"relay only", net.a, `(?m)^warn +reachability +(only )?by relay.*\n +→ .*forward`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			run := func(args ...string) (string, error) {
				out, err := c.machine.command(starling, append(args, "--data", data)...).CombinedOutput()
				return string(out), err
			}
			if out, err := run("swarm", "join", r.Info.ID, r.report.Addrs[0], "--name", "town"); err != nil {
				t.Fatalf("join: %v\n%s", err, out)
			}
			out, err := run("doctor", "--wait", patience.String())
			if err != nil || !regexp.MustCompile(c.says).MatchString(out) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
