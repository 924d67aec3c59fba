package artifacts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/starling-swarm/starling/runtime/gguf"
)

// Facts of the model card of SmolLM2-135M-Instruct: 30 layers, width 576, 9 heads of 64, 3 KV
// heads, 49152 tokens, 8192 positions, tied embeddings, 134.5 million parameters.
func TestCardSmolLM2(t *testing.T) {
	set, err := gguf.OpenSet(smolLM2(t))
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewCard(set)
	if err != nil {
		t.Fatal(err)
	}
	if c.Architecture != "llama" || c.Quant != "Q4_1" || c.Layers != 30 || c.Width != 576 || c.Vocab != 49152 || c.Context != 8192 || !c.Tied {
		t.Errorf("%+v", c)
	}
	if c.Parameters != 134_515_008 {
		t.Errorf("%d parameters", c.Parameters)
	}
	if c.TotalBytes != 98362432 || c.SeamBytesPerToken != 4*576 || len(c.Cuts) != 29 || c.Cuts[0] != 1 || c.Cuts[28] != 29 {
		t.Errorf("%+v", c)
	}
	layerWeights := 2*576*576 + 2*192*576 + 3*1536*576 // q, o, k, v, gate, up, down
	var sum int64
	for i := range c.Layers {
		if c.KVBytesPerToken[i] != 2*2*3*64 || c.LayerFlops[i] != float64(2*layerWeights) {
			t.Errorf("layer %d: %d KV bytes, %g FLOPs", i, c.KVBytesPerToken[i], c.LayerFlops[i])
		}
		sum += c.LayerBytes[i]
	}
	if c.HeadFlops != 2*49152*576 {
		t.Errorf("head: %g FLOPs", c.HeadFlops)
	}
	if sum += c.EmbedBytes; sum > c.TotalBytes || sum < c.TotalBytes*95/100 {
		t.Errorf("layers and embedding are %d bytes of %d", sum, c.TotalBytes)
	}
}

// Keys of models whose layers keep latents, or are followed by draft layers, change what a token takes.
func TestCardMeta(t *testing.T) {
	card := func(keys ...any) (*Card, error) {
		w := &gguf.Writer{}
		w.Set("general.architecture", gguf.ValueOf("deepseek2"))
		sizes := []any{"block_count", 3, "embedding_length", 8, "context_length", 16, "attention.head_count", 4, "attention.head_count_kv", 1,
			"attention.key_length", 48, "attention.value_length", 32}
		keys = append(sizes, keys...)
		for i := 0; i < len(keys); i += 2 {
			w.Set("deepseek2."+keys[i].(string), gguf.ValueOf(uint32(keys[i+1].(int))))
		}
		for i := range 3 {
			w.AddTensor(fmt.Sprintf("blk.%d.ffn_up.weight", i), gguf.F32, []uint64{8, 8}, make([]byte, 256))
		}
		var b bytes.Buffer
		if _, err := w.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		g, err := gguf.Read(bytes.NewReader(b.Bytes()), int64(b.Len()), "m.gguf")
		if err != nil {
			t.Fatal(err)
		}
		set, err := gguf.NewSet([]*gguf.File{g})
		if err != nil {
			t.Fatal(err)
		}
		return NewCard(set)
	}
	c, err := card()
	if err != nil || !reflect.DeepEqual(c.KVBytesPerToken, []int64{160, 160, 160}) {
		t.Fatalf("without keys: %+v, %v", c, err)
	}
	c, err = card("attention.kv_lora_rank", 32, "rope.dimension_count", 16, "nextn_predict_layers", 1)
	if err != nil || !reflect.DeepEqual(c.KVBytesPerToken, []int64{96, 96}) || c.Layers != 2 || len(c.Cuts) != 1 || len(c.LayerBytes) != 2 {
		t.Fatalf("latents of 32 and 16, one draft layer: %+v, %v", c, err)
	}
	last, whole := int64(0), c.Spans(LayerRange{First: 0, Last: 2})
	for _, s := range c.Spans(LayerRange{First: 1, Last: 2}) {
		last += s.Length
	}
	if c.HeadBytes != 0 || last > c.TotalBytes-2*256 || len(whole) != 1 || whole[0].Length != c.TotalBytes {
		t.Errorf("a draft layer counts for the head: %d bytes, %d of the last layer's %d, whole %v", c.HeadBytes, last, c.TotalBytes, whole)
	}
	if c, err = card("nextn_predict_layers", 3); err == nil || !strings.Contains(err.Error(), "nextn_predict_layers is 3") {
		t.Errorf("nothing but draft layers: %+v, %v", c, err)
	}
	if c, err = card("attention.kv_lora_rank", 1<<31, "rope.dimension_count", 1<<31); err != nil || c.KVBytesPerToken[0] != 2<<32 {
		t.Errorf("huge latents: %+v, %v", c, err)
	}
}

