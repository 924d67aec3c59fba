package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxPacket is the largest packet that a device may have.
const maxPacket = 1 << 16

// device is a peer's end of the network.
type device struct {
	addr     netip.Addr
	file     io.ReadWriter
	up, down *line
}

// tally counts what happened to packets.
type tally struct {
	mu                 sync.Mutex
	forwarded, dropped int
	late               time.Duration // of all forwarded
}

func (t *tally) drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropped++
}

func (t *tally) forward(late time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forwarded++
	t.late += max(0, late)
}

// report is what the program prints at its end.
func (t *tally) report() any {
	t.mu.Lock()
	defer t.mu.Unlock()
	return struct {
		Forwarded int     `json:"forwarded"`
		Dropped   int     `json:"dropped"`
		Late      float64 `json:"late_us"`
	}{t.forwarded, t.dropped, float64(t.late.Microseconds()) / float64(max(1, t.forwarded))}
}

// join connects devices and forwards packets until the process ends.
func join(devices []*device, delay time.Duration, rate float64) *tally {
	t := &tally{}
	for _, d := range devices {
		d.down = newLine(rate, 0, t, func(p packet) {
			t.forward(time.Since(p.due))
			if _, err := d.file.Write(p.data); err != nil {
				t.drop()
			}
		})
		d.up = newLine(rate, delay, t, func(p packet) { devices[p.to].down.send(p, p.due) })
		go d.down.routineForward()
		go d.up.routineForward()
	}
	for _, d := range devices {
		go d.routineRead(devices, t)
	}
	return t
}

// routineRead takes packets from a device.
func (d *device) routineRead(devices []*device, t *tally) {
	buf := make([]byte, maxPacket)
	for {
		n, err := d.file.Read(buf)
		if err != nil {
			return
		}
		to, ok := destination(buf[:n], devices)
		if !ok {
			continue // not IPv4, or for nobody
		}
		d.up.send(packet{data: append([]byte(nil), buf[:n]...), to: to}, time.Now())
	}
}

// destination finds the device that an IPv4 packet is for.
func destination(p []byte, devices []*device) (int, bool) {
	if len(p) < 20 || p[0]>>4 != 4 {
		return 0, false
	}
	addr := netip.AddrFrom4([4]byte(p[16:20]))
	for i, d := range devices {
		if d.addr == addr {
			return i, true
		}
	}
	return 0, false
}

// parseDevice reads an argument such as 10.0.0.1=3.
func parseDevice(arg string) (*device, error) {
	addr, fd, _ := strings.Cut(arg, "=")
	a, err := netip.ParseAddr(addr)
	if err != nil || !a.Is4() {
		return nil, fmt.Errorf("%q: not an IPv4 address, an equals sign and a file's number", arg)
	}
	n, err := strconv.Atoi(fd)
	if err != nil || n < 3 {
		return nil, fmt.Errorf("%q: not a number of an inherited file", arg)
	}
	return &device{addr: a, file: os.NewFile(uintptr(n), arg)}, nil
}

func main() {
	delay := flag.Duration("delay", 0, "one way")
	rate := flag.Float64("rate", 0, "of each uplink and downlink in bits per second; 0: no limit")
	flag.Parse()
	var devices []*device
	for _, arg := range flag.Args() {
		d, err := parseDevice(arg)
		if err != nil {
			fmt.Fprintln(os.Stderr, "delay:", err)
			os.Exit(2)
		}
		devices = append(devices, d)
	}
	t := join(devices, *delay, *rate)
	_, _ = io.Copy(io.Discard, os.Stdin) // any end is the end
	_ = json.NewEncoder(os.Stdout).Encode(t.report())
}
