package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// Writer makes a GGUF v3 file out of metadata and tensors held in memory. The zero Writer is ready.
// The first mistake made with it (a key or name twice, a wrong number of bytes) is returned by
// WriteTo; what it writes, Read accepts.
type Writer struct {
	keys    []string
	values  map[string]Value
	tensors []Tensor
	data    [][]byte
	names   map[string]bool
	err     error
}

// Set adds a metadata pair after those already there. The value is kept, not copied.
func (w *Writer) Set(key string, v Value) {
	if w.values == nil {
		w.values = make(map[string]Value)
	}
	_, dup := w.values[key]
	switch {
	case key == "" || len(key) > MaxKey:
		w.fail("key %s has %d bytes, not 1 to %d", quote(key), len(key), MaxKey)
	case dup:
		w.fail("key %s is set twice", quote(key))
	case uint64(v.Elem()) >= uint64(len(kinds)):
		w.fail("key %s has no value", quote(key))
	case v.Len() > MaxArray:
		w.fail("key %s is an array of %d elements, at most %d are allowed", quote(key), v.Len(), MaxArray)
	case len(w.keys) == MaxKeys:
		w.fail("more than %d keys", MaxKeys)
	case longest(v) > MaxString:
		w.fail("key %s has a string of %d bytes, at most %d are allowed", quote(key), longest(v), MaxString)
	}
	if key == "general.alignment" {
		if _, err := alignment(v); err != nil {
			w.fail("general.alignment: %v", err)
		}
	}
	w.keys = append(w.keys, key)
	w.values[key] = v
}

// longest returns the bytes of the longest string in v.
func longest(v Value) int {
	n := 0
	if s, ok := v.Text(); ok {
		n = len(s)
	}
	s, _ := v.Strings()
	for _, t := range s {
		n = max(n, len(t))
	}
	return n
}

// AddTensor adds a tensor after those already there: dims in ggml's order, data as ggml stores
// them. Both are kept, not copied.
func (w *Writer) AddTensor(name string, t Type, dims []uint64, data []byte) {
	if w.names == nil {
		w.names = make(map[string]bool)
	}
	size, _, err := dataSize(t, dims)
	switch {
	case name == "" || len(name) > MaxName:
		w.fail("tensor name %s has %d bytes, not 1 to %d", quote(name), len(name), MaxName)
	case w.names[name]:
		w.fail("tensor %s is added twice", quote(name))
	case len(dims) > MaxDims:
		w.fail("tensor %s has %d dims, at most %d are allowed", quote(name), len(dims), MaxDims)
	case err != nil:
		w.fail("tensor %s: %v", quote(name), err)
	case size != int64(len(data)):
		w.fail("tensor %s of %v %v takes %d bytes, not %d", quote(name), t, dims, size, len(data))
	case len(w.tensors) == MaxTensors:
		w.fail("more than %d tensors", MaxTensors)
	}
	w.names[name] = true
	w.tensors = append(w.tensors, Tensor{Name: name, Type: t, Dims: dims, Size: size})
	w.data = append(w.data, data)
}

// fail records the first mistake.
func (w *Writer) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("gguf: writing: "+format, args...)
	}
}

// WriteTo writes the file. Tensors lie in the order they were added, each at a multiple of
// general.alignment (32 unless set), the last one padded too.
func (w *Writer) WriteTo(to io.Writer) (int64, error) {
	if w.err != nil {
		return 0, w.err
	}
	align := uint64(defaultAlignment)
	if v, ok := w.values["general.alignment"]; ok {
		align, _ = v.Uint()
	}
	head := w.header(align)
	if len(head) > MaxHeader {
		return 0, fmt.Errorf("gguf: writing: a header of %d bytes, at most %d are allowed", len(head), MaxHeader)
	}
	out := &countingWriter{w: bufio.NewWriterSize(to, 64<<10)}
	out.write(head)
	for _, data := range w.data {
		out.pad(align)
		out.write(data)
	}
	if len(w.data) > 0 {
		out.pad(align)
	}
	if out.err == nil {
		out.err = out.w.Flush()
	}
	return out.n, out.err
}

// header returns everything up to the end of the tensor table.
func (w *Writer) header(align uint64) []byte {
	le := binary.LittleEndian
	b := []byte("GGUF")
	b = le.AppendUint32(b, 3)
	b = le.AppendUint64(b, uint64(len(w.tensors)))
	b = le.AppendUint64(b, uint64(len(w.keys)))
	for _, key := range w.keys {
		b = appendString(b, key)
		b = appendValue(b, w.values[key])
	}
	var offset uint64
	for _, t := range w.tensors {
		b = appendString(b, t.Name)
		b = le.AppendUint32(b, uint32(len(t.Dims)))
		for _, d := range t.Dims {
			b = le.AppendUint64(b, d)
		}
		b = le.AppendUint32(b, uint32(t.Type))
		b = le.AppendUint64(b, offset)
		offset = alignUp(offset+uint64(t.Size), align)
	}
	return b
}

// appendString appends a length and the bytes of s.
func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// appendValue appends v's kind and bytes.
func appendValue(b []byte, v Value) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, uint32(v.Kind()))
	n := v.Len()
	if n < 0 {
		return appendScalar(b, v)
	}
	b = le.AppendUint32(b, uint32(v.Elem()))
	b = le.AppendUint64(b, uint64(n))
	for i := range n {
		b = appendScalar(b, v.at(i))
	}
	return b
}

// appendScalar appends the bytes of a scalar.
func appendScalar(b []byte, v Value) []byte {
	le := binary.LittleEndian
	switch x := v.v.(type) {
	case uint8:
		return append(b, x)
	case int8:
		return append(b, uint8(x))
	case uint16:
		return le.AppendUint16(b, x)
	case int16:
		return le.AppendUint16(b, uint16(x))
	case uint32:
		return le.AppendUint32(b, x)
	case int32:
		return le.AppendUint32(b, uint32(x))
	case uint64:
		return le.AppendUint64(b, x)
	case int64:
		return le.AppendUint64(b, uint64(x))
	case float32:
		return le.AppendUint32(b, math.Float32bits(x))
	case float64:
		return le.AppendUint64(b, math.Float64bits(x))
	case bool:
		if x {
			return append(b, 1)
		}
		return append(b, 0)
	case string:
		return appendString(b, x)
	}
	panic(fmt.Sprintf("gguf: a Value holds a %T", v.v))
}

// countingWriter counts what it writes and keeps the first error.
type countingWriter struct {
	w   *bufio.Writer
	n   int64
	err error
}

func (c *countingWriter) write(b []byte) {
	if c.err != nil {
		return
	}
	var n int
	n, c.err = c.w.Write(b)
	c.n += int64(n)
}

// pad writes zeros up to the next multiple of align.
func (c *countingWriter) pad(align uint64) {
	var zeros [4096]byte
	for left := alignUp(uint64(c.n), align) - uint64(c.n); left > 0 && c.err == nil; {
		n := min(left, uint64(len(zeros)))
		c.write(zeros[:n])
		left -= n
	}
}
