package runtime

import (
	goruntime "runtime"
	"sync/atomic"
	"testing"
	"time"
)

// TestPool checks that every task is called once, that no two calls share a worker, and that a pool may be woken and
// parked again and again, also with more threads than processors.
func TestPool(t *testing.T) {
	before := goruntime.NumGoroutine()
	for _, threads := range []int{1, 2, 3, 8} {
		p := newPool(threads)
		busy := make([]atomic.Int32, threads)
		for round := range 20 {
			p.begin()
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
			p.end()
		}
		p.close()
	}
	for wait := 0; goruntime.NumGoroutine() > before; wait++ {
		if wait == 100 {
			t.Fatalf("%d goroutines, %d before", goruntime.NumGoroutine(), before)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestPoolParks checks that workers use no processor outside begin … end.
func TestPoolParks(t *testing.T) {
	p := newPool(4)
	defer p.close()
	p.begin()
	p.do(10, func(_, _ int) {})
	p.end()
	if n := p.parked.Load(); n != 3 {
		t.Errorf("%d of 3 workers are parked", n)
	}
}
