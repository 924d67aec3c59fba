package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/starling-swarm/starling/node/control"
)

// verdict is what a check comes to.
type verdict string

// The verdicts. A warning works, but not as well as it could; a failure keeps the node from its work.
const (
	good    verdict = "ok"
	warning verdict = "warn"
	failure verdict = "fail"
	unknown verdict = "skip" // it couldn't be checked
)

// finding is the result of one check.
type finding struct {
	Check   string  `json:"check"`
	Verdict verdict `json:"verdict"`
	Text    string  `json:"text"`           // what is so
	Next    string  `json:"next,omitempty"` // what to do about it
}

// facts are what 'doctor' has measured. Judging them takes no clock and no I/O, so tests can make up any machine.
type facts struct {
	Data       string // folder
	DataErr    error  // it can't be used
	Now        time.Time
	Unsynced   bool    // the system says that nobody sets its clock
	Free       int64   // bytes of disk, -1: not known
	Write      float64 // bytes per second, 0: not measured
	Read       float64 // likewise, of what was just written, past the system's cache where that goes
	Memory     int64   // bytes that programs can still have
	ModelName  string  // the largest model that is held, and not loaded now
	ModelBytes int64

	Arch     string
	Variant  string // of the kernels
	Variants []string
	Forced   bool  // STARLING_KERNELS has chosen
	Chosen   error // why that, or a variant that the processor should run, is not in use
	Numerics error // of the self-test

	Swarm      string // name
	SwarmErr   error  // there is none to be in
	Public     bool
	Peer       string
	Membership membershipFacts // of a private swarm

	Node    bool  // a node runs on the data folder
	NodeErr error // none runs, and none could be started for the checks
	PortErr error // the address to listen on can't be had
	Port    int   // a port that was asked for or is usual, and that somebody else uses
	Reach   reach
	Network *control.Network // nil: no node
}

// membershipFacts are swarm.Membership without the network's types.
type membershipFacts struct {
	Issued, Expires time.Time
	Revoked         bool
	Err             error
}

// reach is how peers can reach this node, as far as others have told it.
type reach struct {
	Known   bool
	Public  bool   // peers have dialled it
	Relayed bool   // it has an address at a relay
	NAT     string // "none", "cone", "symmetric", or "" where nobody can tell
	HasIPs  bool   // one of the machine's own addresses is a public one
}

// Limits of the judgements.
const (
	clockWarn = time.Minute      // below, nothing shows
	clockFail = 10 * time.Minute // certificates and grants may be refused beyond: two clocks so far off the other ways differ by wire.ClockSkew

	diskFull = 64 << 20 // bytes: records of what is held can hardly be written
	diskLow  = 2 << 30  // no model of use fits
	diskSlow = 20e6     // bytes per second: a gigabyte takes a minute

	memoryShort = 512 << 20 // bytes: a node and its library take half of that
)

// judge returns a finding for each check.
func judge(f *facts) []finding {
	return []finding{
		judgeClock(f), judgeData(f), judgeSpace(f), judgeSpeed(f), judgeMemory(f), judgeCPU(f), judgeNumerics(f),
		judgeSwarm(f), judgePort(f), judgeReach(f), judgePeers(f), judgeDHT(f),
	}
}

func judgeClock(f *facts) finding {
	const set = "set the clock and keep it set: 'sudo timedatectl set-ntp true' on Linux with systemd, the settings for date and time elsewhere"
	r := finding{Check: "clock", Verdict: good}
	if f.Network != nil && len(f.Network.Clocks) > 0 {
		ahead := f.Network.Clocks[len(f.Network.Clocks)/2]
		where, whose := "behind", fmt.Sprintf("the median of %d peers' clocks", len(f.Network.Clocks))
		if ahead < 0 {
			where = "ahead of"
		}
		if len(f.Network.Clocks) == 1 {
			whose = "the one peer's clock that could be asked"
		}
		r.Text = fmt.Sprintf("%s %s %s", roundTime(ahead.Abs()), where, whose)
		switch {
		case ahead.Abs() > clockFail:
			r.Verdict, r.Next = failure, set+"; beyond "+clockFail.String()+" peers may refuse what this node signs"
		case ahead.Abs() > clockWarn:
			r.Verdict, r.Next = warning, set+"; beyond "+clockFail.String()+" peers may refuse what this node signs"
		}
		return r
	}
	if m := f.Membership; !m.Issued.IsZero() && m.Issued.After(f.Now.Add(clockWarn)) {
		r.Verdict, r.Next = failure, set
		r.Text = fmt.Sprintf("it shows %s, but this node's certificate was made at %s", f.Now.UTC().Format(time.RFC3339), m.Issued.UTC().Format(time.RFC3339))
		return r
	}
	r.Verdict, r.Text = unknown, "no peer could be asked for the time"
	if f.Unsynced {
		r.Verdict, r.Text, r.Next = warning, r.Text+", and the system says that nothing keeps its clock right", set
	}
	return r
}

