package main

import (
	"sync"
	"time"
)

// queueLimit is how long a packet may have to wait for a line before it is
// dropped instead.
const queueLimit = 50 * time.Millisecond

// packet is one IP packet on its way.
type packet struct {
	data []byte
	to   int
	due  time.Time // when it leaves the line
}

// line serialises packets at a rate and hands each on after a delay, in order.
type line struct {
	rate  float64 // bits per second; 0: no limit
	delay time.Duration
	next  func(packet)
	tally *tally

	mu    sync.Mutex
	free  time.Time // when the last packet accepted has been sent
	queue chan packet
}

// maxPackets bounds what a line holds, on its way or waiting.
const maxPackets = 1 << 16

func newLine(rate float64, delay time.Duration, tally *tally, next func(packet)) *line {
	return &line{rate: rate, delay: delay, tally: tally, next: next, queue: make(chan packet, maxPackets)}
}

// send accepts p at time now, or drops it.
func (l *line) send(p packet, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.free.Before(now) {
		l.free = now
	}
	if l.free.Sub(now) > queueLimit {
		l.tally.drop()
		return
	}
	if l.rate > 0 {
		l.free = l.free.Add(time.Duration(float64(8*len(p.data)) / l.rate * 1e9))
	}
	p.due = l.free.Add(l.delay)
	select {
	case l.queue <- p:
	default:
		l.tally.drop()
	}
}

// routineForward hands packets on when they are due.
func (l *line) routineForward() {
	for p := range l.queue {
		if d := time.Until(p.due); d > 0 {
			sleep(d)
		}
		l.next(p)
	}
}
