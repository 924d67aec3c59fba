package runtime_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/gguf"
	"github.com/starling-swarm/starling/runtime/golden"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// overwrite replaces the first bytes of a tensor's data in a file, and returns what they were.
func overwrite(t testing.TB, path, tensor string, data []byte) (before []byte) {
	t.Helper()
	g, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	at, ok := g.Tensor(tensor)
	if !ok {
		t.Fatalf("no tensor %s", tensor)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	before = make([]byte, len(data))
	if _, err := f.ReadAt(before, at.Offset); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(data, at.Offset); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return before
}

func meta(pairs ...any) map[string]gguf.Value {
	m := make(map[string]gguf.Value)
	for i := 0; i < len(pairs); i += 2 {
		key := pairs[i].(string)
		switch v := pairs[i+1].(type) {
		case string:
			m[key] = gguf.ValueOf(v)
		case int:
			m[key] = gguf.ValueOf(uint32(v))
		case float64:
			m[key] = gguf.ValueOf(float32(v))
		case bool:
			m[key] = gguf.ValueOf(v)
		case []uint32:
			m[key] = gguf.ArrayOf(v)
		default:
			panic(fmt.Sprintf("%T", v))
		}
	}
	return m
}

// controls is a vocabulary of n control tokens.
func controls(n int) map[string]gguf.Value {
	tokens, types := make([]string, n), make([]int32, n)
	for i := range tokens {
		tokens[i], types[i] = fmt.Sprintf("<|%d|>", i), 3
	}
	return map[string]gguf.Value{"tokenizer.ggml.tokens": gguf.ArrayOf(tokens), "tokenizer.ggml.token_type": gguf.ArrayOf(types)}
}

// TestOpenRefuses checks that what cannot be computed is refused with an error in one line that says what it is.
func TestOpenRefuses(t *testing.T) {
	extra := func(name string, typ gguf.Type, dims []uint64, size int) func(*gguf.Writer) {
		return func(w *gguf.Writer) { w.AddTensor(name, typ, dims, make([]byte, size)) }
	}
	for name, c := range map[string]struct {
		m    runtimetest.TinyModel
		want []string // parts of the error
	}{
		"another architecture": {runtimetest.TinyModel{Meta: meta("general.architecture", "mamba")}, []string{`"mamba"`, "llama"}},
		"no architecture":      {runtimetest.TinyModel{Drop: "general.architecture"}, []string{"general.architecture"}},
		"LoRA adapter":         {runtimetest.TinyModel{Meta: meta("general.type", "adapter")}, []string{"LoRA"}},
		"mmproj":               {runtimetest.TinyModel{Meta: meta("general.type", "mmproj")}, []string{"mmproj"}},
		"experts":              {runtimetest.TinyModel{Meta: meta("llama.expert_count", 8)}, []string{"llama.expert_count", "8", "mixture"}},
		"longrope":             {runtimetest.TinyModel{Meta: meta("llama.rope.scaling.type", "longrope")}, []string{"llama.rope.scaling.type", `"longrope"`, "linear"}},
		"softcapping":          {runtimetest.TinyModel{Meta: meta("llama.attn_logit_softcapping", 30.0)}, []string{"llama.attn_logit_softcapping"}},
		"sliding window":       {runtimetest.TinyModel{Meta: meta("llama.attention.sliding_window", 100)}, []string{"llama.attention.sliding_window"}},

		"missing tensor":       {runtimetest.TinyModel{Drop: "blk.1.ffn_up.weight"}, []string{"blk.1.ffn_up.weight", "missing"}},
		"missing embedding":    {runtimetest.TinyModel{Drop: "token_embd.weight"}, []string{"token_embd.weight", "missing"}},
		"missing norm":         {runtimetest.TinyModel{Drop: "output_norm.weight"}, []string{"output_norm.weight", "missing"}},
		"missing key":          {runtimetest.TinyModel{Drop: "llama.block_count"}, []string{"llama.block_count", "missing"}},
		"missing tokens":       {runtimetest.TinyModel{Drop: "tokenizer.ggml.tokens"}, []string{"tokenizer.ggml.tokens", "missing"}},
		"a layer too many":     {runtimetest.TinyModel{Extra: extra("blk.3.attn_norm.weight", 0, []uint64{64}, 256)}, []string{"blk.3.attn_norm.weight"}},
		"unknown global":       {runtimetest.TinyModel{Extra: extra("output.bias", 0, []uint64{259}, 4*259)}, []string{"output.bias"}},
		"unsupported type":     {runtimetest.TinyModel{Drop: "blk.2.attn_v.weight", Extra: extra("blk.2.attn_v.weight", 40, []uint64{64, 64}, 64*36)}, []string{"blk.2.attn_v.weight", "NVFP4", "supported: F32"}},
		"quantised norm":       {runtimetest.TinyModel{Drop: "blk.0.attn_norm.weight", Extra: extra("blk.0.attn_norm.weight", 8, []uint64{64}, 68)}, []string{"blk.0.attn_norm.weight", "Q8_0"}},
		"wrong shape":          {runtimetest.TinyModel{Drop: "blk.0.attn_k.weight", Extra: extra("blk.0.attn_k.weight", 0, []uint64{64, 65}, 4*64*65)}, []string{"blk.0.attn_k.weight", "65", "64"}},
		"transposed":           {runtimetest.TinyModel{Drop: "blk.0.ffn_up.weight", Extra: extra("blk.0.ffn_up.weight", 0, []uint64{96, 64}, 4*64*96)}, []string{"blk.0.ffn_up.weight"}},
		"wrong rope factors":   {runtimetest.TinyModel{Extra: extra("rope_freqs.weight", 0, []uint64{8}, 32)}, []string{"rope_freqs.weight"}},
		"zero rope factors":    {runtimetest.TinyModel{Extra: extra("rope_freqs.weight", 0, []uint64{16}, 64)}, []string{"rope_freqs.weight", "factor 0"}},
		"no layers":            {runtimetest.TinyModel{Meta: meta("llama.block_count", 0)}, []string{"llama.block_count", "0"}},
		"too many layers":      {runtimetest.TinyModel{Meta: meta("llama.block_count", 1<<30)}, []string{"llama.block_count"}},
		"more layers than are": {runtimetest.TinyModel{Meta: meta("llama.block_count", 4)}, []string{"blk.3.", "missing"}},
		"no context":           {runtimetest.TinyModel{Meta: meta("llama.context_length", 0)}, []string{"llama.context_length"}},
		"heads not divisible":  {runtimetest.TinyModel{Meta: meta("llama.attention.head_count_kv", 3)}, []string{"llama.attention.head_count_kv", "3", "4"}},
		"layers that differ":   {runtimetest.TinyModel{Meta: meta("llama.attention.head_count_kv", []uint32{2, 2, 1})}, []string{"llama.attention.head_count_kv", "differs"}},
		"odd rope":             {runtimetest.TinyModel{Meta: meta("llama.rope.dimension_count", 31)}, []string{"llama.rope.dimension_count", "31"}},
		"rope beyond the head": {runtimetest.TinyModel{Meta: meta("llama.rope.dimension_count", 64)}, []string{"llama.rope.dimension_count", "64"}},
		"another value length": {runtimetest.TinyModel{Meta: meta("llama.attention.value_length", 16)}, []string{"llama.attention.value_length", "16"}},
		"no eps":               {runtimetest.TinyModel{Drop: "llama.attention.layer_norm_rms_epsilon"}, []string{"llama.attention.layer_norm_rms_epsilon"}},
		"NaN eps":              {runtimetest.TinyModel{Meta: meta("llama.attention.layer_norm_rms_epsilon", math.NaN())}, []string{"llama.attention.layer_norm_rms_epsilon"}},
		"infinite base":        {runtimetest.TinyModel{Meta: meta("llama.rope.freq_base", math.Inf(1))}, []string{"llama.rope.freq_base"}},
		"negative scale":       {runtimetest.TinyModel{Meta: meta("llama.rope.scaling.factor", -2.0)}, []string{"llama.rope.scaling.factor"}},
		"width as text":        {runtimetest.TinyModel{Meta: meta("llama.embedding_length", "64")}, []string{"llama.embedding_length"}},
		"missing splitting":    {runtimetest.TinyModel{Drop: "tokenizer.ggml.pre"}, []string{"tokenizer.ggml.pre", "missing"}},
		"a token too few":      {runtimetest.TinyModel{Meta: controls(258)}, []string{"tokenizer.ggml.tokens", "258", "token_embd.weight", "259"}},
		"a token too many":     {runtimetest.TinyModel{Meta: controls(260)}, []string{"tokenizer.ggml.tokens", "260", "token_embd.weight", "259"}},
		"another tokenizer":    {runtimetest.TinyModel{Meta: meta("tokenizer.ggml.model", "bert")}, []string{"bert"}},
		"a token id too far":   {runtimetest.TinyModel{Meta: meta("tokenizer.ggml.bos_token_id", 1<<31)}, []string{"tokenizer.ggml.bos_token_id"}},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := runtime.Open(runtime.Options{Path: tiny(t, c.m), Threads: 1})
			if err == nil {
				m.Close()
				t.Fatal("opened")
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not mention %s: %v", part, err)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("the error has several lines: %v", err)
			}
		})
	}
}

