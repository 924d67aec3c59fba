package gguf

import (
	"fmt"
	"slices"
)

// Keys returns the metadata keys in the file's order.
func (f *File) Keys() []string { return slices.Clone(f.keys) }

// Lookup returns the value of key.
func (f *File) Lookup(key string) (Value, bool) {
	v, ok := f.values[key]
	return v, ok
}

// The accessors below return the value of a key as a Go type. Without Or a missing key is an error;
// with Or it is def. A value of another kind is an error for both, and so is an integer that does
// not fit. Slices belong to f.

// String returns a string.
func (f *File) String(key string) (string, error) { return get(f, key, "a string", Value.Text) }

// StringOr returns a string, def when key is absent.
func (f *File) StringOr(key, def string) (string, error) {
	return getOr(f, key, def, "a string", Value.Text)
}

// Uint returns an integer of any width that is not negative.
func (f *File) Uint(key string) (uint64, error) {
	return get(f, key, "a non-negative integer", Value.Uint)
}

// UintOr returns an integer of any width that is not negative, def when key is absent.
func (f *File) UintOr(key string, def uint64) (uint64, error) {
	return getOr(f, key, def, "a non-negative integer", Value.Uint)
}

// Float returns a float32 or float64.
func (f *File) Float(key string) (float64, error) { return get(f, key, "a float", Value.Float) }

// FloatOr returns a float32 or float64, def when key is absent.
func (f *File) FloatOr(key string, def float64) (float64, error) {
	return getOr(f, key, def, "a float", Value.Float)
}

// Bool returns a bool.
func (f *File) Bool(key string) (bool, error) { return get(f, key, "a bool", Value.Bool) }

// BoolOr returns a bool, def when key is absent.
func (f *File) BoolOr(key string, def bool) (bool, error) {
	return getOr(f, key, def, "a bool", Value.Bool)
}

// Strings returns an array of strings.
func (f *File) Strings(key string) ([]string, error) {
	return get(f, key, "an array of strings", Value.Strings)
}

// StringsOr returns an array of strings, def when key is absent.
func (f *File) StringsOr(key string, def []string) ([]string, error) {
	return getOr(f, key, def, "an array of strings", Value.Strings)
}

// Float32s returns an array of float32.
func (f *File) Float32s(key string) ([]float32, error) {
	return get(f, key, "an array of float32", Value.Float32s)
}

// Float32sOr returns an array of float32, def when key is absent.
func (f *File) Float32sOr(key string, def []float32) ([]float32, error) {
	return getOr(f, key, def, "an array of float32", Value.Float32s)
}

// Int32s returns an array of integers of any width that all fit into int32.
func (f *File) Int32s(key string) ([]int32, error) {
	return get(f, key, "an array of 32-bit integers", Value.Int32s)
}

// Int32sOr returns an array of integers that all fit into int32, def when key is absent.
func (f *File) Int32sOr(key string, def []int32) ([]int32, error) {
	return getOr(f, key, def, "an array of 32-bit integers", Value.Int32s)
}

// Uints returns an array of integers of any width, none negative.
func (f *File) Uints(key string) ([]uint64, error) {
	return get(f, key, "an array of non-negative integers", Value.Uints)
}

// UintsOr returns an array of integers, none negative; def when key is absent.
func (f *File) UintsOr(key string, def []uint64) ([]uint64, error) {
	return getOr(f, key, def, "an array of non-negative integers", Value.Uints)
}

// Bools returns an array of bools.
func (f *File) Bools(key string) ([]bool, error) {
	return get(f, key, "an array of bools", Value.Bools)
}

// BoolsOr returns an array of bools, def when key is absent.
func (f *File) BoolsOr(key string, def []bool) ([]bool, error) {
	return getOr(f, key, def, "an array of bools", Value.Bools)
}

// get returns the value of key through as; want names what as accepts.
func get[T any](f *File, key, want string, as func(Value) (T, bool)) (T, error) {
	v, ok := f.values[key]
	if !ok {
		var none T
		return none, fmt.Errorf("gguf: %s: metadata key %s is missing", oneLine(f.Path), quote(key))
	}
	out, ok := as(v)
	if !ok {
		var none T
		return none, fmt.Errorf("gguf: %s: metadata key %s must be %s, not %s", oneLine(f.Path), quote(key), want, v.describe())
	}
	return out, nil
}

// getOr is get with a value for a missing key.
func getOr[T any](f *File, key string, def T, want string, as func(Value) (T, bool)) (T, error) {
	if _, ok := f.values[key]; !ok {
		return def, nil
	}
	return get(f, key, want, as)
}

// describe returns what v is, for an error: "int32 -1" or "an array of uint8".
func (v Value) describe() string {
	if v.Kind() == KindArray {
		return "an array of " + v.Elem().String()
	}
	return v.Kind().String() + " " + v.String()
}
