package swarm

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"
)

// A peer that is connected and answers nothing, a stopped process say, holds up neither what others know nor what they are told.
func TestHungPeer(t *testing.T) {
	t.Parallel()
	info := publicSwarm(t)
	boot := startNode(t, info, node{})
	a := startNode(t, info, node{boot: boot.Addrs()})
	hung := startNode(t, info, node{boot: append(boot.Addrs(), a.Addrs()...)})
	asked, over := make(chan bool, 1000), make(chan bool)
	defer close(over)
	hung.lp.SetStreamHandler(protocol.ID(trackProtocol), func(s network.Stream) {
		select {
		case asked <- true:
		default:
		}
		<-over
		s.Reset()
	})
	eventually(t, func() string {
		for _, p := range []PeerID{boot.ID(), hung.ID()} {
			if !slices.Contains(a.Connected(), p) {
				return short(p) + " isn't connected"
			}
		}
		return ""
	})
	// Where the machine has others to run, once in time will do: who waits for the hung one never is.
	eventually(t, func() string {
		began := time.Now()
		if err := a.Refresh(testCtx(t)); err != nil {
			return err.Error()
		}
		if d := time.Since(began); d >= trackTimeout {
			return fmt.Sprintf("to ask for offers took %v", d)
		}
		<-asked
		return ""
	})
	last := 1
	eventually(t, func() string {
		for len(asked) > 0 {
			<-asked
		}
		began := time.Now()
		a.SetOffers([]Offer{testOffer(1, 0, last)})
		<-asked // a push to it has begun
		last++
		a.SetOffers([]Offer{testOffer(1, 0, last)})
		wantOffers(t, boot, layersOffered{{a.ID(), 1}: {0, last}})
		if d := time.Since(began); d >= trackTimeout {
			return fmt.Sprintf("a change was told after %v", d)
		}
		return ""
	})
}
