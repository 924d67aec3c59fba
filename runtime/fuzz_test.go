package runtime_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/gguf"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// padded is a file that begins with some bytes and goes on with zeros.
type padded []byte

func (p padded) ReadAt(b []byte, off int64) (int, error) {
	n := 0
	if off < int64(len(p)) {
		n = copy(b, p[off:])
	}
	clear(b[n:])
	return len(b), nil
}

var _ io.ReaderAt = padded(nil)

// FuzzInspect feeds headers of any content to what reads them: they give a Config whose sizes make sense, or an error.
func FuzzInspect(f *testing.F) {
	addHeaders(f, []runtimetest.TinyModel{
		{Layers: 1}, {Layers: 2, Type: kernels.Q4_K, Tied: true}, {Layers: 1, Meta: meta("llama.expert_count", 8)},
		{Layers: 1, Meta: meta("llama.attention.head_count_kv", []uint32{2})}, {Layers: 1, Drop: "blk.0.ffn_up.weight"},
		{Layers: 1, Meta: meta("llama.rope.scaling.type", "linear", "llama.rope.scaling.factor", 2.0)},
		{Layers: 1, Meta: meta("llama.rope.scaling.type", "two\nlines")}, {Layers: 1, Meta: meta("llama.logit_scale", "two\nlines")},
		{Layers: 1, Arch: "qwen2"}, {Layers: 1, Arch: "qwen3", Meta: yarn("", "")}, {Layers: 2, Arch: "gemma3"}, {Layers: 2, Arch: "deepseek2"}, {Layers: 2, Arch: "deepseek2", Joint: true}, {Layers: 2, Arch: "qwen35moe"}, {Layers: 2, Arch: "gpt-oss"}, {Layers: 1, Arch: "phi3"}, {Layers: 1, Arch: "mistral3"}, {Layers: 2, Arch: "glm4moe", Meta: meta("glm4moe.nextn_predict_layers", 1)}, {Layers: 1, Arch: "gemma3", Drop: "gemma3.attention.sliding_window_pattern"},
		{Layers: 1, Meta: meta("general.architecture", "two\nlines"+strings.Repeat("!", 2000))}, {Layers: 1, Meta: meta("tokenizer.ggml.pre", "two\nlines")},
	})
	f.Fuzz(func(t *testing.T, header []byte) {
		file, err := gguf.Read(padded(header), 1<<40, "fuzz.gguf")
		if err != nil {
			return
		}
		set, err := gguf.NewSet([]*gguf.File{file})
		if err != nil {
			return
		}
		tok, err := runtime.LoadTokenizer(set)
		if err == nil && tok.Size() < 1 {
			t.Error("a tokenizer without tokens")
		}
		oneLine(t, err)
		c, err := runtime.InspectSet(set)
		if err != nil {
			oneLine(t, err)
			return
		}
		negative := func(l runtime.LayerCache) bool { return l.Window < 0 }
		if slices.ContainsFunc(c.Cache, negative) || !(c.LocalRopeBase >= 0) || !(c.EmbedScale > 0) || !(c.AttnScale > 0) {
			t.Errorf("accepted %+v", c)
		}
		if c.Layers < 1 || len(c.LayerBytes) != c.Layers || len(c.Cache) != c.Layers || c.Width < 1 || c.Vocab < 1 || c.Heads%c.KVHeads != 0 || c.RopeDim > c.HeadDim ||
			c.KVRowBytes(0, runtime.KVF32)+c.Cache[0].TailBytes() < 1 || c.LayerFlops[0] < 1 || !(c.Eps > 0) || !(c.RopeBase > 0) || !(c.RopeScale > 0) {
			t.Errorf("accepted %+v", c)
		}
	})
}

// addHeaders adds the headers of models to the seeds.
func addHeaders(f *testing.F, models []runtimetest.TinyModel) {
	f.Helper()
	for _, m := range models {
		path := tiny(f, m)
		g, err := gguf.Open(path)
		if err != nil {
			f.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.Clone(data[:g.HeaderSize]))
	}
}

