package runtime_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/gguf"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// TestFamiliesRefuse is TestOpenRefuses for what is peculiar to a family.
func TestFamiliesRefuse(t *testing.T) {
	extra := func(name string, n int) func(*gguf.Writer) {
		return func(w *gguf.Writer) { w.AddTensor(name, 0, []uint64{uint64(n)}, make([]byte, 4*n)) }
	}
	bools := map[string]gguf.Value{"gemma3.attention.sliding_window_pattern": gguf.ArrayOf([]bool{true, false})}
	for name, c := range map[string]struct {
		m    runtimetest.TinyModel
		want []string // parts of the error
	}{
		"a relative":            {runtimetest.TinyModel{Meta: meta("general.architecture", "gemma2")}, []string{`"gemma2"`, "llama, qwen2, qwen3, qwen3moe, gemma3"}},
		"qwen2 without a bias":  {runtimetest.TinyModel{Arch: "qwen2", Drop: "blk.1.attn_k.bias"}, []string{"blk.1.attn_k.bias", "missing"}},
		"qwen2 with a norm":     {runtimetest.TinyModel{Arch: "qwen2", Extra: extra("blk.0.attn_q_norm.weight", 32)}, []string{"blk.0.attn_q_norm.weight", "qwen2"}},
		"qwen2 with a window":   {runtimetest.TinyModel{Arch: "qwen2", Meta: meta("qwen2.attention.sliding_window", 100)}, []string{"qwen2.attention.sliding_window"}},
		"qwen2 with longrope":   {runtimetest.TinyModel{Arch: "qwen2", Meta: meta("qwen2.rope.scaling.type", "longrope")}, []string{"qwen2.rope.scaling.type", `"longrope"`}},
		"qwen3 without a norm":  {runtimetest.TinyModel{Arch: "qwen3", Drop: "blk.2.attn_k_norm.weight"}, []string{"blk.2.attn_k_norm.weight", "missing"}},
		"qwen3 with a bias":     {runtimetest.TinyModel{Arch: "qwen3", Extra: extra("blk.0.attn_q.bias", 128)}, []string{"blk.0.attn_q.bias", "qwen3"}},
		"yarn, no factor":       {runtimetest.TinyModel{Arch: "qwen3", Meta: yarn("rope.scaling.factor", nil)}, []string{"qwen3.rope.scaling.factor", "missing"}},
		"yarn, shrinking":       {runtimetest.TinyModel{Arch: "qwen3", Meta: yarn("rope.scaling.factor", 0.5)}, []string{"qwen3.rope.scaling.factor", "0.5"}},
		"yarn, no original":     {runtimetest.TinyModel{Arch: "qwen3", Meta: yarn("rope.scaling.original_context_length", nil)}, []string{"qwen3.rope.scaling.original_context_length", "missing"}},
		"yarn, betas crossed":   {runtimetest.TinyModel{Arch: "qwen3", Meta: yarn("rope.scaling.yarn_beta_fast", 0.5)}, []string{"qwen3.rope.scaling.yarn_beta_fast", "0.5"}},
		"yarn, flat base":       {runtimetest.TinyModel{Arch: "qwen3", Meta: yarn("rope.freq_base", 1.0)}, []string{"qwen3.rope.freq_base", "1"}},
		"yarn of deepseek":      {runtimetest.TinyModel{Arch: "qwen3", Meta: yarn("rope.scaling.yarn_log_multiplier", 0.1)}, []string{"qwen3.rope.scaling.yarn_log_multiplier"}},
		"no experts":            {runtimetest.TinyModel{Arch: "qwen3moe", Drop: "qwen3moe.expert_count"}, []string{"qwen3moe.expert_count", "missing"}},
		"too many experts used": {runtimetest.TinyModel{Arch: "qwen3moe", Meta: meta("qwen3moe.expert_used_count", 5)}, []string{"qwen3moe.expert_used_count", "5 of 4"}},
		"other experts":         {runtimetest.TinyModel{Arch: "qwen3moe", Meta: meta("qwen3moe.expert_count", 8)}, []string{"blk.0.ffn_gate_inp.weight", "4 rows"}},
		"no router":             {runtimetest.TinyModel{Arch: "qwen3moe", Drop: "blk.1.ffn_gate_inp.weight"}, []string{"blk.1.ffn_gate_inp.weight", "missing"}},
		"experts in a dense":    {runtimetest.TinyModel{Arch: "qwen3", Meta: meta("qwen3.expert_count", 8)}, []string{"qwen3.expert_count", "8"}},
		"another gating":        {runtimetest.TinyModel{Arch: "qwen3moe", Meta: meta("qwen3moe.expert_gating_func", 2)}, []string{"qwen3moe.expert_gating_func"}},
		"shared experts":        {runtimetest.TinyModel{Arch: "qwen3moe", Meta: meta("qwen3moe.expert_shared_count", 1)}, []string{"qwen3moe.expert_shared_count"}},
		"attention factor":      {runtimetest.TinyModel{Arch: "qwen3", Meta: meta("qwen3.rope.scaling.attn_factor", 1.5)}, []string{"qwen3.rope.scaling.attn_factor"}},
		"qwen2, not causal":     {runtimetest.TinyModel{Arch: "qwen2", Meta: meta("qwen2.attention.causal", false)}, []string{"qwen2.attention.causal"}},
		"qwen2, rope factors":   {runtimetest.TinyModel{Arch: "qwen2", Extra: extra("rope_freqs.weight", 16)}, []string{"rope_freqs.weight", "qwen2"}},
		"gemma3 without a norm": {runtimetest.TinyModel{Arch: "gemma3", Drop: "blk.2.post_ffw_norm.weight"}, []string{"blk.2.post_ffw_norm.weight", "missing"}},
		"gemma3 with a bias":    {runtimetest.TinyModel{Arch: "gemma3", Extra: extra("blk.0.attn_q.bias", 128)}, []string{"blk.0.attn_q.bias", "gemma3"}},
		"gemma3, no window":     {runtimetest.TinyModel{Arch: "gemma3", Drop: "gemma3.attention.sliding_window"}, []string{"gemma3.attention.sliding_window", "missing"}},
		"gemma3, empty window":  {runtimetest.TinyModel{Arch: "gemma3", Meta: meta("gemma3.attention.sliding_window", 0)}, []string{"gemma3.attention.sliding_window", "0"}},
		"gemma3, no period":     {runtimetest.TinyModel{Arch: "gemma3", Meta: meta("gemma3.attention.sliding_window_pattern", 0)}, []string{"gemma3.attention.sliding_window_pattern", "0"}},
		"gemma3, short pattern": {runtimetest.TinyModel{Arch: "gemma3", Meta: bools}, []string{"gemma3.attention.sliding_window_pattern", "2 entries for 3 layers"}},
		"gemma3, text pattern":  {runtimetest.TinyModel{Arch: "gemma3", Meta: meta("gemma3.attention.sliding_window_pattern", "6")}, []string{"gemma3.attention.sliding_window_pattern"}},
		"gemma3, softcapping":   {runtimetest.TinyModel{Arch: "gemma3", Meta: meta("gemma3.final_logit_softcapping", 30.0)}, []string{"gemma3.final_logit_softcapping"}},
		"gemma3, scores capped": {runtimetest.TinyModel{Arch: "gemma3", Meta: meta("gemma3.attn_logit_softcapping", 50.0)}, []string{"gemma3.attn_logit_softcapping"}},
		"gemma3, NaN base":      {runtimetest.TinyModel{Arch: "gemma3", Meta: meta("gemma3.rope.freq_base_swa", math.NaN())}, []string{"gemma3.rope.freq_base_swa"}},
		"gemma3, image tower":   {runtimetest.TinyModel{Arch: "gemma3", Extra: extra("v.patch_embd.bias", 4)}, []string{"v.patch_embd.bias", "gemma3"}},
	} {
		_, err := runtime.Inspect(tiny(t, c.m))
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: the error does not mention %s: %v", name, part, err)
			}
		}
		oneLine(t, err)
	}
}

