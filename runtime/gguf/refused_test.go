package gguf

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
)

// refused is a malformed file and where its error must point. The cases are the crashes and
// over-allocations that GGUF readers have had (CVE-2024-39720, GHSA-3p75-pq92-q28f, llama.cpp
// issues 18674, 24997, 26318, 15711; ollama issues 17042, 16175), the refusals that llama.cpp's
// tests/test-gguf.cpp asks for, and what else a byte can be wrong about.
type refused struct {
	name    string
	file    *forge
	offset  int64
	field   string // contained in the error's Field
	problem string // contained in the error's Problem
}

func refusedFiles() []refused {
	head := func(nTensors, nKV uint64) *forge { return new(forge).header(nTensors, nKV) }
	// one tensor table entry begins at 24: 8+1 name, then n_dims at 33, dims at 37.
	f32 := func(offset uint64, dims ...uint64) *forge {
		return head(1, 0).tensor("t", F32, offset, dims...).pad(32).zeros(64)
	}
	kv := func(v Value) *forge { return head(0, 1).kv("k", v) }
	align := func(v Value) *forge {
		return head(1, 1).kv("general.alignment", v).tensor("t", F32, 0, 16).pad(64).zeros(64)
	}
	const (
		alignAt = 24 + 8 + 17 + 4 // of the value of general.alignment
		kindAt  = 24 + 8 + 1      // of the kind of key "k"
		valueAt = kindAt + 4      // of its value
		dimsAt  = 24 + 8 + 1 + 4  // of the dims of tensor "t"
	)
	return []refused{
		// What is not a GGUF file at all.
		{"empty file", new(forge), 0, "magic", "only 0 bytes"},
		{"three bytes", new(forge).raw("GGU"), 0, "magic", "only 3 bytes"},
		{"magic alone", new(forge).raw("GGUF"), 4, "version", "has only 0 more"},
		{"magic and version alone", new(forge).raw("GGUF").u32(3), 8, "n_tensors", "has only 0 more"},
		{"no n_kv", new(forge).raw("GGUF").u32(3).u64(0), 16, "n_kv", "has only 0 more"},
		{"magic reversed", new(forge).raw("FUGG").u32(3).u64(0).u64(0), 0, "magic", "reversed"},
		{"magic of ggml", new(forge).raw("lmggxxxx"), 0, "magic", "from before GGUF"},
		{"magic of ggjt", new(forge).raw("tjgg").u32(3), 0, "magic", "from before GGUF"},
		{"magic of zip", new(forge).raw("PK\x03\x04"), 0, "magic", "PyTorch"},
		{"magic of html", new(forge).raw("<!DOCTYPE html>"), 0, "magic", "web page"},
		{"magic of json", new(forge).raw(`{"error":"Repository not found"}`), 0, "magic", "error reply"},
		{"magic of git lfs", new(forge).raw("version https://git-lfs.github.com/spec/v1\n"), 0, "magic", "git lfs pull"},
		{"magic of nothing known", new(forge).raw("\x00\n\xff\x1b"), 0, "magic", "not a GGUF file"},

		// Versions.
		{"version 0", new(forge).raw("GGUF").u32(0).u64(0).u64(0), 4, "version", "no GGUF v0"},
		{"version 1", new(forge).raw("GGUF").u32(1).u32(0).u32(0), 4, "version", "convert the model again"},
		{"version 4", new(forge).raw("GGUF").u32(4).u64(0).u64(0), 4, "version", "GGUF v4 is not supported"},
		{"version big endian", new(forge).raw("GGUF").u32(3 << 24).u64(0).u64(0), 4, "version", "big-endian"},

		// Counts: refused before anything is allocated for them.
		{"n_tensors negative", head(math.MaxUint64, 0), 8, "n_tensors", "at most"},
		{"n_kv negative", head(0, math.MaxUint64), 16, "n_kv", "at most"},
		{"n_kv 2^40", head(0, 1<<40).zeros(1000), 16, "n_kv", "at most"},
		{"n_tensors 2^40", head(1<<40, 0).zeros(1000), 8, "n_tensors", "at most"},
		{"n_kv beyond the file", head(0, 72).zeros(1000), 24, "n_kv", "need at least 1008 bytes"},
		{"n_tensors beyond the file", head(41, 0).zeros(1000), 16, "n_tensors", "need at least 1025 bytes"},
		{"counts beyond the file together", head(30, 30).zeros(1000), 24, "header", "need at least 1170 bytes"},

		// Keys and kinds.
		{"key length negative", head(0, 1).u64(math.MaxUint64).zeros(100), 24, "key 0 of 1", "a string of 18446744073709551615 bytes"},
		{"key length beyond the file", head(0, 1).u64(200).zeros(100), 32, "key 0 of 1", "needs 200 bytes but the file has only 100"},
		{"key empty", head(0, 1).kv("", ValueOf(uint32(1))), 24, "key 0 of 1", "empty"},
		{"key twice", head(0, 2).kv("k", ValueOf(uint8(1))).kv("k", ValueOf(uint8(2))), 24 + 14, `key "k"`, "twice"},
		{"kind 13", head(0, 1).str("k").u32(13).u64(0), kindAt, `value of "k"`, "kind 13"},
		{"kind negative", head(0, 1).str("k").u32(math.MaxUint32).u64(0), kindAt, `value of "k"`, "kind 4294967295"},
		{"kind missing", head(0, 1).str("long key").u8(1), 40, `value of "long key"`, "needs 4 bytes but the file has only 1"},
		{"value cut short", head(0, 1).str("key").u32(uint32(KindUint64)).u32(1), 39, `value of "key"`, "needs 8 bytes but the file has only 4"},
		{"string cut short", kv(ValueOf("value")).cut(1), valueAt + 8, `value of "k"`, "needs 5 bytes but the file has only 4"},
		{"string length 2^40", head(0, 1).str("k").u32(uint32(KindString)).u64(1 << 40).zeros(1000), valueAt, `value of "k"`, "at most 16777216"},
		{"string beyond the file", head(0, 1).str("k").u32(uint32(KindString)).u64(1001).zeros(1000), valueAt + 8, `value of "k"`, "needs 1001 bytes"},

		// Arrays.
		{"array of kind 13", head(0, 1).str("k").u32(9).u32(13).u64(0), valueAt, `value of "k"`, "kind 13"},
		{"array of arrays", head(0, 1).str("k").u32(9).u32(9).u64(1).u32(4).u64(0), valueAt, `value of "k"`, "arrays of arrays"},
		{"array of 2^40", head(0, 1).str("k").u32(9).u32(0).u64(1 << 40).zeros(1000), valueAt + 4, `value of "k"`, "at most 16777216"},
		{"array beyond the file", head(0, 1).str("k").u32(9).u32(4).u64(251).zeros(1000), valueAt + 12, `value of "k"`, "need at least 1004 bytes"},
		{"array of strings beyond the file", head(0, 1).str("k").u32(9).u32(8).u64(126).zeros(1000), valueAt + 12, `value of "k"`, "need at least 1008 bytes"},
		{"array with a string beyond the file", head(0, 1).str("k").u32(9).u32(8).u64(2).str("a").u64(99).zeros(9), valueAt + 12 + 9 + 8, `value of "k" element 1`, "needs 99 bytes"},
		{"array size wraps", head(0, 1).str("k").u32(9).u32(10).u64(1<<61 + 1).zeros(8), valueAt + 4, `value of "k"`, "at most"},

		// Alignment.
		{"alignment 0", align(ValueOf(uint32(0))), alignAt, "general.alignment", "not a power of two"},
		{"alignment 13", align(ValueOf(uint32(13))), alignAt, "general.alignment", "13 is not a power of two"},
		{"alignment 2^31", align(ValueOf(uint32(1 << 31))), alignAt, "general.alignment", "at most"},
		{"alignment of int32", align(ValueOf(int32(32))), alignAt, "general.alignment", "must be a uint32, not int32 32"},
		{"alignment of array", align(ArrayOf([]uint32{32})), alignAt, "general.alignment", "an array of uint32"},
		{"alignment inconsistent", head(2, 1).kv("general.alignment", ValueOf(uint32(64))).tensor("a", I8, 0, 1).tensor("b", I8, 32, 1).pad(64).zeros(64), 24 + 33 + 33 + 25, `tensor "b" offset`, "32 is not a multiple of the alignment 64"},

		// Tensor names and shapes.
		{"tensor name of 64", head(1, 0).tensor(strings.Repeat("n", 64), F32, 0, 16).pad(32).zeros(64), 24, "name of tensor 0 of 1", "a string of 64 bytes, at most 63"},
		{"tensor name empty", head(1, 0).tensor("", F32, 0, 16).pad(32).zeros(64), 24, "name of tensor 0 of 1", "empty"},
		{"tensor name twice", head(2, 0).tensor("t", F32, 0, 8).tensor("t", F32, 32, 8).pad(32).zeros(64), 24 + 33, "name of tensor 1 of 2", `"t" appears twice`},
		{"tensor name with line break", head(2, 0).tensor("a\nb", F32, 0, 8).tensor("a\nb", F32, 32, 8).pad(32).zeros(64), 24 + 35, "name of tensor 1 of 2", `"a\nb" appears twice`},
		{"n_dims 5", f32(0, 1, 1, 1, 1, 1), dimsAt - 4, `tensor "t" n_dims`, "5, at most 4"},
		{"n_dims 2^32-1", head(1, 0).str("t").u32(math.MaxUint32).zeros(100), dimsAt - 4, `tensor "t" n_dims`, "at most 4"},
		{"dim 0", f32(0, 16, 0), dimsAt + 8, `tensor "t" dims[1]`, "without elements"},
		{"dim negative", f32(0, math.MaxUint64), dimsAt, `tensor "t" dims[0]`, "negative"},
		{"dims wrap to 0", head(1, 0).tensor("token_embd.weight", Q4_K, 0, 256, 1<<42+1, 1<<22).pad(32).zeros(144), 24 + 8 + 17 + 4, `tensor "token_embd.weight" dims`, "elements overflows"},
		{"dim 2^42+1", head(1, 0).tensor("token_embd.weight", Q4_K, 0, 256, 1<<42+1).pad(32).zeros(144), 24 + 8 + 17 + 4 + 16 + 4, `tensor "token_embd.weight" offset`, "cut short or damaged"},
		{"elements overflow", f32(0, 4*math.MaxInt32, 4*math.MaxInt32), dimsAt, `tensor "t" dims`, "elements overflows"},
		{"bytes overflow", head(1, 0).tensor("t", I64, 0, 1<<31, 1<<31).pad(32).zeros(64), dimsAt, `tensor "t" dims`, "bytes overflows"},
		{"row of half a block", head(1, 0).tensor("t", Q4_K, 0, 128, 2).pad(32).zeros(144), dimsAt, `tensor "t" dims[0]`, "128 is not a multiple of 256, the block of Q4_K"},

		// Tensor types.
		{"type 43", head(1, 0).tensor("t", 43, 0, 16).pad(32).zeros(64), dimsAt + 8, `tensor "t" type`, "type 43"},
		{"type negative", head(1, 0).tensor("t", math.MaxUint32, 0, 16).pad(32).zeros(64), dimsAt + 8, `tensor "t" type`, "4294967295"},
		{"type withdrawn", head(1, 0).tensor("t", 31, 0, 32).pad(32).zeros(64), dimsAt + 8, `tensor "t" type`, "was Q4_0_4_4"},
		{"type of ik_llama", head(1, 0).tensor("t", 139, 0, 256).pad(32).zeros(144), dimsAt + 8, `tensor "t" type`, "is IQ4_K, which only ik_llama.cpp reads"},

		// Where tensors lie.
		{"offset negative", f32(math.MaxUint64, 16), dimsAt + 12, `tensor "t" offset`, "negative"},
		{"offset unaligned", f32(4, 8), dimsAt + 12, `tensor "t" offset`, "4 is not a multiple of the alignment 32"},
		{"offset past the end", f32(96, 8), dimsAt + 12, `tensor "t" offset`, "only 64 bytes of data"},
		{"offset plus size past the end", f32(32, 16), dimsAt + 12, `tensor "t" offset`, "64 bytes from 32 on"},
		{"offset plus size wraps", f32(math.MaxInt64-31, 16), dimsAt + 12, `tensor "t" offset`, "only 64 bytes of data"},
		{"data one byte short", f32(0, 16).cut(1), dimsAt + 12, `tensor "t" offset`, "only 63 bytes of data"},
		{"data missing", head(1, 0).tensor("t", F32, 0, 16), dimsAt + 12, `tensor "t" offset`, "only 0 bytes of data"},
		{"data overlap", head(2, 0).tensor("b", F32, 32, 8).tensor("a", F32, 0, 16).pad(32).zeros(64), 24 + 25, `tensor "b" offset`, `overlap those of "a"`},
		{"data shared", head(2, 0).tensor("a", F32, 0, 8).tensor("b", F32, 0, 8).pad(32).zeros(64), 24 + 33 + 25, `tensor "b" offset`, `overlap those of "a"`},
		{"sizes sum past 2^63", head(2, 0).tensor("a", I8, 0, 0x7FFFFFFFFFFFFFC0).tensor("b", I8, 0x7FFFFFFFFFFFFFC0, 0x7FFFFFFFFFFFFFC0).pad(32).zeros(32), dimsAt + 12, `tensor "a" offset`, "only 32 bytes of data"},
		{"table cut short", head(1, 0).str("tensor.weight").u32(2).u64(16), 24 + 8 + 13 + 4, `tensor "tensor.weight" dims`, "needs 16 bytes but the file has only 8"},
	}
}

