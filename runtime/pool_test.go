package runtime

import (
	goruntime "runtime"
	"sync/atomic"
	"testing"
	"time"
)

// TestPool checks that every task is called once, that no two calls share a worker, that no more threads work than were
// asked for, and that workers may have parked or not, also with more threads than processors.
func TestPool(t *testing.T) {
	before := goruntime.NumGoroutine()
	for _, threads := range []int{1, 2, 3, 8} {
		p := newPool(threads)
		busy := make([]atomic.Int32, threads)
		for round := range 20 {
			use := round%threads + 1
			if round%7 == 6 {
				time.Sleep(2 * linger)
			}
			p.begin(use)
			for _, tasks := range []int{0, 1, 2, threads, 100, round} {
				calls := make([]atomic.Int32, tasks)
				p.do(tasks, func(worker, task int) {
					if busy[worker].Add(1) != 1 {
						t.Error("two calls share a worker")
					}
					calls[task].Add(1)
					busy[worker].Add(-1)
				})
				for i := range calls {
					if n := calls[i].Load(); n != 1 {
						t.Fatalf("%d threads: task %d of %d was called %d times", threads, i, tasks, n)
					}
				}
			}
		}
		p.close()
	}
	for wait := 0; goruntime.NumGoroutine() > before; wait++ {
		if wait == 10_000 { // others may have the processor meanwhile
			t.Fatalf("%d goroutines, %d before", goruntime.NumGoroutine(), before)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestPoolHelp checks that workers do help: each of the tasks ends only when all have begun.
func TestPoolHelp(t *testing.T) {
	const threads = 4
	p := newPool(threads)
	defer p.close()
	for _, pause := range []time.Duration{0, 3 * linger} {
		time.Sleep(pause)
		var begun atomic.Int32
		p.begin(threads)
		p.do(threads, func(_, _ int) {
			begun.Add(1)
			for begun.Load() < threads {
				goruntime.Gosched()
			}
		})
	}
}

// TestPoolParks checks that workers use no processor when there has been nothing to do for a while.
func TestPoolParks(t *testing.T) {
	p := newPool(4)
	defer p.close()
	p.begin(4)
	p.do(10, func(_, _ int) {})
	for wait := 0; ; wait++ {
		parked := 0
		for i := range p.workers {
			if p.workers[i].parked.Load() {
				parked++
			}
		}
		if parked == 3 {
			return
		}
		if wait == 100_000 {
			t.Fatalf("%d of 3 workers are parked", parked)
		}
		time.Sleep(linger)
	}
}

// TestPoolAllocates checks that an operation that was bound before costs no memory.
func TestPoolAllocates(t *testing.T) {
	p := newPool(2)
	defer p.close()
	var sum atomic.Int64
	op := func(_, task int) { sum.Add(int64(task)) }
	if n := testing.AllocsPerRun(100, func() { p.begin(2); p.do(64, op) }); n != 0 {
		t.Errorf("%v allocations an operation", n)
	}
}

// BenchmarkPool measures a fork and join of two threads, without work and with 20 and 100 µs of it in 8 tasks.
func BenchmarkPool(b *testing.B) {
	for _, us := range []int{0, 20, 100} {
		b.Run(time.Duration(us*1000).String(), func(b *testing.B) {
			p := newPool(2)
			defer p.close()
			op := func(_, _ int) {
				for start := time.Now(); time.Since(start) < time.Duration(us)*time.Microsecond/8; {
				}
			}
			if us == 0 {
				op = func(_, _ int) {}
			}
			p.begin(2)
			for b.Loop() {
				p.do(8, op)
			}
			if us > 0 {
				b.ReportMetric(float64(us)*1000*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "speedup")
			}
		})
	}
}
