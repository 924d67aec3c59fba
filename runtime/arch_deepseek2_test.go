package runtime

import (
	"bytes"
	"math"
	"testing"

	"github.com/starling-swarm/starling/runtime/gguf"
)

// deepSeekV3 is the Config that a header with the sizes of DeepSeek V3 makes, with keys changed or, for nil, left out. There are no
// tensors, so it ends in an error.
func deepSeekV3(t *testing.T, changed map[string]any) Config {
	w := &gguf.Writer{}
	w.Set("general.architecture", gguf.ValueOf(archDeepSeek2))
	for key, v := range map[string]any{
		"block_count": 62, "nextn_predict_layers": 1, "context_length": 163840, "embedding_length": 7168, "feed_forward_length": 18432,
		"attention.head_count": 128, "attention.head_count_kv": 1, "attention.layer_norm_rms_epsilon": 1e-6,
		"attention.q_lora_rank": 1536, "attention.kv_lora_rank": 512, "attention.key_length": 576, "attention.value_length": 512,
		"attention.key_length_mla": 192, "attention.value_length_mla": 128, "rope.dimension_count": 64, "rope.freq_base": 10000.0,
		"rope.scaling.type": "yarn", "rope.scaling.factor": 40.0, "rope.scaling.original_context_length": 4096,
		"rope.scaling.yarn_log_multiplier": 0.1, "leading_dense_block_count": 3, "expert_count": 256, "expert_used_count": 8,
		"expert_feed_forward_length": 2048, "expert_shared_count": 1, "expert_weights_scale": 2.5, "expert_weights_norm": true,
		"expert_gating_func": 2, "expert_group_count": 8, "expert_group_used_count": 4,
	} {
		if other, ok := changed[key]; ok {
			v = other
		}
		switch key = archDeepSeek2 + "." + key; v := v.(type) {
		case int:
			w.Set(key, gguf.ValueOf(uint32(v)))
		case float64:
			w.Set(key, gguf.ValueOf(float32(v)))
		case string:
			w.Set(key, gguf.ValueOf(v))
		case bool:
			w.Set(key, gguf.ValueOf(v))
		}
	}
	w.AddTensor("output_norm.weight", gguf.F32, []uint64{1}, make([]byte, 4))
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Read(bytes.NewReader(b.Bytes()), int64(b.Len()), "v3.gguf")
	if err != nil {
		t.Fatal(err)
	}
	set, err := gguf.NewSet([]*gguf.File{f})
	if err != nil {
		t.Fatal(err)
	}
	c, err := readDeepSeek2(set)
	if want := "runtime: v3.gguf: tensor token_embd.weight is missing: the file is incomplete"; err == nil || err.Error() != want {
		t.Fatalf("error %v, want %s", err, want)
	}
	return c
}

// TestDeepSeekV3 reads the sizes of the real model: 70 kB of latents a token in F16, scores scaled by (1 + 0.1·ln 40)²/√192,
// and groups whether or not the header has them.
func TestDeepSeekV3(t *testing.T) {
	c := deepSeekV3(t, nil)
	row := 0
	for l := range c.Cache {
		row += c.KVRowBytes(l, KVF16)
	}
	if c.Layers != 61 || c.Drafts != 1 || row != 61*576*2 || c.HeadDim != 192 || c.Latent != (Latent{Rank: 512, QRank: 1536, Nope: 128, Value: 128}) {
		t.Errorf("%d bytes a token, %+v", row, c)
	}
	m := 1 + 0.1*math.Log(40)
	if want := m * m / math.Sqrt(192); math.Abs(float64(c.AttnScale)-want) > 1e-7 || c.Yarn.Amplitude != 1 {
		t.Errorf("scale %v, want %v; amplitude %v", c.AttnScale, want, c.Yarn.Amplitude)
	}
	router := Router{Sigmoid: true, Groups: 8, UsedGroups: 4, Normed: true, Scale: 2.5}
	if c.Router != router {
		t.Errorf("%+v", c.Router)
	}
	if c = deepSeekV3(t, map[string]any{"expert_group_count": nil, "expert_group_used_count": nil}); c.Router != router {
		t.Errorf("without groups in the header: %+v", c.Router)
	}
	router.Groups, router.UsedGroups = 1, 1
	if c = deepSeekV3(t, map[string]any{"expert_group_count": nil, "expert_group_used_count": nil, "expert_count": 384}); c.Router != router {
		t.Errorf("384 experts: %+v", c.Router)
	}
	v2 := map[string]any{"expert_group_count": nil, "expert_group_used_count": nil, "block_count": 60, "nextn_predict_layers": 0, "expert_count": 160,
		"expert_used_count": 6, "expert_gating_func": 1, "expert_weights_norm": nil, "expert_weights_scale": 16.0}
	if c = deepSeekV3(t, v2); c.Router != (Router{Groups: 8, UsedGroups: 3, Scale: 16}) {
		t.Errorf("V2 without groups in the header: %+v", c.Router)
	}
	if c = deepSeekV3(t, map[string]any{"rope.scaling.yarn_log_multiplier": nil}); math.Abs(c.Yarn.Amplitude-m) > 1e-7 || math.Abs(float64(c.AttnScale)-1/math.Sqrt(192)) > 1e-7 {
		t.Errorf("without a yarn_log_multiplier: scale %v, amplitude %v", c.AttnScale, c.Yarn.Amplitude)
	}
}

// TestKeepGroups takes groups by their two best or their best, and the first of equal ones.
func TestKeepGroups(t *testing.T) {
	out := float32(math.Inf(-1))
	for _, c := range []struct {
		rank  []float32
		pairs bool
		want  []float32
	}{
		{[]float32{9, 0, 0, 5, 5, 0, 4, 4, 4}, true, []float32{out, out, out, 5, 5, 0, out, out, out}}, // 9, 10, 8
		{[]float32{1, 2, 3, 3, 2, 0, 0, 0, 4}, true, []float32{1, 2, 3, out, out, out, out, out, out}}, // 5, 5, 4
		{[]float32{-3, -1, -9, -2, -3, -4, -5, -5, 0}, true, []float32{-3, -1, -9, out, out, out, out, out, out}},
		{[]float32{9, 0, 0, 5, 5, 0, 4, 4, 4}, false, []float32{9, 0, 0, out, out, out, out, out, out}},
		{[]float32{1, 2, 3, 3, 2, 0, 0, 4, 0}, false, []float32{out, out, out, out, out, out, 0, 4, 0}},
		{[]float32{0, 4, 1, 4, 4, 4, 3, 3, 3}, false, []float32{0, 4, 1, out, out, out, out, out, out}}, // 4, 4, 3
	} {
		keepGroups(c.rank, make([]float32, 3), make([]int32, 1), c.pairs)
		for i, x := range c.want {
			if c.rank[i] != x {
				t.Fatalf("%v, want %v", c.rank, c.want)
			}
		}
	}
}
