package node

import (
	"bufio"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm/wire"
)

// A KV file has the cache of one sequence of tokens, as runtime exports it:
//
//	"starkv", 0, 1                       format and version
//	number     u64 little endian         of the file; no two that a key seals have the same
//	records    u32 little endian, sealed its length and AES-256-GCM's text with 16 bytes that authenticate it
//
// First come the pages, ascending, of each the rows in every layer that keeps all of them; then, where all others have tails, what these were at each
// snapshot, ascending; then, of each other layer, what it has at the end. A record's nonce is the file's number and the record's place. What it belongs to is authenticated with it (kvRecord.bind), so that
// a record can't stand in for another one, of this or another file.
const (
	kvMagic  = "starkv\x00\x01"
	kvHeader = len(kvMagic) + 8
	kvFrame  = 4 + 16 // bytes of a record beside its text
)

// errDamaged says that a KV file does not have what was written to it.
var errDamaged = errors.New("the file is damaged")

// kvRecord is one record's place, and what it holds: positions [first, last) of a layer.
type kvRecord struct {
	index       uint32
	layer       int
	first, last int
	bytes       int // of the text
	tokens      wire.Prefix
}

// kvLayout says what a file of the first end positions of some layers has where.
type kvLayout struct {
	model, profile [32]byte
	rowBytes       func(layer int) int // bytes of a position's row
	marks          []wire.Mark         // pages' and the end's
	rows, ends     []int               // layers that keep all rows, and the others
	snapshots      []int               // positions before end, ascending: what the others were there
	pageBytes      int64               // of a full page's records
	end            int
}

// newKVLayout lays out a file of what a sequence holds; false if marks lack some page's end, or the end of all.
func newKVLayout(model [32]byte, k *known, cache []runtime.LayerCache, seq runtime.Sequence) (*kvLayout, bool) {
	f := &kvLayout{model: model, profile: k.profile, rowBytes: seq.RowBytes, end: k.end()}
	tails := true // have all others
	for l := k.layers.First; l < k.layers.Last; l++ {
		if c := cache[l]; c.Window > 0 || c.State > 0 {
			f.ends = append(f.ends, l)
			tails = tails && c.Window == 0 && seq.RowBytes(l) == 0
		} else {
			f.rows = append(f.rows, l)
			f.pageBytes += int64(kvFrame + wire.PageRows*seq.RowBytes(l))
		}
	}
	for _, m := range k.marks {
		if m.Position%wire.PageRows == 0 || int(m.Position) == f.end {
			f.marks = append(f.marks, m)
		}
		if at := int(m.Position); tails && len(f.ends) > 0 && at%wire.PageRows == 0 && at < f.end && seq.Reach(at) == at {
			f.snapshots = append(f.snapshots, at)
		}
	}
	return f, len(f.marks) == f.pages() && f.end > 0 && int(f.marks[len(f.marks)-1].Position) == f.end
}

func (f *kvLayout) pages() int { return (f.end + wire.PageRows - 1) / wire.PageRows }

// page returns the records of a page.
func (f *kvLayout) page(p int) (list []kvRecord) {
	first := p * wire.PageRows
	last := min(first+wire.PageRows, f.end)
	for i, l := range f.rows {
		list = append(list, kvRecord{index: uint32(p*len(f.rows) + i), layer: l, first: first, last: last,
			bytes: (last - first) * f.rowBytes(l), tokens: f.marks[p].Prefix})
	}
	return list
}

// stops returns where what the layers have that don't keep all rows can be had: at snapshots, and at the end.
func (f *kvLayout) stops() []int { return append(slices.Clone(f.snapshots), f.end) }

// at returns the records of the layers that don't keep all rows at one of the stops. bytes says how large what a layer exports is.
func (f *kvLayout) at(stop int, bytes func(layer, first, last int) int) (list []kvRecord) {
	n := f.stops()[stop]
	for i, l := range f.ends {
		list = append(list, kvRecord{index: uint32(f.pages()*len(f.rows) + stop*len(f.ends) + i), layer: l, last: n, bytes: bytes(l, 0, n),
			tokens: f.marks[(n-1)/wire.PageRows].Prefix})
	}
	return list
}

// reach returns up to where a sequence can be read that is to have the first n positions at most.
func (f *kvLayout) reach(n int) int {
	if len(f.ends) == 0 {
		return min(n, f.end)
	}
	at := 0
	for _, stop := range f.stops() {
		if stop <= n {
			at = stop
		}
	}
	return at
}

