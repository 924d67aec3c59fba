"""Tiny seeded random models, each feature of a family at a size where getting it wrong shows in the logits."""
import math

import gguf
import numpy as np
import torch
import transformers

from families import family_of, is_norm, to_file

VOCAB = 320
BASE = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=1024, rms_norm_eps=1e-6, tie_word_embeddings=False, bos_token_id=VOCAB - 2, eos_token_id=VOCAB - 1,
            pad_token_id=None)
PLAIN = dict(rope_type="default", rope_theta=10000.0)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64, beta_fast=32.0, beta_slow=1.0)


def longrope(dim, part=1.0):
    """Factors like those of published models, of the part of a head that is rotated: short ones near 1, long ones growing
    to the context's stretch."""
    pairs = int(dim * part) // 2
    return dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=part,
                short_factor=[1 + 0.05 * i for i in range(pairs)], long_factor=[1.1 * 4 ** (i / (pairs - 1)) for i in range(pairs)])


DEEPSEEK = dict(
    BASE, num_key_value_heads=4, first_k_dense_replace=1, kv_lora_rank=32, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=24,
    n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, n_shared_experts=1)
DELTA = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=32, linear_value_head_dim=32, linear_conv_kernel_dim=4)
QWEN35 = dict(BASE, num_hidden_layers=4, head_dim=32, rope_parameters=dict(PLAIN, partial_rotary_factor=0.25, mrope_section=[2, 1, 1]), **DELTA)
GQA = dict(BASE, head_dim=32, rope_parameters=PLAIN)
GPTOSS = dict(cls="GptOss", config=dict(
    BASE, intermediate_size=32, num_hidden_layers=4, head_dim=32, num_local_experts=8, num_experts_per_tok=3, sliding_window=24,
    rope_parameters=dict(YARN, truncate=False)))
PHI3 = dict(BASE, num_attention_heads=2, num_key_value_heads=1, num_hidden_layers=2)
TINY = {
    "gpt_oss": GPTOSS,
    "gpt_oss_mxfp4": dict(GPTOSS, experts="MXFP4"),
    "phi3_long": dict(cls="Phi3", config=dict(PHI3, original_max_position_embeddings=256, sliding_window=48, rope_parameters=longrope(32))),
    "phi3_short": dict(cls="Phi3", config=dict(PHI3, original_max_position_embeddings=512, rope_parameters=longrope(32, 0.75))),
    "glm4moe": dict(cls="Glm4Moe", config=dict(
        BASE, num_hidden_layers=3, head_dim=32, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, n_shared_experts=1,
        first_k_dense_replace=1, n_group=1, topk_group=1, routed_scaling_factor=2.5, norm_topk_prob=True, use_qk_norm=True, attention_bias=True,
        rope_parameters=dict(PLAIN, partial_rotary_factor=0.5))),
    "mistral": dict(cls="Mistral", config=dict(BASE, head_dim=32, sliding_window=None, rope_parameters=dict(PLAIN, rope_theta=1e6))),
    "mistral3": dict(cls="Ministral3", config=dict(
        BASE, head_dim=32, rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3, max_position_embeddings=1024))),
    "llama_bias": dict(cls="Llama", config=dict(GQA, num_hidden_layers=2, attention_bias=True)),
    "llama3": dict(cls="Llama", config=dict(GQA, rope_parameters=dict(
        PLAIN, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64))),
    "qwen2": dict(cls="Qwen2", config=dict(BASE, tie_word_embeddings=True, rope_parameters=PLAIN)),
    "qwen3": dict(cls="Qwen3", config=dict(GQA, rope_parameters=YARN)),
    "qwen3moe": dict(cls="Qwen3Moe", config=dict(
        GQA, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[])),
    "gemma3": dict(cls="Gemma3", config=dict(
        BASE, head_dim=32, num_hidden_layers=7, num_key_value_heads=1, sliding_window=24, query_pre_attn_scalar=32, tie_word_embeddings=True,
        layer_types=["full_attention" if l % 6 == 5 else "sliding_attention" for l in range(7)], rope_parameters={
            "full_attention": dict(rope_type="linear", rope_theta=1e5, factor=8.0), "sliding_attention": PLAIN})),
    "deepseek2_lite": dict(cls="DeepseekV2", config=dict(
        DEEPSEEK, q_lora_rank=None, n_shared_experts=2, rope_parameters=dict(YARN, mscale=0.707, mscale_all_dim=0.707))),
    "deepseek2_v2": dict(cls="DeepseekV2", config=dict(      # without mscale_all_dim, which is YaRN as others have it
        DEEPSEEK, q_lora_rank=48, topk_method="group_limited_greedy", n_group=4, topk_group=2, routed_scaling_factor=4.0, rope_parameters=YARN)),
    "deepseek2_v3": dict(cls="DeepseekV3", config=dict(
        DEEPSEEK, q_lora_rank=48, n_routed_experts=16, n_group=4, topk_group=2, routed_scaling_factor=2.5, norm_topk_prob=True,
        rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=1.0))),
    "qwen35": dict(cls="Qwen3_5", config=QWEN35),
    "qwen35moe": dict(cls="Qwen3_5Moe", config=dict(
        {k: v for k, v in QWEN35.items() if k != "intermediate_size"}, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32,
        shared_expert_intermediate_size=32, layer_types=["linear_attention", "full_attention", "linear_attention", "linear_attention"])),
}

