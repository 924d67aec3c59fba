#!/usr/bin/env python3
"""Computes with `transformers` what Starling is to compute, and writes it as docs/golden.md says.

  reference.py make --out DIR [NAME ...]     tiny random models: DIR/NAME/model.gguf and expected.json
  reference.py run CHECKPOINT FILE --out EXPECTED.json
                                             a Hugging Face checkpoint's folder and the GGUF file made of it
  reference.py swarm FOLDER MODEL EXPECTED.json --cut LAYER
                                             a running swarm, as the node of a data folder sees it

`starling selftest --golden DIR` compares. README.md has the rest.
"""
import argparse
import json
import pathlib
import sys

import gguf
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

import compute
import swarm
import tiny
from families import family_of, from_file, head_dim

TEXTS = ("the cat and the hat", "In 1999,  it's raining\n\tagain...", "héllo 你好 🙂", "  leading  spaces and trailing  ")
PROMPT, NEW = 260, 32     # tokens: more than a softmax block of 256


def save(path, data):
    path.write_text(json.dumps(data, separators=(",", ":"), ensure_ascii=False) + "\n")


def random_prompt(vocab, n, seed):
    return torch.randint(0, vocab, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


def good(margins, tokens):
    """Whether rounding can't change a choice, and the continuation says something; at least 1 if so."""
    gap = margins["topk_gap_relative"]
    return min(1e9 if gap is None else gap / 2e-5, margins["greedy_top1_lead"] / 2e-2, len(set(tokens)) / 12)


def make(args):
    for name in args.names or tiny.TINY:
        spec, best = tiny.TINY[name], None
        for seed in range(1000, 1000 + args.tries):
            model = tiny.build(spec, seed)
            e = compute.expected(model, random_prompt(tiny.VOCAB - 2, PROMPT, seed), NEW, head_dim(model.config))
            score = good(e["margins"], e["greedy"])
            if best is None or score > best[0]:
                best = score, seed, model, e
            if score >= 1:
                break
        score, seed, model, e = best
        out = args.out / name
        out.mkdir(parents=True, exist_ok=True)
        tiny.write(out / "model.gguf", spec, model)
        tokens, merges = tiny.vocabulary()
        tok = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, [tuple(m.split(" ")) for m in merges]))
        tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        tokenize = [{"text": t, "ids": tok.encode(t, add_special_tokens=False).ids} for t in TEXTS]
        save(out / "expected.json", {"name": name, "seed": seed, "tokenize": tokenize} | e)
        print(f"{name}: seed {seed}, {e['margins']}" + ("" if score >= 1 else ", which is nearer to a tie than it should be"), flush=True)


def weights(path):
    """The tensors of a GGUF file, or of all parts of a split one, decoded to float32."""
    parts = sorted(path.parent.glob(path.name.replace("-00001-of-", "-*-of-"))) if "-00001-of-" in path.name else [path]
    out = {}
    for part in parts:
        for t in gguf.GGUFReader(part).tensors:
            shape = tuple(int(n) for n in reversed(t.shape))
            out[t.name] = torch.from_numpy(gguf.quants.dequantize(t.data, t.tensor_type).astype("float32").reshape(shape))
    return out


