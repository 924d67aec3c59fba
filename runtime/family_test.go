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
		"a relative":            {runtimetest.TinyModel{Meta: meta("general.architecture", "gemma2")}, []string{`"gemma2"`, "llama, qwen2, qwen3, qwen3moe, gemma3, deepseek2, glm4moe, qwen35, qwen35moe, gpt-oss, phi3, mistral3"}},
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
		"old latents, Q8_0": {oldLatents(func(w *gguf.Writer) {
			w.AddTensor("blk.2.attn_kv_b.weight", gguf.Type(kernels.Q8_0), []uint64{256, 256}, make([]byte, 256*256/32*34))
		}), []string{"blk.2.attn_kv_b.weight", "Q8_0", "convert"}},
		"old latents, other": {oldLatents(func(w *gguf.Writer) {
			w.AddTensor("blk.2.attn_kv_b.weight", 0, []uint64{256, 255}, make([]byte, 4*256*255))
		}), []string{"blk.2.attn_kv_b.weight", "255 rows of 256"}},
		"old latents, new keys": {runtimetest.TinyModel{Arch: "deepseek2", Extra: extra("blk.0.attn_kv_b.weight", 64)}, []string{"deepseek2.attention.head_count_kv", "attn_kv_b"}},
		"old and new latents":   {runtimetest.TinyModel{Arch: "deepseek2", Joint: true, Extra: extra("blk.1.attn_k_b.weight", 64)}, []string{"blk.1.attn_k_b.weight", "deepseek2"}},
		"no latents":            {deepseek("attention.kv_lora_rank", nil), []string{"deepseek2.attention.kv_lora_rank", "missing"}},
		"other latents":         {deepseek("attention.kv_lora_rank", uint32(128)), []string{"deepseek2.attention.key_length", "144"}},
		"other latent values":   {deepseek("attention.value_length", uint32(128)), []string{"deepseek2.attention.value_length", "256"}},
		"no head length":        {deepseek("attention.key_length_mla", nil), []string{"deepseek2.attention.key_length_mla", "missing"}},
		"all of a head rotated": {deepseek("attention.key_length_mla", uint32(16)), []string{"deepseek2.rope.dimension_count", "16"}},
		"two KV heads":          {deepseek("attention.head_count_kv", uint32(2)), []string{"deepseek2.attention.head_count_kv", "2"}},
		"no attn_k_b":           {runtimetest.TinyModel{Arch: "deepseek2", Drop: "blk.1.attn_k_b.weight"}, []string{"blk.1.attn_k_b.weight", "missing"}},
		"no attn_q_a_norm":      {runtimetest.TinyModel{Arch: "deepseek2", Drop: "blk.1.attn_q_a_norm.weight"}, []string{"blk.1.attn_q_a_norm.weight", "missing"}},
		"queries at once":       {deepseek("attention.q_lora_rank", nil), []string{"blk.0.attn_q.weight", "missing"}},
		"no shared expert":      {runtimetest.TinyModel{Arch: "deepseek2", Drop: "blk.1.ffn_up_shexp.weight"}, []string{"blk.1.ffn_up_shexp.weight", "missing"}},
		"unknown shared expert": {deepseek("expert_shared_count", uint32(0)), []string{"_shexp.weight", "deepseek2"}},
		"one leading experts":   {deepseek("leading_dense_block_count", uint32(0)), []string{"blk.0.ffn_gate_inp.weight", "missing"}},
		"all leading dense":     {deepseek("leading_dense_block_count", uint32(4)), []string{"deepseek2.leading_dense_block_count", "3"}},
		"gating by roots":       {deepseek("expert_gating_func", uint32(4)), []string{"deepseek2.expert_gating_func", "4"}},
		"uneven groups":         {deepseek("expert_group_count", uint32(3)), []string{"deepseek2.expert_group_count", "3"}},
		"too small groups":      {deepseek("expert_used_count", uint32(3)), []string{"deepseek2.expert_group_count", "3 of 4"}},
		"no positive scale":     {deepseek("expert_weights_scale", float32(-1)), []string{"deepseek2.expert_weights_scale", "-1"}},
		"nothing but drafts":    {deepseek("nextn_predict_layers", uint32(3)), []string{"deepseek2.nextn_predict_layers", "3"}},
		"YaRN's other factor":   {deepseek("rope.scaling.attn_factor", float32(2)), []string{"deepseek2.rope.scaling.attn_factor"}},
		"glm, half of biases":   {runtimetest.TinyModel{Arch: "glm4moe", Drop: "blk.1.attn_q.bias"}, []string{"blk.1.attn_k.bias", "glm4moe"}},
		"glm, a bias missing":   {runtimetest.TinyModel{Arch: "glm4moe", Drop: "blk.1.attn_v.bias"}, []string{"blk.1.attn_v.bias", "missing"}},
		"glm, one norm":         {runtimetest.TinyModel{Arch: "glm4moe", Extra: extra("blk.2.attn_q_norm.weight", 32)}, []string{"blk.2.attn_k_norm.weight", "missing"}},
		"glm, no second norm":   {runtimetest.TinyModel{Arch: "glm4moe", Drop: "blk.1.post_attention_norm.weight"}, []string{"blk.1.post_attention_norm.weight", "missing"}},
		"glm, softmax":          {runtimetest.TinyModel{Arch: "glm4moe", Meta: meta("glm4moe.expert_gating_func", 1)}, []string{"glm4moe.expert_gating_func", "sigmoid"}},
		"glm with eyes":         {runtimetest.TinyModel{Arch: "glm4moe", Meta: meta("glm4moe.rope.dimension_sections", []uint32{8, 4})}, []string{"glm4moe.rope.dimension_sections"}},
		"glm, all drafts":       {runtimetest.TinyModel{Arch: "glm4moe", Meta: meta("glm4moe.nextn_predict_layers", 3)}, []string{"glm4moe.nextn_predict_layers", "3"}},
		"no state size":         {runtimetest.TinyModel{Arch: "qwen35", Drop: "qwen35.ssm.state_size"}, []string{"qwen35.ssm.state_size", "missing"}},
		"uneven delta heads":    {runtimetest.TinyModel{Arch: "qwen35", Meta: meta("qwen35.ssm.group_count", 3)}, []string{"qwen35.ssm.time_step_rank", "3 key heads"}},
		"other inner size":      {runtimetest.TinyModel{Arch: "qwen35", Meta: meta("qwen35.ssm.inner_size", 64)}, []string{"qwen35.ssm.inner_size", "64"}},
		"another interval":      {runtimetest.TinyModel{Arch: "qwen35", Meta: meta("qwen35.full_attention_interval", 3)}, []string{"blk.1.attn_qkv.weight", "missing"}},
		"no convolution":        {runtimetest.TinyModel{Arch: "qwen35moe", Drop: "blk.0.ssm_conv1d.weight"}, []string{"blk.0.ssm_conv1d.weight", "missing"}},
		"no gate of the shared": {runtimetest.TinyModel{Arch: "qwen35moe", Drop: "blk.1.ffn_gate_inp_shexp.weight"}, []string{"blk.1.ffn_gate_inp_shexp.weight", "missing"}},
		"short recurrent list":  {runtimetest.TinyModel{Arch: "qwen35", Meta: map[string]gguf.Value{"qwen35.attention.recurrent_layers": gguf.ArrayOf([]bool{true, false})}}, []string{"qwen35.attention.recurrent_layers", "3 layers"}},
		"gpt-oss, no sinks":     {runtimetest.TinyModel{Arch: "gpt-oss", Drop: "blk.1.attn_sinks.weight"}, []string{"blk.1.attn_sinks.weight", "missing"}},
		"gpt-oss, no bias":      {runtimetest.TinyModel{Arch: "gpt-oss", Drop: "blk.2.ffn_down_exps.bias"}, []string{"blk.2.ffn_down_exps.bias", "missing"}},
		"gpt-oss, other biases": {runtimetest.TinyModel{Arch: "gpt-oss", Drop: "blk.0.ffn_up_exps.bias", Extra: extra("blk.0.ffn_up_exps.bias", 96)}, []string{"blk.0.ffn_up_exps.bias", "1 rows of 96", "4 of 96"}},
		"gpt-oss, no window":    {runtimetest.TinyModel{Arch: "gpt-oss", Drop: "gpt-oss.attention.sliding_window"}, []string{"gpt-oss.attention.sliding_window", "missing"}},
		"gpt-oss, other base":   {runtimetest.TinyModel{Arch: "gpt-oss", Meta: map[string]gguf.Value{"gpt-oss.rope.freq_base_swa": gguf.ValueOf(float32(500))}}, []string{"gpt-oss.rope.freq_base_swa"}},
		"gpt-oss with sigmoids": {runtimetest.TinyModel{Arch: "gpt-oss", Meta: meta("gpt-oss.expert_gating_func", 2)}, []string{"gpt-oss.expert_gating_func", "2"}},
		"phi3, split queries":   {runtimetest.TinyModel{Arch: "phi3", Drop: "blk.1.attn_qkv.weight"}, []string{"blk.1.attn_qkv.weight", "missing"}},
		"phi3, long only":       {runtimetest.TinyModel{Arch: "phi3", Drop: "rope_factors_short.weight"}, []string{"rope_factors_short.weight", "missing"}},
		"phi3, no original":     {runtimetest.TinyModel{Arch: "phi3", Drop: "phi3.rope.scaling.original_context_length"}, []string{"phi3.rope.scaling.original_context_length", "missing"}},
		"phi3, another scaling": {runtimetest.TinyModel{Arch: "phi3", Meta: meta("phi3.rope.scaling.type", "dynamic")}, []string{"phi3.rope.scaling.", "attn_factor"}},
		"phi3, no such window":  {runtimetest.TinyModel{Arch: "phi3", Meta: meta("phi3.attention.sliding_window", "five")}, []string{"phi3.attention.sliding_window"}},
		"mistral3, a window":    {runtimetest.TinyModel{Arch: "mistral3", Meta: meta("mistral3.attention.sliding_window", 5)}, []string{"mistral3.attention.sliding_window"}},
		"mistral3, cold":        {runtimetest.TinyModel{Arch: "mistral3", Meta: map[string]gguf.Value{"mistral3.attention.temperature_scale": gguf.ValueOf(float32(-1))}}, []string{"mistral3.attention.temperature_scale", "-1"}},
		"mistral3, other room":  {runtimetest.TinyModel{Arch: "mistral3", Meta: meta("mistral3.attention.temperature_length", 8192)}, []string{"mistral3.attention.temperature_length", "16"}},
		"mistral3, no log":      {runtimetest.TinyModel{Arch: "mistral3", Drop: "mistral3.rope.scaling.yarn_log_multiplier"}, []string{"mistral3.rope.scaling.yarn_log_multiplier", "missing"}},
		"mistral3, half a yarn": {runtimetest.TinyModel{Arch: "mistral3", Meta: map[string]gguf.Value{"mistral3.rope.scaling.yarn_ext_factor": gguf.ValueOf(float32(0.5))}}, []string{"mistral3.rope.scaling.yarn_ext_factor", "0.5"}},
		"yarn without a name":   {runtimetest.TinyModel{Arch: "gpt-oss", Drop: "gpt-oss.rope.scaling.type"}, []string{"gpt-oss.rope.scaling.type", "missing"}},
		"linear, no factor":     {runtimetest.TinyModel{Arch: "gemma3", Drop: "gemma3.rope.scaling.factor"}, []string{"gemma3.rope.scaling.factor", "missing"}},
		"no base":               {runtimetest.TinyModel{Arch: "qwen3", Drop: "qwen3.rope.freq_base"}, []string{"qwen3.rope.freq_base", "missing"}},
		"phi3, no part":         {runtimetest.TinyModel{Arch: "phi3", Drop: "phi3.rope.dimension_count"}, []string{"phi3.rope.dimension_count", "missing"}},
		"phi3, no window":       {runtimetest.TinyModel{Arch: "phi3", Drop: "phi3.attention.sliding_window"}, []string{"phi3.attention.sliding_window", "missing"}},
		"phi3, no amplitude":    {runtimetest.TinyModel{Arch: "phi3", Drop: "phi3.rope.scaling.attn_factor"}, []string{"phi3.rope.scaling.attn_factor", "missing"}},
		"glm, no part":          {runtimetest.TinyModel{Arch: "glm4moe", Drop: "glm4moe.rope.dimension_count"}, []string{"glm4moe.rope.dimension_count", "missing"}},
		"glm, no norm":          {runtimetest.TinyModel{Arch: "glm4moe", Drop: "glm4moe.expert_weights_norm"}, []string{"glm4moe.expert_weights_norm", "missing"}},
		"glm, tied":             {runtimetest.TinyModel{Arch: "glm4moe", Tied: true}, []string{"output.weight", "missing"}},
		"gpt-oss, tied":         {runtimetest.TinyModel{Arch: "gpt-oss", Tied: true}, []string{"output.weight", "missing"}},
		"no rank of experts":    {runtimetest.TinyModel{Arch: "deepseek2", Drop: "blk.2.exp_probs_b.bias"}, []string{"blk.2.exp_probs_b.bias", "missing"}},
		"no scale of experts":   {deepseek("expert_weights_scale", nil), []string{"deepseek2.expert_weights_scale", "missing"}},
		"no norm of experts":    {deepseek("expert_weights_norm", nil), []string{"deepseek2.expert_weights_norm", "missing"}},
		"groups used, not made": {runtimetest.TinyModel{Arch: "deepseek2", Drop: "deepseek2.expert_group_count", Meta: meta("deepseek2.expert_group_used_count", 2)}, []string{"deepseek2.expert_group_count", "missing"}},
		"groups unused":         {deepseek("expert_group_used_count", nil), []string{"deepseek2.expert_group_used_count", "missing"}},
		"qwen35, no part":       {runtimetest.TinyModel{Arch: "qwen35moe", Drop: "qwen35moe.rope.dimension_count"}, []string{"qwen35moe.rope.dimension_count", "missing"}},
		"mistral3, not yarn":    {runtimetest.TinyModel{Arch: "mistral3", Meta: meta("mistral3.rope.scaling.type", "none")}, []string{"mistral3.attention.temperature_scale", "original_context_length"}},
		"llama, half of biases": {runtimetest.TinyModel{Extra: extra("blk.1.attn_k.bias", 64)}, []string{"blk.1.attn_k.bias", "llama"}},
		"llama, a bias missing": {runtimetest.TinyModel{Extra: extra("blk.1.attn_q.bias", 128)}, []string{"blk.1.attn_k.bias", "missing"}},
		"llama, other output":   {runtimetest.TinyModel{Extra: extra("blk.2.attn_output.bias", 8)}, []string{"blk.2.attn_output.bias", "1 rows of 8"}},
		"llama, tempered":       {runtimetest.TinyModel{Meta: map[string]gguf.Value{"llama.attention.temperature_scale": gguf.ValueOf(float32(0.1))}}, []string{"llama.attention.temperature_scale"}},
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

