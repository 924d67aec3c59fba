package runtimetest

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/gguf"
)

// TinyModel describes a model with random weights, small enough to be written by every test that needs one. Its
// tokenizer is that of FakeTokenizer. It has 2 KV heads of 32 elements; with matrices of K types 8 query heads, width 256
// and 256 hidden elements, otherwise 4, 64 and 96. Of Gemma's layers, every second has a window of 5 positions. DeepSeek's
// have latents of queries and of keys and values, the first is dense, and experts are in two groups of which one is used. GLM's
// are as in the Air models, with biases and without norms of heads; the first is dense. Of Qwen 3.5's
// every second is a gated delta net of 2 key heads, and half of a head is rotated in the others. gpt-oss's have windows of 5 by
// turns, all of Phi's do. Phi's sequences are long beyond 32 positions, Mistral's queries are tempered from position 16 on.
type TinyModel struct {
	Arch   string // general.architecture: "llama", which "" stands for, "qwen2", "qwen3", "qwen3moe" (4 experts, 2 used), "gemma3", "deepseek2", "glm4moe", "qwen35", "qwen35moe", "gpt-oss", "phi3" or "mistral3"
	Seed   uint64
	Layers int          // 0: 3
	Type   kernels.Type // of all matrices
	Tied   bool         // no output.weight
	Fused  bool         // experts' gates and ups in one tensor
	Joint  bool         // deepseek2's attn_kv_b instead of attn_k_b and attn_v_b; Type must not be quantised
	// Meta adds metadata, or replaces that of the same key.
	Meta map[string]gguf.Value
	// Drop names a tensor or key to leave out.
	Drop string
	// Extra, if not nil, may add tensors after all others.
	Extra func(w *gguf.Writer)
}