// A model with gated delta nets has rows in some layers and a state in the others, as its engine counts them.
func TestCardTails(t *testing.T) {
	path := filepath.Join("..", "..", "shared", "golden", "qwen3_5_moe", "model.gguf")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("needs %s, which is not here", path)
	}
	set, err := gguf.OpenSet(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewCard(set)
	if err != nil {
		t.Fatal(err)
	}
	const rows, state = 2 * 128, 4 * 4864 // elements from expected.json
	if !reflect.DeepEqual(c.KVBytesPerToken, []int64{0, 0, 0, rows, 0, 0, 0, rows}) || !reflect.DeepEqual(c.TailBytes, []int64{state, state, state, 0, state, state, state, 0}) {
		t.Errorf("%v bytes a token, tails of %v", c.KVBytesPerToken, c.TailBytes)
	}
}

// Whatever layers a node takes, it fetches at most 3 % more than their bytes: header, layers, and the ends' tensors, as names tell.
// go test -v prints the worst ranges of each length.
func TestOverfetch(t *testing.T) {
	t.Run("SmolLM2-135M", func(t *testing.T) { overfetch(t, smolLM2(t)) })
	t.Run("7B", func(t *testing.T) { overfetch(t, write7B(t)) })
}

func overfetch(t *testing.T, path string) {
	set, err := gguf.OpenSet(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewCard(set)
	if err != nil {
		t.Fatal(err)
	}
	size := set.Size()
	m := &Manifest{Parts: []Part{{Size: size, Pieces: make([][32]byte, pieceCount(size))}}}
	t.Logf("%d bytes, %d layers, pieces of %d KiB", size, c.Layers, PieceLength(size)>>10)
	t.Log("| layers | ranges | mean over | most over | of |")
	worst, ranges := 0.0, 0
	for n := range c.Layers + 1 {
		sum, most, of := 0.0, -1.0, ""
		for first := 0; first+n <= c.Layers; first++ {
			r := LayerRange{first, first + n}
			need, runs := neededBytes(set, c.Layers, r)
			fetched := int64(0)
			for _, p := range m.pieceRuns(c.Spans(r)) {
				for i := p.first; i < p.last; i++ {
					fetched += m.pieceSpan(p.part, i).Length
				}
			}
			over := float64(fetched-need) / float64(need)
			sum += over
			if over > most {
				most, of = over, fmt.Sprintf("%v: %d bytes in %d runs, %d fetched", r, need, runs, fetched)
			}
			if n > 0 {
				ranges++
				worst = max(worst, over)
				if over < 0 || over > 0.03 {
					t.Errorf("%v: %d bytes needed in %d runs, %d fetched", r, need, runs, fetched)
				}
			}
		}
		t.Logf("| %d | %d | %.2f %% | %.2f %% | %s |", n, c.Layers+1-n, 100*sum/float64(c.Layers+1-n), 100*most, of)
	}
	t.Logf("%d ranges with layers, at most %.2f %% over", ranges, 100*worst)
}

// write7B writes the header of a model with the shapes of Llama 2 7B in Q4_0, in the order that llama.cpp's converter writes tensors,
// to a sparse file of full size: its weights are zeros that take no disk.
func write7B(t *testing.T) string {
	t.Helper()
	const width, ffn, layers, vocab = 4096, 11008, 32, 32000
	var w gguf.Writer
	w.Set("general.architecture", gguf.ValueOf("llama"))
	w.Set("general.name", gguf.ValueOf("a 7B model"))
	w.Set("llama.block_count", gguf.ValueOf(uint32(layers)))
	w.Set("llama.embedding_length", gguf.ValueOf(uint32(width)))
	w.Set("llama.context_length", gguf.ValueOf(uint32(4096)))
	w.Set("llama.attention.head_count", gguf.ValueOf(uint32(32)))
	tokens := make([]string, vocab)
	for i := range tokens {
		tokens[i] = fmt.Sprintf("token%05d", i)
	}
	w.Set("tokenizer.ggml.tokens", gguf.ArrayOf(tokens))
	w.Set("tokenizer.ggml.scores", gguf.ArrayOf(make([]float32, vocab)))
	w.Set("tokenizer.ggml.token_type", gguf.ArrayOf(make([]int32, vocab)))
	zeros := make([]byte, width*vocab) // as large as the largest tensor
	add := func(name string, typ gguf.Type, dims ...uint64) {
		n := uint64(1)
		for _, d := range dims {
			n *= d
		}
		bytes := n * 4
		if typ == gguf.Q4_0 {
			bytes = n / 32 * 18
		}
		w.AddTensor(name, typ, dims, zeros[:bytes])
	}
	add("token_embd.weight", gguf.Q4_0, width, vocab)
	for i := range layers {
		p := fmt.Sprintf("blk.%d.", i)
		add(p+"attn_norm.weight", gguf.F32, width)
		add(p+"ffn_down.weight", gguf.Q4_0, ffn, width)
		add(p+"ffn_gate.weight", gguf.Q4_0, width, ffn)
		add(p+"ffn_up.weight", gguf.Q4_0, width, ffn)
		add(p+"ffn_norm.weight", gguf.F32, width)
		for _, part := range []string{"k", "output", "q", "v"} {
			add(p+"attn_"+part+".weight", gguf.Q4_0, width, width)
		}
	}
	add("output_norm.weight", gguf.F32, width)
	add("output.weight", gguf.Q4_0, width, vocab)
	path := filepath.Join(t.TempDir(), "7b.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := w.WriteTo(&sparseWriter{f: f, zeros: zeros}); err != nil {
		t.Fatal(err)
	}
	return path
}

// sparseWriter leaves holes in place of zeros.
type sparseWriter struct {
	f     *os.File
	off   int64
	zeros []byte // at least as many as are written at once
}

func (w *sparseWriter) Write(b []byte) (int, error) {
	var err error
	if !bytes.Equal(b, w.zeros[:len(b)]) {
		_, err = w.f.WriteAt(b, w.off)
	} else {
		err = w.f.Truncate(w.off + int64(len(b)))
	}
	w.off += int64(len(b))
	return len(b), err
}

// neededBytes says, from tensor names alone, how many bytes a range needs and in how many runs.
func neededBytes(set *gguf.Set, layers int, r LayerRange) (need int64, runs int) {
	prev := true // the header is the first run
	need, runs = set.Meta().HeaderSize, 1
	_, untied := set.Tensor("output.weight")
	for i := range set.Tensors {
		name := set.Tensors[i].Name
		wanted := r.First == 0 && name == "token_embd.weight" ||
			r.Last == layers && (!untied && name == "token_embd.weight" || name == "output_norm.weight" || name == "output.weight")
		for l := r.First; l < r.Last; l++ {
			wanted = wanted || strings.HasPrefix(name, fmt.Sprintf("blk.%d.", l))
		}
		if wanted {
			need += set.Tensors[i].Size
			if !prev {
				runs++
			}
		}
		prev = wanted
	}
	return need, runs
}

// Spans have exactly the tensors of the range, for tied and untied, whole and split models.
func TestSpansCoverTensors(t *testing.T) {
	for _, tm := range []testModel{{layers: 5}, {layers: 5, untied: true}, {layers: 7, parts: 3, untied: true}, {layers: 6, parts: 2}} {
		set, err := gguf.OpenSet(writeModel(t, t.TempDir(), tm)[0])
		if err != nil {
			t.Fatal(err)
		}
		c, err := NewCard(set)
		if err != nil {
			t.Fatal(err)
		}
		if c.Tied == tm.untied {
			t.Errorf("%+v: tied is %v", tm, c.Tied)
		}
		for first := range tm.layers + 1 {
			for last := first; last <= tm.layers; last++ {
				r := LayerRange{first, last}
				spans := c.Spans(r)
				for i := range set.Parts {
					if !covered(spans, Span{Part: i, Length: set.Parts[i].HeaderSize}) {
						t.Errorf("%v: header of part %d is not in %v", r, i, spans)
					}
				}
				for i := range set.Tensors {
					x := &set.Tensors[i]
					want := false
					switch layer, ok := layerOf(x.Name); {
					case ok:
						want = layer >= first && layer < last
					case x.Name == "token_embd.weight":
						want = first == 0 || last == tm.layers && !tm.untied
					default:
						want = last == tm.layers
					}
					if got := covered(spans, Span{x.Part, x.Offset, x.Size}); got != want {
						t.Errorf("%+v, %v: %s covered: %v", tm, r, x.Name, got)
					}
				}
				for i := 1; i < len(spans); i++ {
					a, b := spans[i-1], spans[i]
					if a.Part > b.Part || a.Part == b.Part && a.Offset+a.Length >= b.Offset {
						t.Errorf("%v: spans %v and %v are not merged and ascending", r, a, b)
					}
				}
			}
		}
		if got := SpanBytes(c.Spans(LayerRange{0, tm.layers})); got != set.Size() {
			t.Errorf("all layers: %d bytes of %d", got, set.Size())
		}
	}
}

// covered reports whether s lies in one of spans.
func covered(spans []Span, s Span) bool {
	for _, x := range spans {
		if x.Part == s.Part && x.Offset <= s.Offset && s.Offset+s.Length <= x.Offset+x.Length {
			return true
		}
	}
	return false
}

func TestCheckRange(t *testing.T) {
	c := &Card{Layers: 4, LayerSpans: make([][]Span, 4), PartSizes: []int64{9}, HeaderSpans: []Span{{0, 0, 3}}}
	for _, r := range []LayerRange{{0, 0}, {0, 4}, {4, 4}, {1, 2}} {
		if err := c.CheckRange(r); err != nil || c.Spans(r) == nil {
			t.Errorf("%v: %v", r, err)
		}
	}
	for _, r := range []LayerRange{{-1, 2}, {3, 2}, {0, 5}, {5, 5}} {
		err := c.CheckRange(r)
		if err == nil || !strings.Contains(err.Error(), "0–3 (4)") {
			t.Errorf("%v: %v", r, err)
		}
		if c.Spans(r) != nil {
			t.Errorf("%v has spans", r)
		}
	}
}

func TestCardJSON(t *testing.T) {
	_, m, _ := publish(t, testModel{layers: 3, parts: 2})
	c, ok := m.Card()
	if !ok {
		t.Fatal("a published model has no card")
	}
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var back Card
	if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(&back, c) {
		t.Errorf("%v: %s", err, data)
	}
}

// TestCardAtOnce asks a model just opened for its card from many goroutines: who comes while another reads the header
// must not be told that there is none.
func TestCardAtOnce(t *testing.T) {
	s, m, _ := publish(t, testModel{layers: 3, parts: 2})
	for range 20 {
		s = reopen(t, s)
		m = mustGet(t, s, m.ID())
		start := make(chan struct{})
		var none atomic.Int32
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				<-start
				if _, ok := m.Card(); !ok {
					none.Add(1)
				}
			})
		}
		close(start)
		wg.Wait()
		if n := none.Load(); n > 0 {
			t.Fatalf("%d of 8 callers were told that there is no card", n)
		}
	}
}

