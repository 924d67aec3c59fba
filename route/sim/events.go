package sim

import "container/heap"

// timeline is what will happen, in order of time, and of scheduling where times are equal.
type timeline struct {
	now   float64 // seconds
	count uint64
	queue eventQueue
}

type event struct {
	at    float64
	order uint64
	do    func()
}

// after schedules do in so many seconds.
func (t *timeline) after(seconds float64, do func()) {
	t.count++
	heap.Push(&t.queue, event{t.now + max(seconds, 0), t.count, do})
}

// run lets everything happen up to a time.
func (t *timeline) run(until float64) {
	for len(t.queue) > 0 && t.queue[0].at <= until {
		e := heap.Pop(&t.queue).(event)
		t.now = e.at
		e.do()
	}
	t.now = until
}

type eventQueue []event

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].order < q[j].order
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *eventQueue) Push(x any)   { *q = append(*q, x.(event)) }
func (q *eventQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1].do = nil
	*q = old[:len(old)-1]
	return e
}
