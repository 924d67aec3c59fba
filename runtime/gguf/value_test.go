package gguf

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestValueKinds(t *testing.T) {
	for _, c := range []struct {
		v    Value
		kind Kind
		elem Kind
		len  int
		text string
	}{
		{ValueOf(uint8(1)), KindUint8, KindUint8, -1, "1"},
		{ValueOf(int64(-1)), KindInt64, KindInt64, -1, "-1"},
		{ValueOf(true), KindBool, KindBool, -1, "true"},
		{ValueOf(float32(0.1)), KindFloat32, KindFloat32, -1, "0.1"},
		{ValueOf("a\n"), KindString, KindString, -1, `"a\n"`},
		{ValueOf(strings.Repeat("é", 50)), KindString, KindString, -1, `"` + strings.Repeat("é", 32) + `"…`},
		{ValueOf("a" + strings.Repeat("é", 50)), KindString, KindString, -1, `"a` + strings.Repeat("é", 31) + `"…`},
		{ArrayOf([]float64{}), KindArray, KindFloat64, 0, "float64[0]{}"},
		{ArrayOf([]string{"a", "b"}), KindArray, KindString, 2, `string[2]{"a", "b"}`},
		{ArrayOf([]int8{1, 2, 3, 4, 5, 6, 7, 8, 9}), KindArray, KindInt8, 9, "int8[9]{1, 2, 3, 4, 5, 6, 7, 8, …}"},
		{Value{}, Kind(13), Kind(13), -1, "<nil>"},
	} {
		if c.v.Kind() != c.kind || c.v.Elem() != c.elem || c.v.Len() != c.len || c.v.String() != c.text {
			t.Errorf("%v, %v, %d, %s; want %v, %v, %d, %s", c.v.Kind(), c.v.Elem(), c.v.Len(), c.v, c.kind, c.elem, c.len, c.text)
		}
	}
	if KindArray.String() != "array" || Kind(13).String() != "kind 13" {
		t.Error(KindArray, Kind(13))
	}
}

// Integers of any kind convert when they fit, and only then.
func TestValueIntegers(t *testing.T) {
	for _, c := range []struct {
		v   Value
		u   uint64
		uok bool
		i   int64
		iok bool
	}{
		{ValueOf(uint8(255)), 255, true, 255, true},
		{ValueOf(int8(-1)), 0, false, -1, true},
		{ValueOf(uint16(65535)), 65535, true, 65535, true},
		{ValueOf(int16(-5)), 0, false, -5, true},
		{ValueOf(uint32(math.MaxUint32)), math.MaxUint32, true, math.MaxUint32, true},
		{ValueOf(int32(7)), 7, true, 7, true},
		{ValueOf(uint64(math.MaxUint64)), math.MaxUint64, true, 0, false},
		{ValueOf(int64(math.MinInt64)), 0, false, math.MinInt64, true},
		{ValueOf(float32(1)), 0, false, 0, false},
		{ValueOf(true), 0, false, 0, false},
		{ValueOf("1"), 0, false, 0, false},
		{ArrayOf([]uint32{1}), 0, false, 0, false},
		{Value{}, 0, false, 0, false},
	} {
		if u, ok := c.v.Uint(); ok != c.uok || ok && u != c.u {
			t.Errorf("%v.Uint() = %d, %v", c.v, u, ok)
		}
		if i, ok := c.v.Int(); ok != c.iok || ok && i != c.i {
			t.Errorf("%v.Int() = %d, %v", c.v, i, ok)
		}
	}
}

func TestValueArrays(t *testing.T) {
	small := []Value{
		ArrayOf([]uint8{1, 2}), ArrayOf([]int8{1, 2}), ArrayOf([]uint16{1, 2}), ArrayOf([]int16{1, 2}),
		ArrayOf([]uint32{1, 2}), ArrayOf([]int32{1, 2}), ArrayOf([]uint64{1, 2}), ArrayOf([]int64{1, 2}),
	}
	for _, v := range small {
		if s, ok := v.Int32s(); !ok || !slices.Equal(s, []int32{1, 2}) {
			t.Errorf("%v.Int32s() = %v, %v", v, s, ok)
		}
		if s, ok := v.Uints(); !ok || !slices.Equal(s, []uint64{1, 2}) {
			t.Errorf("%v.Uints() = %v, %v", v, s, ok)
		}
	}
	for _, v := range []Value{
		ArrayOf([]uint32{math.MaxInt32 + 1}), ArrayOf([]int64{math.MinInt32 - 1}), ArrayOf([]uint64{math.MaxUint64}),
		ArrayOf([]float32{1}), ArrayOf([]bool{true}), ValueOf(int32(1)),
	} {
		if s, ok := v.Int32s(); ok {
			t.Errorf("%v.Int32s() = %v", v, s)
		}
	}
	for _, v := range []Value{
		ArrayOf([]int8{-1}), ArrayOf([]int16{-1}), ArrayOf([]int32{-1}), ArrayOf([]int64{-1}),
		ArrayOf([]float64{1}), ValueOf(uint64(1)),
	} {
		if s, ok := v.Uints(); ok {
			t.Errorf("%v.Uints() = %v", v, s)
		}
	}
	if s, ok := ArrayOf([]int32{-1}).Int32s(); !ok || s[0] != -1 {
		t.Error(s, ok)
	}
}

func TestTypes(t *testing.T) {
	seen := make(map[string]Type)
	for id := range Type(1000) {
		name := id.String()
		if other, dup := seen[name]; dup {
			t.Errorf("types %d and %d are both %s", other, id, name)
		}
		seen[name] = id
		elems, bytes, ok := id.Block()
		if ok != (id.refuse() == nil) || ok != (elems > 0 && bytes > 0) {
			t.Errorf("%v: block of %d in %d bytes, %v, %v", id, elems, bytes, ok, id.refuse())
		}
		if _, gone := retired[id]; gone && ok {
			t.Errorf("%v is both current and withdrawn", id)
		}
		if _, ik := ikOnly[id]; ik && ok {
			t.Errorf("%v is both mainline's and ik_llama.cpp's", id)
		}
	}
	for id, want := range map[Type]string{Q4_K: "Q4_K", IQ4_NL: "IQ4_NL", 4: "Q4_2", 139: "IQ4_K", 500: "type 500"} {
		if id.String() != want {
			t.Errorf("type %d is %s, want %s", uint32(id), id, want)
		}
	}
}