// FuzzDescribe describes files of any header: the description adds up, all that it says is on one line each, and what it takes
// to make it is in proportion to the file.
func FuzzDescribe(f *testing.F) {
	addHeaders(f, []runtimetest.TinyModel{
		{Layers: 1}, {Layers: 2, Arch: "gemma3"}, {Layers: 2, Arch: "qwen35moe"},
		{Layers: 1, Arch: "deepseek2", Meta: meta("general.name", "two\nlines", "deepseek2.rope.scaling.type", "two\nlines", "deepseek2.rope.scaling.factor", 2.0)},
		{Layers: 1, Meta: meta("general.architecture", "two\nlines"+strings.Repeat("!", 2000))},
		{Layers: 1, Meta: meta("llama.block_count", 1<<32-1, "llama.context_length", 1<<32-1, "llama.expert_count", 1<<31)},
		{Layers: 1, Meta: meta("tokenizer.chat_template", "{% for m in messages %}{{ m.content }}{% endfor %} tools think")},
		{Layers: 1, Meta: meta("tokenizer.chat_template", "{{ raise_exception('two\nlines') }}")},
		{Layers: 1, Meta: meta("split.count", 2, "split.no", 0)},
	})
	const weights = 1 << 20 // bytes behind the header, more than those of the models above
	path := filepath.Join(f.TempDir(), "fuzz.gguf")
	f.Fuzz(func(t *testing.T, header []byte) {
		if err := os.WriteFile(path, header, 0o600); err != nil {
			t.Fatal(err)
		}
		size := int64(len(header)) + weights
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		before := allocated()
		d, err := runtime.Describe(path)
		// Strings take 16 bytes for 8 in the file, tokens and arrays that grow a few times that; a template has its own limits.
		if took, most := int64(allocated()-before), 32*size+8<<20; took > most && (d == nil || !d.Tokenizer.Template) {
			t.Errorf("%d bytes were allocated for a file of %d, at most %d are allowed", took, size, most)
		}
		if err != nil {
			oneLine(t, err)
			return
		}
		for _, why := range append(d.Unsupported, d.Tokenizer.TemplateError) {
			oneLine(t, errors.New(why))
		}
		if _, err := json.Marshal(d); err != nil {
			t.Error(err)
		}
		bytes := d.OutsideBytes
		for _, b := range d.LayerBytes {
			bytes += b
		}
		if bytes > d.Bytes || d.ExpertBytes > bytes {
			t.Errorf("tensors of %d bytes, experts of %d in a file of %d", bytes, d.ExpertBytes, d.Bytes)
		}
		for _, w := range d.Types {
			bytes -= w.Bytes
		}
		if bytes != 0 || d.Bytes != size || d.Parts != 1 || d.Layers < 0 || d.Context < 0 || d.Experts < 0 || d.UsedExperts < 0 {
			t.Errorf("described as %+v", d)
		}
		if n := d.SessionBytes(1<<20, runtime.KVF32); n < 0 || (n > 0) != (d.Cache != nil) {
			t.Errorf("a session takes %d bytes", n)
		}
	})
}

// allocated returns how many bytes this process has allocated on the heap, freed or not.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// oneLine fails the test for an error that does not fit on a line.
func oneLine(t *testing.T, err error) {
	t.Helper()
	if err != nil && (strings.ContainsAny(err.Error(), "\n\r") || len(err.Error()) > 1000) {
		t.Errorf("an error of %d bytes: %q", len(err.Error()), err)
	}
}

// FuzzImportKV offers bytes as cache rows, in two pieces: either they are refused and nothing changes, or they come back
// as they were.
func FuzzImportKV(f *testing.F) {
	m := open(f, runtime.Options{Path: tiny(f, runtimetest.TinyModel{Layers: 1}), Threads: 1})
	c := m.Config()
	size := c.KVRowBytes(0, runtime.KVF16)
	f.Add([]byte{}, 0, 0)
	f.Add(make([]byte, size), 0, 0)
	f.Add(make([]byte, 2*size), 1, 0)
	f.Add(bytes.Repeat([]byte{0xff}, size), 0, 0)
	tiles := make([]byte, 39*size)
	for i := range tiles {
		tiles[i] = byte(i * i % 123)
	}
	f.Add(tiles, 0, 7)
	f.Fuzz(func(t *testing.T, rows []byte, first, piece int) {
		s, err := m.NewSequence(40, m.Layers())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		cut := min(max(piece, 0), len(rows)/size) * size
		held := 0
		for _, part := range [][]byte{rows[:cut], rows[cut:]} {
			if err := s.ImportKV(0, first+held, len(part)/s.RowBytes(0), part); err != nil {
				if s.Len(0) != held {
					t.Error("a refused import left rows")
				}
				break
			}
			held += len(part) / size
		}
		if got, err := s.ExportKV(nil, 0, 0, s.Len(0)); err != nil || !bytes.Equal(got, rows[:held*size]) {
			t.Errorf("imported %x, exported %x (%v)", rows[:held*size], got, err)
		}
	})
}

// FuzzImportQ8 offers bytes as cache rows of KVQ8: either they are refused and nothing changes, or as many come back, which a second
// sequence takes for the same rows if the first one made them.
func FuzzImportQ8(f *testing.F) {
	m := open(f, runtime.Options{Path: tiny(f, runtimetest.TinyModel{Layers: 1}), Threads: 1, KV: runtime.KVQ8})
	seq := sequenceOf(f, m, 40)
	run(f, m, &runtime.Step{Seq: seq, Layers: m.Layers(), N: 20, Tokens: make([]int32, 20)})
	made, err := seq.ExportKV(nil, 0, 0, 20)
	if err != nil {
		f.Fatal(err)
	}
	size := seq.RowBytes(0)
	f.Add([]byte{})
	f.Add(made)
	f.Add(make([]byte, size))
	f.Add(bytes.Repeat([]byte{0xff}, size))
	f.Add(bytes.Repeat([]byte{0x7b}, 3*size))
	f.Add(made[:size+1])
	f.Fuzz(func(t *testing.T, rows []byte) {
		s := sequenceOf(t, m, 40)
		defer s.Close()
		if err := s.ImportKV(0, 0, len(rows)/size, rows); err != nil {
			if s.Len(0) != 0 {
				t.Error("a refused import left rows")
			}
			return
		}
		got, err := s.ExportKV(nil, 0, 0, s.Len(0))
		if err != nil || len(got) != len(rows) || bytes.Equal(rows, made) && !bytes.Equal(got, made) {
			t.Errorf("imported %x, exported %x (%v)", rows, got, err)
		}
	})
}
