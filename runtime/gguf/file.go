package gguf

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// The most a header may hold. A real one takes a few MiB, nearly all of it vocabulary; these bounds
// leave an order of magnitude and keep a hostile file from costing more memory than it has bytes.
const (
	MaxHeader    = 256 << 20 // bytes up to the end of the tensor table
	MaxKeys      = 1 << 16   // metadata keys
	MaxKey       = 1<<16 - 1 // bytes in a key
	MaxString    = 16 << 20  // bytes in a string value
	MaxArray     = 1 << 24   // elements in an array value
	MaxTensors   = 1 << 18   // tensors in one file
	MaxName      = 63        // bytes in a tensor's name (ggml: fewer than 64)
	MaxDims      = 4         // dimensions of a tensor
	MaxAlignment = 1 << 21   // general.alignment: one huge page
)

// defaultAlignment holds when general.alignment is absent.
const defaultAlignment = 32

// Least bytes that one entry takes: a key's length, one byte of key, a kind and a one-byte value;
// and a tensor's name length, one byte of name, number of dimensions, type and offset.
const (
	leastKV     = 8 + 1 + 4 + 1
	leastTensor = 8 + 1 + 4 + 4 + 8
)

// File is the header of one GGUF file. It is never changed after it was read, so any number of
// goroutines may use it.
type File struct {
	Path       string // the path opened, or the name given to Read
	Version    uint32 // 2 or 3; the layouts are the same
	Size       int64  // bytes of the whole file
	Alignment  uint64 // of every tensor's offset; a power of two
	HeaderSize int64  // bytes up to the end of the tensor table, before padding
	DataOffset int64  // HeaderSize rounded up to Alignment; may exceed Size when there are no tensors

	// Tensors is the tensor table in the file's order.
	Tensors []Tensor

	keys   []string
	values map[string]Value
	byName map[string]int // index into Tensors
}

// Open reads the header of the file at path. It does not keep the file open.
func Open(path string) (*File, error) {
	// Before opening, which would wait for ever on a pipe that nobody writes to.
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("gguf: %s: a directory or device, not a file: give the path of a .gguf file", oneLine(path))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
	}
	return Read(f, info.Size(), path)
}

// Read reads the header of a GGUF file of size bytes. Only the header is read, in chunks of
// 64 KiB, so r may hold just the header of a file that is elsewhere; size is what tensors' ranges
// are checked against. name stands for the file in errors.
// An error about the contents is an [*Error].
func Read(r io.ReaderAt, size int64, name string) (*File, error) {
	if size < 0 {
		return nil, fmt.Errorf("gguf: %s: negative size %d", oneLine(name), size)
	}
	s := &scanner{r: r, name: name, size: size, end: min(size, MaxHeader)}
	f := &File{Path: name, Size: size}
	if err := f.readVersion(s); err != nil {
		return nil, err
	}
	// Bounded together, below, once both are known: neither count alone may claim the whole file.
	nTensors, err := s.count(MaxTensors, leastTensor, "n_tensors")
	if err != nil {
		return nil, err
	}
	nKV, err := s.count(MaxKeys, leastKV, "n_kv")
	if err != nil {
		return nil, err
	}
	if need := uint64(nKV)*leastKV + uint64(nTensors)*leastTensor; need > s.remaining() {
		return nil, s.short("header", "%d keys and %d tensors need at least %d bytes", nKV, nTensors, need)
	}
	if err := f.readKVs(s, nKV); err != nil {
		return nil, err
	}
	if err := f.readTensors(s, nTensors); err != nil {
		return nil, err
	}
	return f, nil
}

// readVersion reads the magic and the version, and names what the file is when it is not ours.
func (f *File) readVersion(s *scanner) error {
	if s.size < 4 {
		return s.fail(0, "magic", "the file has only %d bytes: it is empty or cut short, download it again", s.size)
	}
	magic, err := s.take(4, "magic")
	if err != nil {
		return err
	}
	if magic != "GGUF" {
		return s.fail(0, "magic", "%s instead of \"GGUF\": %s", quote(magic), guess(magic))
	}
	version, err := s.u32("version")
	if err != nil {
		return err
	}
	switch {
	case version == 2 || version == 3:
		f.Version = version
		return nil
	case version == 1:
		return s.fail(4, "version", "GGUF v1 is not supported: convert the model again with a current llama.cpp")
	case version != 0 && version&0xffff == 0:
		return s.fail(4, "version", "a big-endian file: only little-endian files are supported, convert it with gguf-py's gguf_convert_endian.py")
	case version == 0:
		return s.fail(4, "version", "there is no GGUF v0: the file is damaged")
	default:
		return s.fail(4, "version", "GGUF v%d is not supported (v2 and v3 are): the file is damaged or newer than this program", version)
	}
}

// guess says what a file that starts with magic may be.
func guess(magic string) string {
	switch {
	case magic == "FUGG":
		return "the bytes are reversed, as in a big-endian file: convert it"
	case magic == "lmgg" || magic == "tjgg" || magic == "fmgg" || magic == "algg":
		return "a GGML file from before GGUF: get a GGUF of the model"
	case strings.HasPrefix(magic, "PK"):
		return "a zip or PyTorch file: get a GGUF of the model"
	case magic == "vers":
		return "perhaps a git-lfs pointer: run git lfs pull"
	case magic[0] == '<' || magic[0] == '{':
		return "a web page or an error reply instead of the model: download it again"
	default:
		return "not a GGUF file"
	}
}

// readKVs reads n metadata pairs and sets Alignment.
func (f *File) readKVs(s *scanner, n int) error {
	f.keys = make([]string, 0, min(n, 1024))
	f.values = make(map[string]Value, min(n, 1024))
	f.Alignment = defaultAlignment
	for i := range n {
		off := s.offset()
		key, err := s.str(MaxKey, fmt.Sprintf("key %d of %d", i, n))
		if err != nil {
			return err
		}
		if key == "" {
			return s.fail(off, fmt.Sprintf("key %d of %d", i, n), "empty: the file is damaged")
		}
		if _, dup := f.values[key]; dup {
			return s.fail(off, "key "+quote(key), "appears twice: the file is damaged")
		}
		field := "value of " + quote(key)
		off = s.offset()
		k, err := s.u32(field)
		if err != nil {
			return err
		}
		if uint64(k) >= uint64(len(kinds)) {
			return s.fail(off, field, "%v is not one of the 13 kinds: the file is damaged or newer than this program", Kind(k))
		}
		at := s.offset()
		v, err := s.value(Kind(k), field)
		if err != nil {
			return err
		}
		if key == "general.alignment" {
			if f.Alignment, err = alignment(v); err != nil {
				return s.fail(at, field, "%v", err)
			}
		}
		f.keys = append(f.keys, key)
		f.values[key] = v
	}
	return nil
}

// alignment returns the alignment that v declares.
func alignment(v Value) (uint64, error) {
	n, ok := v.Any().(uint32)
	switch {
	case !ok:
		return 0, fmt.Errorf("must be a uint32, not %s: the file is damaged or written by a broken tool", v.describe())
	case n == 0 || n&(n-1) != 0:
		return 0, fmt.Errorf("%d is not a power of two: the file is damaged or written by a broken tool", n)
	case n > MaxAlignment:
		return 0, fmt.Errorf("%d, at most %d is allowed", n, MaxAlignment)
	}
	return uint64(n), nil
}

// alignUp rounds n up to a multiple of a, a power of two.
func alignUp(n, a uint64) uint64 { return (n + a - 1) &^ (a - 1) }