// deepseek is a deepseek2 with one key changed or, for nil, left out.
func deepseek(key string, value any) runtimetest.TinyModel {
	m := runtimetest.TinyModel{Arch: "deepseek2"}
	switch key = "deepseek2." + key; v := value.(type) {
	case nil:
		m.Drop = key
	case uint32:
		m.Meta = map[string]gguf.Value{key: gguf.ValueOf(v)}
	case float32:
		m.Meta = map[string]gguf.Value{key: gguf.ValueOf(v)}
	}
	return m
}

// oldLatents is a deepseek2 with attn_kv_b whose last layer's extra writes.
func oldLatents(extra func(w *gguf.Writer)) runtimetest.TinyModel {
	return runtimetest.TinyModel{Arch: "deepseek2", Joint: true, Drop: "blk.2.attn_kv_b.weight", Extra: extra}
}

// TestDraftLayers opens a model whose second block is for guesses, and asks for what the same file without that key computes by
// its first layer and the head alone.
func TestDraftLayers(t *testing.T) {
	m := deepseek("nextn_predict_layers", uint32(1))
	m.Layers = 2
	m.Extra = func(w *gguf.Writer) { w.AddTensor("blk.1.nextn.eh_proj.weight", 0, []uint64{64}, make([]byte, 256)) }
	guessing := open(t, runtime.Options{Path: tiny(t, m)})
	if c := guessing.Config(); c.Layers != 1 || c.Drafts != 1 || len(c.LayerBytes) != 1 || len(c.Cache) != 1 {
		t.Errorf("%+v", c)
	}
	step := &runtime.Step{Seq: sequenceOf(t, guessing, 5), Layers: guessing.Layers(), N: 5, Tokens: []int32{1, 2, 3, 4, 5}, LogitRows: []int{0, 4}}
	run(t, guessing, step)
	plain := open(t, runtime.Options{Path: tiny(t, runtimetest.TinyModel{Arch: "deepseek2", Layers: 2})})
	first := &runtime.Step{Seq: sequenceOf(t, plain, 5), Layers: runtime.Range{First: 0, Last: 1}, N: 5, Tokens: step.Tokens}
	run(t, plain, first)
	head := &runtime.Step{Seq: first.Seq, Layers: runtime.Range{First: 2, Last: 2}, N: 5, Seam: first.Out, LogitRows: step.LogitRows}
	run(t, plain, head)
	if fmt.Sprint(step.Logits) != fmt.Sprint(head.Logits) {
		t.Error("other logits")
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
		"gpt-oss":         {runtimetest.TinyModel{Arch: "gpt-oss"}, []int{5, 0, 5}, 0, 32, 1},
		"phi3":            {runtimetest.TinyModel{Arch: "phi3"}, []int{5, 5, 5}, 0, 32, 1},
		"phi3, no window": {runtimetest.TinyModel{Arch: "phi3", Meta: meta("phi3.attention.sliding_window", 0)}, nil, 0, 32, 1},
		"phi3, wide":      {runtimetest.TinyModel{Arch: "phi3", Meta: meta("phi3.attention.sliding_window", 2048)}, nil, 0, 32, 1},
		"phi3, of 2024":   {runtimetest.TinyModel{Arch: "phi3", Layers: 32, Drop: "phi3.attention.sliding_window", Meta: meta("phi3.context_length", 4096)}, slices.Repeat([]int{2047}, 32), 0, 32, 1},
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
		windows := make([]int, got.Layers)
		for l := range windows {
			windows[l] = got.Cache[l].Window
		}
		if c.windows == nil {
			c.windows = make([]int, got.Layers)
		}
		if !slices.Equal(windows, c.windows) || got.LocalRopeBase != c.local ||
			got.AttnScale != 1/float32(math.Sqrt(c.attn)) || got.EmbedScale != float32(math.Sqrt(c.embed)) {
			t.Errorf("%s: windows %v, base %v, scores × %v, embedding × %v", name, windows, got.LocalRopeBase, got.AttnScale, got.EmbedScale)
		}
	}
}

