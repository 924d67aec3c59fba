package runtime

import (
	"math"

	"github.com/starling-swarm/starling/kernels"
)

// attendRows is how many rows of one sequence a task takes at most: each page is widened once per task.
const attendRows = 16

// attendTask is the attention of rows [first, last), all of one sequence and at consecutive positions, by query heads
// [head, head+heads), which share a KV head.
type attendTask struct {
	first, last int
	head, heads int
}

// attendBuf is one thread's scratch memory.
type attendBuf struct {
	partial []kernels.Partial // [attendRows × heads of a group]
	wide    []float32         // [2][pageRows][HeadDim]: a page's keys and values of one head
	scratch []float32         // [pageRows+HeadDim], AttendBlock's
}

// attend computes dst[r][head] = Σ_pos softmax(q[r][head]·K[pos]·scale)·V[pos] over the stored positions up to rows[r].pos
// of a layer: all of them, or, where window is not 0, the last window ones. dst and q are [len(rows)][Heads×HeadDim].
//
// For every row and query head by itself: pages, which are softmax blocks of 256 absolute positions, in ascending
// order through kernels.AttendBlock, then Finish. Pages without a visible position are left out.
func (m *Model) attend(l int, rows []row, dst, q []float32, window int, scale float32) {
	c := &m.cfg
	tasks := m.attendTasks(rows)
	m.pool.do(len(tasks), func(worker, t int) {
		task, buf := &tasks[t], &m.buf.attend[worker]
		group := c.Heads / c.KVHeads
		kvHead := task.head / group
		mine := rows[task.first:task.last]
		parts := buf.partial[:len(mine)*task.heads]
		for i := range parts {
			parts[i].Reset(c.HeadDim)
		}
		held := mine[len(mine)-1].pos + 1
		oldest := windowStart(mine[0].pos, window)
		for start := oldest / pageRows * pageRows; start < held; start += pageRows {
			k, v := mine[0].seq.block(l, start/pageRows, kvHead, min(held-start, pageRows), buf.wide)
			for i := range mine {
				from, visible := max(windowStart(mine[i].pos, window)-start, 0), min(mine[i].pos+1-start, pageRows)
				if visible <= from {
					continue
				}
				for h := range task.heads {
					at := ((task.first+i)*c.Heads + task.head + h) * c.HeadDim
					kernels.AttendBlock(&parts[i*task.heads+h], q[at:at+c.HeadDim], k[:visible*c.HeadDim], v[:visible*c.HeadDim], from, visible, scale, buf.scratch)
				}
			}
		}
		for i := range mine {
			for h := range task.heads {
				at := ((task.first+i)*c.Heads + task.head + h) * c.HeadDim
				parts[i*task.heads+h].Finish(dst[at : at+c.HeadDim])
			}
		}
	})
}

// attentionScale is round(1/√HeadDim), both roundings in float32.
func (c *Config) attentionScale() float32 { return 1 / float32(math.Sqrt(float64(c.HeadDim))) }

// windowStart returns the first position that a row at pos sees.
func windowStart(pos, window int) int {
	if window == 0 {
		return 0
	}
	return max(pos+1-window, 0)
}

// attendTasks cuts the work: by sequence, by runs of attendRows rows, by KV head, and, when that gives fewer than two
// tasks a thread, by query head.
func (m *Model) attendTasks(rows []row) []attendTask {
	c := &m.cfg
	tasks := m.buf.tasks[:0]
	group := c.Heads / c.KVHeads
	cut := func(heads int) {
		for first := 0; first < len(rows); {
			last := first + 1
			for last < len(rows) && last-first < attendRows && rows[last].seq == rows[first].seq {
				last++
			}
			for head := 0; head < c.Heads; head += heads {
				tasks = append(tasks, attendTask{first, last, head, heads})
			}
			first = last
		}
	}
	cut(group)
	if len(tasks) < 2*m.pool.threads && group > 1 {
		tasks = tasks[:0]
		cut(1)
	}
	m.buf.tasks = tasks
	return tasks
}
