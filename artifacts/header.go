package artifacts

import (
	"errors"
	"io"
	"io/fs"

	"github.com/starling-swarm/starling/runtime/gguf"
)

// headerReader reads one part of a model as if it were whole: bytes that are not verified are
// zeros. It notes when any was asked for, since what was made of them means nothing then.
type headerReader struct {
	m       *Model
	part    int
	guessed bool
}

// ReadAt implements io.ReaderAt.
func (r *headerReader) ReadAt(b []byte, off int64) (int, error) {
	p := &r.m.bundle.Manifest.Parts[r.part]
	if off < 0 || off >= p.Size {
		return 0, io.EOF
	}
	var end error
	if int64(len(b)) > p.Size-off {
		b, end = b[:p.Size-off], io.EOF
	}
	n, err := r.m.readAt(r.part, b, off)
	clear(b[n:])
	if err != nil && err != io.EOF && !errors.Is(err, fs.ErrNotExist) {
		return n, err
	}
	length := PieceLength(p.Size)
	for i := off / length; i*length < off+int64(len(b)); i++ {
		if r.m.hasPiece(r.part, int(i)) {
			continue
		}
		r.guessed = true
		clear(b[max(0, i*length-off):min(int64(len(b)), (i+1)*length-off)])
	}
	return len(b), end
}

// Card returns the model's card, or false as long as its header is not here. A header that is here
// and no model's is an error of FetchHeader.
func (m *Model) Card() (*Card, bool) {
	m.mu.Lock()
	held := 0
	for i := range m.parts {
		held += m.parts[i].have.count()
	}
	card, tried := m.card, m.tried == held
	m.mu.Unlock()
	if card == nil && !tried {
		card, _, _ = m.readHeader()
		m.mu.Lock()
		m.tried = held // only now: a second caller who comes meanwhile must read for itself
		m.mu.Unlock()
	}
	return card, card != nil
}

// readHeader makes the card from the verified bytes. If they don't suffice it returns the spans to
// fetch before it is called again; an error is final. Spans grow so that at most half a percent of
// a part, or one piece, is fetched in vain.
func (m *Model) readHeader() (card *Card, need []Span, err error) {
	man := m.bundle.Manifest
	files := make([]*gguf.File, len(man.Parts))
	for i := range man.Parts {
		size := man.Parts[i].Size
		r := &headerReader{m: m, part: i}
		f, err := gguf.Read(r, size, man.Parts[i].Name)
		if err == nil && m.Have([]Span{{Part: i, Length: f.HeaderSize}}) {
			files[i] = f
			continue
		}
		if err != nil && !r.guessed {
			return nil, nil, err
		}
		need = append(need, m.nextHeaderSpan(i))
	}
	if len(need) > 0 {
		return nil, need, nil
	}
	set, err := gguf.NewSet(files)
	if err != nil {
		return nil, nil, err
	}
	if card, err = NewCard(set); err != nil {
		return nil, nil, err
	}
	m.mu.Lock()
	m.card = card
	m.mu.Unlock()
	return card, nil, nil
}

// nextHeaderSpan returns the span to fetch after the verified beginning of a part.
func (m *Model) nextHeaderSpan(part int) Span {
	const most = 2 << 20
	m.mu.Lock()
	defer m.mu.Unlock()
	have := m.parts[part].have
	size := m.bundle.Manifest.Parts[part].Size
	length := PieceLength(size)
	held := int64(0)
	for held < int64(have.n) && have.has(int(held)) {
		held++
	}
	return Span{Part: part, Length: min(size, held*length+max(length, min(size/200, most)))}
}