def run(args):
    whole = transformers.AutoConfig.from_pretrained(args.checkpoint)
    config = whole.get_text_config()       # of a model that also sees, the part that the file has
    family = family_of(config)
    state = from_file(family, config, weights(args.file))
    kw = dict(dtype=torch.float32, attn_implementation="eager")
    if not any(args.checkpoint.glob("*.safetensors")):
        print("the checkpoint has no weights: the file's can't be compared with them", file=sys.stderr)
        model = transformers.AutoModelForCausalLM.from_config(config, **kw)
    elif whole is config:
        model = transformers.AutoModelForCausalLM.from_pretrained(args.checkpoint, **kw)
        compare_weights(model.state_dict(), state, args.most)
    else:
        seeing = transformers.AutoModelForImageTextToText.from_pretrained(args.checkpoint, **kw)
        language = {f"model.{n}": t for n, t in seeing.get_decoder().state_dict().items()}
        compare_weights(language | {"lm_head.weight": seeing.get_output_embeddings().weight.detach()}, state, args.most)
        del seeing, language
        model = transformers.AutoModelForCausalLM.from_config(config, **kw)
    model.config._experts_implementation = "eager"
    missing, unexpected = model.eval().load_state_dict(state, strict=False)
    if unexpected or set(missing) - ({"lm_head.weight"} if config.tie_word_embeddings else set()):
        raise SystemExit(f"the file's tensors don't fill the model: {missing} {unexpected}")
    del state
    model.tie_weights()
    tokenize = []
    if not (args.checkpoint / "tokenizer_config.json").exists():
        print("the checkpoint has no tokenizer: the prompt is of random tokens", file=sys.stderr)
        prompt = random_prompt(config.vocab_size, args.tokens, 1)
    else:
        tok = transformers.AutoTokenizer.from_pretrained(args.checkpoint)
        tokenize = [{"text": t, "ids": tok(t, add_special_tokens=False).input_ids} for t in TEXTS]
        text = args.prompt.read_text() if args.prompt else pathlib.Path(__file__).with_name("README.md").read_text()
        prompt = tok(text).input_ids[:args.tokens]
    with torch.no_grad():
        e = compute.expected(model, prompt, args.new, head_dim(config))
    save(args.out, {"name": args.checkpoint.name, "tokenize": tokenize} | e)
    print(f"{args.out}: {len(prompt)} tokens and {args.new} new ones, {e['margins']}")


def compare_weights(checkpoint, file, most):
    """Refuses a file whose tensors are not the checkpoint's, but for rounding: a permutation or a mix-up is far off."""
    worst = max((((file[n] - t).norm() / t.norm().clamp(min=1e-9)).item(), n) for n, t in checkpoint.items() if n in file)
    print(f"the file's weights are within {worst[0]:.2g} of the checkpoint's (relative, root of mean squares; worst: {worst[1]})")
    if worst[0] > most:
        raise SystemExit(f"more than {most}: the file is not made of this checkpoint, or by other rules")


def ask(args):
    swarm.compare(args.folder, args.model, json.loads(args.expected.read_text()), args.cut, args.peer, args.cosine)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = ap.add_subparsers(required=True)
    m = verbs.add_parser("make", help="tiny random models")
    m.add_argument("names", nargs="*", choices=[*tiny.TINY, []], metavar="NAME", help=f"of {', '.join(tiny.TINY)} (all)")
    m.add_argument("--out", type=pathlib.Path, required=True)
    m.add_argument("--tries", type=int, default=200, help="at most so many seeds, until no choice is near a tie (%(default)s)")
    m.set_defaults(do=make)
    r = verbs.add_parser("run", help="a real checkpoint with its GGUF file")
    r.add_argument("checkpoint", type=pathlib.Path, help="folder with config.json, and weights and tokenizer where they are to be compared")
    r.add_argument("file", type=pathlib.Path, help="GGUF file, or part 1 of a split one")
    r.add_argument("--out", type=pathlib.Path, required=True)
    r.add_argument("--prompt", type=pathlib.Path, help="a text file (default: this tool's README)")
    r.add_argument("--tokens", type=int, default=PROMPT, help="of the prompt at most (%(default)s)")
    r.add_argument("--new", type=int, default=NEW, help="greedy tokens (%(default)s)")
    r.add_argument("--most", type=float, default=0.2, help="how far a tensor may be from the checkpoint's, relative (%(default)s)")
    r.set_defaults(do=run)
    s = verbs.add_parser("swarm", help="a running swarm: hidden states at a cut, and logits")
    s.add_argument("folder", type=pathlib.Path, help="data folder of a running node, which serves the layers from the cut on and decodes")
    s.add_argument("model", help="ID or name")
    s.add_argument("expected", type=pathlib.Path)
    s.add_argument("--cut", type=int, required=True, help="the first layer of that node; other peers compute those before")
    s.add_argument("--peer", action="append", help="which peer computes them (default: the planner's choice)")
    s.add_argument("--cosine", type=float, default=0.98, help="least cosine of a row with the reference's (%(default)s)")
    s.set_defaults(do=ask)
    args = ap.parse_args()
    torch.set_num_threads(1)                    # one order of sums, so the same digits each time
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    args.do(args)


if __name__ == "__main__":
    main()
