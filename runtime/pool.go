package runtime

import (
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-swarm/starling/kernels"
)

// pool is the fixed set of threads that compute. The caller of do is one of them, worker 0; the others are goroutines
// that live as long as the pool.
//
// An operation is a count of tasks. Whoever is awake claims one after the other, and the operation is over when all are
// done, whoever did them: a worker that is late, or that the system runs elsewhere, costs its help and nothing else.
// Waking a parked thread takes some 50 µs, more than many operations inside a layer, so begin wakes the workers once
// per Run; between operations, and for a while after the Run, since in decoding the next one follows soon, they spin.
//
//	        work                 linger without work
//	awake ────────▶ claiming ─┐  awake ──────────────▶ parked
//	  ▲───────────────────────┘    ▲────────────────────┘ begin, do
//
// A spinning thread lets other goroutines run now and then, so that fewer processors than threads are slow but not
// stuck. The network needs processors too: GOMAXPROCS ≥ threads + 2 on a machine that serves.
//
// Which worker gets which task is not determined, and nothing computed depends on it.
type pool struct {
	threads int
	workers []worker       // threads−1 of them
	joined  sync.WaitGroup // the goroutines

	// The operation. Stable while a claimed task is not done, and so for those that read it.
	op    func(worker, task int)
	tasks int
	_     [64]byte // the counters are on cache lines of their own

	left atomic.Int64 // tasks not claimed; 0 and below: none. Setting it publishes an operation.
	_    [56]byte
	done atomic.Int64 // tasks done
	_    [56]byte
	use  atomic.Int64 // threads that may claim, in [1, threads]
	_    [56]byte
}

// worker is one goroutine of a pool.
type worker struct {
	parked atomic.Bool   // it waits on wake, or is about to
	wake   chan struct{} // capacity 1; whoever clears parked sends. Closed to end the goroutine.
	_      [48]byte
}

const (
	// linger is how long a worker spins for the next task before it parks. Sampling and sending a decoded token takes
	// less.
	linger = 300 * time.Microsecond
	// yieldEvery is how many looks at its counter a waiting thread takes between calls of the Go scheduler, some 50 µs:
	// each call may wake a sleeping thread of the Go runtime.
	yieldEvery = 2048
)

// newPool starts threads−1 workers.
func newPool(threads int) *pool {
	p := &pool{threads: threads, workers: make([]worker, threads-1)}
	p.use.Store(int64(threads))
	for i := range p.workers {
		p.workers[i].wake = make(chan struct{}, 1)
		p.joined.Add(1)
		go p.routineWorker(i + 1)
	}
	return p
}

// routineWorker works, spins and parks until close.
func (p *pool) routineWorker(id int) {
	defer p.joined.Done()
	w := &p.workers[id-1]
	for {
		if p.await(id) {
			p.work(id)
			continue
		}
		w.parked.Store(true)
		if p.wanted(id) && w.parked.CompareAndSwap(true, false) {
			continue // work came in between, and its do saw nobody to wake
		}
		if _, open := <-w.wake; !open {
			return
		}
	}
}

// wanted reports whether there are tasks to claim for a worker.
func (p *pool) wanted(id int) bool { return p.left.Load() > 0 && int64(id) < p.use.Load() }

// await spins until the worker is wanted, or returns false after the linger time.
func (p *pool) await(id int) bool {
	var since time.Time
	for i := 1; !p.wanted(id); i++ {
		if i%yieldEvery != 0 {
			kernels.Pause()
			continue
		}
		goruntime.Gosched()
		if since.IsZero() {
			since = time.Now()
		} else if time.Since(since) > linger {
			return false
		}
	}
	return true
}

// begin lets the next operations have up to use threads, and wakes so many.
func (p *pool) begin(use int) {
	p.use.Store(int64(min(max(use, 1), p.threads)))
	p.rouse()
}

// rouse wakes the parked workers that may claim. It does not wait for them.
func (p *pool) rouse() {
	for i := range p.use.Load() - 1 {
		if w := &p.workers[i]; w.parked.Load() && w.parked.CompareAndSwap(true, false) {
			w.wake <- struct{}{}
		}
	}
}

// do calls op(worker, task) once for every task in [0, tasks), ascending, on all threads, and returns when all calls have
// returned. worker is below threads and no two concurrent calls share one, so it may index scratch memory. Only one do
// at a time. It allocates nothing, but a closure made for op does: operations of decoding are bound once.
func (p *pool) do(tasks int, op func(worker, task int)) {
	if tasks == 1 || p.use.Load() == 1 {
		for t := range tasks {
			op(0, t)
		}
		return
	}
	if tasks <= 0 {
		return
	}
	p.op, p.tasks = op, tasks
	p.done.Store(0)
	p.left.Store(int64(tasks))
	p.rouse()
	p.work(0)
	for i := 1; p.done.Load() < int64(tasks); i++ {
		if i%yieldEvery != 0 {
			kernels.Pause()
		} else {
			goruntime.Gosched()
		}
	}
}

// work claims tasks until there are none.
func (p *pool) work(id int) {
	for n := int64(0); ; n++ {
		left := p.left.Add(-1)
		if left < 0 {
			if n > 0 {
				p.done.Add(n) // not earlier: the operation may be over, and another one begin, with the last of them
			}
			return
		}
		p.op(id, p.tasks-1-int(left))
	}
}

// close joins the workers. Not while do runs.
func (p *pool) close() {
	for i := range p.workers {
		close(p.workers[i].wake)
	}
	p.joined.Wait()
}
