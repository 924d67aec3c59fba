package gguf

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind is the kind of a metadata value, numbered as in the file.
type Kind uint32

// The thirteen kinds.
const (
	KindUint8   Kind = 0
	KindInt8    Kind = 1
	KindUint16  Kind = 2
	KindInt16   Kind = 3
	KindUint32  Kind = 4
	KindInt32   Kind = 5
	KindFloat32 Kind = 6
	KindBool    Kind = 7
	KindString  Kind = 8
	KindArray   Kind = 9
	KindUint64  Kind = 10
	KindInt64   Kind = 11
	KindFloat64 Kind = 12
)

// kinds is indexed by Kind. min is the least number of bytes a value of the kind takes in a file
// (an array: element kind and count; a string: its length).
var kinds = [...]struct {
	name string
	min  int
}{
	KindUint8:   {"uint8", 1},
	KindInt8:    {"int8", 1},
	KindUint16:  {"uint16", 2},
	KindInt16:   {"int16", 2},
	KindUint32:  {"uint32", 4},
	KindInt32:   {"int32", 4},
	KindFloat32: {"float32", 4},
	KindBool:    {"bool", 1},
	KindString:  {"string", 8},
	KindArray:   {"array", 12},
	KindUint64:  {"uint64", 8},
	KindInt64:   {"int64", 8},
	KindFloat64: {"float64", 8},
}

// String returns the kind's name ("uint32"), or "kind 77" for an unknown number.
func (k Kind) String() string {
	if uint64(k) < uint64(len(kinds)) {
		return kinds[k].name
	}
	return fmt.Sprintf("kind %d", uint32(k))
}

// Scalar lists the Go types that stand for the kinds other than arrays.
type Scalar interface {
	uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64 | float32 | float64 | bool | string
}

// Value is one metadata value: a scalar, or an array of scalars of one kind. The zero Value is no
// value; every accessor says no to it. Slices it returns belong to the Value: do not change them.
type Value struct {
	// v is a Scalar type or a slice of one.
	v any
}

// ValueOf returns the scalar value v.
func ValueOf[T Scalar](v T) Value { return Value{v} }

// ArrayOf returns an array value. It keeps s.
func ArrayOf[T Scalar](s []T) Value { return Value{s} }

// Kind returns the value's kind, [KindArray] for arrays.
func (v Value) Kind() Kind {
	if v.Len() >= 0 {
		return KindArray
	}
	return v.Elem()
}

// Elem returns the kind of an array's elements, and a scalar's own kind.
func (v Value) Elem() Kind {
	switch v.v.(type) {
	case uint8, []uint8:
		return KindUint8
	case int8, []int8:
		return KindInt8
	case uint16, []uint16:
		return KindUint16
	case int16, []int16:
		return KindInt16
	case uint32, []uint32:
		return KindUint32
	case int32, []int32:
		return KindInt32
	case uint64, []uint64:
		return KindUint64
	case int64, []int64:
		return KindInt64
	case float32, []float32:
		return KindFloat32
	case float64, []float64:
		return KindFloat64
	case bool, []bool:
		return KindBool
	case string, []string:
		return KindString
	}
	return Kind(len(kinds))
}

// Len returns the number of elements of an array, and -1 for a scalar.
func (v Value) Len() int {
	switch s := v.v.(type) {
	case []uint8:
		return len(s)
	case []int8:
		return len(s)
	case []uint16:
		return len(s)
	case []int16:
		return len(s)
	case []uint32:
		return len(s)
	case []int32:
		return len(s)
	case []uint64:
		return len(s)
	case []int64:
		return len(s)
	case []float32:
		return len(s)
	case []float64:
		return len(s)
	case []bool:
		return len(s)
	case []string:
		return len(s)
	}
	return -1
}

// Any returns the value as its Go type: one of [Scalar], or a slice of one.
func (v Value) Any() any { return v.v }

// Uint returns an integer of any width and sign, if it is one and not negative.
func (v Value) Uint() (uint64, bool) {
	switch n := v.v.(type) {
	case uint8:
		return uint64(n), true
	case uint16:
		return uint64(n), true
	case uint32:
		return uint64(n), true
	case uint64:
		return n, true
	}
	n, ok := v.Int()
	return uint64(n), ok && n >= 0
}

