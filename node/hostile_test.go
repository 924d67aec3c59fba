package node

import (
	"encoding/binary"
	goruntime "runtime"
	"sync/atomic"
	"testing"

	"github.com/starling-swarm/starling/swarm"
	"github.com/starling-swarm/starling/swarm/wire"
)

// Frames that don't end, of a peer with which this node has no session, take a bounded amount of memory, whatever they may have on their protocol.
func TestUnfinishedFrames(t *testing.T) {
	tn := newTestNet(t)
	n := tn.start(nil)
	h, err := swarm.Start(testContext(t), swarm.Config{Identity: swarm.Ephemeral(), Dir: t.TempDir(), Swarm: tn.info, Bootstrap: n.Addrs(), Client: true})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	heap := func() int64 {
		var m goruntime.MemStats
		goruntime.GC()
		goruntime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const size, streams, limit = 16 << 20, 16, 64 << 20
	frame := append(binary.LittleEndian.AppendUint32(nil, 64<<20), byte(wire.TypeSeam))
	frame = append(frame, make([]byte, size)...)
	before := heap()
	for _, protocol := range []string{protoStage, protoKV, protoSession, protoBundle} {
		var cut atomic.Int32
		var open []*swarm.Stream
		for range streams {
			s, err := h.Open(testContext(t), n.ID(), protocol)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, s)
			go func() {
				_, err := s.Write(frame)
				if err == nil {
					_, err = s.Read(make([]byte, 1)) // nothing is said to who isn't done
				}
				if err != nil {
					cut.Add(1)
				}
			}()
		}
		// Two such frames, the doubled buffer of the second included, have no room beside each other.
		eventually(t, "an end of those that there is no room for", func() bool { return cut.Load() >= streams-2 })
		most := heap() - before
		t.Logf("%s: %d of %d streams ended, %.1f MB are held", protocol, cut.Load(), streams, float64(most)/1e6)
		if most >= limit {
			t.Errorf("%s: it costs %.1f MB", protocol, float64(most)/1e6)
		}
		for _, s := range open {
			_ = s.Reset() // what is left of them
		}
	}
}