func TestOpenRange(t *testing.T) {
	path := tiny(t, runtimetest.TinyModel{})
	for _, r := range []runtime.Range{{First: 0, Last: 4}, {First: -1, Last: 2}, {First: 2, Last: 1}, {First: 1, Last: 1}, {First: 4, Last: 4}} {
		_, err := runtime.Open(runtime.Options{Path: path, Layers: r})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("layers %d to %d asked for", r.First, r.Last-1)) || !strings.Contains(err.Error(), "layers 0 to 2") {
			t.Errorf("[%d, %d): error %v", r.First, r.Last, err)
		}
	}
	if _, err := runtime.Open(runtime.Options{Path: filepath.Join(t.TempDir(), "none.gguf")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := runtime.Open(runtime.Options{Path: path, KV: 7}); err == nil {
		t.Error("an unknown KV type is accepted")
	}
	if got := fmt.Sprint(runtime.Range{First: 0, Last: 10}, runtime.Range{First: 3, Last: 4}, runtime.Range{First: 3, Last: 3}); got != "layers 0–9 (10) layer 3 (1) no layers" {
		t.Errorf("ranges print as %s", got)
	}
}

// TestDamagedWeights checks that a NaN in any weight that is used is found before a result leaves, and named.
func TestDamagedWeights(t *testing.T) {
	nan32 := binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(math.NaN())))
	for _, c := range []struct {
		typ    kernels.Type
		tensor string
		data   []byte
	}{
		{kernels.F32, "blk.1.ffn_down.weight", nan32},
		{kernels.F32, "blk.0.attn_norm.weight", nan32},
		{kernels.F32, "token_embd.weight", nan32},
		{kernels.F32, "output_norm.weight", nan32},
		{kernels.Q4_1, "blk.2.attn_q.weight", []byte{0, 0x7c}},
		{kernels.Q4_1, "output.weight", []byte{0, 0, 1, 0xfc}},
		{kernels.Q4_K, "blk.2.attn_q.weight", []byte{0, 0, 0xff, 0x7f}},
	} {
		path := tiny(t, runtimetest.TinyModel{Type: c.typ})
		overwrite(t, path, c.tensor, c.data)
		var bad *runtime.WeightError
		m, err := runtime.Open(runtime.Options{Path: path, Threads: 2})
		if err == nil {
			seq := sequenceOf(t, m, 3)
			for range 2 { // a second Run finds it again
				err = m.Run(context.Background(), []*runtime.Step{{Seq: seq, Layers: m.Layers(), N: 3, Tokens: []int32{1, 0, 3}, LogitRows: []int{2}}})
				if !errors.As(err, &bad) || seq.Len(0) != 0 {
					t.Errorf("%v %s: error %v, %d rows kept", c.typ, c.tensor, err, seq.Len(0))
				}
			}
			m.Close()
		}
		if !errors.As(err, &bad) || bad.Tensor != c.tensor || !strings.Contains(err.Error(), c.tensor) {
			t.Errorf("%v %s: error %v", c.typ, c.tensor, err)
		}
	}
}