# Deviations of what is not a matrix: large enough to show, small enough to keep softmaxes and gates out of saturation.
VECTORS = {"sinks": 1.5, "e_score_correction_bias": 0.2, "dt_bias": 0.5}
# A matrix has deviation gain/sqrt(inputs); at these gains attention is peaked and logits have a deviation near 3.
GAINS = {"lm_head": 3.0, "o_proj": 2.0, "router": 2.0, "gate": 2.0, "q_proj": 1.6, "k_proj": 1.6, "qkv_proj": 1.6,
         "q_b_proj": 1.6, "kv_b_proj": 1.6, "out_proj": 2.0, "in_proj_qkv": 1.6}
GPTOSS_GAINS = GAINS | {"gate_up_proj": 5.0, "down_proj": 0.2}     # llama.cpp has the clamp at 7 built in: reach it


def fill(model, seed):
    """Gives every tensor of a model random values."""
    g = torch.Generator().manual_seed(seed)
    config = model.config
    gptoss, tied = config.model_type == "gpt_oss", config.tie_word_embeddings
    for name, t in model.state_dict().items():
        if tied and name == "lm_head.weight":
            continue
        parts = name.removesuffix(".weight").split(".")
        leaf = parts[-2] if parts[-1] == "bias" else parts[-1]
        z = torch.randn(t.shape, generator=g)
        if leaf in VECTORS:
            z *= VECTORS[leaf]
        elif "norm" in leaf:
            mean = 1.6 if leaf in ("q_norm", "k_norm") else 3.0 if tied and name == "model.norm.weight" else 1.0
            z = mean + 0.1 * z - (1 if family_of(config).plus_one and is_norm(name) else 0)
        elif leaf == "A_log":
            z = (0.05 + 0.3 * z.abs()).log()     # decays between once a few and once many positions
        elif "bias" in parts[-1]:
            z *= 0.3
        elif leaf == "embed_tokens":
            if tied:          # else a token likes itself best
                z *= 0.8 / math.sqrt(t.shape[-1])
        else:
            inputs = t.shape[1] if gptoss and t.ndim == 3 else t.shape[-1]
            z *= (GPTOSS_GAINS if gptoss else GAINS).get(leaf, 1.0) / math.sqrt(inputs)
        t.copy_(z)


def build(spec, seed):
    """A model of TINY with its values for a seed, those that are stored quantised as the stored bytes decode."""
    config = next(c for c in (getattr(transformers, spec["cls"] + kind, None) for kind in ("TextConfig", "Config")) if c)(**spec["config"])
    config._attn_implementation = config._experts_implementation = "eager"
    model = getattr(transformers, spec["cls"] + "ForCausalLM")(config).float().eval()
    with torch.no_grad():
        fill(model, seed)
        if "experts" in spec:
            state = model.state_dict()
            for p in family_of(config).pairs(config):
                if any(n.endswith("_exps.weight") for n in p.gguf):
                    decoded = [torch.from_numpy(decode(*encode(t, spec["experts"]))) for t in p.to(*(state[n] for n in p.hf))]
                    for name, t in zip(p.hf, p.back(*decoded), strict=True):
                        state[name].copy_(t)
    return model


def encode(t, kind):
    """Stored bytes of a tensor, and their type."""
    q = gguf.GGMLQuantizationType[kind]
    return gguf.quants.quantize(np.ascontiguousarray(t.numpy()), q), q


def decode(data, q):
    return gguf.quants.dequantize(data, q).astype(np.float32)


PAIRS = ("Ġ t|h e|i n|r e|Ġ a|o n|Ġt he|e r|Ġ s|a t|Ġ o|e n|i s|Ġ w|a n|o r|Ġ c|i t|e s|Ġ f|Ġ b|o u|in g|Ġ p|a l|Ġan d|n d|Ġ m|a r|e d")


def vocabulary():
    """A byte-level BPE: the id of a byte is its value, then merges, control tokens up to VOCAB, bos and eos last."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]          # GPT-2's table: bytes that stand for themselves
    hidden = [b for b in range(256) if b not in shown]
    tokens = [chr(b) if b in shown else chr(256 + hidden.index(b)) for b in range(256)]
    merges = []
    for pair in PAIRS.split("|"):
        left, right = pair.split(" ")
        if left in tokens and right in tokens and left + right not in tokens:
            tokens.append(left + right)
            merges.append(pair)
    tokens += [f"<|unused{i}|>" for i in range(len(tokens), VOCAB - 2)] + ["<|bos|>", "<|endoftext|>"]
    return tokens, merges


def write(path, spec, model):
    """Writes model.gguf."""
    config = model.config
    family = family_of(config)
    w = gguf.GGUFWriter(path, family.arch)
    w.add_type(gguf.GGUFType.MODEL)
    w.add_name("golden")      # llama.cpp looks for control tokens of Phi-3's where it reads that in a name
    w.add_file_type(gguf.LlamaFileType.MOSTLY_MXFP4_MOE if "experts" in spec else gguf.LlamaFileType.ALL_F32)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for key, v in family.keys(config).items():
        add = {bool: w.add_bool, int: w.add_uint32, float: w.add_float32, str: w.add_string, list: w.add_array}[type(v)]
        add(f"{family.arch}.{key}", v)
    tokens, merges = vocabulary()
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(tokens)
    w.add_token_types([gguf.TokenType.CONTROL if t.startswith("<|") else gguf.TokenType.NORMAL for t in tokens])
    w.add_token_merges(merges)
    w.add_bos_token_id(config.bos_token_id)
    w.add_eos_token_id(config.eos_token_id)
    w.add_add_bos_token(False)
    for tensor, t in to_file(family, config, model.state_dict()).items():
        if "experts" in spec and tensor.endswith("_exps.weight"):
            data, kind = encode(t, spec["experts"])
            w.add_tensor(tensor, data, raw_dtype=kind)
        else:
            w.add_tensor(tensor, np.ascontiguousarray(t.numpy()))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
