package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm/wire"
)

// Caches on their way to the disk before memory gives them up, and back.

// spilled is a cache that a file has.
type spilled struct {
	known
	file   *spillFile
	layout *kvLayout
	used   time.Time
	long   bool // with the rope factors of long sequences (runtime.LongRope)
}

// routineSpill writes caches to the disk while there are some that memory may soon give up. Nobody waits for it.
func (n *Node) routineSpill() {
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-n.spill.wake:
		}
		for busy := true; busy && n.ctx.Err() == nil; {
			busy = false
			for _, s := range n.servedList() {
				busy = s.prefixes.spillOne() || busy
			}
		}
	}
}

// spillOne writes the cache that memory would give up next, if less than half of the memory is free; false where there is nothing to do.
func (p *prefixes) spillOne() bool {
	p.mu.Lock()
	var next *keptPrefix
	if p.exec.FreeKVBytes() < p.limit/2 {
		for _, k := range p.kept {
			if !k.spilled && (next == nil || k.value < next.value) {
				next = k
			}
		}
	}
	if next == nil {
		p.mu.Unlock()
		return false
	}
	next.spilled = true // tried once
	k := &spilled{known: next.known, long: p.long(next.capacity)}
	seq, bytes := next.seq, p.bytesOf(next)
	p.mu.Unlock()

	cfg := p.exec.Config()
	layout, ok := newKVLayout(p.model, &k.known, cfg.Cache, seq)
	if !ok {
		return true
	}
	k.layout = layout
	size := layout.size(seq.KVBytes)
	k.file = p.disk.reserve(size, p.operations(k.layers, 0, k.end())/float64(max(bytes, 1)))
	if k.file == nil {
		return true
	}
	switch err := p.disk.write(k.file, layout, seq); {
	case errors.Is(err, runtime.ErrClosed): // memory has given it up meanwhile
		p.disk.remove(k.file)
	case err != nil:
		p.disk.failed(k.file, err)
	default:
		p.mu.Lock()
		k.used = time.Now()
		p.files = append(p.unlessContinuedLocked(k), k)
		p.mu.Unlock()
	}
	return true
}

// unlessContinuedLocked returns the files without those that k continues, or that are gone.
func (p *prefixes) unlessContinuedLocked(k *spilled) []*spilled {
	return slices.DeleteFunc(p.files, func(old *spilled) bool {
		n, _ := k.common(&old.known)
		if n == old.end() && k.layout.reach(n) == n {
			p.disk.remove(old.file)
		}
		return p.disk.isGone(old.file)
	})
}

// write writes what a sequence holds; the sequence may be closed meanwhile.
func (s *spill) write(f *spillFile, layout *kvLayout, seq runtime.Sequence) (err error) {
	file, err := os.OpenFile(s.path(f), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, file.Close())
		if s.isGone(f) { // others took its room before it was there
			_ = os.Remove(s.path(f))
		}
	}()
	w := newKVWriter(file, s.aead, f.number, layout)
	var rows []byte
	for i := range layout.pages() + len(layout.stops()) {
		var list []kvRecord
		if stop := i - layout.pages(); stop < 0 {
			list = layout.page(i)
		} else {
			list = layout.at(stop, seq.KVBytes)
		}
		for _, r := range list {
			if rows, err = seq.ExportKV(rows[:0], r.layer, r.first, r.last); err != nil {
				return err
			}
			if len(rows) != r.bytes {
				return fmt.Errorf("%d bytes of layer %d, not %d", len(rows), r.layer, r.bytes)
			}
			if err := w.write(&r, rows); err != nil {
				return err
			}
		}
	}
	return w.w.Flush()
}

