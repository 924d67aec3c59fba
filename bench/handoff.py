#!/usr/bin/env python3
"""What the hand-over from prefill to decoding costs, and whether decoding after it is as fast as without it.

    bench/handoff.py SMOLLM2.gguf:1000,4000,7500 GEMMA3.gguf:16000

Two starling processes, a processor and a network namespace each, read prompts across both; the second decodes. Timed is the first
token, from the moment when the seam of the last chunk has reached the decoder. It is compared with what can't be avoided:

    budget = a decode step at that depth + the decoder's own layers on the last chunk + two chunks' KV at the link's rate

All three are measured in the same run: the step is the mean of those after the first token, without what they waited for rows; the
own layers are what they took for the chunk before the last one, which has as many positions and, unlike the last one, no output
head behind it; the KV is that of the last two chunks. The parts of the time itself come from the run's timeline: how long the seam
waited while the decoder computed earlier ones, the last chunk with the head, and the rest (sampling, and telling it). The second
token, the first that the decoder computes alone, is printed, too; it needs the last KV rows, the first one doesn't.

Then the decoder of the first model, on the same processor, decodes in turn after such a hand-over and after reading the prompt
alone. Linux and root."""
import argparse
import json
import statistics
import sys

import swarm

PARTS = ("step", "own", "wire", "budget", "handoff", "waited", "last", "rest", "second", "rows")  # seconds


def case(text):
    """MODEL.gguf:1000,4000 as a file and prompts in tokens."""
    file, _, lengths = text.rpartition(":")
    if not file or not all(x.isdigit() and int(x) > 1 for x in lengths.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r}: write MODEL.gguf:1000,4000")
    return file, [int(x) for x in lengths.split(",")]


def across(s, a, length, new, seed):
    request = {"tokens": s.tokens(length, seed), "max_new_tokens": new, "shape": "across", "timeline": True}
    request |= {k: v for k, v in (("chunk", a.chunk), ("cuts", a.cuts)) if v}
    with swarm.Window(s) as w:
        account = s.peers[1].run(**request)
    made = len(account["new_tokens"])
    if made < 2:
        raise swarm.Failed(f"the answer to {length} tokens ended after {made}; use another --seed")
    decoder = account["decoder"]
    before, last = decoder["timeline"][-2:]
    if last["start"] + last["count"] != length or before["count"] != last["count"]:
        raise swarm.Failed(f"the last chunks have {before['count']} and {last['count']} positions, and end at {last['start'] + last['count']} of {length}")
    rows = decoder["wait_rows_ns"] / 1e9
    r = {"step": (account["decode_ns"] / 1e9 - rows) / (made - 1), "own": (before["ended_ns"] - before["began_ns"]) / 1e9,
         "wire": (before["count"] + last["count"]) * sum(p["kv_bytes"] / p["tokens"] for p in account["stages"]) / (swarm.bits(a.rate) / 8),
         "handoff": account["handoff_ns"] / 1e9, "waited": (last["began_ns"] - last["ready_ns"]) / 1e9,
         "last": (last["ended_ns"] - last["began_ns"]) / 1e9, "rows": rows}
    r["budget"] = r["step"] + r["own"] + r["wire"]
    r["rest"] = r["handoff"] - r["waited"] - r["last"]
    r["second"] = r["handoff"] + rows + r["step"]
    return r | {"length": length, "ratio": r["handoff"] / r["budget"], "prefill": account["prefill_ns"] / 1e9,
                "chunks": [c["count"] for c in decoder["timeline"]], "cuts": [p["layers"]["last"] + 1 for p in account["stages"]], "machine": w.report()}


