package swarm

import (
	"fmt"
	"io"
	"testing"
)

// What a peer has is counted while it is connected, and forgotten afterwards.
func TestUsage(t *testing.T) {
	info := publicSwarm(t)
	a := startNode(t, info, node{})
	b := startNode(t, info, node{boot: a.Addrs()})
	const protocol = "/starling/test/1"
	a.Handle(protocol, func(s *Stream) {
		defer s.Close()
		_, _ = io.Copy(s, s) // until the test closes its stream
	})
	eventually(t, func() string {
		if len(b.Connected()) == 0 || len(a.Connected()) == 0 {
			return "no connection"
		}
		return ""
	})
	s, err := b.Open(testCtx(t), a.ID(), protocol)
	if err != nil {
		t.Fatal(err)
	}
	const n = 100_000
	go s.Write(make([]byte, n))
	if _, err := io.ReadFull(s, make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		all := a.Usage()
		if len(all) != 1 || all[0].Peer != b.ID() || all[0].Streams == 0 || all[0].Sent < n || all[0].Received < n {
			return fmt.Sprintf("of a stream with %d bytes each way: %+v", n, all)
		}
		return ""
	})
	s.Close()
	if most := a.StreamsPerPeer(); most != strangers.streams {
		t.Errorf("a peer may have %d streams, it says", most)
	}
	b.Close()
	eventually(t, func() string {
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.traffic) > 0 {
			return fmt.Sprintf("%d peers are counted, and none is connected", len(a.traffic))
		}
		return ""
	})
}
