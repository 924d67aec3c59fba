package node

import (
	"log/slog"

	"github.com/starling-swarm/starling/node/metrics"
	"github.com/starling-swarm/starling/swarm/wire"
)

// state reads what has a value at each moment.
func (n *Node) state() metrics.State {
	st := metrics.State{Accepting: !n.cfg.Client && n.standing() == accepting, Sessions: map[string]int{}, Models: map[string]metrics.Model{}}
	n.sessions.Lock()
	st.Sessions[metrics.Stage], st.Sessions[metrics.Decoder] = len(n.sessions.stages), len(n.sessions.decoders)
	st.Sessions[metrics.Client] = len(n.sessions.clients)
	n.sessions.Unlock()
	st.Queued = n.links.queued()
	st.KVDisk = n.spill.bytes()
	st.Peers = len(n.host.Connected())
	for _, s := range n.servedList() {
		r, weights := s.exec.Layers(), s.exec.Memory()
		sessions, kept := s.prefixes.heldBytes(s.kvLimit)
		st.Models[s.id.Short()] = metrics.Model{Name: n.name(s.model), First: r.First, Last: r.Last, KVReserved: sessions, KVKept: kept, KVLimit: s.kvLimit, Waiting: s.room.waiting(),
			WeightsMapped: weights.Mapped, WeightsPacked: weights.Packed, WeightsHeldOnDisk: s.model.HeldBytes()}
	}
	return st
}

// sessionLog returns the log of one session in one role.
func (n *Node) sessionLog(id wire.SessionID, role string) *slog.Logger {
	return n.log.With("session", id.String(), "role", role)
}

// countRefusal counts a refusal that is sent. Codes that came from elsewhere and
// have no name here share one figure.
func (n *Node) countRefusal(c wire.Code) {
	if name := c.String(); c.Known() {
		n.metrics.Refused(name)
	} else {
		n.metrics.Refused("other")
	}
}

// purpose says what a frame between nodes is for.
func purpose(t wire.Type) metrics.Purpose {
	switch t {
	case wire.TypeSeam, wire.TypeRows:
		return metrics.Seam
	case wire.TypeKVSlice:
		return metrics.KV
	}
	return metrics.Control
}

// meteredConn counts the bytes of a session's stream.
type meteredConn struct {
	stream
	metrics *metrics.Metrics
}

// Read implements io.Reader.
func (c *meteredConn) Read(b []byte) (int, error) {
	n, err := c.stream.Read(b)
	c.metrics.Received(metrics.Session, n)
	return n, err
}

// Write implements io.Writer.
func (c *meteredConn) Write(b []byte) (int, error) {
	n, err := c.stream.Write(b)
	c.metrics.Sent(metrics.Session, n)
	return n, err
}

// tally counts the bytes that go through a stream.
type tally struct {
	deadlineWriter
	bytes int
}

// Write implements io.Writer.
func (t *tally) Write(b []byte) (int, error) {
	n, err := t.deadlineWriter.Write(b)
	t.bytes += n
	return n, err
}