// TestSparse opens a layer range of a file in which all other weights are missing, as in a node's store, and expects
// the same bits as from the whole file.
func TestSparse(t *testing.T) {
	whole := tiny(t, runtimetest.TinyModel{Type: kernels.Q8_0, Tied: true})
	data, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	g, err := gguf.Open(whole)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		layers runtime.Range
		keep   []string
	}{
		{runtime.Range{First: 0, Last: 1}, []string{"token_embd.", "blk.0."}},
		{runtime.Range{First: 1, Last: 2}, []string{"blk.1."}},
		{runtime.Range{First: 1, Last: 3}, []string{"blk.1.", "blk.2.", "output_norm.", "token_embd."}},
		{runtime.Range{First: 3, Last: 3}, []string{"output_norm.", "token_embd."}},
	} {
		holes := bytes.Clone(data)
		for _, tensor := range g.Tensors {
			kept := false
			for _, prefix := range c.keep {
				kept = kept || strings.HasPrefix(tensor.Name, prefix)
			}
			if !kept {
				for i := range tensor.Size { // worse than a hole: whoever reads it finds NaN
					holes[tensor.Offset+i] = 0xff
				}
			}
		}
		path := filepath.Join(t.TempDir(), "sparse.gguf")
		if err := os.WriteFile(path, holes, 0o600); err != nil {
			t.Fatal(err)
		}
		var results [2]*runtime.Step
		for i, p := range []string{whole, path} {
			m := open(t, runtime.Options{Path: p, Layers: c.layers, Threads: 2})
			step := &runtime.Step{Seq: sequenceOf(t, m, 3), Layers: m.Layers(), N: 3, KeepHidden: true}
			if c.layers.First == 0 {
				step.Tokens = []int32{1, 2, 3}
			} else {
				step.Seam = make([]float32, 3*m.Config().Width)
				for i := range step.Seam {
					step.Seam[i] = float32(i % 5)
				}
			}
			if c.layers.Last == 3 {
				step.LogitRows = []int{1, 2}
			}
			run(t, m, step)
			results[i] = step
		}
		a, b := results[0], results[1]
		if maxDiff(a.Out, b.Out) != 0 || len(a.Logits) != len(b.Logits) {
			t.Errorf("%v: other results from a sparse file", c.layers)
		}
		for i := range a.Logits {
			if maxDiff(a.Logits[i], b.Logits[i]) != 0 {
				t.Errorf("%v: other logits from a sparse file", c.layers)
			}
		}
		if m, err := runtime.Open(runtime.Options{Path: path}); err == nil {
			step := &runtime.Step{Seq: sequenceOf(t, m, 1), Layers: m.Layers(), N: 1, Tokens: []int32{1}, LogitRows: []int{0}}
			if err := m.Run(context.Background(), []*runtime.Step{step}); err == nil {
				t.Errorf("%v: the whole model runs from a sparse file", c.layers)
			}
			m.Close()
		}
	}
}

