"""Greedy accuracy on the held-out questions, in PyTorch.

  python evaluate.py smoke.gguf                  # the file's own (dequantised) weights, int8 activations, f16 KV
  python evaluate.py smoke.gguf --exact          # the same weights, f32 activations and KV
  python evaluate.py smoke.gguf --after 400      # each question at the end of a conversation of 400 tokens or more
"""
import argparse
import random
from collections import defaultdict

import gguf
import numpy as np
import torch

import generate
import model as M
import tokenizer as T

KQUANT = 256                                                # activations are quantised once for each block of the weight's type
BLOCK = {"Q4_K": KQUANT, "Q5_K": KQUANT, "Q6_K": KQUANT, "Q4_0": 32, "Q4_1": 32, "Q5_0": 32, "Q5_1": 32, "Q8_0": 32}


def int8(x, block):
    """x rounded to ±127 steps of amax/127 for each block, as an int8 matmul sees it."""
    y = x.reshape(*x.shape[:-1], -1, block)
    d = y.abs().amax(-1, keepdim=True) / 127
    return (torch.where(d > 0, torch.round(y / d.clamp_min(1e-30)), 0) * d).reshape(x.shape)


def int8_matmul(types):
    """mm for Llama.forward; types: {layer: name of its ggml type}, layers of other types get f32 activations."""
    def mm(layer, x):
        block = BLOCK.get(types.get(layer))
        return layer(int8(x, block) if block else x)
    return mm


@torch.no_grad()
def answer(model, tok, prompt, mm, kv, before="", limit=160):
    """The greedy answer to prompt, after the rendered earlier turns `before`."""
    ids = tok.encode(before + T.ask(prompt)).ids
    cache, out, start = M.Cache(kv), [], 0
    eos = T.SPECIAL.index("<|im_end|>")
    while len(out) < limit:
        logits = model(torch.tensor([ids]), start, cache, mm, last_only=True)
        start += len(ids)
        ids = [int(logits[0, -1].argmax())]
        if ids[0] == eos:
            break
        out += ids
    return tok.decode(out, skip_special_tokens=False)


@torch.no_grad()
def forced(model, tok, questions, mm=lambda layer, x: layer(x), batch=32):
    """Greedy accuracy without generating: an answer is right exactly if each of its tokens is the argmax after the right ones."""
    right, rows = [], []
    for q in sorted(questions, key=lambda q: len(q["prompt"]) + len(q["answer"])):
        a = tok.encode(T.ask(q["prompt"])).ids
        rows.append((q, len(a), a + tok.encode(q["answer"] + "<|im_end|>").ids))
    for i in range(0, len(rows), batch):
        part = rows[i:i + batch]
        ids = torch.zeros(len(part), max(len(r[2]) for r in part), dtype=torch.long)
        for j, r in enumerate(part):
            ids[j, :len(r[2])] = torch.tensor(r[2])
        best = model(ids, mm=mm).argmax(-1)
        right += [(q, bool((best[j, n - 1:len(r) - 1] == ids[j, n:len(r)]).all())) for j, (q, n, r) in enumerate(part)]
    return right


def earlier_turns(tok, rng, tokens):
    """At least so many tokens of answered training questions, rendered."""
    text = ""
    while len(tok.encode(text).ids) < tokens:
        _, prompt, reply = generate.sample(rng)
        text += T.ask(prompt) + reply + "<|im_end|>\n"
    return text


def report(right):
    """{task: (right, all)} and the share of right answers."""
    by = defaultdict(lambda: [0, 0])
    for q, ok in right:
        by[q["task"]][0] += ok
        by[q["task"]][1] += 1
    return dict(by), sum(ok for _, ok in right) / len(right)


def load(path):
    """The model of a GGUF file with dequantised weights, and {layer: type name}."""
    reader = gguf.GGUFReader(path)
    field = lambda key: reader.fields[key].contents()
    c = M.Config(vocab=len(field("tokenizer.ggml.tokens")), layers=field("llama.block_count"), hidden=field("llama.embedding_length"),
                 heads=field("llama.attention.head_count"), kv_heads=field("llama.attention.head_count_kv"),
                 ffn=field("llama.feed_forward_length"), context=field("llama.context_length"),
                 rope_base=field("llama.rope.freq_base"), eps=field("llama.attention.layer_norm_rms_epsilon"))
    model, types, state = M.Llama(c), {}, {}
    for t in reader.tensors:
        state[t.name] = torch.from_numpy(np.ascontiguousarray(gguf.dequantize(t.data, t.tensor_type)).astype(np.float32))
        types[model.get_submodule(t.name.removesuffix(".weight"))] = t.tensor_type.name
    model.load_state_dict(state)
    return model.eval(), types


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("gguf")
    ap.add_argument("--tokenizer", default="tokenizer.json", help="made by tokenizer.py")
    ap.add_argument("--exact", action="store_true", help="f32 activations and KV")
    ap.add_argument("--after", type=int, default=0, help="put at least so many tokens of earlier turns before each question")
    args = ap.parse_args()
    torch.set_num_threads(1)
    model, types = load(args.gguf)
    tok = T.Tokenizer.from_file(args.tokenizer)
    mm, kv = (lambda layer, x: layer(x), torch.float32) if args.exact else (int8_matmul(types), torch.float16)
    right, rng = [], random.Random(4)
    for q in generate.HELDOUT:
        got = answer(model, tok, q["prompt"], mm, kv, earlier_turns(tok, rng, args.after) if args.after else "")
        right.append((q, got == q["answer"]))
        if got != q["answer"]:
            print(f"WRONG {q['prompt']!r}: {got!r}, not {q['answer']!r}")
    by, share = report(right)
    for task, (good, n) in by.items():
        print(f"{task:10} {good}/{n}")
    print(f"all        {share:.4f}")


if __name__ == "__main__":
    main()
