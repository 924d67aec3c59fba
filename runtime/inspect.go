package runtime

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/starling-swarm/starling/runtime/gguf"
)

// Inspect reads the header of the model at path (any part of a split set) and says what Open would load. It fails for
// everything that Open would refuse because of the header: other files than language models, other families, features
// and weight types that cannot be computed, missing and unknown tensors. Only the tokenizer is not looked at.
func Inspect(path string) (Config, error) {
	set, err := gguf.OpenSet(path)
	if err != nil {
		return Config{}, err
	}
	return InspectSet(set)
}

// InspectSet is Inspect for headers that are read already.
func InspectSet(set *gguf.Set) (Config, error) {
	if err := set.Refuse(); err != nil {
		return Config{}, err
	}
	arch, err := set.Meta().String("general.architecture")
	if err != nil {
		return Config{}, err
	}
	f, err := familyOf(arch)
	if err != nil {
		return Config{}, fmt.Errorf("runtime: %s: %w", set.Meta().Path, err)
	}
	c, err := f.read(set)
	if err != nil {
		return Config{}, err
	}
	return c, nil
}

// reader reads numbers of a header and remembers the first error.
type reader struct {
	meta *gguf.File
	arch string
	err  error
}

// key is the full name of a key of the architecture.
func (r *reader) key(name string) string { return r.arch + "." + name }

// refuse fails for keys of the architecture that change the arithmetic in ways that it does not have here.
func (r *reader) refuse(names ...string) {
	for _, name := range names {
		if key := r.key(name); r.has(key) {
			r.fail(key, "is set: a variant of the model that is not supported")
		}
	}
}

// fail remembers an error about a key.
func (r *reader) fail(key, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("runtime: %s: %s %s", r.meta.Path, key, fmt.Sprintf(format, args...))
	}
}

// has reports whether the header has a key.
func (r *reader) has(key string) bool {
	_, ok := r.meta.Lookup(key)
	return ok
}

// count reads an integer in [1, limit]. Where the file has one per layer, all must be equal.
func (r *reader) count(key string, limit uint64) int {
	if r.err != nil {
		return 1
	}
	v, err := r.meta.Uint(key)
	if err != nil {
		each, arrayErr := r.meta.Uints(key)
		if arrayErr != nil || len(each) == 0 {
			r.err = err
			return 1
		}
		v = each[0]
		for _, other := range each {
			if other != v {
				r.fail(key, "differs between layers (%d, %d): not supported", v, other)
				return 1
			}
		}
	}
	if v < 1 || v > limit {
		r.fail(key, "is %d, outside 1 to %d", v, limit)
		return 1
	}
	return int(v)
}

// countOr is count with a value for a missing key.
func (r *reader) countOr(key string, limit uint64, def int) int {
	if !r.has(key) {
		return def
	}
	return r.count(key, limit)
}

// positive reads a float in (0, limit], def where the key is missing; a def of 0 means that it must be there.
func (r *reader) positive(key string, limit, def float64) float64 {
	v, err := r.meta.FloatOr(key, def)
	if def == 0 && err == nil {
		v, err = r.meta.Float(key)
	}
	if err != nil && r.err == nil {
		r.err = err
	}
	if err != nil {
		return def
	}
	if !(v > 0 && v <= limit) {
		r.fail(key, "is %v, not above 0 and at most %v", v, limit)
		return def
	}
	return v
}

// notNegative reads a float in [0, limit] that must be there.
func (r *reader) notNegative(key string, limit float64) float64 {
	v, err := r.meta.Float(key)
	if err != nil {
		r.err = cmp.Or(r.err, err)
		return 0
	}
	if !(v >= 0 && v <= limit) {
		r.fail(key, "is %v, not from 0 to %v", v, limit)
		return 0
	}
	return v
}

// only fails for floats of the architecture that are there and of another value.
func (r *reader) only(value float64, names ...string) {
	for _, name := range names {
		if v, err := r.meta.FloatOr(r.key(name), value); err != nil {
			r.err = cmp.Or(r.err, err)
		} else if v != value {
			r.fail(r.key(name), "is %v: only %v is supported", v, value)
		}
	}
}

// text reads a string, def where the key is missing.
func (r *reader) text(key, def string) string {
	v, err := r.meta.StringOr(key, def)
	if err != nil && r.err == nil {
		r.err = err
	}
	return v
}

// quote renders foreign text for an error: on one line and shortened.
func quote(s string) string {
	if len(s) > 60 {
		return strconv.Quote(s[:60]) + "…"
	}
	return strconv.Quote(s)
}