// roundTime shortens a difference for people.
func roundTime(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func judgeData(f *facts) finding {
	r := finding{Check: "data folder", Verdict: good, Text: f.Data}
	if f.DataErr != nil {
		r.Verdict, r.Text = failure, oneLine(f.DataErr.Error())
		r.Next = "give this user a folder that it can write and others can't read with --data, or mend this one"
	}
	return r
}

func judgeSpace(f *facts) finding {
	r := finding{Check: "disk space", Verdict: good}
	switch {
	case f.Free < 0:
		r.Verdict, r.Text = unknown, "the system doesn't tell how much is free"
		return r
	case f.Free < diskFull:
		r.Verdict, r.Next = failure, "make room: 'starling gc' frees what no served or pinned layer needs; or use a folder on another disk with --data"
	case f.Free < diskLow:
		r.Verdict, r.Next = warning, "few layers fit: 'starling gc' frees what no served or pinned layer needs; or use a folder on another disk with --data"
	}
	r.Text = fmt.Sprintf("%s are free for %s", bytesText(f.Free), f.Data)
	return r
}

func judgeSpeed(f *facts) finding {
	r := finding{Check: "disk speed", Verdict: good}
	if f.Write <= 0 || f.Read <= 0 {
		r.Verdict, r.Text = unknown, "not measured: too little room to write, or no folder"
		return r
	}
	r.Text = fmt.Sprintf("writes %s/s, reads %s/s", bytesText(int64(f.Write)), bytesText(int64(f.Read)))
	if slow := min(f.Write, f.Read); slow < diskSlow {
		r.Verdict = warning
		r.Next = fmt.Sprintf("at %s/s a gigabyte of layers takes %s to fetch or to load: put the data folder on a faster disk (--data), not on a network or a memory card", bytesText(int64(slow)), roundTime(time.Duration(1e9/slow*float64(time.Second))))
	}
	return r
}

func judgeMemory(f *facts) finding {
	r := finding{Check: "memory", Verdict: good, Text: bytesText(f.Memory) + " can be had"}
	switch {
	case f.Memory <= 0:
		r.Verdict, r.Text = unknown, "the system doesn't tell how much can be had"
	case f.Memory < memoryShort:
		r.Verdict, r.Next = failure, "end other programs, or raise this one's limit (a control group or container may have it): a node takes some 250 MB before it holds a layer"
	case f.ModelBytes > f.Memory:
		r.Verdict, r.Text = warning, fmt.Sprintf("%s, and what is held of %s is %s", r.Text, printable(f.ModelName), bytesText(f.ModelBytes))
		r.Next = "serve fewer of its layers ('starling serve --layers A-B'), or every token reads them from the disk again"
	}
	return r
}

func judgeCPU(f *facts) finding {
	r := finding{Check: "processor", Verdict: good, Text: fmt.Sprintf("%s, %s kernels", f.Arch, f.Variant)}
	best := ""
	if len(f.Variants) > 0 {
		best = f.Variants[len(f.Variants)-1]
	}
	switch {
	case f.Chosen != nil:
		r.Verdict, r.Text = warning, r.Text+": "+oneLine(f.Chosen.Error())
		r.Next = "if you set STARLING_KERNELS, unset it; else run 'starling selftest', and report what it says"
	case f.Forced && f.Variant != best:
		r.Verdict, r.Text = warning, r.Text+fmt.Sprintf(", because STARLING_KERNELS says so; %s are faster here", best)
		r.Next = "unset STARLING_KERNELS"
	case f.Variant == "generic" && f.Arch == "amd64":
		r.Verdict, r.Text = warning, r.Text+": the processor (or its virtual machine) lacks AVX2, FMA or F16C, or this build leaves assembly out"
		r.Next = "answers are right, but several times slower: use a processor with AVX2 (since 2013), let the virtual machine pass it through (CPU type 'host'), or a build without -tags purego"
	case f.Variant == "generic":
		r.Verdict, r.Text = warning, r.Text+": there are no faster ones for it, or this build leaves assembly out"
		r.Next = "answers are right, but several times slower: use an amd64 processor with AVX2 or an arm64 one, and a build without -tags purego"
	}
	return r
}

func judgeNumerics(f *facts) finding {
	if f.Numerics != nil {
		return finding{"numerics", failure, oneLine(f.Numerics.Error()),
			"this build or machine computes wrong numbers and must not serve: try STARLING_KERNELS=generic, another build, a memory test; report it with the output of 'starling selftest --json'"}
	}
	return finding{Check: "numerics", Verdict: good, Text: "every bit as specified"}
}

func judgeSwarm(f *facts) finding {
	r := finding{Check: "swarm", Verdict: good}
	switch {
	case f.SwarmErr != nil:
		return finding{"swarm", failure, oneLine(f.SwarmErr.Error()), "make one with 'starling swarm create NAME', join one with 'starling swarm join INVITE', or name one with --swarm"}
	case f.Public:
		r.Text = printable(f.Swarm) + ", public"
		return r
	case f.Membership.Revoked:
		return finding{"swarm", failure, fmt.Sprintf("this node (peer %s) was revoked in %s: no member talks to it", f.Peer, printable(f.Swarm)),
			"ask the owner why; a new invitation needs a new peer key (move identity.key away first), since the old one stays on the list"}
	case f.Membership.Err != nil:
		return finding{"swarm", failure, oneLine(f.Membership.Err.Error()), "look at the clock first; then ask the swarm's owner for a new invitation, and use it with 'starling swarm join'"}
	}
	if n := f.refusals(); n > 0 && f.Network.Connected == 0 {
		return finding{"swarm", failure, fmt.Sprintf("%d of %d nodes to meet %s through answer, and don't let this node in: its membership was revoked, or these nodes are in another swarm", n, len(f.Network.Bootstrap), printable(f.Swarm)),
			"ask the swarm's owner whether peer " + f.Peer + " is still a member and for a new invitation; 'starling swarm list' shows which swarms this folder knows, --swarm chooses one"}
	}
	r.Text = fmt.Sprintf("%s, private, member until %s", printable(f.Swarm), f.Membership.Expires.UTC().Format(time.DateOnly))
	if left := f.Membership.Expires.Sub(f.Now); left < 14*24*time.Hour {
		r.Verdict, r.Next = warning, "meet an owner's node, which renews the certificate unasked; or ask for a new invitation"
	}
	return r
}

// refusals counts bootstrap nodes that answer and let this node not in.
func (f *facts) refusals() (n int) {
	if f.Network == nil {
		return 0
	}
	for _, c := range f.Network.Bootstrap {
		if c.Refused {
			n++
		}
	}
	return n
}

func judgePort(f *facts) finding {
	r := finding{Check: "port", Verdict: good}
	switch {
	case f.PortErr != nil:
		return finding{"port", failure, oneLine(f.PortErr.Error()), "end the program that uses the port ('ss -tulpn' lists them), or listen on another with --listen /ip4/0.0.0.0/tcp/PORT"}
	case f.Port != 0:
		return finding{"port", warning, fmt.Sprintf("port %d is used by another program, so a node listens on a port that changes with each start", f.Port),
			"end that program ('ss -tulpn' lists them), or choose a port with --listen; what forwards or opens a port must name the same one"}
	case f.Network != nil && len(f.Network.Listen) == 0:
		return finding{"port", warning, "the node listens nowhere: it can dial others, and nobody can dial it", "give it an address with --listen, such as /ip4/0.0.0.0/tcp/4077"}
	case f.Network == nil:
		return finding{Check: "port", Verdict: good, Text: "can be had"}
	}
	r.Text = "listens on " + strings.Join(f.Network.Listen[:min(len(f.Network.Listen), 2)], ", ")
	if !f.Node {
		r.Text = "can be had"
	}
	return r
}

func judgeReach(f *facts) finding {
	r := finding{Check: "reachability", Verdict: good}
	n := f.Reach
	nat := cmp.Or(n.NAT, "unknown")
	switch {
	case !n.Known:
		return finding{Check: "reachability", Verdict: unknown, Text: "no peer has told yet whether it can dial this node"}
	case n.Public:
		r.Text = "peers dial this node directly"
	case n.HasIPs:
		r.Verdict, r.Text = warning, "this machine has a public address, and peers can't dial it: a firewall, here or at the provider, blocks the port"
		r.Next = "open the port for TCP and UDP in the firewall ('sudo ufw allow 4077' or the like; also the provider's own firewall)"
	case n.Relayed && n.NAT == "symmetric":
		r.Verdict, r.Text = warning, "only by relay: the router in front of this machine gives every peer another port (NAT: symmetric), so that no direct way can be made"
		r.Next = "forward a port, TCP and UDP, to this machine in the router and listen on it (--listen); or use IPv6; by relay it serves, but slowly"
	case n.Relayed:
		r.Verdict, r.Text = warning, fmt.Sprintf("by relay, and directly where both sides' routers allow it (NAT: %s)", nat)
		r.Next = "nothing must be done; forwarding a port, TCP and UDP, to this machine in the router makes every way direct"
	default:
		r.Verdict, r.Text = failure, fmt.Sprintf("peers can't dial this node (NAT: %s), and it has no relay", nat)
		r.Next = "forward a port, TCP and UDP, to this machine in the router and listen on it (--listen), or meet a node with a public address, which relays"
	}
	return r
}

func judgePeers(f *facts) finding {
	if f.Network == nil {
		return finding{Check: "peers", Verdict: unknown, Text: "no node could be started to look for them" + because(f.NodeErr)}
	}
	all := f.Network.Bootstrap
	var dead, elsewhere []control.Contact
	for _, c := range all {
		switch {
		case c.Elsewhere:
			elsewhere = append(elsewhere, c)
		case !c.Connected:
			dead = append(dead, c)
		}
	}
	switch {
	case len(elsewhere) > 0 && len(elsewhere)+len(dead) == len(all):
		return finding{"peers", failure, fmt.Sprintf("wrong swarm: the node at %s answers, but it is not in swarm %s", contactText(elsewhere[0]), printable(f.Swarm)),
			"compare ID and address with somebody who is in it ('starling swarm list' there), and join again: 'starling swarm join ID ADDRESS'"}
	case f.Network.Connected > len(elsewhere):
		r := finding{Check: "peers", Verdict: good, Text: fmt.Sprintf("connected to %d", f.Network.Connected)}
		if len(dead) > 0 {
			r.Verdict = warning
			r.Text += fmt.Sprintf("; of %d addresses to meet the swarm through %d fail, such as %s", len(all), len(dead), contactText(dead[0]))
			r.Next = "ask a member for fresh addresses (--bootstrap adds one), while others still answer"
		}
		return r
	case len(all) == 0:
		return finding{"peers", warning, "nobody is connected, and no address of another node is known", "if this is the swarm's first node, let others join it; else give an address of one with --bootstrap, or --lan"}
	case f.refusals() > 0:
		return finding{"peers", failure, "nobody lets this node in, see 'swarm'", ""}
	}
	return finding{"peers", failure, fmt.Sprintf("none of %d nodes to meet the swarm through can be reached; %s", len(all), contactText(dead[0])),
		"look whether this machine is online and lets programs out (firewall, VPN, proxy); then ask a member for an address that works now (--bootstrap)"}
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + oneLine(err.Error())
}

// contactText names a node by its first address, with what is wrong there.
func contactText(c control.Contact) string {
	at := "peer " + shortPeer(c.Peer)
	if len(c.Addrs) > 0 {
		at = printable(c.Addrs[0])
	}
	if c.Error != "" {
		at += ": " + oneLine(c.Error)
	}
	return at
}

func judgeDHT(f *facts) finding {
	switch {
	case f.Network == nil:
		return finding{Check: "DHT", Verdict: unknown, Text: "no node could be started to look" + because(f.NodeErr)}
	case f.Network.DHT > 0:
		return finding{Check: "DHT", Verdict: good, Text: fmt.Sprintf("%d peers in this node's table", f.Network.DHT)}
	case f.Network.Connected == 0 && len(f.Network.Bootstrap) == 0:
		return finding{"DHT", warning, "it has no other node", "see 'peers'"}
	}
	return finding{"DHT", failure, "no DHT peers: this node can neither find others nor be found", "see 'peers'; if some are connected, they are in another swarm, or run another version"}
}