func TestCardErrors(t *testing.T) {
	base := func() *gguf.Writer {
		w := new(gguf.Writer)
		w.Set("general.architecture", gguf.ValueOf("llama"))
		w.AddTensor("blk.0.x.weight", gguf.F32, []uint64{2, 2}, make([]byte, 16))
		return w
	}
	full := func(blocks uint32) *gguf.Writer {
		w := base()
		w.Set("llama.block_count", gguf.ValueOf(blocks))
		w.Set("llama.embedding_length", gguf.ValueOf(uint32(2)))
		w.Set("llama.context_length", gguf.ValueOf(uint32(8)))
		return w
	}
	set := func(w *gguf.Writer, key string, v gguf.Value) *gguf.Writer { w.Set(key, v); return w }
	for name, c := range map[string]struct {
		w    *gguf.Writer
		want string
	}{
		"good":        {full(1), ""},
		"no keys":     {base(), "llama.block_count"},
		"many blocks": {full(4_000_000_000), "llama.block_count is 4000000000"},
		"missing layer": {func() *gguf.Writer {
			w := full(2)
			w.AddTensor("blk.7.x", gguf.F32, []uint64{1}, make([]byte, 4))
			return w
		}(), "no tensor blk.1.*"},
		"heads per two": {set(full(1), "llama.attention.head_count_kv", gguf.ArrayOf([]uint32{1, 2})), "2 elements for 1 layers"},
		"kind":          {set(full(1), "llama.attention.head_count", gguf.ValueOf("four")), "head_count"},
		"huge heads":    {set(full(1), "llama.attention.head_count_kv", gguf.ValueOf(uint64(1)<<63)), "KV heads"},
		"adapter":       {set(base(), "general.type", gguf.ValueOf("adapter")), "LoRA"},
		"which recur": {set(set(full(1), "llama.ssm.inner_size", gguf.ValueOf(uint32(2))), "llama.attention.recurrent_layers", gguf.ArrayOf([]uint32{1})),
			"llama.attention.recurrent_layers is not true or false"},
		"per layer good": {set(full(1), "llama.attention.head_count_kv", gguf.ArrayOf([]uint32{1})), ""},
	} {
		path := filepath.Join(t.TempDir(), "m.gguf")
		var buf bytes.Buffer
		if _, err := c.w.WriteTo(&buf); err != nil {
			t.Fatal(name, err)
		}
		if err := os.WriteFile(path, buf.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := gguf.OpenSet(path)
		if err != nil {
			t.Fatal(name, err)
		}
		_, err = NewCard(s)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path)) {
			t.Errorf("%s: %v, want %q and the file", name, err, c.want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                    "plain",
		" a\x1b[31m\nb\x00 ":       "a [31m b",
		strings.Repeat("ä", 200):   strings.Repeat("ä", 120) + "…",
		"\xff\xfe":                 "\ufffd\ufffd",
		"Größe 7B – 日本語\u202eevil": "Größe 7B – 日本語 evil",
	} {
		if got := printable(in); got != want {
			t.Errorf("printable(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestLayerOf(t *testing.T) {
	for name, want := range map[string]int{"blk.0.x": 0, "blk.12.attn_q.weight": 12, "blk.x.y": -1, "blk.1": -1, "blk.-1.x": -1, "output": -1, "blk..x": -1, "blk.99999999999.x": -1} {
		if got, ok := layerOf(name); ok != (want >= 0) || ok && got != want {
			t.Errorf("layerOf(%q) = %d, %v", name, got, ok)
		}
	}
}