// size returns the bytes of the whole file.
func (f *kvLayout) size(bytes func(layer, first, last int) int) int64 {
	n := f.rowsEnd()
	for i := range f.stops() {
		n += recordBytes(f.at(i, bytes))
	}
	return n
}

// rowsEnd returns where the records behind the pages begin.
func (f *kvLayout) rowsEnd() int64 {
	return int64(kvHeader) + int64(f.pages()-1)*f.pageBytes + recordBytes(f.page(f.pages()-1))
}

// recordBytes returns what records take in a file.
func recordBytes(list []kvRecord) (n int64) {
	for _, r := range list {
		n += int64(kvFrame + r.bytes)
	}
	return n
}

// bind returns what is authenticated with a record's text.
func (f *kvLayout) bind(r *kvRecord) []byte {
	b := make([]byte, 0, 3*32+3*4)
	b = append(b, f.model[:]...)
	b = append(b, f.profile[:]...)
	b = append(b, r.tokens[:]...)
	for _, n := range []int{r.layer, r.first, r.last} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	return b
}

func kvNonce(number uint64, index uint32) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, number), index)
}

// kvWriter writes a file's records in order.
type kvWriter struct {
	aead   cipher.AEAD
	number uint64
	layout *kvLayout
	w      *bufio.Writer
	buf    []byte
}

func newKVWriter(w io.Writer, aead cipher.AEAD, number uint64, f *kvLayout) *kvWriter {
	k := &kvWriter{aead: aead, number: number, layout: f, w: bufio.NewWriterSize(w, 1<<20)}
	k.w.WriteString(kvMagic) // errors stay, and Flush tells them
	k.w.Write(binary.LittleEndian.AppendUint64(nil, number))
	return k
}

func (k *kvWriter) write(r *kvRecord, text []byte) error {
	k.buf = binary.LittleEndian.AppendUint32(k.buf[:0], uint32(len(text)+k.aead.Overhead()))
	k.buf = k.aead.Seal(k.buf, kvNonce(k.number, r.index), text, k.layout.bind(r))
	_, err := k.w.Write(k.buf)
	return err
}

// kvReader reads a file's records in order, of all pages from one on, or what is behind them.
type kvReader struct {
	file   io.ReadSeeker
	aead   cipher.AEAD
	number uint64
	layout *kvLayout
	r      *bufio.Reader
	buf    []byte
	bytes  int64 // read
}

// newKVReader checks the header and goes to a page.
func newKVReader(r io.ReadSeeker, aead cipher.AEAD, number uint64, f *kvLayout, page int) (*kvReader, error) {
	var head [kvHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("%w: it has no header", errDamaged)
	}
	if string(head[:len(kvMagic)]) != kvMagic || binary.LittleEndian.Uint64(head[len(kvMagic):]) != number {
		return nil, fmt.Errorf("%w: its header is another file's", errDamaged)
	}
	if _, err := r.Seek(int64(kvHeader)+int64(page)*f.pageBytes, io.SeekStart); err != nil {
		return nil, err
	}
	return &kvReader{file: r, aead: aead, number: number, layout: f, r: bufio.NewReaderSize(r, 1<<20)}, nil
}

// skipPages goes to what is behind the pages.
func (k *kvReader) skipPages() error {
	_, err := k.file.Seek(k.layout.rowsEnd(), io.SeekStart)
	k.r.Reset(k.file)
	return err
}

// read returns a record's text, which is there until the next call.
func (k *kvReader) read(r *kvRecord) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(k.r, head[:]); err != nil {
		return nil, fmt.Errorf("%w: it ends before positions %d to %d of layer %d", errDamaged, r.first, r.last, r.layer)
	}
	n := r.bytes + k.aead.Overhead()
	if got := binary.LittleEndian.Uint32(head[:]); int64(got) != int64(n) {
		return nil, fmt.Errorf("%w: %d bytes for positions %d to %d of layer %d, not %d", errDamaged, got, r.first, r.last, r.layer, n)
	}
	if cap(k.buf) < n {
		k.buf = make([]byte, n)
	}
	k.buf = k.buf[:n]
	if _, err := io.ReadFull(k.r, k.buf); err != nil {
		return nil, fmt.Errorf("%w: it ends in positions %d to %d of layer %d", errDamaged, r.first, r.last, r.layer)
	}
	text, err := k.aead.Open(k.buf[:0], kvNonce(k.number, r.index), k.buf, k.layout.bind(r))
	if err != nil {
		return nil, fmt.Errorf("%w: positions %d to %d of layer %d are not what was written", errDamaged, r.first, r.last, r.layer)
	}
	k.bytes += int64(len(head) + n)
	return text, nil
}