// Int returns an integer of any width and sign, if it is one and below 2^63.
func (v Value) Int() (int64, bool) {
	switch n := v.v.(type) {
	case uint8:
		return int64(n), true
	case int8:
		return int64(n), true
	case uint16:
		return int64(n), true
	case int16:
		return int64(n), true
	case uint32:
		return int64(n), true
	case int32:
		return int64(n), true
	case uint64:
		return int64(n), int64(n) >= 0
	case int64:
		return n, true
	}
	return 0, false
}

// Float returns a float32 or float64. A float32 converts back without loss.
func (v Value) Float() (float64, bool) {
	switch n := v.v.(type) {
	case float32:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

// Bool returns a bool.
func (v Value) Bool() (value, ok bool) {
	value, ok = v.v.(bool)
	return value, ok
}

// Text returns a string. Its bytes are as in the file, which need not be UTF-8.
func (v Value) Text() (string, bool) {
	s, ok := v.v.(string)
	return s, ok
}

// Strings returns an array of strings.
func (v Value) Strings() ([]string, bool) {
	s, ok := v.v.([]string)
	return s, ok
}

// Float32s returns an array of float32.
func (v Value) Float32s() ([]float32, bool) {
	s, ok := v.v.([]float32)
	return s, ok
}

// Bools returns an array of bools.
func (v Value) Bools() ([]bool, bool) {
	s, ok := v.v.([]bool)
	return s, ok
}

// Int32s returns an array of integers of any width and sign, if all fit. It copies unless the
// array is of int32.
func (v Value) Int32s() ([]int32, bool) {
	switch s := v.v.(type) {
	case []int32:
		return s, true
	case []uint8:
		return convert[int32](s)
	case []int8:
		return convert[int32](s)
	case []uint16:
		return convert[int32](s)
	case []int16:
		return convert[int32](s)
	case []uint32:
		return convert[int32](s)
	case []uint64:
		return convert[int32](s)
	case []int64:
		return convert[int32](s)
	}
	return nil, false
}

// Uints returns an array of integers of any width and sign, if none is negative. It copies unless
// the array is of uint64.
func (v Value) Uints() ([]uint64, bool) {
	switch s := v.v.(type) {
	case []uint64:
		return s, true
	case []uint8:
		return convert[uint64](s)
	case []int8:
		return convert[uint64](s)
	case []uint16:
		return convert[uint64](s)
	case []int16:
		return convert[uint64](s)
	case []uint32:
		return convert[uint64](s)
	case []int32:
		return convert[uint64](s)
	case []int64:
		return convert[uint64](s)
	}
	return nil, false
}

// integer lists the integer Scalar types.
type integer interface {
	uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64
}

// convert returns s as integers of type T; ok is false when one does not fit.
func convert[T, F integer](s []F) (out []T, ok bool) {
	out = make([]T, len(s))
	for i, n := range s {
		out[i] = T(n)
		if F(out[i]) != n || (out[i] < 0) != (n < 0) {
			return nil, false
		}
	}
	return out, true
}

// String returns the value for people: arrays and long strings are cut short.
func (v Value) String() string {
	if s, ok := v.Text(); ok {
		return quote(s)
	}
	n := v.Len()
	if n < 0 {
		return fmt.Sprint(v.v)
	}
	var b strings.Builder
	b.WriteString(v.Elem().String() + "[" + strconv.Itoa(n) + "]{")
	for i := range min(n, 8) {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(v.at(i).String())
	}
	if n > 8 {
		b.WriteString(", …")
	}
	b.WriteString("}")
	return b.String()
}

// at returns element i of an array as a scalar value.
func (v Value) at(i int) Value {
	switch s := v.v.(type) {
	case []uint8:
		return Value{s[i]}
	case []int8:
		return Value{s[i]}
	case []uint16:
		return Value{s[i]}
	case []int16:
		return Value{s[i]}
	case []uint32:
		return Value{s[i]}
	case []int32:
		return Value{s[i]}
	case []uint64:
		return Value{s[i]}
	case []int64:
		return Value{s[i]}
	case []float32:
		return Value{s[i]}
	case []float64:
		return Value{s[i]}
	case []bool:
		return Value{s[i]}
	case []string:
		return Value{s[i]}
	}
	return Value{}
}
