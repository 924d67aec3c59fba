"""Train the smoke model on one CPU thread.

  python train.py --out DIR [--steps 3000] [--minutes 90]     # writes DIR/tokenizer.json, DIR/model.pt, DIR/log.json

Each step has rows of one length (short, middle or long): a row is one conversation of independent questions, cut at the last turn
that fits.  The loss is on the answers and, with a small weight, on the questions (their stories repeat names, which teaches
copying).  Muon for the matrices of the blocks, AdamW for the rest; warm-up, constant, linear decay.
"""
import argparse
import json
import os
import random
import time

import torch
import torch.nn.functional as F

import evaluate
import generate
import model as M
import tokenizer as T
from muon import Muon

LENGTHS = [(96, 0.45), (192, 0.40), (384, 0.13), (768, 0.02)]     # row length, share of the steps
PROMPT_WEIGHT = 0.15


def conversation(tok, rng, length):
    """ids of one row and the weight of the loss of predicting each: turns until the next one doesn't fit, then padding."""
    ids, weights = [], []
    if rng.random() < 0.15 and length > 96:
        ids = tok.encode(T.turn("system", rng.choice(generate.SYSTEM))).ids
        weights = [0.0] * len(ids)
    while True:
        _, prompt, answer = generate.sample(rng)
        a, b = tok.encode(T.ask(prompt)).ids, tok.encode(answer + "<|im_end|>").ids
        if len(ids) + len(a) + len(b) > length:
            if len(ids) > length * 0.4:
                break
            continue
        ids += a + b
        weights += [PROMPT_WEIGHT] * len(a) + [1.0] * len(b)
        if len(ids) < length:                               # the newline that ends the turn
            ids += tok.encode("\n").ids
            weights.append(0.0)
    pad = length - len(ids)
    return ids + [0] * pad, weights + [0.0] * pad


def batch(tok, rng, tokens):
    length = rng.choices([n for n, _ in LENGTHS], [s for _, s in LENGTHS])[0]
    rows = [conversation(tok, rng, length) for _ in range(max(1, tokens // length))]
    ids, weights = torch.tensor([r[0] for r in rows]), torch.tensor([r[1] for r in rows])
    return ids[:, :-1], ids[:, 1:], weights[:, 1:]


def optimizers(model, lr, muon_lr):
    matrices = [p for p in model.blk.parameters() if p.ndim == 2]
    rest = [p for p in model.parameters() if p.ndim == 1] + [model.output.weight]
    return [Muon(matrices, lr=muon_lr, weight_decay=0.02),
            torch.optim.AdamW([{"params": rest}, {"params": [model.token_embd.weight], "lr": 4 * lr}],
                              lr=lr, betas=(0.9, 0.98), weight_decay=0.01)]


def train(args):
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    os.makedirs(args.out, exist_ok=True)
    tok = T.Tokenizer.from_file(os.path.join(os.path.dirname(args.resume), "tokenizer.json")) if args.resume else T.train()
    tok.save(os.path.join(args.out, "tokenizer.json"))
    model = M.Llama(M.Config(vocab=tok.get_vocab_size()))
    if args.resume:
        model.load_state_dict(torch.load(args.resume))
    opts, rng = optimizers(model, args.lr, args.muon_lr), random.Random(args.seed)
    base = [[g["lr"] for g in o.param_groups] for o in opts]
    n = sum(p.numel() for p in model.parameters())
    print(f"{n} parameters, {tok.get_vocab_size()} tokens", flush=True)
    log, begin, seen, recent = [], time.time(), 0, []
    for step in range(args.steps):
        # whichever runs out first, steps or minutes, sets how far the run is
        done = max(step / args.steps, (time.time() - begin) / 60 / args.minutes)
        if done >= 1:
            break
        scale = min(1, (step + 1) / 30, 0.01 + (1 - done) / args.decay)
        for o, lrs in zip(opts, base):
            for g, lr in zip(o.param_groups, lrs):
                g["lr"] = lr * scale
        ids, targets, weights = batch(tok, rng, args.tokens)
        each = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten(), reduction="none")
        weights = weights.flatten()
        ((each * weights).sum() / weights.sum()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for o in opts:
            o.step()
            o.zero_grad(set_to_none=True)
        seen += ids.numel()
        recent.append(each.detach()[weights == 1].mean().item())                # of the answers only
        if (step + 1) % args.every == 0 or step + 1 == args.steps:
            by, share = evaluate.report(evaluate.forced(model, tok, generate.HELDOUT))
            log.append({"step": step + 1, "minutes": round((time.time() - begin) / 60, 2), "tokens": seen,
                        "loss": round(sum(recent) / len(recent), 4), "accuracy": round(share, 4), "tasks": {k: v[0] for k, v in by.items()}})
            print(json.dumps(log[-1]), flush=True)
            recent = []
            torch.save(model.state_dict(), os.path.join(args.out, "model.pt"))
            json.dump(log, open(os.path.join(args.out, "log.json"), "w"), indent=1)
    torch.save(model.state_dict(), os.path.join(args.out, "model.pt"))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", required=True)
    ap.add_argument("--steps", type=int, default=3000)
    ap.add_argument("--minutes", type=float, default=90, help="stop by then, with the decay fitted to it")
    ap.add_argument("--tokens", type=int, default=2048, help="tokens of a step")
    ap.add_argument("--lr", type=float, default=4e-3, help="AdamW: embedding, output and norms")
    ap.add_argument("--muon-lr", type=float, default=0.02)
    ap.add_argument("--decay", type=float, default=0.4, help="the last part of the run, in which the learning rates go to zero")
    ap.add_argument("--every", type=int, default=100, help="steps between evaluations")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--resume", help="start from this model.pt, with the tokenizer.json beside it")
    train(ap.parse_args())


if __name__ == "__main__":
    main()
