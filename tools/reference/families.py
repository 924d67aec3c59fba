"""What each family of models looks like in `transformers` and in a GGUF file.

Tensor names, key names and layouts of rows are those that llama.cpp's converter writes (its folder conversion/, and
gguf-py's constants.py). A Family says, for a configuration, which keys its files have and how tensors correspond; a Pair is
one such correspondence, in both directions: `make` needs one, to write a file, `run` the other, to compute with a file's
own weights.
"""
import math
from dataclasses import dataclass
from typing import Callable

import torch


@dataclass
class Pair:
    """Tensors of the model (state_dict names) and of the file that hold the same numbers."""
    hf: list[str]
    gguf: list[str]
    to: Callable = lambda *t: t        # tensors in the order of hf -> tensors in the order of gguf
    back: Callable = lambda *t: t      # the reverse


@dataclass
class Family:
    arch: str                # general.architecture
    keys: Callable           # config -> {key without "ARCH.": value}
    pairs: Callable          # config -> [Pair]
    extra: Callable = lambda c: {}     # config -> {name: tensor} of the file that the model has no tensor for
    plus_one: bool = False   # the model's norms multiply by 1 + weight, and the file has that sum


# ---- layouts of rows

def interleaved(heads):
    """Rows of each head from half-split rope pairs (i, i + d/2), as `transformers` has them, to pairs (2i, 2i+1), and back."""
    def to(w):
        return (w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape),)

    def back(w):
        return (w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape),)
    return {"to": to, "back": back}


def tiled(c, size, of, dim=0):
    """Value heads of `size` rows (or columns, with dim 1) each, the last part of a tensor with `of` parts before them: from
    those of one key head side by side, as `transformers` has them, to value head i going with key head i mod the number of
    key heads, as ggml repeats, and back."""
    keys, each = c.linear_num_key_heads, c.linear_num_value_heads // c.linear_num_key_heads

    def move(w, outer, inner):
        rest, heads = w.movedim(dim, 0).split([of, keys * each * size])
        heads = heads.reshape(outer, inner, size, *heads.shape[1:]).swapaxes(0, 1).reshape(heads.shape)
        return (torch.cat([rest, heads]).movedim(0, dim),)
    return {"to": lambda w: move(w, keys, each), "back": lambda w: move(w, each, keys)}


def after(first, then):
    """One layout, then another."""
    return {"to": lambda w: then["to"](*first["to"](w)), "back": lambda w: first["back"](*then["back"](w))}


# gate's rows before up's, of each expert
HALVES = {"to": lambda w: tuple(w.chunk(2, dim=1)), "back": lambda gate, up: (torch.cat([gate, up], dim=1),)}
# gpt-oss: [expert, in, out], gate and up by turns
TURNS = {"to": lambda w: (w[..., ::2].transpose(1, 2), w[..., 1::2].transpose(1, 2)),
         "back": lambda gate, up: (torch.stack([gate.transpose(1, 2), up.transpose(1, 2)], dim=-1).flatten(-2),)}
TURNS_BIAS = {"to": lambda b: (b[..., ::2], b[..., 1::2]), "back": lambda gate, up: (torch.stack([gate, up], dim=-1).flatten(-2),)}
# a decay's logarithm, and the decay as the file has it
DECAY = {"to": lambda a: (-a.exp(),), "back": lambda a: ((-a).log(),)}
ONE_CHANNEL = {"to": lambda w: (w.squeeze(1),), "back": lambda w: (w.unsqueeze(1),)}
TRANSPOSED = {"to": lambda w: (w.transpose(1, 2),), "back": lambda w: (w.transpose(1, 2),)}


# ---- tensors

def head_dim(c):
    return getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads


def whole(c):
    """Tensors outside the layers."""
    pairs = [Pair(["model.embed_tokens.weight"], ["token_embd.weight"]), Pair(["model.norm.weight"], ["output_norm.weight"])]
    return pairs if c.tie_word_embeddings else pairs + [Pair(["lm_head.weight"], ["output.weight"])]


