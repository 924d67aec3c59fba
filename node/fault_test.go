package node

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-swarm/starling/swarm/wire"
)

// fault is something that goes wrong in a swarm, at the nth frame that a peer of that role sends in that phase of a session.
type fault struct {
	kind  string
	role  string // who sends the frame: stage, decoder or client
	phase string // prefill, or decode: a token has been told
	nth   int

	node, peer string // whom it hit, and to whom the frame was on its way
	frame      wire.Type
	at         time.Time
}

// Kinds of faults. All but the first two leave the node alive.
var faultKinds = []string{
	"kill",     // the process ends without a word: its connections end
	"close",    // the node closes
	"stall",    // nothing leaves the node any more
	"hole",     // nothing reaches that one peer any more
	"reset",    // the stream ends in the middle of a frame
	"truncate", // half of the frame comes, and then nothing on that stream
	"garble",   // bytes that are no frame
	"forge",    // a frame whose numbers are out of range
}

func (f *fault) String() string {
	s := fmt.Sprintf("%s at the %s's frame %d in %s", f.kind, f.role, f.nth, f.phase)
	if !f.at.IsZero() {
		s += fmt.Sprintf(" (type %d, from %s to %s)", f.frame, f.node, f.peer)
	}
	return s
}

// blamable returns who may be blamed: of a broken link nobody can tell which end it was.
func (f *fault) blamable() []string {
	switch f.kind {
	case "hole", "reset", "truncate":
		return []string{f.node, f.peer}
	case "garble", "forge":
		if f.role != "stage" || f.frame == wire.TypeSeamCredit { // it may be a decoder's, which judges itself
			return []string{f.node, f.peer}
		}
	}
	return []string{f.node}
}

// faults stands between the nodes of a swarm and their streams, and lets a schedule of faults happen, one after the other.
type faults struct {
	fell func(f *fault) // a fault has happened; called without mu

	mu      sync.Mutex
	rng     *rand.Rand
	list    []*fault
	phase   string
	decoder string          // who has sent the latest chunk
	mute    map[string]bool // nodes, and "node peer" for a link
}

// begin starts a schedule.
func (x *faults) begin(seed uint64, list []*fault) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.rng, x.list, x.phase, x.mute = rand.New(rand.NewPCG(seed, 2)), list, "prefill", map[string]bool{}
}

// silence makes a node mute.
func (x *faults) silence(node string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mute[node] = true
}

func (x *faults) muted(node string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mute[node]
}

// wake ends what makes nodes and links mute. It returns the links, each from and to a node, whose streams nobody reads any more: to "", those
// to everybody.
func (x *faults) wake() (broken [][2]string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for link := range x.mute { // a stream opened meanwhile didn't say what it is for, and the peer gives such a one up
		from, to, _ := strings.Cut(link, " ")
		broken = append(broken, [2]string{from, to})
	}
	x.mute = map[string]bool{}
	for _, f := range x.list {
		if (f.kind == "truncate" || f.kind == "garble") && !f.at.IsZero() { // of the latter the word that it was none may not have come
			broken = append(broken, [2]string{f.node, f.peer})
		}
	}
	return broken
}

// end returns the faults that have happened; no other happens any more.
func (x *faults) end() (list []fault) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.list = slices.DeleteFunc(x.list, func(f *fault) bool { return f.at.IsZero() })
	for _, f := range x.list {
		list = append(list, *f)
	}
	return list
}

// see takes a frame that node is about to send to peer, and returns what happens to it: "" if nothing does.
func (x *faults) see(node, peer, protocol string, b []byte) (kind string, hit *fault) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mute[node] || x.mute[node+" "+peer] {
		return "mute", nil
	}
	if len(b) < 5 {
		return "", nil
	}
	i := slices.IndexFunc(x.list, func(f *fault) bool { return f.at.IsZero() })
	if i < 0 {
		return "", nil
	}
	f, t := x.list[i], wire.Type(b[4])
	role := sender(protocol, t)
	if t == wire.TypeToken {
		x.phase = "decode"
	}
	if t == wire.TypeChunk {
		x.decoder = node
	}
	if t == wire.TypeSeamCredit && node == x.decoder {
		role = "decoder"
	}
	if f.phase != x.phase || f.role != role {
		return "", nil
	}
	if f.nth--; f.nth > 0 {
		return "", nil
	}
	f.node, f.peer, f.frame, f.at = node, peer, t, time.Now()
	switch f.kind {
	case "kill", "stall":
		x.mute[node] = true
	case "hole":
		x.mute[node+" "+peer] = true
	}
	return f.kind, f
}

