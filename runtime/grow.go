package runtime

import (
	"context"
	"fmt"
	"time"
)

// restAfter is for how long packing leaves processors to others, the network's goroutines among them, in times that it took.
const restAfter = 2

// Grow implements Executor. The weights of further layers are mapped, and packed a little at a time where no Run is in progress,
// so that those who compute wait for at most packTask bytes on each thread.
func (m *Model) Grow(ctx context.Context, to Range) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case m.growing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-m.growing }()
	if m.closed.Load() {
		return ErrClosed
	}
	if all := (Range{0, m.cfg.Layers}); !all.Covers(to) || !to.Covers(m.layers) {
		return fmt.Errorf("runtime: growing from %v to layers %d to %d asked for, the model has layers 0 to %d", m.layers, to.First, to.Last-1, m.cfg.Layers-1)
	}
	if to == m.layers {
		return nil
	}
	if err := m.CanGrow(to); err != nil {
		return err
	}
	had := len(m.load.weights)
	more, err := m.load.weightsOf(&m.cfg, to, m.loaded)
	if err == nil {
		err = m.packMore(ctx, &more, m.load.weights[had:])
	}
	if err != nil {
		m.load.weights = m.load.weights[:had]
		return err
	}
	m.place(&more)
	old := m.stream
	m.running <- struct{}{}
	m.mu.Lock()
	m.loaded = more
	m.mu.Unlock()
	m.unlock()
	old.close()
	return nil
}

// CanGrow implements Executor.
func (m *Model) CanGrow(to Range) error {
	have, c, need := m.Layers(), &m.cfg, int64(0)
	for l := max(to.First, 0); l < min(to.Last, c.Layers); l++ {
		if !have.Contains(l) {
			need += c.LayerBytes[l]
		}
	}
	embed, head := have.First == 0, have.Last == c.Layers
	if to.First == 0 && !embed && !(c.Tied && head) {
		need += c.EmbedBytes
	}
	if to.Last == c.Layers && !head && !(c.Tied && embed) {
		need += c.HeadBytes
	}
	if available := m.memoryToGrow(); need > available {
		return fmt.Errorf("runtime: the weights of %v take %d bytes more, and %d of memory are available beside what is for the KV of sessions", to, need, max(available, 0))
	}
	return nil
}

// packMore is packAll for weights that have come to make the range that of more.
func (m *Model) packMore(ctx context.Context, more *loaded, weights []*weight) error {
	available := m.memoryToGrow()
	list, total := m.toPack(more, weights, available)
	switch {
	case total == 0:
		return nil
	case total > available:
		return fmt.Errorf("runtime: packed weights of %v take %d bytes more, and %d are available: use --pack auto", more.layers, total, available)
	}
	return m.packInto(list, total, available, func(w *weight, dst []byte, tight bool) error {
		some := packedAtOnce(w) * m.pool.threads
		for first := 0; first < w.Groups(); first += some {
			last := min(first+some, w.Groups())
			w.source.touch(w.rows(first*groupRows, min(last*groupRows, w.Rows))) // nobody waits for the disk
			if err := m.lock(ctx); err != nil {
				return err
			}
			began := time.Now()
			m.begin(m.threads.decode)
			err := m.packGroups(w, dst, first, last, tight)
			m.unlock()
			if err != nil {
				return err
			}
			time.Sleep(restAfter * time.Since(began))
		}
		return nil
	})
}
