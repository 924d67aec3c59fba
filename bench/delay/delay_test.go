package main

import (
	"bytes"
	"io"
	"net/netip"
	"testing"
	"time"
)

// wireEnd is a device whose packets come from and go to channels.
type wireEnd struct{ out, in chan []byte }

func (w wireEnd) Read(p []byte) (int, error) {
	b, ok := <-w.out
	if !ok {
		return 0, io.EOF
	}
	return copy(p, b), nil
}

func (w wireEnd) Write(p []byte) (int, error) {
	w.in <- bytes.Clone(p)
	return len(p), nil
}

// network joins two devices.
func network(t *testing.T, delay time.Duration, rate float64) (a, b wireEnd, count *tally) {
	t.Helper()
	ends := [2]wireEnd{{make(chan []byte), make(chan []byte, 1000)}, {make(chan []byte), make(chan []byte, 1000)}}
	var devices []*device
	for i, e := range ends {
		devices = append(devices, &device{addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), file: e})
		t.Cleanup(func() { close(e.out) })
	}
	return ends[0], ends[1], join(devices, delay, rate)
}

// ipv4 is a packet of n bytes to 10.0.0.to, number i.
func ipv4(n int, to, i byte) []byte {
	p := make([]byte, n)
	p[0], p[20] = 0x45, i
	copy(p[16:], []byte{10, 0, 0, to})
	return p
}

// Packets arrive in order, the first after the delay and its time on both
// lines, the last not sooner than the rate allows.
func TestDelayAndRate(t *testing.T) {
	const delay, rate, size, n = 20 * time.Millisecond, 8e6, 1000, 30 // 1 ms a packet
	a, b, count := network(t, delay, rate)
	began := time.Now()
	for i := range byte(n) {
		a.out <- ipv4(size, 2, i)
	}
	a.out <- ipv4(size, 9, 0)              // to nobody
	a.out <- append([]byte{0x60}, 1, 2, 3) // not IPv4
	for i := range byte(n) {
		p := <-b.in
		if p[20] != i {
			t.Fatalf("packet %d came as number %d", p[20], i)
		}
		if took, least := time.Since(began), delay+time.Duration(i+2)*time.Millisecond; took < least {
			t.Errorf("packet %d after %v, at least %v are due", i, took, least)
		}
	}
	if count.forwarded != n || count.dropped != 0 {
		t.Errorf("%+v", count)
	}
}

// What would wait longer than the queue is long is dropped, and what was
// accepted isn't.
func TestQueueLimit(t *testing.T) {
	a, b, count := network(t, 0, 8e6)
	const sent = 200
	for i := range byte(sent) {
		a.out <- ipv4(1000, 2, i)
	}
	a.out <- ipv4(1000, 9, 0) // the reader is through with those before
	count.mu.Lock()
	dropped := count.dropped
	count.mu.Unlock()
	if dropped == 0 || dropped > sent-50 {
		t.Fatalf("%d of %d packets were dropped, a queue of 50 ms holds 50", dropped, sent)
	}
	for range sent - dropped {
		<-b.in
	}
}

func TestParseDevice(t *testing.T) {
	for _, arg := range []string{"", "10.0.0.1", "10.0.0.1=", "10.0.0.1=2", "10.0.0.1=x", "fd00::1=3", "x=3"} {
		if _, err := parseDevice(arg); err == nil {
			t.Errorf("%q was accepted", arg)
		}
	}
}
