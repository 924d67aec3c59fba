package swarm

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// /starling/clock/1 tells what a peer's clock shows: its answer to a new stream is 8 bytes, little endian, nanoseconds since
// 1970-01-01 UTC. Nothing depends on it; a person whose clock is off is told so.
const (
	clockProtocol = "/starling/clock/1"
	clockTimeout  = 3 * time.Second
	clockPeers    = 7 // asked; the median of so many stands three that are wrong
)

// serveClock answers one question.
func serveClock(s *Stream) {
	defer s.Close()
	s.SetDeadline(time.Now().Add(clockTimeout))
	_, _ = s.Write(binary.LittleEndian.AppendUint64(nil, uint64(time.Now().UnixNano()))) // who asks may be gone
}

// Clocks asks up to seven connected peers for the time, and returns by how much each one's clock is ahead of this node's, in
// ascending order. Each is right to half of the time that the answer took, at most 1.5 s. Peers that don't answer are left out.
func (h *Host) Clocks(ctx context.Context) []time.Duration {
	peers := h.Connected()
	slices.Sort(peers)
	var mu sync.Mutex
	var ahead []time.Duration
	each(peers[:min(len(peers), clockPeers)], func(p PeerID) {
		if d, err := h.clockOf(ctx, p); err == nil {
			mu.Lock()
			defer mu.Unlock()
			ahead = append(ahead, d)
		}
	})
	slices.Sort(ahead)
	return ahead
}

func (h *Host) clockOf(ctx context.Context, p PeerID) (ahead time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	s, err := h.Open(ctx, p, clockProtocol)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { s.Reset() })
	defer stop()
	asked := time.Now()
	if err := s.CloseWrite(); err != nil { // the stream is not there before something is said
		return 0, err
	}
	var b [8]byte
	if _, err := io.ReadFull(s, b[:]); err != nil {
		return 0, fmt.Errorf("the time of %s: %w", p, err)
	}
	took := time.Since(asked)
	return time.Unix(0, int64(binary.LittleEndian.Uint64(b[:]))).Sub(asked.Add(took / 2)), nil
}
