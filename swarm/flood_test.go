package swarm

import (
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
)

func TestFlood(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	cut := make(chan peer.ID, 10*floodBurst)
	f := newFlood(func(p peer.ID) { cut <- p })
	f.now = func() time.Time { return now }
	quiet := func(why string) {
		t.Helper()
		select {
		case p := <-cut:
			t.Errorf("%s: %s is cut off", why, p)
		case <-time.After(10 * time.Millisecond):
		}
	}
	for range floodBurst {
		f.AllowStream("busy", network.DirInbound)
	}
	quiet("a burst")
	for range 100 { // for ten seconds as many as may be
		now = now.Add(100 * time.Millisecond)
		for range int(floodRate / 10) {
			f.AllowStream("busy", network.DirInbound)
		}
	}
	quiet("a steady stream")
	for range 10 * floodBurst {
		f.BlockStream("out", network.DirOutbound)
	}
	quiet("streams of our own")
	f.BlockStream("busy", network.DirInbound)
	if p := <-cut; p != "busy" {
		t.Errorf("%s is cut off", p)
	}
	for range maxAccounts {
		f.AllowStream(peer.ID(now.String()), network.DirInbound)
		now = now.Add(time.Minute) // by then the one before is as good as new
	}
	if len(f.accounts) > maxAccounts {
		t.Errorf("%d accounts are kept", len(f.accounts))
	}
}
