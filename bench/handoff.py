#!/usr/bin/env python3
"""What the hand-over from prefill to decoding costs, and whether decoding after it is as fast as without it.

    bench/handoff.py MODEL.gguf [--lengths 1000,4000,7500]

Two starling processes, a processor and a network namespace each, read prompts across both; the second decodes. Timed are the
first token and the second one, the first that the decoder computes alone, from the moment when the last chunk's seam has reached
it. Both are compared with what can't be avoided:

    budget = a decode step at that depth + the decoder's own layers on the last chunk + two chunks' KV at the link's rate

What the own layers take on a chunk grows linearly with its depth; the line is fitted to what the decoder accounts for in all runs,
so at least two lengths are needed. The first token doesn't need the last KV rows, the second does.

Then the decoder, on the same processor, decodes in turn after such a hand-over and after reading the prompt alone. Linux and root."""
import argparse
import json
import statistics
import sys

import swarm


def across(s, a, length, new, seed):
    request = {"tokens": s.tokens(length, seed), "max_new_tokens": new, "shape": "across"}
    request |= {k: v for k, v in (("chunk", a.chunk), ("cuts", a.cuts)) if v}
    plan = s.peers[1].plan(length, new, **{k: v for k, v in request.items() if k in ("shape", "chunk", "cuts")})
    with swarm.Window(s) as w:
        account = s.peers[1].run(**request)
    made = len(account["new_tokens"])
    if made < 2:
        raise swarm.Failed(f"the answer to {length} tokens ended after {made}; use another --seed")
    decoder, chunk = account["decoder"], plan["chunk"]
    rows = decoder["wait_rows_ns"] / 1e9
    step = (account["decode_ns"] / 1e9 - rows) / (made - 1)
    return {"length": length, "chunk": chunk, "made": made, "step": step, "rows": rows, "handoff": account["handoff_ns"] / 1e9,
            "second": account["handoff_ns"] / 1e9 + rows + step, "prefill": account["prefill_ns"] / 1e9,
            "own": decoder["compute_ns"] / 1e9 - step * (made - 1), "chunks": -(-length // chunk),
            "kv": sum(p["kv_bytes"] / p["tokens"] for p in account["stages"]), "machine": w.report()}


def fit(runs):
    """What the decoder's layers take on a chunk of n positions at a depth: (n·a + n·depth·b) seconds, by least squares."""
    # Summed over a prompt of L positions in chunks of c: a·L + b·(positions · depth of their chunk), both known.
    rows = []
    for r in runs:
        n = [min(r["chunk"], r["length"] - at) for at in range(0, r["length"], r["chunk"])]
        depth = sum(k * r["chunk"] * j for j, k in enumerate(n))
        rows.append((r["length"] / r["own"], depth / r["own"]))  # relative errors count alike
    aa, ab, bb = (sum(x[i] * x[j] for x in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    ya, yb = (sum(x[i] for x in rows) for i in (0, 1))
    det = aa * bb - ab * ab
    if det <= 1e-9 * aa * bb:
        raise swarm.Failed("prompts of one length don't tell how a chunk's time grows with its depth: give two or more --lengths")
    a, b = (ya * bb - yb * ab) / det, (yb * aa - ya * ab) / det
    return (a, b) if a > 0 and b > 0 else (ya / aa, 0.0)  # short prompts on a busy machine: the depth is lost in the noise


def last_chunk(r):
    """Positions of the last chunk and their depth."""
    n = r["length"] % r["chunk"] or min(r["chunk"], r["length"])
    return n, r["length"] - n


def show_handoff(a, runs):
    per_token, per_depth = fit(runs)
    print(f"\nthe decoder's layers on a chunk: {1e3 * per_token:.3g} ms a position and {1e6 * per_depth:.3g} ns more for each position before it\n")
    columns = ["prompt", "chunk", "step ms", "own layers ms", "2 chunks' KV ms", "budget ms", "first token ms", "ratio", "second ms", "ratio 2", "waited for rows ms"]
    print("| " + " | ".join(columns) + " |\n| " + " | ".join(["---:"] * len(columns)) + " |")
    out = []
    for length in a.lengths:
        mine = [r for r in runs if r["length"] == length]
        for r in mine:
            n, depth = last_chunk(r)
            r["last"] = n * (per_token + per_depth * depth)
            r["wire"] = 2 * r["chunk"] * r["kv"] / (swarm.bits(a.rate) / 8)
            r["budget"] = r["step"] + r["last"] + r["wire"]
        m = {k: statistics.median(r[k] for r in mine) for k in ("chunk", "step", "last", "wire", "budget", "handoff", "second", "rows")}
        m |= {"length": length, "ratio": statistics.median(r["handoff"] / r["budget"] for r in mine),
              "ratio2": statistics.median(r["second"] / r["budget"] for r in mine)}
        print(f"| {length} | {m['chunk']:.0f} | " + " | ".join(f"{1e3 * m[k]:.1f}" for k in ("step", "last", "wire", "budget", "handoff"))
              + f" | {m['ratio']:.2f} | {1e3 * m['second']:.1f} | {m['ratio2']:.2f} | {1e3 * m['rows']:.1f} |")
        out.append(m)
    worst = max(runs, key=lambda r: r["machine"]["others"] / r["machine"]["seconds"])
    print(f"\nthe most disturbed run: {swarm.words(worst['machine'])}")
    return out


def decoding(s, a):
    """Tokens per second after a hand-over and without one, in turn."""
    decoder, pairs = s.peers[1], []
    for i in range(a.pairs):
        pair = {}
        for shape in (("across", "local"), ("local", "across"))[i % 2]:
            route = {"shape": shape} | ({"decoder": decoder.id} if shape == "local" else {})
            with swarm.Window(s) as w:
                account = decoder.run(tokens=s.tokens(a.prompt, a.seed), max_new_tokens=a.new, **route)
            pair[shape] = {"speed": (len(account["new_tokens"]) - 1) / account["decode_ns"] * 1e9, "rows": account["decoder"]["wait_rows_ns"] / 1e9,
                           "made": len(account["new_tokens"]), "machine": w.report()}
        pair["ratio"] = pair["across"]["speed"] / pair["local"]["speed"]
        pairs.append(pair)
        print(f"pair {i + 1}: {pair['across']['speed']:.2f} and {pair['local']['speed']:.2f} tokens/s, ratio {pair['ratio']:.3f}", file=sys.stderr, flush=True)
    return pairs


def show_decoding(a, pairs):
    middle, low, high = swarm.median_interval([p["ratio"] for p in pairs])
    print(f"\ndecoding {pairs[0]['across']['made']} tokens after a hand-over of {a.prompt}: {statistics.median(p['across']['speed'] for p in pairs):.2f} tokens/s, "
          f"without one {statistics.median(p['local']['speed'] for p in pairs):.2f}; ratio {middle:.3f}, 95 % interval {low:.3f} to {high:.3f}, "
          f"of {len(pairs)} pairs, the wait for KV included ({1e3 * statistics.median(p['across']['rows'] for p in pairs):.1f} ms); bar {a.decode_bar}")
    return {"ratio": middle, "low": low, "high": high}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("model", help="GGUF file")
    p.add_argument("--lengths", type=lambda t: [int(x) for x in t.split(",")], default=[1000, 4000, 7500], help="prompts, in tokens")
    p.add_argument("--runs", type=int, default=3, help="of each length")
    p.add_argument("--new", type=int, default=128, help="tokens decoded in the comparison with decoding alone")
    p.add_argument("--prompt", type=int, default=512, help="tokens read before that")
    p.add_argument("--pairs", type=int, default=15, help="0 leaves that comparison out")
    p.add_argument("--chunk", type=int, help="tokens that travel together, instead of the plan's choice")
    p.add_argument("--cuts", type=lambda t: [int(x) for x in t.split(",")], help="where the layers are cut, instead of the plan's choice")
    p.add_argument("--rate", default="1gbit", help="of each peer's uplink and downlink")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--transport", choices=["tcp", "quic"], default="tcp")
    p.add_argument("--bar", type=float, default=1.2, help="of the first token's ratio: above it the exit status is 1")
    p.add_argument("--decode-bar", type=float, default=0.98, help="of decoding after a hand-over: below it the exit status is 1")
    p.add_argument("--starling", help="our binary; default: bin/starling")
    p.add_argument("--json", metavar="FILE", help="also write everything, every sample included, to a file")
    a = p.parse_args()
    r = {"machine": swarm.machine(), "arguments": vars(a), "runs": [], "pairs": []}
    failed = False
    with swarm.Swarm(a.model, 2, rate=a.rate, transport=a.transport, binary=a.starling) as s:
        print(f"{r['machine']['cpu']}, {r['machine']['processors']} processors, load {r['machine']['load']:.1f} before; {a.rate} links, {a.transport}, "
              f"round trip {s.ping():.2f} ms", flush=True)
        across(s, a, 600, 8, a.seed)  # connections, caches
        for i in range(a.runs):
            for length in a.lengths:
                x = across(s, a, length, 8, a.seed + i)
                print(f"{length} tokens: prefill {x['prefill']:.2f} s, first token {1e3 * x['handoff']:.1f} ms after the last seam, {1e3 * x['rows']:.1f} ms waiting for rows",
                      file=sys.stderr, flush=True)
                r["runs"].append(x)
        if a.runs:
            r["handoff"] = show_handoff(a, r["runs"])
            failed |= any(m["ratio"] > a.bar for m in r["handoff"])
        if a.pairs:
            r["pairs"] = decoding(s, a)
            r["decoding"] = show_decoding(a, r["pairs"])
            failed |= r["decoding"]["ratio"] < a.decode_bar
    if a.json:
        with open(a.json, "w") as f:
            json.dump(r, f, indent=1)
    return failed


swarm.main(main)
