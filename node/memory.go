package node

import (
	"fmt"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
)

// Of the memory that a node may take, its buffers have a fixed part: an idle node takes 58 MB, and what peers may make it hold comes on
// top (docs/network.md). Models have the rest, each when it is opened: weights first, then half of what they leave for the KV of sessions.
const (
	bufferMemory = 128 << 20
	leastMemory  = 2 * bufferMemory
)

// openModel opens layers of a model within what the node's memory leaves for it.
func (n *Node) openModel(id artifacts.ID, path string, layers runtime.Range) (runtime.Executor, error) {
	o := n.withBestThreads(n.cfg.Engine)
	o.Path, o.Layers = path, layers
	n.models.opening.Lock()
	defer n.models.opening.Unlock()
	if most := o.MaxMemory; most > 0 {
		if o.MaxMemory = n.memoryLeft(id); o.MaxMemory <= 0 {
			return nil, fmt.Errorf("of the %d MB of memory that this node may take (--max-memory) the models that it serves leave none for another", most/1e6)
		}
	}
	exec, err := n.cfg.Backend.Open(o)
	if err == nil {
		n.models.Lock()
		n.models.fresh[id] = exec
		n.models.Unlock()
	}
	return exec, err
}

// memoryLeft is what a bound on the node's memory leaves for a model, in bytes.
func (n *Node) memoryLeft(id artifacts.ID) int64 {
	return n.cfg.Engine.MaxMemory - bufferMemory - n.modelMemory(id)
}

// memoryFor is the memory that a model could have now, in bytes.
func (n *Node) memoryFor(id artifacts.ID) int64 {
	free := runtime.AvailableMemory()
	if n.cfg.Engine.MaxMemory > 0 {
		free = max(min(free, n.memoryLeft(id)), 0)
	}
	return free
}

// opened says that a model from openModel is served, or closed.
func (n *Node) opened(id artifacts.ID) {
	n.models.Lock()
	defer n.models.Unlock()
	delete(n.models.fresh, id)
}

// modelMemory is what models other than one, which is about to be replaced, have been given, in bytes.
func (n *Node) modelMemory(but artifacts.ID) (sum int64) {
	n.models.Lock()
	defer n.models.Unlock()
	have := func(id artifacts.ID, exec runtime.Executor, kv int64) {
		if id != but {
			m := exec.Memory()
			sum += m.Packed + m.Mapped + kv
		}
	}
	for id, s := range n.models.served {
		have(id, s.exec, s.kvLimit)
		if s.draft != nil {
			have(s.draft.id, s.draft.exec, s.draft.kvLimit)
		}
	}
	for id, exec := range n.models.fresh {
		have(id, exec, exec.FreeKVBytes())
	}
	return sum
}

// memoryStatus shows what a node may take of memory, and what it takes.
func (n *Node) memoryStatus() control.MemoryUse {
	v := control.MemoryUse{Max: n.cfg.Engine.MaxMemory}
	add := func(exec runtime.Executor, limit int64) {
		m := exec.Memory()
		v.Packed, v.Mapped = v.Packed+m.Packed, v.Mapped+m.Mapped
		v.KV, v.MaxKV = v.KV+max(limit-exec.FreeKVBytes(), 0), v.MaxKV+limit
	}
	for _, s := range n.servedList() {
		add(s.exec, s.kvLimit)
		if s.draft != nil {
			add(s.draft.exec, s.draft.kvLimit)
		}
	}
	return v
}