def named(layer, names, suffix=".weight"):
    return [Pair([f"model.layers.{layer}.{hf}{suffix}"], [f"blk.{layer}.{out}{suffix}"]) for hf, out in names.items()]


NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
QKV = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"}
O = {"self_attn.o_proj": "attn_output"}
QK_NORM = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
FFN = {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
SHARED = {"mlp.shared_experts.gate_proj": "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp",
          "mlp.shared_experts.down_proj": "ffn_down_shexp"}


def llama_pairs(c):
    pairs = whole(c)
    for l in range(c.num_hidden_layers):
        pairs += named(l, NORMS | O | FFN | {"self_attn.v_proj": "attn_v"})
        for suffix in [".weight", ".bias"] if getattr(c, "attention_bias", False) else [".weight"]:
            for name, out, heads in ("q_proj", "attn_q", c.num_attention_heads), ("k_proj", "attn_k", c.num_key_value_heads):
                pairs.append(Pair([f"model.layers.{l}.self_attn.{name}{suffix}"], [f"blk.{l}.{out}{suffix}"], **interleaved(heads)))
        if getattr(c, "attention_bias", False):
            pairs += named(l, {"self_attn.v_proj": "attn_v"} | O, ".bias")
    return pairs


def plain_pairs(*names, bias=()):
    """Pairs of a family whose tensors only have other names in the file."""
    def pairs(c):
        out = whole(c)
        for l in range(c.num_hidden_layers):
            for n in names:
                out += named(l, n)
            for n in bias:
                out += named(l, n, ".bias")
        return out
    return pairs


def experts(l):
    """Experts that transformers 5 keeps in two tensors."""
    at, blk = f"model.layers.{l}.mlp.", f"blk.{l}.ffn_"
    return [Pair([at + "experts.gate_up_proj"], [blk + "gate_exps.weight", blk + "up_exps.weight"], **HALVES),
            Pair([at + "experts.down_proj"], [blk + "down_exps.weight"])]


def qwen3moe_pairs(c):
    pairs = plain_pairs(NORMS, QKV, O, QK_NORM, {"mlp.gate": "ffn_gate_inp"})(c)
    return pairs + [p for l in range(c.num_hidden_layers) for p in experts(l)]


def glm4moe_pairs(c):
    norms = {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm"}
    pairs = plain_pairs(norms, QKV, O, QK_NORM if c.use_qk_norm else {}, bias=[QKV] if c.attention_bias else [])(c)
    for l in range(c.num_hidden_layers):
        if l < c.first_k_dense_replace:
            pairs += named(l, FFN)
            continue
        pairs += experts(l) + named(l, {"mlp.gate": "ffn_gate_inp"} | SHARED)
        pairs.append(Pair([f"model.layers.{l}.mlp.gate.e_score_correction_bias"], [f"blk.{l}.exp_probs_b.bias"]))
    return pairs


def latent_halves(c):
    """Rows of each head, [key without position; value], to the two tensors by which latent attention multiplies: the key's
    transposed, since it is queries that it is applied to."""
    heads, nope = c.num_attention_heads, c.qk_nope_head_dim

    def to(w):
        w = w.reshape(heads, -1, w.shape[-1])
        return w[:, :nope].transpose(1, 2), w[:, nope:]
    return {"to": to, "back": lambda k, v: (torch.cat([k.transpose(1, 2), v], dim=1).flatten(0, 1),)}


def deepseek2_pairs(c):
    names = NORMS | O | {"self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm"}
    if c.q_lora_rank is None:
        names |= {"self_attn.q_proj": "attn_q"}
    else:
        names |= {"self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b"}
    pairs = plain_pairs(names)(c)
    for l in range(c.num_hidden_layers):
        at, blk = f"model.layers.{l}.", f"blk.{l}."
        pairs.append(Pair([at + "self_attn.kv_b_proj.weight"], [blk + "attn_k_b.weight", blk + "attn_v_b.weight"], **latent_halves(c)))
        if l < c.first_k_dense_replace:
            pairs += named(l, FFN)
            continue
        pairs += experts(l) + named(l, {"mlp.gate": "ffn_gate_inp"} | SHARED)
        if c.model_type == "deepseek_v3":
            pairs.append(Pair([at + "mlp.gate.e_score_correction_bias"], [blk + "exp_probs_b.bias"]))
    return pairs


SHARED_ONE = {name.replace("experts", "expert"): out for name, out in SHARED.items()} | {"mlp.shared_expert_gate": "ffn_gate_inp_shexp"}


def qwen35_pairs(c):
    pairs = whole(c)
    size, before = c.linear_value_head_dim, 2 * c.linear_num_key_heads * c.linear_key_head_dim
    for l, kind in enumerate(c.layer_types):
        pairs += named(l, {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm"})
        if kind == "full_attention":
            pairs += named(l, QKV | O | QK_NORM)
        else:
            at, blk = f"model.layers.{l}.linear_attn.", f"blk.{l}."
            pairs += [Pair([at + "in_proj_qkv.weight"], [blk + "attn_qkv.weight"], **tiled(c, size, before)),
                      Pair([at + "in_proj_z.weight"], [blk + "attn_gate.weight"], **tiled(c, size, 0)),
                      Pair([at + "in_proj_a.weight"], [blk + "ssm_alpha.weight"], **tiled(c, 1, 0)),
                      Pair([at + "in_proj_b.weight"], [blk + "ssm_beta.weight"], **tiled(c, 1, 0)),
                      Pair([at + "conv1d.weight"], [blk + "ssm_conv1d.weight"], **after(ONE_CHANNEL, tiled(c, size, before))),
                      Pair([at + "A_log"], [blk + "ssm_a"], **after(DECAY, tiled(c, 1, 0))),
                      Pair([at + "dt_bias"], [blk + "ssm_dt.bias"], **tiled(c, 1, 0)),
                      Pair([at + "norm.weight"], [blk + "ssm_norm.weight"]),
                      Pair([at + "out_proj.weight"], [blk + "ssm_out.weight"], **tiled(c, size, 0, dim=1))]
        if hasattr(c, "num_experts"):
            pairs += experts(l) + named(l, {"mlp.gate": "ffn_gate_inp"} | SHARED_ONE)
        else:
            pairs += named(l, FFN)
    return pairs


def gptoss_pairs(c):
    norms = {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm"}
    router = {"mlp.router": "ffn_gate_inp"}
    pairs = plain_pairs(norms, QKV, O, router, bias=[QKV, O, router])(c)
    for l in range(c.num_hidden_layers):
        at, blk = f"model.layers.{l}.", f"blk.{l}."
        x, ffn = at + "mlp.experts.", blk + "ffn_"
        pairs += [Pair([at + "self_attn.sinks"], [blk + "attn_sinks.weight"]),
                  Pair([x + "gate_up_proj"], [ffn + "gate_exps.weight", ffn + "up_exps.weight"], **TURNS),
                  Pair([x + "gate_up_proj_bias"], [ffn + "gate_exps.bias", ffn + "up_exps.bias"], **TURNS_BIAS),
                  Pair([x + "down_proj"], [ffn + "down_exps.weight"], **TRANSPOSED),
                  Pair([x + "down_proj_bias"], [ffn + "down_exps.bias"])]
    return pairs


GEMMA3_NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm",
                "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}


# ---- keys

def rope_keys(rope):
    keys = {"rope.freq_base": float(rope["rope_theta"])}
    if rope["rope_type"] == "linear":
        keys |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}
    if rope["rope_type"] == "yarn":
        keys |= {"rope.scaling.type": "yarn", "rope.scaling.factor": float(rope["factor"]),
                 "rope.scaling.original_context_length": rope["original_max_position_embeddings"],
                 "rope.scaling.yarn_beta_fast": float(rope["beta_fast"]), "rope.scaling.yarn_beta_slow": float(rope["beta_slow"])}
    return keys


def common_keys(c):
    rope = c.rope_parameters.get("full_attention", c.rope_parameters)
    dense = {"feed_forward_length": c.intermediate_size} if hasattr(c, "intermediate_size") else {}
    return rope_keys(rope) | dense | {
        "context_length": c.max_position_embeddings, "embedding_length": c.hidden_size, "block_count": c.num_hidden_layers,
        "attention.head_count": c.num_attention_heads,
        "attention.head_count_kv": c.num_key_value_heads, "attention.layer_norm_rms_epsilon": c.rms_norm_eps,
        "attention.key_length": head_dim(c), "attention.value_length": head_dim(c)}


def llama_keys(c):
    return common_keys(c) | {"vocab_size": c.vocab_size, "rope.dimension_count": head_dim(c)}


def mistral3_keys(c):
    rope = c.rope_parameters
    return llama_keys(c) | {"rope.scaling.yarn_log_multiplier": float(rope["mscale_all_dim"]),
                            "attention.temperature_scale": float(rope["llama_4_scaling_beta"])}


def qwen3moe_keys(c):
    return common_keys(c) | {"expert_count": c.num_experts, "expert_used_count": c.num_experts_per_tok,
                             "expert_feed_forward_length": c.moe_intermediate_size}


def gemma3_keys(c):
    return common_keys(c) | {"attention.sliding_window": c.sliding_window,
                             "rope.freq_base_swa": float(c.rope_parameters["sliding_attention"]["rope_theta"])}


def phi3_keys(c):
    rope = c.rope_parameters
    keys = common_keys(c)
    del keys["attention.key_length"], keys["attention.value_length"]
    keys |= {"rope.dimension_count": int(head_dim(c) * rope.get("partial_rotary_factor", 1.0)),
             "rope.scaling.original_context_length": c.original_max_position_embeddings,
             "attention.sliding_window": c.sliding_window or 0}
    if rope["rope_type"] == "longrope":
        scale = c.max_position_embeddings / c.original_max_position_embeddings
        keys["rope.scaling.attn_factor"] = math.sqrt(1 + math.log(scale) / math.log(c.original_max_position_embeddings)) if scale > 1 else 1.0
    return keys


def phi3_extra(c):
    if c.rope_parameters["rope_type"] != "longrope":
        return {}
    return {f"rope_factors_{kind}.weight": torch.tensor(c.rope_parameters[f"{kind}_factor"]) for kind in ("long", "short")}


def glm4moe_keys(c):
    return common_keys(c) | {
        "rope.dimension_count": int(head_dim(c) * c.rope_parameters.get("partial_rotary_factor", 0.5)),
        "expert_count": c.n_routed_experts, "expert_used_count": c.num_experts_per_tok, "expert_feed_forward_length": c.moe_intermediate_size,
        "expert_shared_count": c.n_shared_experts, "leading_dense_block_count": c.first_k_dense_replace, "expert_gating_func": 2,
        "expert_weights_scale": float(c.routed_scaling_factor), "expert_weights_norm": bool(c.norm_topk_prob),
        "expert_group_count": c.n_group, "expert_group_used_count": c.topk_group}


def deepseek2_keys(c):
    rope, v3 = c.rope_parameters, c.model_type == "deepseek_v3"
    for wrong, what in ((not v3 and c.norm_topk_prob, "norm_topk_prob"), (v3 and not c.rope_interleave, "rope_interleave"),
                        (rope.get("mscale") != rope.get("mscale_all_dim"), "mscale, unlike mscale_all_dim,")):
        if wrong:
            raise SystemExit(f"config.json's {what} can't be told in a GGUF file")
    keys = common_keys(c) | {
        "vocab_size": c.vocab_size, "attention.head_count_kv": 1, "attention.kv_lora_rank": c.kv_lora_rank,
        "attention.key_length": c.kv_lora_rank + c.qk_rope_head_dim, "attention.value_length": c.kv_lora_rank,
        "attention.key_length_mla": c.qk_nope_head_dim + c.qk_rope_head_dim, "attention.value_length_mla": c.v_head_dim,
        "rope.dimension_count": c.qk_rope_head_dim, "leading_dense_block_count": c.first_k_dense_replace,
        "expert_count": c.n_routed_experts, "expert_used_count": c.num_experts_per_tok, "expert_feed_forward_length": c.moe_intermediate_size,
        "expert_shared_count": c.n_shared_experts, "expert_weights_scale": float(c.routed_scaling_factor),
        "expert_gating_func": 2 if v3 else 1}
    if c.q_lora_rank is not None:
        keys["attention.q_lora_rank"] = c.q_lora_rank
    if v3 and c.norm_topk_prob:
        keys["expert_weights_norm"] = True
    if v3 or c.topk_method == "group_limited_greedy":
        keys |= {"expert_group_count": c.n_group, "expert_group_used_count": c.topk_group}
    if rope.get("mscale_all_dim") is not None:
        keys["rope.scaling.yarn_log_multiplier"] = 0.1 * rope["mscale_all_dim"]
    return keys


def qwen35_keys(c):
    rope = c.rope_parameters
    keys = common_keys(c) | {
        "rope.dimension_count": int(head_dim(c) * rope["partial_rotary_factor"]),
        "rope.dimension_sections": [*rope.get("mrope_section", [11, 11, 10]), 0],
        "ssm.conv_kernel": c.linear_conv_kernel_dim, "ssm.state_size": c.linear_key_head_dim, "ssm.group_count": c.linear_num_key_heads,
        "ssm.time_step_rank": c.linear_num_value_heads, "ssm.inner_size": c.linear_num_value_heads * c.linear_value_head_dim}
    full = [l for l, kind in enumerate(c.layer_types) if kind == "full_attention"]
    interval = full[0] + 1 if full else c.num_hidden_layers + 1
    if full == list(range(interval - 1, c.num_hidden_layers, interval)):
        keys["full_attention_interval"] = interval
    else:
        keys["attention.recurrent_layers"] = [kind == "linear_attention" for kind in c.layer_types]
    if hasattr(c, "num_experts"):
        keys |= {"expert_count": c.num_experts, "expert_used_count": c.num_experts_per_tok, "expert_feed_forward_length": c.moe_intermediate_size,
                 "expert_shared_feed_forward_length": c.shared_expert_intermediate_size}
    return keys


def gptoss_keys(c):
    return common_keys(c) | {"attention.sliding_window": c.sliding_window, "expert_count": c.num_local_experts,
                             "expert_used_count": c.num_experts_per_tok, "expert_feed_forward_length": c.intermediate_size}


def llama3_factors(c):
    """Llama 3's scaling is in the file as a divisor of each frequency."""
    rope, d = c.rope_parameters, head_dim(c)
    if rope["rope_type"] != "llama3":
        return {}
    turn = 2 * math.pi * rope["rope_theta"] ** (torch.arange(0, d, 2).double() / d)
    context, low, high = rope["original_max_position_embeddings"], rope["low_freq_factor"], rope["high_freq_factor"]
    share = ((context / turn - low) / (high - low)).clamp(0, 1)
    return {"rope_freqs.weight": (1 / ((1 - share) / rope["factor"] + share)).float()}


LLAMA = Family("llama", llama_keys, llama_pairs, llama3_factors)
FAMILIES = {  # by the model_type of config.json
    "llama": LLAMA,
    "mistral": LLAMA,
    "ministral3": Family("mistral3", mistral3_keys, llama_pairs),
    "qwen2": Family("qwen2", common_keys, plain_pairs(NORMS, QKV, O, FFN, bias=[QKV])),
    "qwen3": Family("qwen3", common_keys, plain_pairs(NORMS, QKV, O, QK_NORM, FFN)),
    "qwen3_moe": Family("qwen3moe", qwen3moe_keys, qwen3moe_pairs),
    "gemma3_text": Family("gemma3", gemma3_keys, plain_pairs(GEMMA3_NORMS, QKV, O, QK_NORM, FFN), plus_one=True),
    "phi3": Family("phi3", phi3_keys, plain_pairs(NORMS, O, {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up",
                                                               "mlp.down_proj": "ffn_down"}), phi3_extra),
    "glm4_moe": Family("glm4moe", glm4moe_keys, glm4moe_pairs),
    "deepseek_v2": Family("deepseek2", deepseek2_keys, deepseek2_pairs),
    "deepseek_v3": Family("deepseek2", deepseek2_keys, deepseek2_pairs),
    "qwen3_5_text": Family("qwen35", qwen35_keys, qwen35_pairs, plus_one=True),
    "qwen3_5_moe_text": Family("qwen35moe", qwen35_keys, qwen35_pairs, plus_one=True),
    "gpt_oss": Family("gpt-oss", gptoss_keys, gptoss_pairs),
}


def family_of(config):
    f = FAMILIES.get(config.model_type)
    if f is None:
        raise SystemExit(f"model_type {config.model_type!r} is not supported (supported: {', '.join(FAMILIES)})")
    return f


def is_norm(name):
    """Whether a name of the file's, or of the model's, is of a norm that plus_one is about."""
    return "norm" in name and name.endswith(".weight") and "ssm_norm" not in name and "linear_attn" not in name


def to_file(family, config, state):
    """The file's tensors, by name, of a model's state_dict; every tensor of the model must have its place."""
    out, used = dict(family.extra(config)), set()
    for p in family.pairs(config):
        used.update(p.hf)
        out.update(zip(p.gguf, p.to(*(state[name] for name in p.hf)), strict=True))
    if family.plus_one:
        out = {name: t + 1 if is_norm(name) else t for name, t in out.items()}
    left = set(state) - used - ({"lm_head.weight"} if config.tie_word_embeddings else set())
    if left:
        raise SystemExit(f"no name in a GGUF file for {', '.join(sorted(left))}")
    return out


def from_file(family, config, tensors):
    """The model's tensors, by name, of a file's; every tensor of the file must have its place, but for layers beyond the
    model's, which only guess further tokens."""
    drafts = tuple(f"blk.{l}." for l in range(config.num_hidden_layers, config.num_hidden_layers + 8))
    tensors, out = {name: t for name, t in tensors.items() if not name.startswith(drafts)}, {}
    for name in [n for n in tensors if n.endswith(".attn_kv_b.weight")]:      # DeepSeek files of before April 2025
        k, v = latent_halves(config)["to"](tensors.pop(name))
        tensors |= {name.replace("attn_kv_b", "attn_k_b"): k, name.replace("attn_kv_b", "attn_v_b"): v}
    for name, want in family.extra(config).items():
        got = tensors.pop(name, None)
        if got is None or not torch.allclose(got, want, rtol=1e-4):
            raise SystemExit(f"the file's {name} is not what config.json asks for")
    for p in family.pairs(config):
        missing = [n for n in p.gguf if n not in tensors]
        if missing:
            raise SystemExit(f"the file has no tensor {missing[0]}")
        out.update(zip(p.hf, p.back(*(tensors.pop(n) for n in p.gguf)), strict=True))
    if tensors:
        raise SystemExit(f"the file has tensors that the family has no place for: {', '.join(sorted(tensors)[:3])}")
    if family.plus_one:
        out = {name: t - 1 if is_norm(name) else t for name, t in out.items()}
    return out
