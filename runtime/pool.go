package runtime

import (
	goruntime "runtime"
	"sync"
	"sync/atomic"
)

// pool is the fixed set of threads that compute. The caller of do is one of them; the others are goroutines that live
// as long as the pool.
//
// Waking a parked thread costs about 100 µs, more than many of the operations inside a layer, so workers are woken once
// per Run (begin), then wait for the next operation by spinning on an atomic, and park again at its end (end). A spinning
// worker yields to the Go scheduler after a short budget, so that fewer processors than threads are slow but not stuck.
// The network needs processors too: GOMAXPROCS ≥ threads + 2 on a machine that serves.
//
// Which worker gets which task is not determined, and nothing computed depends on it.
type pool struct {
	threads int
	wake    []chan struct{} // one per worker, capacity 1
	joined  sync.WaitGroup  // the goroutines

	op      func(worker, task int) // the current operation; published by epoch
	tasks   int64
	epoch   atomic.Uint64 // incremented to start an operation, or to park (op == nil)
	next    atomic.Int64  // next task to claim
	pending atomic.Int64  // workers still inside the operation
	parked  atomic.Int64  // workers outside the spinning loop
}

// spinBudget is how often a waiting thread looks at its atomic before it starts to yield.
const spinBudget = 2000

// newPool starts threads−1 workers.
func newPool(threads int) *pool {
	p := &pool{threads: threads, wake: make([]chan struct{}, threads-1)}
	p.parked.Store(int64(len(p.wake)))
	for i := range p.wake {
		p.wake[i] = make(chan struct{}, 1)
		p.joined.Add(1)
		go p.routineWorker(i+1, p.wake[i])
	}
	return p
}

// routineWorker parks until begin, spins for operations until end, and returns when close closes wake.
func (p *pool) routineWorker(worker int, wake <-chan struct{}) {
	defer p.joined.Done()
	for range wake {
		// Nothing is published between this look and the first do: begin waits until parked is 0.
		seen := p.epoch.Load()
		p.parked.Add(-1)
		for {
			seen = p.await(seen)
			if p.op == nil {
				break
			}
			p.work(worker)
			p.pending.Add(-1)
		}
		p.parked.Add(1)
	}
}

// await returns the epoch after seen.
func (p *pool) await(seen uint64) uint64 {
	for i := 0; ; i++ {
		if e := p.epoch.Load(); e != seen {
			return e
		}
		if i >= spinBudget {
			goruntime.Gosched()
		}
	}
}

// begin wakes the workers; do may be called until end. Only one begin … end at a time.
func (p *pool) begin() {
	for _, w := range p.wake {
		w <- struct{}{}
	}
	spinUntil(func() bool { return p.parked.Load() == 0 })
}

// end parks the workers.
func (p *pool) end() {
	if len(p.wake) == 0 {
		return
	}
	p.op = nil
	p.epoch.Add(1)
	spinUntil(func() bool { return p.parked.Load() == int64(len(p.wake)) })
}

// do calls op(worker, task) once for every task in [0, tasks), on all threads, and returns when all calls have returned.
// worker is below threads and no two concurrent calls share one, so it may index scratch memory.
func (p *pool) do(tasks int, op func(worker, task int)) {
	if tasks <= 0 {
		return
	}
	if tasks == 1 || len(p.wake) == 0 {
		for t := range tasks {
			op(0, t)
		}
		return
	}
	p.op, p.tasks = op, int64(tasks)
	p.next.Store(0)
	p.pending.Store(int64(len(p.wake)))
	p.epoch.Add(1)
	p.work(0)
	spinUntil(func() bool { return p.pending.Load() == 0 })
}

// work claims tasks until there are none.
func (p *pool) work(worker int) {
	for {
		t := p.next.Add(1) - 1
		if t >= p.tasks {
			return
		}
		p.op(worker, int(t))
	}
}

// close joins the workers. Not while between begin and end.
func (p *pool) close() {
	for _, w := range p.wake {
		close(w)
	}
	p.joined.Wait()
}

// spinUntil waits for cond, yielding after the budget.
func spinUntil(cond func() bool) {
	for i := 0; !cond(); i++ {
		if i >= spinBudget {
			goruntime.Gosched()
		}
	}
}