// cut drops the last n bytes.
func (f *forge) cut(n int) *forge { f.b = f.b[:len(f.b)-n]; return f }

// Every refusal is one line with file, field and byte offset, and costs next to nothing: no
// length in the file is believed before the bytes are there.
func TestRefused(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range refusedFiles() {
		t.Run(c.name, func(t *testing.T) {
			if seen[c.name] {
				t.Fatal("two cases of this name")
			}
			seen[c.name] = true
			golden(t, "refused", c.name, c.file.b)

			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			f, err := read(c.file.b, "m.gguf")
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Fatalf("accepted: %+v", f)
			}
			if f != nil {
				t.Error("a File beside the error")
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
				t.Errorf("allocated %d bytes", got)
			}
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("not an *Error: %v", err)
			}
			if e.File != "m.gguf" || e.Offset != c.offset || !strings.Contains(e.Field, c.field) || !strings.Contains(e.Problem, c.problem) {
				t.Errorf("got  %v\nwant %s at byte %d: …%s…", err, c.field, c.offset, c.problem)
			}
			if text := err.Error(); strings.ContainsAny(text, "\n\r\x1b") || len(text) > 400 {
				t.Errorf("not one short line: %q", text)
			}
			if want := fmt.Sprintf("gguf: m.gguf: %s at byte %d: ", e.Field, e.Offset); !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%q does not begin with %q", err, want)
			}
		})
	}
}

