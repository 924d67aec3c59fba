package main

import (
	"net"
	"sync"
)

// link carries what one node dials to another, both ways, and breaks as real ones do.
type link struct {
	l      net.Listener
	closed sync.WaitGroup

	mu    sync.Mutex
	to    string // HOST:PORT
	conns map[net.Conn]bool
	moved int64 // bytes that have passed
	hole  bool  // nothing arrives any more
	flip  bool  // a bit of what comes next is another
}

// newLink returns a link that leads nowhere yet.
func newLink() (*link, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	k := &link{l: l, conns: map[net.Conn]bool{}}
	k.closed.Go(k.routineAccept)
	return k, nil
}

// lead changes where the link leads to.
func (k *link) lead(to string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.to = to
}

// port returns where the link is entered.
func (k *link) port() int { return k.l.Addr().(*net.TCPAddr).Port }

func (k *link) routineAccept() {
	for {
		from, err := k.l.Accept()
		if err != nil {
			return
		}
		k.mu.Lock()
		to := k.to
		k.mu.Unlock()
		far, err := net.Dial("tcp", to)
		if err != nil {
			from.Close()
			continue
		}
		k.mu.Lock()
		k.conns[from], k.conns[far] = true, true
		k.mu.Unlock()
		k.closed.Go(func() { k.carry(far, from) })
		k.closed.Go(func() { k.carry(from, far) })
	}
}

// carry moves bytes one way, until either connection ends; then both have.
func (k *link) carry(to, from net.Conn) {
	defer func() {
		k.mu.Lock()
		delete(k.conns, from)
		k.mu.Unlock()
		from.Close()
		to.Close()
	}()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		k.mu.Lock()
		k.moved += int64(n)
		hole, flip := k.hole, k.flip
		k.flip = false
		k.mu.Unlock()
		if hole {
			continue
		}
		if flip {
			b[n/2] ^= 1
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

// passed returns how many bytes have passed.
func (k *link) passed() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.moved
}

// cut ends every connection, and what keeps bytes from passing.
func (k *link) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hole, k.flip = false, false
	for c := range k.conns {
		c.Close()
	}
}

// swallow has nothing arrive any more, on either side, until cut.
func (k *link) swallow() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hole = true
}

// garble changes a bit of what comes next.
func (k *link) garble() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.flip = true
}

// close ends the link.
func (k *link) close() {
	k.l.Close()
	k.cut()
	k.closed.Wait()
}
