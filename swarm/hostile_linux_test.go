package swarm

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/starling-swarm/starling/swarm/wire"
)

// resident returns the bytes of memory that a process has, now and at most.
func resident(t *testing.T, pid int) (now, most int64) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 3 && (f[0] == "VmRSS:" || f[0] == "VmHWM:") {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if f[0] == "VmRSS:" {
				now = kib << 10
			} else {
				most = kib << 10
			}
		}
	}
	return now, most
}

// A hostile peer costs a node, which is a process of its own, less than 64 MB, and is cut off.
func TestHostilePeer(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector, for which -short is, has memory of its own")
	}
	t.Parallel()
	const streams, limit = 10_000, 64 << 20
	lengths := []byte{255, 255, 255, 255, byte(wire.TypeOffersPush)} // 4 GB are to follow
	for name, attack := range map[string]struct {
		protocol protocol.ID
		say      []byte
		atOnce   bool // streams stay open
		closed   bool // the connection is closed, not the streams alone
	}{
		"10,000 streams that say nothing":         {trackProtocol, nil, true, true},
		"10,000 streams of an unknown protocol":   {"/starling/nothing/1", nil, true, true},
		"10,000 streams, one after the other":     {trackProtocol, []byte{0, 0, 0, 0}, false, true},
		"10,000 frames that claim to have 4 GB":   {trackProtocol, lengths, false, true},
		"10,000 DHT requests that claim 4 GB":     {"", []byte{255, 255, 255, 255, 15}, false, true},
		"10,000 frames that don't end":            {trackProtocol, append([]byte{0, 0, 16, 0, byte(wire.TypeOffersPush)}, make([]byte, 1<<20-2)...), true, true},
		"megabytes after a claim to have 4 GB":    {trackProtocol, append(slices.Clone(lengths), make([]byte, 4<<20)...), false, false},
		"streams to which nobody says what it is": {"-", []byte{19}, true, true},
	} {
		for _, listen := range [][]string{tcpOnly, quicOnly} {
			t.Run(name+", "+listen[0][15:18], func(t *testing.T) {
				dir := t.TempDir()
				info, err := CreateSwarm(dir, "test", true, nil)
				if err != nil {
					t.Fatal(err)
				}
				witness := startNode(t, info, node{})
				child, _, lines := startChild(t, dir, listen, witness.Addrs()[0])
				id := mustPeer(t, lines.Text())
				var addrs []string
				eventually(t, func() string {
					for _, o := range witness.Offers() {
						if o.Peer == lines.Text() {
							addrs = o.Addrs
						}
					}
					if len(addrs) == 0 {
						return "no offer of the child"
					}
					return ""
				})
				if attack.protocol == "" {
					attack.protocol = protocol.ID("/starling/" + info.ID + "/kad/1.0.0")
				}
				attacker, err := libp2p.New(libp2p.NoListenAddrs, libp2p.ResourceManager(&network.NullResourceManager{}))
				if err != nil {
					t.Fatal(err)
				}
				defer attacker.Close()
				before, _ := resident(t, child.Process.Pid)
				var cuts atomic.Int32
				attacker.Network().Notify(&network.NotifyBundle{DisconnectedF: func(network.Network, network.Conn) { cuts.Add(1) }})
				to := peer.AddrInfo{ID: id, Addrs: parseAddrs(addrs)}
				if err := attacker.Connect(testCtx(t), to); err != nil {
					t.Fatal(err)
				}
				n, lasts := streams, 2*time.Second // it lasts where streams must end before others may begin
				if !attack.closed {
					n = 64
				}
				if attack.closed { // streams that come before others have been accepted are reset, and not counted: so many more may be needed
					n, lasts = math.MaxInt, patience
				}
				ctx, cancel := context.WithTimeout(testCtx(t), lasts)
				storm(ctx, attacker, id, n, attack.protocol, attack.say, attack.atOnce, func() bool { return cuts.Load() > 0 || ctx.Err() != nil })
				cancel()
				if attack.closed && cuts.Load() == 0 {
					t.Errorf("the attacker is still connected after %v", patience)
				}
				_, most := resident(t, child.Process.Pid)
				t.Logf("%.1f MB before, %.1f MB at most; cut off %d times", float64(before)/1e6, float64(most)/1e6, cuts.Load())
				if most-before >= limit {
					t.Errorf("it costs %.1f MB", float64(most-before)/1e6)
				}
				if !slices.Contains(witness.Connected(), lines.Text()) {
					t.Error("the node has lost others, too")
				}
			})
		}
	}
}

// storm opens n streams, 64 beside each other, until over.
func storm(ctx context.Context, h host.Host, to peer.ID, n int, proto protocol.ID, say []byte, stay bool, over func() bool) {
	ctx = network.WithNoDial(ctx, "the attack ends with the connection")
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for left.Add(-1) >= 0 && !over() {
				s, err := h.Network().NewStream(ctx, to)
				if err != nil {
					continue
				}
				s.SetDeadline(time.Now().Add(5 * time.Second))
				if proto != "-" {
					text := "/multistream/1.0.0\n"
					_, err = s.Write(append([]byte{byte(len(text))}, text...))
					if err == nil {
						_, err = s.Write(append([]byte{byte(len(proto) + 1)}, proto+"\n"...))
					}
				}
				if err == nil {
					_, err = s.Write(say)
				}
				if err != nil || !stay {
					s.Reset()
				}
			}
		})
	}
	wg.Wait()
}