// A file that claims to be huge is believed about its size, and still must not make the reader
// allocate for lengths whose bytes it has not seen.
func TestRefusedHuge(t *testing.T) {
	for _, c := range refusedFiles() {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Read(zeroTail(c.file.b), 1<<50, "m.gguf")
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 10<<20 {
			t.Errorf("%s: allocated %d bytes (%v)", c.name, got, err)
		}
	}
}

// zeroTail is a reader of its bytes and then zeros without end, as a sparse file is.
type zeroTail []byte

func (z zeroTail) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	if off < int64(len(z)) {
		copy(p, z[off:])
	}
	return len(p), nil
}

// Every prefix of a good file is refused and none makes the reader panic; so is the header whose
// data are cut off, down to the last byte that a tensor needs.
func TestPrefixes(t *testing.T) {
	whole := acceptedFiles(t)["full file"]
	last := 0
	f, err := read(whole, "m.gguf")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range f.Tensors {
		last = max(last, int(x.Offset+x.Size))
	}
	for n := range whole {
		_, err := read(whole[:n], "m.gguf")
		if n < last && err == nil {
			t.Fatalf("accepted the first %d of %d bytes", n, len(whole))
		}
		if n >= last && err != nil {
			t.Fatalf("refused the first %d of %d bytes, only padding missing: %v", n, len(whole), err)
		}
	}
}

