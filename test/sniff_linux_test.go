package test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// sniffEnv makes this binary a sniffer of the namespace that it runs in.
const sniffEnv = "STARLING_TEST_SNIFF"

// flow is packets of one kind between two addresses.
type flow struct {
	From, To netip.Addr
	Kind     string // "arp", "tcp", "udp", or another protocol's number
	Packets  int
}

// sniff captures every packet on every interface, in and out. For each line on its standard input it prints the flows since the line before.
func sniff() error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(network16(unix.ETH_P_ALL)))
	if err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
		return err
	}
	var mu sync.Mutex
	flows := map[flow]int{}
	var broken error
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, from, err := unix.Recvfrom(fd, b, 0)
			if err == unix.EINTR {
				continue
			}
			mu.Lock()
			if err != nil {
				broken = err
				mu.Unlock()
				return
			}
			link, ok := from.(*unix.SockaddrLinklayer)
			if f, ok2 := parse(b[:n]); ok && ok2 {
				flows[f]++
			} else if ok {
				broken = fmt.Errorf("a packet on interface %d that isn't understood: % x", link.Ifindex, b[:min(n, 64)])
			}
			mu.Unlock()
		}
	}()
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode("ready"); err != nil {
		return err
	}
	in := json.NewDecoder(os.Stdin)
	for {
		var ask string
		if in.Decode(&ask) != nil {
			return nil // the end
		}
		mu.Lock()
		if broken != nil {
			return broken
		}
		stats, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
		if err != nil {
			return err
		}
		if stats.Drops > 0 {
			return fmt.Errorf("%d packets were missed", stats.Drops)
		}
		list := []flow{}
		for f, n := range flows {
			f.Packets = n
			list = append(list, f)
		}
		clear(flows)
		mu.Unlock()
		if err := out.Encode(list); err != nil {
			return err
		}
	}
}

func network16(n uint16) uint16 { return n<<8 | n>>8 }

// parse reads the headers of an Ethernet frame.
func parse(b []byte) (f flow, ok bool) {
	if len(b) < 14 {
		return f, false
	}
	kind, b := binary.BigEndian.Uint16(b[12:]), b[14:]
	proto := byte(0)
	switch {
	case kind == unix.ETH_P_ARP && len(b) >= 28: // of IPv4: sender at 14, target at 24 (RFC 826)
		f.From, f.To, f.Kind = netip.AddrFrom4([4]byte(b[14:])), netip.AddrFrom4([4]byte(b[24:])), "arp"
		return f, true
	case kind == unix.ETH_P_IP && len(b) >= 20:
		f.From, f.To, proto = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:])), b[9]
	case kind == unix.ETH_P_IPV6 && len(b) >= 40:
		f.From, f.To, proto = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:])), b[6]
	default:
		return f, false
	}
	switch proto {
	case unix.IPPROTO_TCP:
		f.Kind = "tcp"
	case unix.IPPROTO_UDP:
		f.Kind = "udp"
	default:
		f.Kind = fmt.Sprint(proto)
	}
	return f, true
}

// sniffer is a capture in a namespace.
type sniffer struct{ *talk }

func (s *space) sniff(name string) sniffer {
	s.t.Helper()
	k := newTalk(s, name, sniffEnv, true)
	var ready string
	k.hear(&ready)
	return sniffer{k}
}

// flows returns what went by since the last call.
func (s sniffer) flows() (list []flow) {
	s.t.Helper()
	s.say("flows")
	s.hear(&list)
	return list
}

func TestParse(t *testing.T) {
	eth := func(kind uint16, rest ...byte) []byte {
		return append(binary.BigEndian.AppendUint16(make([]byte, 12), kind), rest...)
	}
	arp := append(make([]byte, 14), 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2)
	ip := append([]byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0}, 10, 0, 0, 1, 10, 0, 0, 2)
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	for want, frame := range map[flow][]byte{{From: a, To: b, Kind: "arp"}: eth(unix.ETH_P_ARP, arp...), {From: a, To: b, Kind: "tcp"}: eth(unix.ETH_P_IP, ip...)} {
		if got, ok := parse(frame); !ok || got != want {
			t.Errorf("read as %+v, %v; want %+v", got, ok, want)
		}
		if _, ok := parse(frame[:len(frame)-1]); ok {
			t.Error("a frame that is cut is read")
		}
	}
	if _, ok := parse(eth(0x86dd, make([]byte, 20)...)); ok {
		t.Error("half an IPv6 header is read")
	}
}
