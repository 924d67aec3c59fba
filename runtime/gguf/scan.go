package gguf

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
)

// chunkSize is how much of a header is read at a time. Strings of the header are slices of the
// chunks, so that a vocabulary of 150,000 tokens costs a hundred allocations instead of as many.
const chunkSize = 64 << 10

// scanner reads a header field by field, never past end, and checks every length against what
// remains before it allocates for it.
type scanner struct {
	r    io.ReaderAt
	name string // of the file, for errors
	size int64  // of the file
	end  int64  // the header may not reach past this: min(size, MaxHeader)

	chunk string // file bytes from base on
	base  int64
	pos   int    // next byte within chunk
	buf   []byte // reused to fill chunks
}

// offset returns the file offset of the next byte.
func (s *scanner) offset() int64 { return s.base + int64(s.pos) }

// remaining returns how many bytes the header may still have.
func (s *scanner) remaining() uint64 { return uint64(s.end - s.offset()) }

// fail returns an error at offset off.
func (s *scanner) fail(off int64, field, format string, args ...any) error {
	return &Error{File: s.name, Offset: off, Field: field, Problem: fmt.Sprintf(format, args...)}
}

// short reports that field, at the current offset, needs more bytes than are left.
func (s *scanner) short(field, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	if s.end < s.size {
		return s.fail(s.offset(), field, "%s, past the %d MiB a header may take: the file is damaged", what, MaxHeader>>20)
	}
	return s.fail(s.offset(), field, "%s but the file has only %d more: it is cut short or damaged, download it again", what, s.remaining())
}

// take returns the next n bytes. The string stays valid and shares a chunk.
func (s *scanner) take(n int, field string) (string, error) {
	if n > len(s.chunk)-s.pos {
		if uint64(n) > s.remaining() {
			return "", s.short(field, "it needs %d bytes", n)
		}
		if err := s.fill(n, field); err != nil {
			return "", err
		}
	}
	b := s.chunk[s.pos : s.pos+n]
	s.pos += n
	return b, nil
}

// fill reads a new chunk that starts at the current offset and has at least n bytes; the caller has
// checked that the file's size allows them.
func (s *scanner) fill(n int, field string) error {
	off := s.offset()
	want := int(min(int64(max(n, chunkSize)), s.end-off))
	if cap(s.buf) < want {
		s.buf = make([]byte, want)
	}
	got, err := s.r.ReadAt(s.buf[:want], off)
	if got < n {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return &Error{File: s.name, Offset: off, Field: field, Problem: "reading failed: " + err.Error(), Err: err}
	}
	s.chunk, s.base, s.pos = string(s.buf[:got]), off, 0
	return nil
}

// u32 reads a u32.
func (s *scanner) u32(field string) (uint32, error) {
	b, err := s.take(4, field)
	if err != nil {
		return 0, err
	}
	return le32(b), nil
}

// u64 reads a u64.
func (s *scanner) u64(field string) (uint64, error) {
	b, err := s.take(8, field)
	if err != nil {
		return 0, err
	}
	return le64(b), nil
}

// str reads a string of at most limit bytes.
func (s *scanner) str(limit int, field string) (string, error) {
	off := s.offset()
	n, err := s.u64(field)
	if err != nil {
		return "", err
	}
	if n > uint64(limit) {
		return "", s.fail(off, field, "a string of %d bytes, at most %d are allowed: the file is damaged", n, limit)
	}
	return s.take(int(n), field)
}

// count reads a number of things that take at least least bytes each, at most limit.
func (s *scanner) count(limit uint64, least int, field string) (int, error) {
	off := s.offset()
	n, err := s.u64(field)
	if err != nil {
		return 0, err
	}
	if n > limit {
		return 0, s.fail(off, field, "%d, at most %d are allowed: the file is damaged", n, limit)
	}
	if need := n * uint64(least); need > s.remaining() {
		return 0, s.short(field, "%d of them need at least %d bytes", n, need)
	}
	return int(n), nil
}