// The tokenizer's arrays are only handed out as what they are (llama.cpp issue 26690: scores as
// uint8 read as float32 run past the end).
func TestWrongKinds(t *testing.T) {
	f := mustRead(t, func(w *Writer) {
		w.Set("tokenizer.ggml.scores", ArrayOf([]uint8{1, 2, 3}))
		w.Set("tokenizer.ggml.token_type", ArrayOf([]string{"normal"}))
		w.Set("llama.block_count", ValueOf(int32(-1)))
		w.Set("llama.rope.freq_base", ValueOf(uint32(10000)))
		w.Set("tokenizer.ggml.add_bos_token", ValueOf(uint8(1)))
		w.Set("general.name", ArrayOf([]string{"a"}))
		w.Set("big", ArrayOf([]int64{1 << 31}))
		w.Set("negative", ArrayOf([]int8{0, -1}))
	})
	for _, c := range []struct {
		call func(key string) error
		key  string
		want string
	}{
		{errOf(f.Float32s), "tokenizer.ggml.scores", "must be an array of float32, not an array of uint8"},
		{errOf(f.Int32s), "tokenizer.ggml.token_type", "must be an array of 32-bit integers, not an array of string"},
		{errOf(f.Int32s), "big", "must be an array of 32-bit integers, not an array of int64"},
		{errOf(f.Uints), "negative", "must be an array of non-negative integers, not an array of int8"},
		{errOf(f.Uint), "llama.block_count", "must be a non-negative integer, not int32 -1"},
		{errOf(f.Float), "llama.rope.freq_base", "must be a float, not uint32 10000"},
		{errOf(f.Bool), "tokenizer.ggml.add_bos_token", "must be a bool, not uint8 1"},
		{errOf(f.String), "general.name", "must be a string, not an array of string"},
		{errOf(f.Strings), "llama.block_count", "must be an array of strings, not int32 -1"},
		{errOf(f.Bools), "big", "must be an array of bools, not an array of int64"},
		{errOf(f.Uint), "no.such", `metadata key "no.such" is missing`},
		{errOf(f.Strings), "no.such", `metadata key "no.such" is missing`},
	} {
		err := c.call(c.key)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "m.gguf") || !strings.Contains(err.Error(), c.key) {
			t.Errorf("%s: got %v, want %s", c.key, err, c.want)
		}
	}
	// The Or variants take a default for a missing key and still refuse a wrong kind.
	if n, err := f.UintOr("no.such", 7); n != 7 || err != nil {
		t.Error(n, err)
	}
	if _, err := f.UintOr("llama.block_count", 7); err == nil {
		t.Error("UintOr took -1")
	}
	if _, err := f.Float32sOr("tokenizer.ggml.scores", nil); err == nil {
		t.Error("Float32sOr took uint8s")
	}
}

// errOf drops the value that an accessor returns.
func errOf[T any](get func(string) (T, error)) func(string) error {
	return func(key string) error { _, err := get(key); return err }
}
