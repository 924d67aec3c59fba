package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// ErrFormat is wrapped by every decoding error: the bytes don't follow this
// package's format. The peer that sent them is at fault.
var ErrFormat = errors.New("malformed message")

// Encoder appends fields to a buffer. The zero value is ready to use.
type Encoder struct{ buf []byte }

// NewEncoder returns an Encoder that appends to buf (which may be nil).
func NewEncoder(buf []byte) *Encoder { return &Encoder{buf} }

// Data returns everything appended so far; it aliases the Encoder's buffer.
func (e *Encoder) Data() []byte { return e.buf }

// U8 appends one byte.
func (e *Encoder) U8(v uint8) { e.buf = append(e.buf, v) }

// Bool appends 0 or 1.
func (e *Encoder) Bool(v bool) {
	if v {
		e.U8(1)
	} else {
		e.U8(0)
	}
}

// U16 appends two bytes.
func (e *Encoder) U16(v uint16) { e.buf = binary.LittleEndian.AppendUint16(e.buf, v) }

// U32 appends four bytes.
func (e *Encoder) U32(v uint32) { e.buf = binary.LittleEndian.AppendUint32(e.buf, v) }

// U64 appends eight bytes.
func (e *Encoder) U64(v uint64) { e.buf = binary.LittleEndian.AppendUint64(e.buf, v) }

// I64 appends v in two's complement.
func (e *Encoder) I64(v int64) { e.U64(uint64(v)) }

// F32 appends the IEEE 754 bits of v.
func (e *Encoder) F32(v float32) { e.U32(math.Float32bits(v)) }

// F64 appends the IEEE 754 bits of v.
func (e *Encoder) F64(v float64) { e.U64(math.Float64bits(v)) }

// Hash appends 32 raw bytes.
func (e *Encoder) Hash(v [32]byte) { e.buf = append(e.buf, v[:]...) }

// Raw appends v without a length.
func (e *Encoder) Raw(v []byte) { e.buf = append(e.buf, v...) }

// Bytes appends a u32 length and v.
func (e *Encoder) Bytes(v []byte) {
	e.U32(uint32(len(v)))
	e.buf = append(e.buf, v...)
}

// String appends a u16 length and v. Longer strings are cut at 65,535 bytes;
// receivers' limits are far below.
func (e *Encoder) String(v string) {
	if len(v) > math.MaxUint16 {
		v = v[:math.MaxUint16]
	}
	e.U16(uint16(len(v)))
	e.buf = append(e.buf, v...)
}

// Decoder reads fields from a buffer. After the first error every read returns
// a zero value and Err reports what was wrong and where.
type Decoder struct {
	buf []byte
	off int
	err error
}

// NewDecoder reads from buf, which the Decoder never changes.
func NewDecoder(buf []byte) *Decoder { return &Decoder{buf: buf} }

// Err returns the first error.
func (d *Decoder) Err() error { return d.err }

// Len returns how many bytes are left.
func (d *Decoder) Len() int { return len(d.buf) - d.off }

// Done returns the first error, or an error if bytes are left over.
func (d *Decoder) Done() error {
	if d.err == nil && d.Len() > 0 {
		d.fail("%d surplus bytes", d.Len())
	}
	return d.err
}

// Fail records an error found by the caller in a field just read.
func (d *Decoder) Fail(format string, args ...any) { d.fail(format, args...) }

func (d *Decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w at byte %d: %s", ErrFormat, d.off, fmt.Sprintf(format, args...))
	}
}

func (d *Decoder) take(n int) []byte {
	if d.err != nil {
		return nil
	}
	if n > d.Len() {
		d.fail("%d bytes wanted, %d left", n, d.Len())
		return nil
	}
	b := d.buf[d.off : d.off+n : d.off+n]
	d.off += n
	return b
}

// U8 reads one byte.
func (d *Decoder) U8() uint8 {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

// Bool reads a byte that must be 0 or 1.
func (d *Decoder) Bool() bool {
	v := d.U8()
	if v > 1 {
		d.fail("%d is no truth value", v)
	}
	return v == 1
}

// U16 reads two bytes.
func (d *Decoder) U16() uint16 {
	if b := d.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

// U32 reads four bytes.
func (d *Decoder) U32() uint32 {
	if b := d.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// U64 reads eight bytes.
func (d *Decoder) U64() uint64 {
	if b := d.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// I64 reads eight bytes in two's complement.
func (d *Decoder) I64() int64 { return int64(d.U64()) }

// F32 reads an IEEE 754 single; NaN and infinity are refused.
func (d *Decoder) F32() float32 {
	v := math.Float32frombits(d.U32())
	if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
		d.fail("number is not finite")
		return 0
	}
	return v
}

// F64 reads an IEEE 754 double; NaN and infinity are refused.
func (d *Decoder) F64() float64 {
	v := math.Float64frombits(d.U64())
	if math.IsNaN(v) || math.IsInf(v, 0) {
		d.fail("number is not finite")
		return 0
	}
	return v
}

// Hash reads 32 raw bytes.
func (d *Decoder) Hash() (h [32]byte) {
	copy(h[:], d.take(32))
	return h
}

// Bytes reads a byte string of at most max bytes; the result aliases the
// Decoder's buffer.
func (d *Decoder) Bytes(max int) []byte {
	n := int(d.U32())
	if d.err == nil && (n < 0 || n > max) {
		d.fail("%d bytes exceed the limit of %d", n, max)
		return nil
	}
	return d.take(n)
}

// Rest reads everything that is left; the result aliases the Decoder's buffer.
func (d *Decoder) Rest() []byte { return d.take(d.Len()) }

// String reads a string of at most max bytes of valid UTF-8.
func (d *Decoder) String(max int) string {
	n := int(d.U16())
	if d.err == nil && n > max {
		d.fail("string of %d bytes exceeds the limit of %d", n, max)
		return ""
	}
	b := d.take(n)
	if !utf8.Valid(b) {
		d.fail("string is not UTF-8")
		return ""
	}
	return string(b)
}

// Count reads a u32 element count that must not exceed max nor what the bytes
// left can hold at elem bytes each.
func (d *Decoder) Count(max, elem int) int {
	n := int(d.U32())
	if d.err != nil {
		return 0
	}
	if n < 0 || n > max {
		d.fail("count %d exceeds the limit of %d", n, max)
		return 0
	}
	if elem > 0 && n > d.Len()/elem {
		d.fail("count %d needs more than the %d bytes left", n, d.Len())
		return 0
	}
	return n
}
