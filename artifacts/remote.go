package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"

	"github.com/starling-swarm/starling/runtime/gguf"
)

// Remote is a model on a web server: its header is known, its ID is not. Its methods are for one
// goroutine.
type Remote struct {
	card  *Card
	parts []*remoteFile
	first string // URL of the first part
	web   *webClient
}

// OpenRemote reads the headers of a model's files from a web server, by ranges where the server knows
// them, and no weights. text is the URL of the first file. auth, if not nil, is shown to its server. progress, if not nil, is called with the
// bytes read so far and 0.
func OpenRemote(ctx context.Context, text string, auth *Auth, progress func(done, total int64)) (*Remote, error) {
	web, err := authorised(auth)
	if err != nil {
		return nil, err
	}
	return openRemote(ctx, web, text, progress)
}

func openRemote(ctx context.Context, web *webClient, text string, progress func(done, total int64)) (*Remote, error) {
	if err := CheckWebSeed(text); err != nil {
		return nil, err
	}
	r := &Remote{first: text, web: web}
	read := int64(0)
	count := func(n int64) {
		if read += n; progress != nil {
			progress(read, 0)
		}
	}
	var files []*gguf.File
	for i, n := 0, 1; i < n; i++ {
		u, err := partURL(text, i, n)
		if err != nil {
			return nil, err
		}
		p := &remoteFile{ctx: ctx, web: web, url: u, count: count}
		f, err := p.header()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", u, err)
		}
		if i == 0 {
			said, err := f.UintOr("split.count", 1)
			if err != nil || said > MaxParts {
				return nil, fmt.Errorf("%s: it says that the model has %d files, at most %d are allowed", u, said, MaxParts)
			}
			n = max(1, int(said))
		}
		r.parts, files = append(r.parts, p), append(files, f)
	}
	set, err := gguf.NewSet(files)
	if err != nil {
		return nil, err
	}
	if r.card, err = NewCard(set); err != nil {
		return nil, err
	}
	return r, nil
}

// Card returns what the headers tell.
func (r *Remote) Card() *Card { return r.card }

// Name returns the first file's name, without folders.
func (r *Remote) Name() string {
	u, err := url.Parse(r.first)
	if err != nil {
		return ""
	}
	return path.Base(u.Path)
}

// samples is how many pieces of a part are compared beside those of the header.
const samples = 4

// Matches reports whether the files on the server are the model that a manifest describes, as far as
// their sizes, their headers and a few pieces tell: the last one of each part, and some between.
// Models that were trained from each other can have equal headers.
func (r *Remote) Matches(ctx context.Context, m *Manifest) (bool, error) {
	if len(m.Parts) != len(r.parts) {
		return false, nil
	}
	for i, p := range r.parts {
		mp := &m.Parts[i]
		if p.size != mp.Size {
			return false, nil
		}
		length := PieceLength(mp.Size)
		for j := range mp.Pieces {
			end := min(int64(j+1)*length, mp.Size)
			if end > int64(len(p.head)) {
				break
			}
			if pieceHash(p.head[int64(j)*length:end], mp.Size) != mp.Pieces[j] {
				return false, nil
			}
		}
	}
	for i, p := range r.parts {
		mp := &m.Parts[i]
		n := len(mp.Pieces)
		for k := 1; k <= samples && !p.whole; k++ { // a server without ranges would send all before
			j := max(n*k/samples-1, 0)
			span := m.pieceSpan(i, j)
			data, err := p.span(ctx, span)
			if err != nil {
				return false, fmt.Errorf("%s: %w", p.url, err)
			}
			if pieceHash(data, mp.Size) != mp.Pieces[j] {
				return false, nil
			}
		}
	}
	return true, nil
}

// remoteFile is one file on a web server, whose beginning is kept.
type remoteFile struct {
	ctx   context.Context
	web   *webClient
	url   string
	count func(n int64)

	size  int64 // 0: not known yet
	tag   string
	whole bool // the server ignores ranges
	head  []byte
}

// remoteStep is how much of a file's beginning is asked for first; it doubles.
const (
	remoteStep     = 256 << 10
	remoteStepMost = 8 << 20
)

// header reads the file's header.
func (f *remoteFile) header() (*gguf.File, error) {
	if err := f.grow(1); err != nil {
		return nil, err
	}
	u, err := url.Parse(f.url)
	if err != nil {
		return nil, err
	}
	return gguf.Read(f, f.size, path.Base(u.Path))
}

// ReadAt implements io.ReaderAt for what a header may take.
func (f *remoteFile) ReadAt(b []byte, off int64) (int, error) {
	end := min(off+int64(len(b)), f.size)
	if end > gguf.MaxHeader {
		return 0, fmt.Errorf("a header of more than %d bytes", int64(gguf.MaxHeader))
	}
	if off >= end {
		return 0, io.EOF
	}
	if err := f.grow(end); err != nil {
		return 0, err
	}
	n := copy(b, f.head[off:end])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// grow reads the file's beginning, at least up to end.
func (f *remoteFile) grow(end int64) error {
	return f.web.persist(f.ctx, func() (more, progress bool, err error) {
		have := int64(len(f.head))
		if have >= end {
			return false, false, nil
		}
		to := max(end, have+min(max(have, remoteStep), remoteStepMost))
		if f.size > 0 {
			to = min(to, f.size)
		}
		a, err := f.web.get(f.ctx, f.url, have, to, f.size, "")
		if err != nil {
			return true, false, err
		}
		defer a.Close()
		if f.size > 0 && a.tag != f.tag {
			return true, false, lastingError("the file changes while it is read")
		}
		f.size, f.tag = a.size, a.tag
		f.whole = f.whole || a.first != have
		if _, err := io.CopyN(io.Discard, a, have-a.first); err != nil {
			return true, false, cutShort(err, a.first, f.size)
		}
		data, err := io.ReadAll(io.LimitReader(a, min(to, f.size)-have))
		f.head = append(f.head, data...)
		f.count(int64(len(data)))
		switch {
		case err != nil:
			return true, len(data) > 0, cutShort(err, have+int64(len(data)), f.size)
		case len(data) == 0:
			return true, false, cutShort(io.EOF, have, f.size)
		}
		return true, true, nil
	})
}

// span reads any bytes of the file.
func (f *remoteFile) span(ctx context.Context, s Span) (data []byte, err error) {
	err = f.web.persist(ctx, func() (more, progress bool, err error) {
		data = make([]byte, s.Length)
		a, err := f.web.get(ctx, f.url, s.Offset, s.Offset+s.Length, f.size, "")
		if err != nil {
			return true, false, err
		}
		defer a.Close()
		if a.first != s.Offset {
			f.whole = true
			if _, err := io.CopyN(io.Discard, a, s.Offset-a.first); err != nil {
				return true, false, cutShort(err, a.first, f.size)
			}
		}
		if n, err := io.ReadFull(a, data); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = io.EOF
			}
			return true, false, cutShort(err, s.Offset+int64(n), f.size)
		}
		return false, true, nil
	})
	return data, err
}