// sender returns the role of who sends such a frame in a session, "" if the schedule doesn't count it.
func sender(protocol string, t wire.Type) string {
	switch t {
	case wire.TypeStageOpened, wire.TypeSeam, wire.TypeKVSlice, wire.TypeSeamCredit:
		return "stage" // credits may be the decoder's
	case wire.TypeProgress:
		if protocol == protoStage {
			return "stage"
		}
		return "decoder"
	case wire.TypeStageOpen, wire.TypeChunk, wire.TypeKVAck, wire.TypeRewind, wire.TypeToken, wire.TypeSessionOpened:
		return "decoder"
	case wire.TypeSessionOpen, wire.TypePing:
		if protocol == protoSession {
			return "client"
		}
	}
	return ""
}

// faultyStream is a node's stream that faults may break.
type faultyStream struct {
	stream
	node     string
	protocol string
	x        *faults
	mute     bool
}

var errFault = errors.New("the schedule breaks the stream here")

// Write implements io.Writer. Frames of the tests are written in one piece each.
func (s *faultyStream) Write(b []byte) (int, error) {
	if s.mute {
		return len(b), nil
	}
	kind, f := s.x.see(s.node, s.Peer(), s.protocol, b)
	if f != nil {
		defer s.x.fell(f)
	}
	switch kind {
	case "mute", "kill", "close", "stall", "hole":
		return len(b), nil
	case "reset":
		_, _ = s.stream.Write(b[:len(b)/2]) // the reset may overtake it
		_ = s.stream.Reset()
		return 0, errFault
	case "truncate":
		s.mute = true
		if _, err := s.stream.Write(b[:len(b)/2]); err != nil {
			return 0, err
		}
		return len(b), nil
	case "garble":
		c := bytes.Clone(b)
		for i := range c {
			c[i] = byte(s.x.random(256))
		}
		c[4] = 255 // whatever comes, it is no frame
		if _, err := s.stream.Write(c); err != nil {
			return 0, err
		}
		return len(b), nil
	case "forge":
		m, err := wire.Decode(wire.Type(b[4]), bytes.Clone(b[5:]))
		if err != nil {
			panic(err) // a node has written it
		}
		s.x.forge(m)
		if _, err := s.stream.Write(wire.Append(nil, m)); err != nil {
			return 0, err
		}
		return len(b), nil
	}
	return s.stream.Write(b)
}

func (x *faults) random(n int) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.rng.IntN(n)
}

// forge changes a number of a frame to one that makes no sense there.
func (x *faults) forge(m wire.Message) {
	far := uint32(1000 + x.random(1000))
	switch m := m.(type) {
	case *wire.StageOpen:
		m.Plan.Capacity += far // the signature doesn't hold then
	case *wire.StageOpened:
		m.Epoch.Plan += far
	case *wire.Chunk:
		m.Start += far
	case *wire.Rewind:
		m.Upto += far
	case *wire.Seam:
		switch x.random(4) {
		case 0:
			m.Start += far
		case 1:
			m.Cut += far
		case 2:
			m.Prefix[far%32] ^= 1
		default:
			copy(m.Rows, encodeRows([]float32{float32(math.NaN())}))
		}
	case *wire.SeamCredit:
		m.Upto += far
	case *wire.KVSlice:
		switch x.random(4) {
		case 0:
			m.Start += far
		case 1:
			m.Layer += far
		case 2:
			m.Prefix[far%32] ^= 1
		default:
			m.Total += far
		}
	case *wire.KVAck:
		m.Upto += far
	case *wire.Token:
		if x.random(2) == 0 {
			m.Position += far
		} else {
			m.ID += 1 << 20
		}
	case *wire.SessionOpen:
		m.MaxNew += far
	default: // what nobody minds
	}
}
