package node

import (
	"fmt"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

// Shares are how much of a node one client, by its key, may have. Zero is no bound.
type Shares struct {
	Sessions int // at once, as decoder and as stage together
	Tokens   int // in a minute: prompts, and what may follow them
}

func (s Shares) validate() error {
	if s.Sessions < 0 || s.Tokens < 0 {
		return fmt.Errorf("shares of a client %+v: write 0 or more", s)
	}
	return nil
}

// taken is how much clients have had of a node. Time is an argument. Each has a store of tokens that fills within a minute and
// may be drawn below empty by one session, so that a long prompt is admitted, too, and whoever sent it waits longer.
type taken struct {
	shares  Shares
	clients map[string]*purse
}

// purse is one client's.
type purse struct {
	level float64 // tokens in store, as of at
	at    time.Time
}

// maxPurses bounds the clients that are remembered; those with full stores are forgotten first.
const maxPurses = 4096

// take admits a session of so many tokens of a client that has so many sessions, or says when to ask again.
func (t *taken) take(client string, sessions, tokens int, now time.Time) *wire.Refusal {
	if most := t.shares.Sessions; most > 0 && sessions >= most {
		r := wire.Refuse(wire.CodeBusy, "this client has %d sessions here, as many as one may", sessions)
		r.RetryAfter = leastRetry
		return r
	}
	if t.shares.Tokens == 0 {
		return nil
	}
	a := t.purse(client, now)
	full := float64(t.shares.Tokens)
	if need := min(float64(tokens), full); a.level < need {
		r := wire.Refuse(wire.CodeBusy, "this client has had its %d tokens of this minute here", t.shares.Tokens)
		r.RetryAfter = time.Duration((need-a.level)/full*float64(time.Minute)).Truncate(time.Millisecond) + time.Millisecond
		return r
	}
	a.level -= float64(tokens)
	return nil
}

// purse returns a client's, filled up to now.
func (t *taken) purse(client string, now time.Time) *purse {
	full := float64(t.shares.Tokens)
	a := t.clients[client]
	if a == nil {
		if len(t.clients) >= maxPurses {
			t.forget(now)
		}
		a = &purse{level: full, at: now}
		if t.clients == nil {
			t.clients = map[string]*purse{}
		}
		t.clients[client] = a
	}
	a.level, a.at = min(full, a.level+max(now.Sub(a.at), 0).Minutes()*full), now
	return a
}

// forget drops purses whose stores are full, or all where none is.
func (t *taken) forget(now time.Time) {
	for c, a := range t.clients {
		if full := float64(t.shares.Tokens); a.level+now.Sub(a.at).Minutes()*full >= full {
			delete(t.clients, c)
		}
	}
	if len(t.clients) >= maxPurses {
		clear(t.clients)
	}
}

// shareRefusalLocked admits a session of a client to its share, or says why not. This node's own sessions are free.
func (n *Node) shareRefusalLocked(client string, tokens int) *wire.Refusal {
	switch {
	case client == n.ID():
		return nil
	case n.sessions.blocked[client]:
		return wire.Refuse(wire.CodeLeaving, "this node's owner has blocked the client")
	}
	return n.sessions.taken.take(client, n.sessionsOfLocked(client), tokens, time.Now())
}

// sessionsOfLocked counts a client's sessions here.
func (n *Node) sessionsOfLocked(client string) (open int) {
	for _, s := range n.sessions.stages {
		if s.client == client {
			open++
		}
	}
	for _, d := range n.sessions.decoders {
		if d.client == client {
			open++
		}
	}
	return open
}
