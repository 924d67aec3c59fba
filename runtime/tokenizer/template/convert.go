package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// fromGo makes a value of v: nil, booleans, numbers, strings, [*Dict], slices
// and maps of these (maps with string keys, in sorted order), and json.Number.
// Bytes of strings that are not UTF-8 become U+FFFD.
func (vm *interp) fromGo(v any) (any, error) {
	if err := vm.enter(); err != nil {
		return nil, err
	}
	defer vm.leave()
	if err := vm.step(1); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil, bool, int64, float64, *list, *namespace, *function, *undefined:
		return v, nil
	case int:
		return int64(v), nil
	case int32:
		return int64(v), nil
	case uint32:
		return int64(v), nil
	case float32:
		return float64(v), nil
	case json.Number:
		return fromNumber(v)
	case string:
		if err := vm.scan(len(v)); err != nil {
			return nil, err
		}
		return strings.ToValidUTF8(v, "\uFFFD"), nil
	case []any:
		return convertSlice(vm, v)
	case []string:
		return convertSlice(vm, v)
	case []map[string]any:
		return convertSlice(vm, v)
	case []*Dict:
		return convertSlice(vm, v)
	case map[string]string:
		return convertMap(vm, v)
	case map[string]any:
		return convertMap(vm, v)
	case *Dict:
		d := NewDict()
		for i, key := range v.keys {
			item, err := vm.fromGo(v.values[i])
			if err != nil {
				return nil, err
			}
			if s, ok := key.(string); ok {
				key = strings.ToValidUTF8(s, "\uFFFD")
			}
			hash, err := hashKey(key)
			if err != nil {
				return nil, err
			}
			d.set(hash, key, item)
		}
		return d, nil
	}
	return nil, fmt.Errorf("a value of type %T cannot be passed to a chat template", v)
}

func convertSlice[T any](vm *interp, s []T) (any, error) {
	items := make([]any, len(s))
	for i, x := range s {
		item, err := vm.fromGo(x)
		if err != nil {
			return nil, err
		}
		items[i] = item
	}
	return newList(items...), nil
}

func convertMap[T any](vm *interp, m map[string]T) (any, error) {
	d := NewDict()
	for _, key := range slices.Sorted(maps.Keys(m)) {
		item, err := vm.fromGo(m[key])
		if err != nil {
			return nil, err
		}
		d.Set(strings.ToValidUTF8(key, "\uFFFD"), item)
	}
	return d, nil
}

// fromNumber makes an int where the number is written as one and fits.
func fromNumber(n json.Number) (any, error) {
	if i, err := strconv.ParseInt(string(n), 10, 64); err == nil {
		return i, nil
	}
	f, err := n.Float64()
	if err != nil || math.IsInf(f, 0) {
		return nil, fmt.Errorf("the number %s is out of range", n)
	}
	return f, nil
}

// maxJSONDepth bounds the nesting of what ParseJSON reads.
const maxJSONDepth = 100

// ParseJSON reads one JSON value and returns it in a form that Render takes:
// objects become [*Dict] and keep their order, arrays []any, numbers
// json.Number. Chat requests and tool schemas come in this way.
func ParseJSON(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	v, err := parseJSON(dec, maxJSONDepth)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one JSON value")
	}
	return v, nil
}

func parseJSON(dec *json.Decoder, depth int) (any, error) {
	if depth == 0 {
		return nil, fmt.Errorf("JSON is nested more than %d deep", maxJSONDepth)
	}
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch tok {
	case json.Delim('['):
		items := []any{}
		for dec.More() {
			item, err := parseJSON(dec, depth-1)
			if err != nil {
				return nil, err
			}
			items = append(items, item)
		}
		_, err = dec.Token()
		return items, err
	case json.Delim('{'):
		d := NewDict()
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return nil, err
			}
			item, err := parseJSON(dec, depth-1)
			if err != nil {
				return nil, err
			}
			d.Set(key.(string), item)
		}
		_, err = dec.Token()
		return d, err
	}
	return tok, nil
}
