package artifacts

import (
	"context"
	"crypto/sha1"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"sync"
	"sync/atomic"
)

// Build hashes the files at paths, the parts of one model in order, reading each byte once. It
// returns the manifest and the BitTorrent v1 piece hashes. progress, if not nil, is called after
// each piece, from one goroutine at a time. A file that changes while it is read is an error.
func Build(ctx context.Context, paths []string, progress func(done, total int64)) (*Manifest, TorrentInfos, error) {
	if len(paths) < 1 || len(paths) > MaxParts {
		return nil, nil, fmt.Errorf("a model of %d files, 1 to %d are allowed", len(paths), MaxParts)
	}
	m := &Manifest{Parts: make([]Part, len(paths))}
	files := make([]*os.File, len(paths))
	before := make([]stamp, len(paths))
	for i, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return nil, nil, err
		}
		defer f.Close()
		if before[i], err = stampOf(f); err != nil {
			return nil, nil, err
		}
		size := before[i].Size
		if size < 1 || size > MaxPartSize {
			return nil, nil, fmt.Errorf("%s: %d bytes, a part of a model has 1 to %d", path, size, int64(MaxPartSize))
		}
		files[i] = f
		m.Parts[i] = Part{Name: partName(i, len(paths)), Size: size, Pieces: make([][32]byte, pieceCount(size))}
	}
	infos := make(TorrentInfos, len(paths))
	count := newCounter(m.TotalBytes(), progress)
	for i, f := range files {
		p := &m.Parts[i]
		infos[i] = make([]byte, 20*len(p.Pieces))
		err := eachPiece(ctx, f, p.Size, nil, func(j int, data []byte) {
			p.Pieces[j] = pieceHash(data, p.Size)
			sum := sha1.Sum(data)
			copy(infos[i][20*j:], sum[:])
			count.add(int64(len(data)))
		})
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", paths[i], err)
		}
		after, err := stampOf(f)
		if err != nil {
			return nil, nil, err
		}
		if after != before[i] {
			return nil, nil, fmt.Errorf("%s: the file changed while it was read: publish it again when nobody writes to it", paths[i])
		}
		p.Root = rootOf(p.Pieces, p.Size)
	}
	return m, infos, nil
}

// eachPiece calls f for the pieces of a file of size bytes that are in want (all if want is nil),
// from several goroutines and in no order. data is f's only until it returns.
func eachPiece(ctx context.Context, r io.ReaderAt, size int64, want *bitmap, f func(i int, data []byte)) error {
	length := PieceLength(size)
	n := pieceCount(size)
	workers := int(min(n, int64(goruntime.GOMAXPROCS(0))))
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for w := range workers {
		wg.Go(func() {
			buf := make([]byte, min(length, size))
			for {
				i := next.Add(1) - 1
				if i >= n {
					return
				}
				if want != nil && !want.has(int(i)) {
					continue
				}
				if errs[w] = ctx.Err(); errs[w] != nil {
					next.Store(n)
					return
				}
				data := buf[:min(length, size-i*length)]
				if got, err := r.ReadAt(data, i*length); got < len(data) {
					if err == io.EOF {
						err = fmt.Errorf("it ends at byte %d of %d: the file was cut short", i*length+int64(got), size)
					}
					errs[w] = err
					next.Store(n)
					return
				}
				f(int(i), data)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// counter adds up bytes from several goroutines and reports them.
type counter struct {
	mu          sync.Mutex
	done, total int64
	report      func(done, total int64)
}

func newCounter(total int64, report func(done, total int64)) *counter {
	return &counter{total: total, report: report}
}

func (c *counter) add(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done += n
	if c.report != nil {
		c.report(c.done, c.total)
	}
}
