package node

import (
	"math"
	"sync"
	"time"
)

// lossHalf is how long it takes until a loss counts for half as much.
const lossHalf = 10 * time.Minute

// maxLosses is how many peers' losses are remembered.
const maxLosses = 1024

// losses remembers who was lost in this node's sessions, as the decoder of stages and as the client of decoders. The session in which somebody
// was lost excludes that peer; others only reckon with what was lost lately ([route.Peer.FailuresPerHour]). The zero value remembers nothing.
type losses struct {
	mu    sync.Mutex
	peers map[string]lossCount
}

// lossCount is what one peer's losses counted for at a moment: each one, halved every lossHalf since.
type lossCount struct {
	count float64
	at    time.Time
}

func (l lossCount) upto(now time.Time) float64 {
	return l.count * math.Exp2(-max(now.Sub(l.at), 0).Seconds()/lossHalf.Seconds())
}

// note remembers that a peer was lost. Where too many were, those are forgotten that count least.
func (s *losses) note(peer string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peers == nil {
		s.peers = map[string]lossCount{}
	}
	if _, known := s.peers[peer]; !known && len(s.peers) == maxLosses {
		least, of := math.Inf(1), ""
		for p, l := range s.peers {
			if c := l.upto(now); c < least || c == least && p < of {
				least, of = c, p
			}
		}
		delete(s.peers, of)
	}
	s.peers[peer] = lossCount{s.peers[peer].upto(now) + 1, now}
}

// perHour returns how often a peer is lost, by what is remembered: a peer with a steady rate is remembered for rate·lossHalf/ln 2 losses.
func (s *losses) perHour(peer string, now time.Time) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, known := s.peers[peer]
	if !known {
		return 0
	}
	rate := l.upto(now) * math.Ln2 / lossHalf.Hours()
	if rate < 0.01 { // no longer of use
		delete(s.peers, peer)
		return 0
	}
	return min(rate, 3600)
}
