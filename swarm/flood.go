package swarm

import (
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
)

// How many streams a peer may open: so many at once, and so many per second on average. The busiest that is known, a client with many
// short sessions, opens some tens a second; one that opens thousands wants to do harm, or is broken.
const (
	floodBurst  = 2000
	floodRate   = 100.0 // per second
	floodFull   = 50.0  // what a stream costs that is one too many of those it holds
	maxAccounts = 1024  // peers whose streams are counted, before those that are quiet are forgotten
)

// flood counts the streams that each peer opens, whatever becomes of them, and has those cut off that open too many: the resource manager
// bounds what they hold, but not what opening and resetting takes. It hears of streams as the resource manager's reporter.
type flood struct {
	unheard
	now func() time.Time
	cut func(peer.ID) // called on a goroutine of its own, not for every stream

	full func(peer.ID) bool // holds as many streams as it may; nil: nobody does

	mu       sync.Mutex
	accounts map[peer.ID]*streamAccount
}

// streamAccount is a bucket that fills at floodRate.
type streamAccount struct {
	left float64
	at   time.Time
}

func newFlood(cut func(peer.ID)) *flood {
	return &flood{now: time.Now, cut: cut, accounts: map[peer.ID]*streamAccount{}}
}

var _ rcmgr.MetricsReporter = (*flood)(nil)

// AllowStream implements rcmgr.MetricsReporter.
func (f *flood) AllowStream(p peer.ID, dir network.Direction) { f.opened(p, dir, 1) }

// BlockStream implements rcmgr.MetricsReporter. Who holds all that it may, and goes on opening more, has no good reason; a refusal
// may also be for what others hold.
func (f *flood) BlockStream(p peer.ID, dir network.Direction) {
	cost := 1.0
	if dir == network.DirInbound && f.full != nil && f.full(p) {
		cost = floodFull
	}
	f.opened(p, dir, cost)
}

func (f *flood) opened(p peer.ID, dir network.Direction, cost float64) {
	if dir == network.DirInbound && f.exceeds(p, cost) {
		go f.cut(p)
	}
}

// exceeds counts a stream and reports whether it is one too many.
func (f *flood) exceeds(p peer.ID, cost float64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	a := f.accounts[p]
	if a == nil {
		if len(f.accounts) >= maxAccounts {
			f.forget(now)
		}
		a = &streamAccount{floodBurst, now}
		f.accounts[p] = a
	}
	a.fill(now)
	if a.left >= cost {
		a.left -= cost
		return false
	}
	a.left = floodRate / 10 // until the connection is gone, not every stream asks for it
	return true
}

func (a *streamAccount) fill(now time.Time) {
	a.left = min(floodBurst, a.left+floodRate*now.Sub(a.at).Seconds())
	a.at = now
}

// forget drops the accounts that are as good as new.
func (f *flood) forget(now time.Time) {
	for p, a := range f.accounts {
		if a.fill(now); a.left >= floodBurst {
			delete(f.accounts, p)
		}
	}
}

// unheard is the rest of rcmgr.MetricsReporter, which nobody wants to know.
type unheard struct{}

func (unheard) AllowConn(network.Direction, bool)      {}
func (unheard) BlockConn(network.Direction, bool)      {}
func (unheard) AllowPeer(peer.ID)                      {}
func (unheard) BlockPeer(peer.ID)                      {}
func (unheard) AllowProtocol(protocol.ID)              {}
func (unheard) BlockProtocol(protocol.ID)              {}
func (unheard) BlockProtocolPeer(protocol.ID, peer.ID) {}
func (unheard) AllowService(string)                    {}
func (unheard) BlockService(string)                    {}
func (unheard) BlockServicePeer(string, peer.ID)       {}
func (unheard) AllowMemory(int)                        {}
func (unheard) BlockMemory(int)                        {}