// yarn is the metadata of a stretched qwen3, with one key changed or, for nil, left out.
func yarn(key string, value any) map[string]gguf.Value {
	m := map[string]gguf.Value{
		"qwen3.rope.scaling.type":                    gguf.ValueOf("yarn"),
		"qwen3.rope.scaling.factor":                  gguf.ValueOf(float32(4)),
		"qwen3.rope.scaling.original_context_length": gguf.ValueOf(uint32(64)),
	}
	switch v := value.(type) {
	case nil:
		delete(m, "qwen3."+key)
	case float64:
		m["qwen3."+key] = gguf.ValueOf(float32(v))
	}
	return m
}

// TestFamilyConfig checks what the headers of the families say beyond sizes.
func TestFamilyConfig(t *testing.T) {
	for name, c := range map[string]struct {
		m       runtimetest.TinyModel
		windows []int
		local   float64
		attn    float64
		embed   float64
	}{
		"llama":           {runtimetest.TinyModel{}, nil, 0, 32, 1},
		"qwen2":           {runtimetest.TinyModel{Arch: "qwen2"}, nil, 0, 32, 1},
		"qwen3":           {runtimetest.TinyModel{Arch: "qwen3"}, nil, 0, 32, 1},
		"gemma3":          {runtimetest.TinyModel{Arch: "gemma3"}, []int{5, 0, 5}, 10000, 32, 64},
		"gemma3, default": {runtimetest.TinyModel{Arch: "gemma3", Layers: 7, Drop: "gemma3.attention.sliding_window_pattern"}, []int{5, 5, 5, 5, 5, 0, 5}, 10000, 32, 64},
		"gemma3, by layer": {runtimetest.TinyModel{Arch: "gemma3", Meta: map[string]gguf.Value{
			"gemma3.attention.sliding_window_pattern": gguf.ArrayOf([]bool{false, true, true}), "gemma3.rope.freq_base_swa": gguf.ValueOf(float32(500)),
		}}, []int{0, 5, 5}, 500, 32, 64},
		"gemma3, 27B": {runtimetest.TinyModel{Arch: "gemma3", Layers: 62, Meta: meta("gemma3.attention.sliding_window_pattern", 1)}, make([]int, 62), 10000, 64 / 4, 64},
	} {
		got, err := runtime.Inspect(tiny(t, c.m))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !slices.Equal(got.Windows, c.windows) || got.LocalRopeBase != c.local ||
			got.AttnScale != 1/float32(math.Sqrt(c.attn)) || got.EmbedScale != float32(math.Sqrt(c.embed)) {
			t.Errorf("%s: windows %v, base %v, scores × %v, embedding × %v", name, got.Windows, got.LocalRopeBase, got.AttnScale, got.EmbedScale)
		}
	}
}