// value reads a value of kind k.
func (s *scanner) value(k Kind, field string) (Value, error) {
	switch k {
	case KindString:
		v, err := s.str(MaxString, field)
		return ValueOf(v), err
	case KindArray:
		return s.array(field)
	}
	b, err := s.take(kinds[k].min, field)
	if err != nil {
		return Value{}, err
	}
	switch k {
	case KindUint8:
		return ValueOf(b[0]), nil
	case KindInt8:
		return ValueOf(int8(b[0])), nil
	case KindBool:
		return ValueOf(b[0] != 0), nil
	case KindUint16:
		return ValueOf(le16(b)), nil
	case KindInt16:
		return ValueOf(int16(le16(b))), nil
	case KindUint32:
		return ValueOf(le32(b)), nil
	case KindInt32:
		return ValueOf(int32(le32(b))), nil
	case KindUint64:
		return ValueOf(le64(b)), nil
	case KindInt64:
		return ValueOf(int64(le64(b))), nil
	case KindFloat32:
		return ValueOf(math.Float32frombits(le32(b))), nil
	default: // KindFloat64: the caller has checked k
		return ValueOf(math.Float64frombits(le64(b))), nil
	}
}

// array reads an array value. Arrays of arrays are refused, as they are by llama.cpp.
func (s *scanner) array(field string) (Value, error) {
	off := s.offset()
	e, err := s.u32(field)
	if err != nil {
		return Value{}, err
	}
	elem := Kind(e)
	if uint64(elem) >= uint64(len(kinds)) {
		return Value{}, s.fail(off, field, "%v of array elements is not one of the 13 kinds: the file is damaged", elem)
	}
	if elem == KindArray {
		return Value{}, s.fail(off, field, "arrays of arrays are not supported")
	}
	n, err := s.count(MaxArray, kinds[elem].min, field)
	if err != nil {
		return Value{}, err
	}
	switch elem {
	case KindUint8:
		return numbers(s, n, 1, field, func(b string) uint8 { return b[0] })
	case KindInt8:
		return numbers(s, n, 1, field, func(b string) int8 { return int8(b[0]) })
	case KindUint16:
		return numbers(s, n, 2, field, le16)
	case KindInt16:
		return numbers(s, n, 2, field, func(b string) int16 { return int16(le16(b)) })
	case KindUint32:
		return numbers(s, n, 4, field, le32)
	case KindInt32:
		return numbers(s, n, 4, field, func(b string) int32 { return int32(le32(b)) })
	case KindUint64:
		return numbers(s, n, 8, field, le64)
	case KindInt64:
		return numbers(s, n, 8, field, func(b string) int64 { return int64(le64(b)) })
	case KindFloat32:
		return numbers(s, n, 4, field, func(b string) float32 { return math.Float32frombits(le32(b)) })
	case KindFloat64:
		return numbers(s, n, 8, field, func(b string) float64 { return math.Float64frombits(le64(b)) })
	case KindBool:
		return numbers(s, n, 1, field, func(b string) bool { return b[0] != 0 })
	default: // KindString
		return s.strings(n, field)
	}
}

// firstCap bounds what is allocated for an array before any of its elements has been read.
const firstCap = 256 << 10

// numbers reads n elements of size bytes each.
func numbers[T Scalar](s *scanner, n, size int, field string, get func(string) T) (Value, error) {
	out := make([]T, 0, min(n, firstCap))
	for len(out) < n {
		batch := min(n-len(out), chunkSize/size)
		b, err := s.take(batch*size, field)
		if err != nil {
			return Value{}, err
		}
		for ; len(b) > 0; b = b[size:] {
			out = append(out, get(b))
		}
	}
	return ArrayOf(out), nil
}

// strings reads n strings.
func (s *scanner) strings(n int, field string) (Value, error) {
	out := make([]string, 0, min(n, firstCap))
	for i := range n {
		text, err := s.str(MaxString, field)
		if err != nil {
			if e, ok := err.(*Error); ok {
				e.Field = fmt.Sprintf("%s element %d", field, i)
			}
			return Value{}, err
		}
		out = append(out, text)
	}
	return ArrayOf(out), nil
}

func le16(b string) uint16 { return uint16(b[0]) | uint16(b[1])<<8 }

func le32(b string) uint32 {
	_ = b[3]
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

func le64(b string) uint64 {
	_ = b[7]
	return uint64(le32(b)) | uint64(le32(b[4:]))<<32
}

// mul64 returns a·b; ok is false when it does not fit.
func mul64(a, b uint64) (product uint64, ok bool) {
	hi, lo := bits.Mul64(a, b)
	return lo, hi == 0
}