// onDisk returns the file that has the most of the tokens that a session begins with, of most at most, and how many; nil where that is not
// enough more than at to be worth reading: as many as take longer to compute.
func (p *prefixes) onDisk(w known, most, at, capacity int) (best *spilled, n int) {
	if p.disk == nil {
		return nil, 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n = at + minPrefix - 1
	for _, k := range p.files {
		common, _ := k.common(&w)
		if common = k.layout.reach(min(common, most)); common > n && k.long == p.long(capacity) && !p.disk.isGone(k.file) {
			best, n = k, common
		}
	}
	if best == nil {
		return nil, 0
	}
	from := at
	if !p.rewinds() {
		from = 0
	}
	bytes := float64(best.file.bytes) * float64(n-from) / float64(best.end())
	if p.flops > 0 && bytes/p.disk.readRate() > p.operations(best.layers, at, n)/p.flops {
		return nil, 0
	}
	return best, n
}

// load reads into seq, which holds the first at positions of the tokens that a session begins with and nobody else uses, what a file has of
// them beyond, up to most. It returns how many seq holds then, and their marks: those of at where nothing could be had.
func (p *prefixes) load(ctx context.Context, w known, most, at int, marks []wire.Mark, seq runtime.Sequence) (int, []wire.Mark) {
	k, n := p.onDisk(w, most, at, seq.Capacity())
	if k == nil {
		return at, marks
	}
	began := time.Now()
	bytes, err := p.disk.readInto(ctx, k, at, n, seq)
	var bad *runtime.NonFiniteError
	if (errors.Is(err, errDamaged) || errors.As(err, &bad) || errors.Is(err, os.ErrNotExist)) && !p.disk.isGone(k.file) {
		p.disk.log.Warn("a KV file is of no use, it is removed", "error", err)
		p.disk.remove(k.file)
	}
	got := held(seq, k.layers)
	if err != nil { // layer by layer, some have more than others
		got = seq.Truncate(got)
	} else {
		p.disk.wasRead(k.file, bytes, time.Since(began))
	}
	p.mu.Lock()
	k.used = time.Now()
	p.mu.Unlock()
	_, same := k.common(&w)
	if same = upTo(same, min(got, n)); w.tokens == nil && err != nil {
		got = 0
		if len(same) > 0 {
			got = int(same[len(same)-1].Position)
		}
		got = seq.Truncate(got)
	}
	if got > at {
		p.used("disk", got-at)
	}
	return got, upTo(same, got)
}

// readInto appends to seq what a file has from position at on, up to n, and returns the bytes read.
func (s *spill) readInto(ctx context.Context, k *spilled, at, n int, seq runtime.Sequence) (int64, error) {
	file, err := os.Open(s.path(k.file))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	f := k.layout
	if len(f.ends) > 0 { // those layers have nothing between the stops
		seq.Truncate(0)
		at = 0
	}
	r, err := newKVReader(file, s.aead, k.file.number, f, at/wire.PageRows)
	if err != nil {
		return 0, err
	}
	for p := at / wire.PageRows; p < f.pages() && p*wire.PageRows < n; p++ {
		for _, rec := range f.page(p) {
			text, err := r.read(&rec)
			if err != nil {
				return r.bytes, err
			}
			from, last, row := max(rec.first, at), min(rec.last, n), seq.RowBytes(rec.layer)
			if err := seq.ImportKV(rec.layer, from, last-from, text[(from-rec.first)*row:(last-rec.first)*row]); err != nil {
				return r.bytes, err
			}
		}
		if ctx.Err() != nil {
			return r.bytes, ctx.Err()
		}
	}
	if len(f.ends) == 0 {
		return r.bytes, nil
	}
	if err := r.skipPages(); err != nil {
		return r.bytes, err
	}
	from := 0
	for i, stop := range f.stops() {
		if stop > n {
			break
		}
		for _, rec := range f.at(i, seq.KVBytes) {
			text, err := r.read(&rec)
			if err == nil {
				err = seq.ImportKV(rec.layer, from, stop-from, text)
			}
			if err != nil {
				return r.bytes, err
			}
		}
		from = stop
	}
	return r.bytes, nil
}