// TestFamilyBytes compares what the layers of a family weigh with the tensor table.
func TestFamilyBytes(t *testing.T) {
	for _, arch := range []string{"llama", "qwen2", "qwen3", "qwen3moe", "gemma3", "deepseek2", "glm4moe", "qwen35", "qwen35moe", "gpt-oss", "phi3", "mistral3"} {
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

// TestJointLatents computes models whose matrices of keys and values share a tensor, and asks for the bits of the same models
// with two, packed and not.
func TestJointLatents(t *testing.T) {
	for _, typ := range []kernels.Type{kernels.F32, kernels.F16, kernels.BF16} {
		for _, pack := range []runtime.Packing{runtime.PackOff, runtime.PackOn} {
			logits := func(joint bool) string {
				m := open(t, runtime.Options{Path: tiny(t, runtimetest.TinyModel{Arch: "deepseek2", Type: typ, Joint: joint}), Pack: pack})
				step := &runtime.Step{Seq: sequenceOf(t, m, 5), Layers: m.Layers(), N: 5, Tokens: []int32{1, 2, 3, 4, 5}, LogitRows: []int{0, 4}}
				run(t, m, step)
				return fmt.Sprint(step.Logits, m.Config())
			}
			if logits(false) != logits(true) {
				t.Errorf("%v, %v: other logits, or sizes", typ, pack)
			}
		}
	}
}

// TestLongRope asks that a sequence's capacity alone chooses between the two sets of rope factors, for its first position as for
// its last.
func TestLongRope(t *testing.T) {
	m := open(t, runtime.Options{Path: tiny(t, runtimetest.TinyModel{Arch: "phi3"})})
	logits := func(capacity int) string {
		step := &runtime.Step{Seq: sequenceOf(t, m, capacity), Layers: m.Layers(), N: 5, Tokens: []int32{1, 2, 3, 4, 5}, LogitRows: []int{1, 4}}
		run(t, m, step)
		return fmt.Sprint(step.Logits)
	}
	short, long := logits(32), logits(33)
	if short == long {
		t.Error("one factor for 32 and 33 positions")
	}
	if logits(5) != short || logits(500) != long {
		t.Error("capacities on one side of 32 give other logits")
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
