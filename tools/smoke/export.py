"""Write the trained model as GGUF.

  python export.py RUN/model.pt RUN/tokenizer.json smoke.gguf
"""
import argparse
import json

import gguf
import torch

import model as M
import tokenizer as T
from quantize import Q, quantize

# One type for each matrix of each layer: every kind of weight that Starling's engine reads occurs, most of them as Q4_K.
LAYERS = [  # attn_q   attn_k   attn_v   attn_output ffn_gate ffn_up   ffn_down
    (Q.Q4_K, Q.F16,  Q.Q8_0, Q.Q5_K, Q.Q4_K, Q.Q4_K, Q.Q6_K),
    (Q.Q4_K, Q.Q5_0, Q.Q6_K, Q.Q4_K, Q.Q4_K, Q.Q4_K, Q.Q5_K),
    (Q.Q5_K, Q.Q4_K, Q.Q5_1, Q.Q4_K, Q.Q4_K, Q.Q4_1, Q.Q6_K),
    (Q.Q4_K, Q.BF16, Q.Q6_K, Q.Q4_1, Q.Q4_0, Q.Q4_K, Q.Q5_0),
    (Q.Q4_K, Q.Q4_K, Q.Q5_K, Q.Q4_K, Q.Q4_K, Q.Q5_1, Q.Q4_K),
    (Q.Q4_K, Q.Q8_0, Q.Q6_K, Q.Q4_K, Q.Q4_K, Q.Q4_K, Q.Q6_K),
]
PARTS = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
ROOT = {"token_embd.weight": Q.Q8_0, "output.weight": Q.Q6_K}


def type_of(name):
    """The ggml type of a tensor; norms are F32."""
    if name in ROOT:
        return ROOT[name]
    _, layer, part, *_ = name.split(".") if name.startswith("blk.") else (0, 0, "norm")
    return Q.F32 if part.endswith("norm") else LAYERS[int(layer)][PARTS.index(part)]


def order(name):
    """llama.cpp's order: the embedding, the layers ascending, the final norm, the output."""
    if name.startswith("blk."):
        _, layer, part, _ = name.split(".")
        return 1, int(layer), (["attn_norm"] + PARTS[:4] + ["ffn_norm"] + PARTS[4:]).index(part)
    return {"token_embd.weight": (0,), "output_norm.weight": (2,), "output.weight": (3,)}[name]


def write(state, tokenizer_json, path):
    """state: the model's tensors by GGUF name."""
    c, spec = M.Config(), json.loads(tokenizer_json)
    w = gguf.GGUFWriter(path, "llama")
    w.add_type(gguf.GGUFType.MODEL), w.add_name("Starling Smoke"), w.add_license("apache-2.0")
    w.add_description("A tiny model that counts, spells and adds, made to test Starling")
    w.add_vocab_size(c.vocab), w.add_context_length(c.context), w.add_embedding_length(c.hidden), w.add_block_count(c.layers)
    w.add_feed_forward_length(c.ffn), w.add_head_count(c.heads), w.add_head_count_kv(c.kv_heads)
    w.add_key_length(c.head_dim), w.add_value_length(c.head_dim), w.add_rope_dimension_count(c.head_dim)
    w.add_rope_freq_base(c.rope_base), w.add_layer_norm_rms_eps(c.eps)
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M), w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    tokens = sorted(spec["model"]["vocab"], key=spec["model"]["vocab"].get)
    assert len(tokens) == c.vocab and tokens[:3] == T.SPECIAL
    w.add_tokenizer_model("gpt2"), w.add_tokenizer_pre("smollm"), w.add_token_list(tokens)
    w.add_token_types([gguf.TokenType.CONTROL if t in T.SPECIAL else gguf.TokenType.NORMAL for t in tokens])
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in spec["model"]["merges"]])
    w.add_bos_token_id(1), w.add_eos_token_id(2), w.add_unk_token_id(0), w.add_pad_token_id(2)
    w.add_add_bos_token(False), w.add_chat_template(T.TEMPLATE)
    for name in sorted(state, key=order):
        x, t = state[name].float().numpy(), type_of(name)
        w.add_tensor(name, x) if t == Q.F32 else w.add_tensor(name, quantize(x, t), raw_dtype=t)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model")
    ap.add_argument("tokenizer")
    ap.add_argument("gguf")
    args = ap.parse_args()
    write(torch.load(args.model), open(args.tokenizer).read(), args.gguf)


if __name__ == "__main__":
    main()
