package artifacts

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// bencodeDepth bounds lists and dictionaries in each other; a .torrent file has 6 at most.
const bencodeDepth = 32

// cutValue returns the bytes of the bencoded value at the beginning of data, and what follows it.
// Nothing is copied.
func cutValue(data []byte, depth int) (value, rest []byte, err error) {
	if len(data) == 0 {
		return nil, nil, errors.New("it ends in the middle of a value")
	}
	if depth > bencodeDepth {
		return nil, nil, fmt.Errorf("lists and dictionaries lie more than %d deep in each other", bencodeDepth)
	}
	switch data[0] {
	case 'i':
		end := bytes.IndexByte(data[:min(len(data), 32)], 'e')
		if end < 0 {
			return nil, nil, errors.New("an integer has no end")
		}
		if _, err := strconv.ParseInt(string(data[1:end]), 10, 64); err != nil {
			return nil, nil, fmt.Errorf("%s is no integer", quote(string(data[1:end])))
		}
		return data[:end+1], data[end+1:], nil
	case 'l', 'd':
		rest = data[1:]
		for len(rest) > 0 && rest[0] != 'e' {
			if _, rest, err = cutValue(rest, depth+1); err != nil {
				return nil, nil, err
			}
		}
		if len(rest) == 0 {
			return nil, nil, errors.New("a list or dictionary has no end")
		}
		rest = rest[1:]
		return data[:len(data)-len(rest)], rest, nil
	}
	_, rest, err = cutString(data)
	if err != nil {
		return nil, nil, err
	}
	return data[:len(data)-len(rest)], rest, nil
}

// cutString returns the bencoded byte string at the beginning of data, and what follows it.
func cutString(data []byte) (s, rest []byte, err error) {
	colon := bytes.IndexByte(data[:min(len(data), 20)], ':')
	if colon < 0 {
		return nil, nil, errors.New("a string has no length")
	}
	n, err := strconv.ParseUint(string(data[:colon]), 10, 63)
	if err != nil {
		return nil, nil, fmt.Errorf("%s is no length of a string", quote(string(data[:colon])))
	}
	data = data[colon+1:]
	if n > uint64(len(data)) {
		return nil, nil, fmt.Errorf("a string of %d bytes, only %d are left", n, len(data))
	}
	return data[:n], data[n:], nil
}

// cutDict returns the values of a bencoded dictionary that is all of data, by key.
func cutDict(data []byte) (map[string][]byte, error) {
	if len(data) == 0 || data[0] != 'd' {
		return nil, errors.New("it is no bencoded dictionary")
	}
	out := make(map[string][]byte)
	data = data[1:]
	last := ""
	for {
		if len(data) == 0 {
			return nil, errors.New("a dictionary has no end")
		}
		if data[0] == 'e' {
			break
		}
		key, rest, err := cutString(data)
		if err != nil {
			return nil, err
		}
		if len(out) > 0 && string(key) <= last {
			return nil, fmt.Errorf("key %s is out of order", quote(string(key)))
		}
		last = string(key)
		if out[last], data, err = cutValue(rest, 1); err != nil {
			return nil, err
		}
	}
	if len(data) != 1 {
		return nil, fmt.Errorf("%d bytes follow its end", len(data)-1)
	}
	return out, nil
}

// appendBytes appends a bencoded byte string.
func appendBytes(out []byte, s string) []byte {
	out = strconv.AppendInt(out, int64(len(s)), 10)
	return append(append(out, ':'), s...)
}