def show_handoff(model, lengths, runs):
    sizes, cuts = runs[-1]["chunks"], ", ".join(map(str, runs[-1]["cuts"]))
    print(f"\n{model}, cut before layer {cuts}; chunks of {max(sizes)}, the last ones of {', '.join(map(str, sizes[-6:]))}; milliseconds, medians\n")
    columns = ["prompt", "decode step", "own layers", "2 chunks' KV", "= budget", "seam waited", "last chunk and head", "rest", "= first token", "ratio",
               "worst", "second token", "waited for rows"]
    print("| " + " | ".join(columns) + " |\n| " + " | ".join(["---:"] * len(columns)) + " |")
    out = []
    for length in lengths:
        mine = [r for r in runs if r["length"] == length]
        m = {k: statistics.median(r[k] for r in mine) for k in (*PARTS, "ratio")} | {"model": model, "length": length, "worst": max(r["ratio"] for r in mine)}
        ms = {k: f"{1e3 * m[k]:.1f}" for k in PARTS}
        print(f"| {length} | {ms['step']} | {ms['own']} | {ms['wire']} | {ms['budget']} | {ms['waited']} | {ms['last']} | {ms['rest']} | {ms['handoff']} "
              f"| {m['ratio']:.2f} | {m['worst']:.2f} | {ms['second']} | {ms['rows']} |")
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
    p.add_argument("cases", nargs="+", type=case, metavar="MODEL.gguf:N,N", help="GGUF files, each with prompts in tokens")
    p.add_argument("--runs", type=int, default=3, help="of each length")
    p.add_argument("--new", type=int, default=128, help="tokens decoded in the comparison with decoding alone")
    p.add_argument("--prompt", type=int, default=512, help="tokens read before that")
    p.add_argument("--pairs", type=int, default=15, help="0 leaves that comparison out")
    p.add_argument("--chunk", type=int, help="tokens that travel together at most, instead of the plan's choice")
    p.add_argument("--cuts", type=lambda t: [int(x) for x in t.split(",")], help="where the layers are cut, instead of the plan's choice")
    p.add_argument("--rate", default="1gbit", help="of each peer's uplink and downlink")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--transport", choices=["tcp", "quic"], default="tcp")
    p.add_argument("--bar", type=float, default=1.2, help="of the first token's ratio: above it the exit status is 1")
    p.add_argument("--decode-bar", type=float, default=0.98, help="of decoding after a hand-over: below it the exit status is 1")
    p.add_argument("--starling", help="our binary; default: bin/starling")
    p.add_argument("--json", metavar="FILE", help="also write everything, every sample included, to a file")
    a = p.parse_args()
    r = {"machine": swarm.machine(), "arguments": vars(a), "runs": [], "handoff": [], "pairs": []}
    failed = False
    for i, (model, lengths) in enumerate(a.cases):
        with swarm.Swarm(model, 2, rate=a.rate, transport=a.transport, binary=a.starling) as s:
            print(f"{r['machine']['cpu']}, {r['machine']['processors']} processors, load {r['machine']['load']:.1f} before; {a.rate} links, {a.transport}, "
                  f"round trip {s.ping():.2f} ms", flush=True)
            across(s, a, 600, 8, a.seed)  # connections, caches
            runs = []
            for k in range(a.runs):
                for length in lengths:
                    x = across(s, a, length, 8, a.seed + k)
                    print(f"{length} tokens: prefill {x['prefill']:.2f} s, first token {1e3 * x['handoff']:.1f} ms after the last seam, ratio {x['ratio']:.2f}",
                          file=sys.stderr, flush=True)
                    runs.append(x)
            if runs:
                r["runs"] += runs
                r["handoff"] += show_handoff(s.model["name"], lengths, runs)
                failed |= any(m["ratio"] > a.bar for m in r["handoff"])
            if a.pairs and i == 0:
                r["pairs"] = decoding(s, a)
                r["decoding"] = show_decoding(a, r["pairs"])
                failed |= r["decoding"]["ratio"] < a.decode_bar
    if a.json:
        with open(a.json, "w") as f:
            json.dump(r, f, indent=1)
    return failed


swarm.main(main)
