package node

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-swarm/starling/node/control"
)

// Terms are when a node works for others.
type Terms struct {
	Hours   Hours // of the day; none: always
	Battery bool  // not while the machine runs on its battery
	Metered bool  // not while its way to the internet costs by the byte
}

// surroundings are what terms are held against.
type surroundings struct {
	now                   time.Time
	battery, batteryKnown bool
	metered, meteredKnown bool
}

// away returns why a node with these terms works for nobody now; "" if it does. What the system doesn't tell forbids nothing.
func (t *Terms) away(s surroundings) string {
	switch {
	case !t.Hours.open(s.now):
		return fmt.Sprintf("it works at %s, and it is %s", t.Hours, s.now.Format("15:04"))
	case t.Battery && s.battery:
		return "it runs on its battery"
	case t.Metered && s.metered:
		return "its way to the internet costs by the byte"
	}
	return ""
}

// silent returns what the terms ask for and the system doesn't tell.
func (t *Terms) silent(s surroundings) (list []string) {
	if t.Battery && !s.batteryKnown {
		list = append(list, "the system doesn't tell whether it runs on a battery: --pause-on-battery has no effect")
	}
	if t.Metered && !s.meteredKnown {
		list = append(list, "the system doesn't tell whether its way to the internet is metered (NetworkManager would): --pause-on-metered has no effect")
	}
	return list
}

// termsEvery is how often a node looks around.
const termsEvery = 5 * time.Second

// look finds out what this machine's terms are held against, as far as they ask.
func (t *Terms) look(ctx context.Context) surroundings {
	s := surroundings{now: time.Now()}
	if t.Battery {
		s.battery, s.batteryKnown = power(powerDir)
	}
	if t.Metered {
		s.metered, s.meteredKnown = metered(ctx)
	}
	return s
}

// routineTerms keeps the node to its terms.
func (n *Node) routineTerms() {
	look := n.cfg.look
	if look == nil {
		look = n.cfg.Terms.look
	}
	every := n.cfg.termsEvery
	if every == 0 {
		every = termsEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	end := context.CancelFunc(func() {}) // of the draining
	defer func() { end() }()
	for {
		s := look(n.ctx)
		n.sessions.Lock()
		was, now := n.sessions.away, n.cfg.Terms.away(s)
		n.sessions.away, n.sessions.silent = now, n.cfg.Terms.silent(s)
		n.sessions.Unlock()
		if (was == "") != (now == "") {
			n.log.Info("terms", "away", now != "", "why", now)
			n.offer()
			end()
			if now != "" {
				ctx, cancel := context.WithCancel(n.ctx)
				end = cancel
				n.spawn(func() { _, _ = n.drain(ctx, n.cfg.Drain) }) // it ends with the node, or as the node comes back
			}
		}
		select {
		case <-tick.C:
		case <-n.ctx.Done():
			return
		}
	}
}

// termsStatus shows what the owner gives, and what of it is used; nil for a client, which gives nothing.
func (n *Node) termsStatus() *control.Terms {
	if n.cfg.Client {
		return nil
	}
	t := &n.cfg.Terms
	v := &control.Terms{Hours: t.Hours.String(), Battery: t.Battery, Metered: t.Metered, MaxUpload: n.cfg.MaxUpload, MaxDownload: n.cfg.MaxDownload,
		MaxDisk: n.cfg.MaxDisk, Disk: n.store.FetchedBytes(), SessionsPerPeer: n.cfg.Shares.Sessions, TokensPerMinute: n.cfg.Shares.Tokens}
	v.Sent, v.Received = n.torrents.Traffic()
	v.SessionSent, v.SessionReceived = n.metrics.Traffic()
	v.Sent, v.Received = v.Sent+v.SessionSent, v.Received+v.SessionReceived
	v.Memory = n.memoryStatus()
	v.StreamsPerPeer = n.host.StreamsPerPeer()
	usage := n.host.Usage()
	n.sessions.Lock()
	defer n.sessions.Unlock()
	v.Away, v.Blocked = n.sessions.away, len(n.sessions.blocked)
	for _, u := range usage {
		v.Peers = append(v.Peers, control.PeerUse{Peer: u.Peer, Sessions: n.sessionsOfLocked(u.Peer), Streams: u.Streams, Sent: u.Sent, Received: u.Received})
	}
	return v
}