// TestFamilyBytes compares what the layers of a family weigh with the tensor table.
func TestFamilyBytes(t *testing.T) {
	for _, arch := range []string{"llama", "qwen2", "qwen3", "qwen3moe", "gemma3"} {
		path := tiny(t, runtimetest.TinyModel{Arch: arch})
		c, err := runtime.Inspect(path)
		if err != nil {
			t.Fatal(err)
		}
		g, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		want := int64(0)
		for _, tensor := range g.Tensors {
			if strings.HasPrefix(tensor.Name, "blk.1.") {
				want += tensor.Size
			}
		}
		if c.LayerBytes[1] != want {
			t.Errorf("%s: %d bytes in layer 1, want %d", arch, c.LayerBytes[1], want)
		}
	}
}

// TestFusedExperts computes a model whose experts' gates and ups share a tensor, and asks for the bits of the same model
// with two.
func TestFusedExperts(t *testing.T) {
	logits := func(fused bool) string {
		m := open(t, runtime.Options{Path: tiny(t, runtimetest.TinyModel{Arch: "qwen3moe", Type: kernels.Q8_0, Fused: fused})})
		step := &runtime.Step{Seq: sequenceOf(t, m, 5), Layers: m.Layers(), N: 5, Tokens: []int32{1, 2, 3, 4, 5}, LogitRows: []int{0, 4}}
		run(t, m, step)
		return fmt.Sprint(step.Logits)
	}
	if logits(false) != logits(true) {
		t.Error("other logits")
	}
}

// TestWindow changes tokens that lie outside of every layer's reach and expects the same logits, and one that is just
// inside and expects others: with windows of 5 positions in both of two layers, position 39 hears of 31 to 39.
func TestWindow(t *testing.T) {
	m := open(t, runtime.Options{Path: tiny(t, runtimetest.TinyModel{
		Arch: "gemma3", Layers: 2, Meta: map[string]gguf.Value{"gemma3.attention.sliding_window_pattern": gguf.ArrayOf([]bool{true, true})},
	})})
	logits := func(changed int) string {
		tokens := make([]int32, 40)
		for i := range tokens {
			tokens[i] = int32(i)
		}
		if changed >= 0 {
			tokens[changed] = 99
		}
		step := &runtime.Step{Seq: sequenceOf(t, m, 40), Layers: m.Layers(), N: 40, Tokens: tokens, LogitRows: []int{39}}
		run(t, m, step)
		return fmt.Sprint(step.Logits[0])
	}
	want := logits(-1)
	for pos := range 40 {
		if same := logits(pos) == want; same != (pos < 31) {
			t.Errorf("another token at %d: same logits %v", pos, same)
		}
	}
}
