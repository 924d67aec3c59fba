#!/usr/bin/env python3
"""The second turn of a conversation: what is new of it, against reading as many tokens at that depth.

    bench/turn.py MODEL.gguf [--first 4096] [--new 50]

Two peers in network namespaces read the first turn together; the second peer decodes. Then the conversation goes on with a few new
tokens, and the time to the first token is compared with "starling bench" of such a prompt at that depth, on the same processor, in turn.
Linux and root."""
import argparse
import json
import statistics
import sys

import swarm


def conversation(s, a, seed):
    """Two turns; returns the account of each and how many tokens came before the second turn's new ones."""
    peer, prompt = s.peers[1], s.tokens(a.first, seed)
    one = peer.run(tokens=prompt, max_new_tokens=a.answer, shape="across")
    before = prompt + one["new_tokens"]
    two = peer.run(tokens=before + s.tokens(a.new, seed + 1000), max_new_tokens=1, fresh=False)
    return one, two, len(before)


def local(s, a, depth):
    """Seconds of as many tokens at that depth, read by one process."""
    out = swarm.command("taskset", "--cpu-list", s.cpus[1], s.binary, "bench", "-m", a.model, "-p", a.new + 1, "-n", 0, "-d", depth, "-r", 5, "-t", 1,
                        "--no-limits", "--json")
    r = json.loads(out)["results"][0]
    return (a.new + 1) / r["tps"]


def main():
    p = swarm.flags(__doc__, rate="1gbit")
    p.add_argument("--first", type=int, default=4096, help="tokens of the first turn")
    p.add_argument("--answer", type=int, default=16, help="tokens of its answer")
    p.add_argument("--new", type=int, default=50, help="new tokens of the second turn")
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--bar", type=float, default=1.3, help="of the ratio: above it the exit status is 1")
    a = p.parse_args()
    r = swarm.report(a) | {"runs": []}
    with swarm.Swarm(a.model, 2, rate=a.rate, transport=a.transport, binary=a.starling) as s:
        conversation(s, argparse.Namespace(**{**vars(a), "first": 300}), a.seed + 99)  # connections, caches
        for i in range(a.runs):
            one, two, before = conversation(s, a, a.seed + i)
            x = {"first": one["prefill_ns"] / 1e9, "ttft": two["ttft_ns"] / 1e9, "second": two["prefill_ns"] / 1e9, "reused": two["reused_tokens"],
                 "before": before, "local": local(s, a, before - 1)}
            x["ratio"] = x["ttft"] / x["local"]
            r["runs"].append(x)
            print(f"turn 1 {x['first']:.2f} s; turn 2 {1e3 * x['ttft']:.1f} ms to the first token, {1e3 * x['second']:.1f} as the decoder saw it, {x['reused']} of "
                  f"{before} tokens reused; alone {1e3 * x['local']:.1f} ms", file=sys.stderr, flush=True)
    m = {k: statistics.median(x[k] for x in r["runs"]) for k in ("first", "ttft", "second", "local", "ratio")}
    print(f"{r['machine']['cpu']}, {r['machine']['processors']} processors, load {r['machine']['load']:.1f} before; {a.first} tokens read across two peers in "
          f"{m['first']:.2f} s; with {a.new} more the first token comes after {1e3 * m['ttft']:.1f} ms, which one process reads at that depth in "
          f"{1e3 * m['local']:.1f} ms: ratio {m['ratio']:.2f}, median of {a.runs}; bar {a.bar}")
    swarm.save(a, r | {"median": m})
    return m["ratio"] > a.bar


swarm.main(main)