// TestSplitSet opens a model that lies in two files and expects the bits of the single one.
func TestSplitSet(t *testing.T) {
	path := tiny(t, runtimetest.TinyModel{Seed: 5})
	g, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for part := range 2 {
		w := &gguf.Writer{}
		if part == 0 {
			for _, key := range g.Keys() {
				v, _ := g.Lookup(key)
				w.Set(key, v)
			}
		}
		w.Set("split.no", gguf.ValueOf(uint16(part)))
		w.Set("split.count", gguf.ValueOf(uint16(2)))
		w.Set("split.tensors.count", gguf.ValueOf(int32(len(g.Tensors))))
		for i, tensor := range g.Tensors {
			if (i < 10) == (part == 0) {
				w.AddTensor(tensor.Name, tensor.Type, tensor.Dims, data[tensor.Offset:tensor.Offset+tensor.Size])
			}
		}
		f, err := os.Create(filepath.Join(dir, gguf.PartName("m", part, 2)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteTo(f); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	e := golden.Expected{Prompt: []int32{5, 6, 7, 8}, LogitsPositions: []int{3}}
	want := digest(t, open(t, runtime.Options{Path: path}), e)
	for part := range 2 {
		m := open(t, runtime.Options{Path: filepath.Join(dir, gguf.PartName("m", part, 2))})
		if got := digest(t, m, e); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("opened by part %d: other bits", part)
		}
	}
}

// TestInspect compares sizes and costs with what they must be.
func TestInspect(t *testing.T) {
	c, err := runtime.Inspect(tiny(t, runtimetest.TinyModel{}))
	if err != nil {
		t.Fatal(err)
	}
	weights := 64*(128+64+64) + 128*64 + 3*64*96
	if got, want := c.LayerBytes[1], int64(4*(weights+2*64)); got != want {
		t.Errorf("LayerBytes %d, want %d", got, want)
	}
	if got, want := c.LayerFlops[1], float64(2*weights); got != want {
		t.Errorf("LayerFlops %v, want %v", got, want)
	}
	if c.EmbedBytes != 4*64*259 || c.HeadBytes != 4*64*260 || c.HeadFlops != 2*64*259 || c.AttnFlops != 4*128 {
		t.Errorf("embedding %d, head %d bytes, %v operations, attention %v", c.EmbedBytes, c.HeadBytes, c.HeadFlops, c.AttnFlops)
	}
	if c.Layers != 3 || c.Width != 64 || c.Heads != 4 || c.KVHeads != 2 || c.HeadDim != 32 || c.RopeDim != 32 || c.FFN != 96 ||
		c.Vocab != 259 || c.Context != 2048 || c.Name != "tiny" || c.Tied || c.RopeScale != 1 {
		t.Errorf("%+v", c)
	}
	if got := c.KVRowBytes(1, runtime.KVF16); got != 2*2*32*2 {
		t.Errorf("KVRowBytes %d", got)
	}
	if c, err = runtime.Inspect(tiny(t, runtimetest.TinyModel{Tied: true})); err != nil || !c.Tied || c.HeadBytes != 4*64*260 {
		t.Errorf("tied: %+v, %v", c, err)
	}
}

// TestNonFiniteInside checks that numbers that overflow inside a layer are found there.
func TestNonFiniteInside(t *testing.T) {
	for _, c := range []struct {
		tensor string
		layer  int
	}{
		{"blk.1.attn_norm.weight", 1}, {"blk.1.ffn_norm.weight", 1}, {"blk.2.attn_v.weight", 2}, {"blk.0.ffn_down.weight", 0}, {"output.weight", 3},
	} {
		path := tiny(t, runtimetest.TinyModel{})
		var huge []byte
		for range 64 {
			huge = binary.LittleEndian.AppendUint32(huge, math.Float32bits(3e38))
		}
		overwrite(t, path, c.tensor, huge)
		m := open(t, runtime.Options{Path: path})
		seq := sequenceOf(t, m, 4)
		step := &runtime.Step{Seq: seq, Layers: m.Layers(), N: 4, Tokens: []int32{1, 2, 3, 4}, LogitRows: []int{0}}
		err := m.Run(context.Background(), []*runtime.Step{step})
		var e *runtime.NonFiniteError
		if !errors.As(err, &e) || e.Layer != c.layer || e.Pos != 0 {
			t.Errorf("%s: error %v, want layer %d", c.tensor, err, c.layer)
		}
		if seq.Len(0) != 0 {
			t.Errorf("%s: a failed Run left rows", c.tensor)
		}
	}
}

func TestMeasure(t *testing.T) {
	path := tiny(t, runtimetest.TinyModel{Type: kernels.Q8_0})
	for _, r := range []runtime.Range{{}, {First: 1, Last: 2}, {First: 3, Last: 3}} {
		m := open(t, runtime.Options{Path: path, Layers: r, Threads: 2})
		free := m.FreeKVBytes()
		s, err := runtime.Measure(context.Background(), m)
		if err != nil {
			t.Fatal(err)
		}
		if !(s.PrefillFlops > 1e6 && s.PrefillFlops < 1e15 && s.DecodeBytesPerSec > 1e5 && s.DecodeBytesPerSec < 1e13) {
			t.Errorf("%v: %+v", m.Layers(), s)
		}
		if m.FreeKVBytes() != free {
			t.Error("Measure keeps KV memory")
		}
	}
	m := open(t, runtime.Options{Path: path})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := runtime.Measure(ctx, m); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