// Write writes the model to a new file at path.
func (t TinyModel) Write(path string) error {
	const headDim, kvHeads = 32, 2
	layers, heads, width, ffn := t.Layers, 4, 64, 96
	if layers == 0 {
		layers = 3
	}
	if t.Type.Form() == kernels.Q8x256 {
		heads, width, ffn = 8, 256, 256
	}
	w := &gguf.Writer{}
	vocab := FakeTokenizer().Size()
	arch := cmp.Or(t.Arch, "llama")
	type pair struct {
		key string
		v   gguf.Value
	}
	meta := []pair{
		{"general.architecture", gguf.ValueOf(arch)},
		{"general.name", gguf.ValueOf("tiny")},
		{arch + ".block_count", gguf.ValueOf(uint32(layers))},
		{arch + ".context_length", gguf.ValueOf(uint32(2048))},
		{arch + ".embedding_length", gguf.ValueOf(uint32(width))},
		{arch + ".feed_forward_length", gguf.ValueOf(uint32(ffn))},
		{arch + ".attention.head_count", gguf.ValueOf(uint32(heads))},
		{arch + ".attention.head_count_kv", gguf.ValueOf(uint32(kvHeads))},
		{arch + ".attention.key_length", gguf.ValueOf(uint32(headDim))},
		{arch + ".attention.value_length", gguf.ValueOf(uint32(headDim))},
		{arch + ".attention.layer_norm_rms_epsilon", gguf.ValueOf(float32(1e-5))},
		{arch + ".rope.dimension_count", gguf.ValueOf(uint32(headDim))},
		{arch + ".rope.freq_base", gguf.ValueOf(float32(10000))},
		{"tokenizer.ggml.model", gguf.ValueOf("gpt2")},
		{"tokenizer.ggml.pre", gguf.ValueOf("gpt-2")},
		{"tokenizer.ggml.tokens", gguf.ArrayOf(fakeVocab().Tokens)},
		{"tokenizer.ggml.token_type", gguf.ArrayOf(fakeVocab().Types)},
		{"tokenizer.ggml.eos_token_id", gguf.ValueOf(uint32(fakeVocab().EOS))},
	}
	const experts = 4
	if arch == "qwen3moe" || arch == "gpt-oss" {
		meta = append(meta, pair{arch + ".expert_count", gguf.ValueOf(uint32(experts))}, pair{arch + ".expert_used_count", gguf.ValueOf(uint32(2))},
			pair{arch + ".expert_feed_forward_length", gguf.ValueOf(uint32(ffn))})
	}
	if arch == "gpt-oss" {
		meta = append(meta, pair{"gpt-oss.attention.sliding_window", gguf.ValueOf(uint32(5))}, pair{"gpt-oss.rope.scaling.type", gguf.ValueOf("yarn")},
			pair{"gpt-oss.rope.scaling.factor", gguf.ValueOf(float32(4))}, pair{"gpt-oss.rope.scaling.original_context_length", gguf.ValueOf(uint32(64))})
	}
	if arch == "gemma3" {
		meta = append(meta, pair{"gemma3.attention.sliding_window", gguf.ValueOf(uint32(5))},
			pair{"gemma3.attention.sliding_window_pattern", gguf.ValueOf(uint32(2))},
			pair{"gemma3.rope.scaling.type", gguf.ValueOf("linear")}, pair{"gemma3.rope.scaling.factor", gguf.ValueOf(float32(8))})
	}
	recurrent := func(l int) bool { return strings.HasPrefix(arch, "qwen35") && l%2 == 0 }
	if strings.HasPrefix(arch, "qwen35") {
		for _, n := range []struct {
			key   string
			value int
		}{
			{"ssm.conv_kernel", 4}, {"ssm.state_size", headDim}, {"ssm.group_count", 2}, {"ssm.time_step_rank", heads}, {"ssm.inner_size", heads * headDim},
			{"full_attention_interval", 2}, {"rope.dimension_count", headDim / 2},
		} {
			meta = append(meta, pair{arch + "." + n.key, gguf.ValueOf(uint32(n.value))})
		}
	}
	if arch == "qwen35moe" {
		meta = append(meta, pair{"qwen35moe.expert_count", gguf.ValueOf(uint32(experts))}, pair{"qwen35moe.expert_used_count", gguf.ValueOf(uint32(2))},
			pair{"qwen35moe.expert_feed_forward_length", gguf.ValueOf(uint32(ffn))}, pair{"qwen35moe.expert_shared_feed_forward_length", gguf.ValueOf(uint32(ffn))})
	}
	if arch == "phi3" {
		meta = append(meta, pair{"phi3.attention.sliding_window", gguf.ValueOf(uint32(5))}, pair{"phi3.rope.scaling.attn_factor", gguf.ValueOf(float32(1.2))},
			pair{"phi3.rope.scaling.original_context_length", gguf.ValueOf(uint32(32))})
	}
	if arch == "mistral3" {
		meta = append(meta, pair{"mistral3.rope.scaling.type", gguf.ValueOf("yarn")}, pair{"mistral3.rope.scaling.factor", gguf.ValueOf(float32(4))},
			pair{"mistral3.rope.scaling.original_context_length", gguf.ValueOf(uint32(16))},
			pair{"mistral3.rope.scaling.yarn_log_multiplier", gguf.ValueOf(float32(1))}, pair{"mistral3.attention.temperature_scale", gguf.ValueOf(float32(0.1))})
	}
	const rank, qRank, nope, rope, value = 256, 256, 32, 16, 32 // of latent attention
	if arch == "deepseek2" {
		for _, n := range []struct {
			key   string
			value int
		}{
			{"attention.head_count_kv", 1}, {"attention.kv_lora_rank", rank}, {"attention.q_lora_rank", qRank},
			{"attention.key_length", rank + rope}, {"attention.value_length", rank}, {"attention.key_length_mla", nope + rope},
			{"attention.value_length_mla", value}, {"rope.dimension_count", rope}, {"rope.scaling.original_context_length", 64},
			{"leading_dense_block_count", 1}, {"expert_count", experts}, {"expert_used_count", 2}, {"expert_feed_forward_length", ffn},
			{"expert_shared_count", 1}, {"expert_gating_func", 2}, {"expert_group_count", 2}, {"expert_group_used_count", 1},
		} {
			meta = append(meta, pair{arch + "." + n.key, gguf.ValueOf(uint32(n.value))})
		}
		meta = append(meta, pair{arch + ".expert_weights_norm", gguf.ValueOf(true)}, pair{arch + ".expert_weights_scale", gguf.ValueOf(float32(2.5))},
			pair{arch + ".rope.scaling.type", gguf.ValueOf("yarn")}, pair{arch + ".rope.scaling.factor", gguf.ValueOf(float32(4))},
			pair{arch + ".rope.scaling.yarn_log_multiplier", gguf.ValueOf(float32(0.1))})
		if t.Joint {
			meta = append(meta, pair{arch + ".attention.head_count_kv", gguf.ValueOf(uint32(heads))},
				pair{arch + ".attention.key_length", gguf.ValueOf(uint32(nope + rope))}, pair{arch + ".attention.value_length", gguf.ValueOf(uint32(value))})
		}
	}
	if arch == "glm4moe" {
		for _, n := range []struct {
			key   string
			value int
		}{
			{"rope.dimension_count", headDim / 2}, {"leading_dense_block_count", 1}, {"expert_count", experts}, {"expert_used_count", 2},
			{"expert_feed_forward_length", ffn}, {"expert_shared_count", 1}, {"expert_gating_func", 2},
		} {
			meta = append(meta, pair{arch + "." + n.key, gguf.ValueOf(uint32(n.value))})
		}
		meta = append(meta, pair{arch + ".expert_weights_norm", gguf.ValueOf(true)}, pair{arch + ".expert_weights_scale", gguf.ValueOf(float32(1.5))})
	}
	shares := arch == "deepseek2" || arch == "glm4moe" // an expert, in all layers but the first
	for i, kv := range meta {
		_, replaced := t.Meta[kv.key]
		replaced = replaced || slices.ContainsFunc(meta[i+1:], func(later pair) bool { return later.key == kv.key })
		if !replaced && kv.key != t.Drop {
			w.Set(kv.key, kv.v)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(t.Meta)) {
		w.Set(key, t.Meta[key])
	}
	rng := rand.New(rand.NewPCG(t.Seed, 1))
	matrix := func(name string, rows, cols int) {
		if name == t.Drop {
			return
		}
		w.AddTensor(name, gguf.Type(t.Type), []uint64{uint64(cols), uint64(rows)}, randomBlocks(rng, t.Type, rows, cols))
	}
	several := func(name string, typ kernels.Type, rows, cols, n int) {
		if name == t.Drop {
			return
		}
		w.AddTensor(name, gguf.Type(typ), []uint64{uint64(cols), uint64(rows), uint64(n)}, randomBlocks(rng, typ, rows*n, cols))
	}
	matrices := func(name string, rows, cols int) { several(name, t.Type, rows, cols, experts) }
	fused := func(name string, rows, cols int) { // of the same bytes that two calls of matrices write
		gate, up := randomBlocks(rng, t.Type, rows*experts, cols), randomBlocks(rng, t.Type, rows*experts, cols)
		var both []byte
		for size := len(gate) / experts; len(gate) > 0; gate, up = gate[size:], up[size:] {
			both = append(append(both, gate[:size]...), up[:size]...)
		}
		w.AddTensor(name, gguf.Type(t.Type), []uint64{uint64(cols), uint64(2 * rows), experts}, both)
	}
	joint := func(name string, rank, nope, value, heads int) { // of the same bytes that two calls of several write, keys transposed
		if name == t.Drop {
			return
		}
		k, v := randomBlocks(rng, t.Type, heads*rank, nope), randomBlocks(rng, t.Type, heads*value, rank)
		_, size := t.Type.Block()
		var both []byte
		for h := range heads {
			for i := range nope {
				for j := range rank {
					both = append(both, k[((h*rank+j)*nope+i)*size:][:size]...)
				}
			}
			both = append(both, v[h*value*rank*size:][:value*rank*size]...)
		}
		w.AddTensor(name, gguf.Type(t.Type), []uint64{uint64(rank), uint64(heads * (nope + value))}, both)
	}
	vector := func(name string, n int, least float32) {
		if name == t.Drop {
			return
		}
		var b []byte
		for range n {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(least+rng.Float32()))
		}
		w.AddTensor(name, gguf.Type(kernels.F32), []uint64{uint64(n)}, b)
	}
	vectors := func(name string, n, rows int) {
		if name != t.Drop {
			w.AddTensor(name, gguf.Type(kernels.F32), []uint64{uint64(n), uint64(rows)}, randomBlocks(rng, kernels.F32, rows, n))
		}
	}
	norm := func(name string) { vector(name, width, 0.5) }
	matrix("token_embd.weight", vocab, width)
	for l := range layers {
		blk := func(name string) string { return fmt.Sprintf("blk.%d.%s.weight", l, name) }
		norm(blk("attn_norm"))
		if arch == "deepseek2" {
			matrix(blk("attn_q_a"), qRank, width)
			vector(blk("attn_q_a_norm"), qRank, 0.5)
			matrix(blk("attn_q_b"), heads*(nope+rope), qRank)
			matrix(blk("attn_kv_a_mqa"), rank+rope, width)
			vector(blk("attn_kv_a_norm"), rank, 0.5)
			short := t.Type // heads are too short for K types
			if short.Form() == kernels.Q8x256 {
				short = kernels.Q8_0
			}
			if t.Joint {
				joint(blk("attn_kv_b"), rank, nope, value, heads)
			} else {
				several(blk("attn_k_b"), short, rank, nope, heads)
				several(blk("attn_v_b"), t.Type, value, rank, heads)
			}
			matrix(blk("attn_output"), width, heads*value)
		} else if recurrent(l) {
			matrix(blk("attn_qkv"), (4+heads)*headDim, width)
			matrix(blk("attn_gate"), heads*headDim, width)
			several(blk("ssm_alpha"), kernels.F32, heads, width, 1)
			several(blk("ssm_beta"), kernels.F32, heads, width, 1)
			several(blk("ssm_conv1d"), kernels.F32, (4+heads)*headDim, 4, 1)
			vector(fmt.Sprintf("blk.%d.ssm_a", l), heads, -1)
			vector(fmt.Sprintf("blk.%d.ssm_dt.bias", l), heads, 0)
			vector(blk("ssm_norm"), headDim, 0.5)
			matrix(blk("ssm_out"), width, heads*headDim)
		} else if arch == "phi3" {
			matrix(blk("attn_qkv"), (heads+2*kvHeads)*headDim, width)
			matrix(blk("attn_output"), width, heads*headDim)
		} else {
			queries := heads * headDim
			if strings.HasPrefix(arch, "qwen35") { // and gates
				queries *= 2
			}
			matrix(blk("attn_q"), queries, width)
			matrix(blk("attn_k"), kvHeads*headDim, width)
			matrix(blk("attn_v"), kvHeads*headDim, width)
			matrix(blk("attn_output"), width, heads*headDim)
		}
		if arch == "glm4moe" || arch == "gpt-oss" || strings.HasPrefix(arch, "qwen35") {
			norm(blk("post_attention_norm"))
		} else {
			norm(blk("ffn_norm"))
		}
		if shares && l > 0 {
			vector(fmt.Sprintf("blk.%d.exp_probs_b.bias", l), experts, -0.5)
		}
		if arch == "qwen35moe" {
			vector(blk("ffn_gate_inp_shexp"), width, -0.5)
		}
		if arch == "qwen35moe" || shares && l > 0 {
			matrix(blk("ffn_gate_shexp"), ffn, width)
			matrix(blk("ffn_up_shexp"), ffn, width)
			matrix(blk("ffn_down_shexp"), width, ffn)
		}
		if arch == "qwen3moe" || arch == "qwen35moe" || arch == "gpt-oss" || shares && l > 0 {
			matrix(blk("ffn_gate_inp"), experts, width)
			if t.Fused {
				fused(blk("ffn_gate_up_exps"), ffn, width)
			} else {
				matrices(blk("ffn_gate_exps"), ffn, width)
				matrices(blk("ffn_up_exps"), ffn, width)
			}
			matrices(blk("ffn_down_exps"), width, ffn)
		} else if arch == "phi3" {
			matrix(blk("ffn_up"), 2*ffn, width)
			matrix(blk("ffn_down"), width, ffn)
		} else {
			matrix(blk("ffn_gate"), ffn, width)
			matrix(blk("ffn_up"), ffn, width)
			matrix(blk("ffn_down"), width, ffn)
		}
		switch arch {
		case "qwen2", "glm4moe", "gpt-oss":
			vector(fmt.Sprintf("blk.%d.attn_q.bias", l), heads*headDim, -0.5)
			vector(fmt.Sprintf("blk.%d.attn_k.bias", l), kvHeads*headDim, -0.5)
			vector(fmt.Sprintf("blk.%d.attn_v.bias", l), kvHeads*headDim, -0.5)
			if arch == "gpt-oss" {
				vector(fmt.Sprintf("blk.%d.attn_output.bias", l), width, -0.5)
				vector(blk("attn_sinks"), heads, -0.5)
				vector(fmt.Sprintf("blk.%d.ffn_gate_inp.bias", l), experts, -0.5)
				vectors(fmt.Sprintf("blk.%d.ffn_gate_exps.bias", l), ffn, experts)
				vectors(fmt.Sprintf("blk.%d.ffn_up_exps.bias", l), ffn, experts)
				vectors(fmt.Sprintf("blk.%d.ffn_down_exps.bias", l), width, experts)
			}
		case "qwen35", "qwen35moe":
			if !recurrent(l) {
				vector(blk("attn_q_norm"), headDim, 0.5)
				vector(blk("attn_k_norm"), headDim, 0.5)
			}
		case "qwen3", "qwen3moe":
			vector(blk("attn_q_norm"), headDim, 0.5)
			vector(blk("attn_k_norm"), headDim, 0.5)
		case "gemma3":
			vector(blk("attn_q_norm"), headDim, 0.5)
			vector(blk("attn_k_norm"), headDim, 0.5)
			norm(blk("post_attention_norm"))
			norm(blk("post_ffw_norm"))
		}
	}
	if arch == "phi3" {
		vector("rope_factors_short.weight", headDim/2, 1)
		vector("rope_factors_long.weight", headDim/2, 2)
	}
	norm("output_norm.weight")
	if !t.Tied {
		matrix("output.weight", vocab, width)
	}
	if t.Extra != nil {
		t.Extra(w)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := w.WriteTo(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// randomBlocks makes a matrix of random weights of about ±1/√cols: random quants under random scales of the right size.
func randomBlocks(rng *rand.Rand, t kernels.Type, rows, cols int) []byte {
	size := 2 / math.Sqrt(float64(cols))
	elems, bytes := t.Block()
	b := make([]byte, rows*cols/elems*bytes)
	half := func(at int, v float64) {
		binary.LittleEndian.PutUint16(b[at:], kernels.F32ToF16(float32(v*(0.5+rng.Float64()))))
	}
	for at := 0; at < len(b); at += bytes {
		x := (rng.Float64() - 0.5) * 2 * size
		switch t {
		case kernels.F32:
			binary.LittleEndian.PutUint32(b[at:], math.Float32bits(float32(x)))
			continue
		case kernels.F16:
			binary.LittleEndian.PutUint16(b[at:], kernels.F32ToF16(float32(x)))
			continue
		case kernels.BF16:
			binary.LittleEndian.PutUint16(b[at:], uint16(math.Float32bits(float32(x))>>16))
			continue
		}
		for i := range bytes {
			b[at+i] = byte(rng.Uint32())
		}
		switch t {
		case kernels.Q4_0:
			half(at, size/8)
		case kernels.Q5_0:
			half(at, size/16)
		case kernels.Q8_0:
			half(at, size/128)
		case kernels.Q4_1:
			half(at, size/8)
			half(at+2, -size)
		case kernels.Q5_1:
			half(at, size/16)
			half(at+2, -size)
		case kernels.Q2_K: // quants to 3, scales to 15
			half(at+80, size/(2*8))
			half(at+82, size/8)
		case kernels.Q3_K: // quants within ±4, scales within ±32
			half(at+108, size/(4*16))
		case kernels.IQ4_NL:
			half(at, size/128)
		case kernels.IQ4_XS: // scales within ±32
			half(at, size/(128*16))
		case kernels.IQ2_XXS, kernels.IQ2_XS, kernels.IQ2_S: // values within ±43, scales to 31 eighths
			half(at, size/(25*16/8))
		case kernels.IQ3_XXS:
			half(at, size/(16*16/2))
		case kernels.IQ3_S:
			half(at, size/(8*16))
		case kernels.IQ1_S: // values within ±9, scales to 15 eighths
			half(at, size/(6*8/8))
		case kernels.IQ1_M: // the scale's bits are the highest four of each of four words
			d := kernels.F32ToF16(float32(size / (6 * 8 / 8) * (0.5 + rng.Float64())))
			for i := range 4 {
				b[at+49+2*i] = b[at+49+2*i]&15 | byte(d>>(4*i)<<4)
			}
		case kernels.MXFP4: // quants within ±12
			_, e := math.Frexp(size / 12)
			b[at] = byte(128 + e)
		case kernels.Q4_K: // quants to 15, scales to 63
			half(at, size/(8*32))
			half(at+2, size/32)
		case kernels.Q5_K:
			half(at, size/(16*32))
			half(at+2, size/32)
		case kernels.Q6_K: // quants within ±32, scales within ±128
			half(at+bytes-2, size/(32*64))
		}
	}
	return b
}
