#!/usr/bin/env python3
"""How much faster two peers read a prompt than one of them alone, and where the time goes.

    bench/prefill-scaling.py MODEL.gguf

Two starling processes, a processor and a network namespace each, read a prompt in turn across both and on one alone, in an order
that changes from round to round; the ratio is that of a round's two times from the first chunk to the first token. Both also read
it alone at the same time, which shows what this machine's processors take from each other: without any network the ratio could
not exceed that ceiling. Rounds in which other programs used more than 5 % of a processor are repeated, as often as there are rounds.
What more peers would do a test of package node reckons. Linux and root; see bench/README.md."""
import argparse
import statistics
import sys
import threading

import swarm

BUSY = 0.05  # of a processor, by others: the round is repeated


def parts(account):
    """What each part of a run did with the time until the first token, in seconds."""
    total, last = account["prefill_ns"], account["handoff_ns"]
    rows = []
    for p in (*account["stages"], account["decoder"]):
        row = {"layers": f"{p['layers']['first']}-{p['layers']['last']}", "chunks": p["chunks"], "compute": p["compute_ns"],
               "wait input": p["wait_input_ns"], "wait credit": p["wait_credit_ns"], "wait rows": p["wait_rows_ns"],
               "done early": 0 if p is account["decoder"] else last}
        row["rest"] = total - sum(row[k] for k in TIMES[:-1])
        rows.append({k: v / 1e9 if k in TIMES else v for k, v in row.items()})
    return rows


TIMES = ["compute", "wait input", "wait credit", "wait rows", "done early", "rest"]


def measure(s, a, shape, peer, seed):
    """One run; returns its account and what the processors did."""
    route = {"shape": shape}
    if shape == "across":
        route |= {k: v for k, v in (("chunk", a.chunk), ("cuts", a.cuts)) if v}
    else:
        route |= {"decoder": peer.id}
    with swarm.Window(s) as w:
        account = peer.run(tokens=s.tokens(a.tokens, seed), max_new_tokens=1, **route)
    return account, w.report()


def both_alone(s, a, seed):
    """Both peers read the prompt alone at the same time; returns their seconds and what the processors did."""
    times, errors = {}, []

    def one(p):
        try:
            times[p.name] = p.run(tokens=s.tokens(a.tokens, seed), max_new_tokens=1, shape="local", decoder=p.id)["prefill_ns"] / 1e9
        except Exception as err:  # told by the main thread
            errors.append(err)
    with swarm.Window(s) as w:
        threads = [threading.Thread(target=one, args=(p,)) for p in s.peers]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    if errors:
        raise errors[0]
    return times, w.report()


def disturbed(report):
    return report["others"] + report["stolen"] > BUSY * report["seconds"]


def rounds(s, a):
    """Samples of alone and across, as many undisturbed ones as asked for, or what could be had."""
    out, spare = [], a.rounds
    decoder = s.peers[1]
    measure(s, argparse.Namespace(**{**vars(a), "tokens": 600}), "across", decoder, 0)  # connections, caches
    while len(out) < a.rounds:
        n = len(out)
        got = {}
        for shape in (("local", "across"), ("across", "local"))[n % 2]:
            account, report = measure(s, a, shape, decoder, n)
            got[shape] = {"seconds": account["prefill_ns"] / 1e9, "handoff": account["handoff_ns"] / 1e9, "account": slim(account), "machine": report}
        got["ratio"] = got["local"]["seconds"] / got["across"]["seconds"]
        got["disturbed"] = any(disturbed(got[k]["machine"]) for k in ("local", "across"))
        print(f"round {n + 1}: alone {got['local']['seconds']:.2f} s, across {got['across']['seconds']:.2f} s, ratio {got['ratio']:.3f}"
              + (", disturbed" if got["disturbed"] else ""), file=sys.stderr, flush=True)
        if got["disturbed"] and spare:
            spare -= 1
            continue
        out.append(got)
    return out


def busy(run):
    """The share of a run's time in which its parts computed, on average of the parts."""
    p = [*run["account"]["stages"], run["account"]["decoder"]]
    return sum(x["compute_ns"] for x in p) / 1e9 / len(p) / run["seconds"]


def slim(account):
    return {k: account[k] for k in ("prefill_ns", "handoff_ns", "decoder", "stages")}


def table(rows, columns):
    lines = ["| " + " | ".join(columns) + " |", "| " + " | ".join("---:" if c != columns[0] else "---" for c in columns) + " |"]
    for r in rows:
        lines.append("| " + " | ".join(f"{r[c]:.2f}" if isinstance(r[c], float) else str(r[c]) for c in columns) + " |")
    return "\n".join(lines)


def show(a, r):
    plan = r["plan"]
    print(f"{r['machine']['cpu']}, {r['machine']['processors']} processors, load {r['machine']['load']:.1f} before; {a.tokens} tokens, "
          f"{a.rate} links, {a.transport}, round trip {r['round_trip_ms']:.2f} ms")
    cuts = [x["layers"]["last"] for x in plan["stages"]]
    print(f"plan: cut before layer {', '.join(map(str, cuts))}, chunks of {plan['chunk']}, the last ones of {plan['last_chunk']}, predicted {plan['predicted']['prefill_seconds']:.1f} s; "
          f"the peers measured themselves at {', '.join(f'{x / 1e9:.0f}' for x in r['flops'])} GFLOP/s")
    ratios = [x["ratio"] for x in r["rounds"]]
    fastest = {k: min(x[k]["seconds"] for x in r["rounds"]) for k in ("local", "across")}
    print(f"\nratio {statistics.median(ratios):.3f} (rounds {min(ratios):.3f} to {max(ratios):.3f}), bar {a.bar}; "
          f"of the fastest times {fastest['local'] / fastest['across']:.3f}; both alone at the same time: ceiling {r['ceiling']:.3f}")
    print(f"both parts computed during {statistics.median(busy(x['across']) for x in r['rounds']):.3f} of the time across (1: no waiting at all, and equal parts)")
    middle = sorted(r["rounds"], key=lambda x: x["ratio"])[len(ratios) // 2]
    print(f"\nthe middle round, seconds until the first token: alone {middle['local']['seconds']:.2f}, across {middle['across']['seconds']:.2f}\n")
    print(table([{"part": "alone", "seconds": middle["local"]["seconds"], **parts(middle["local"]["account"])[-1]},
                 *({"part": f"{i + 1} of {len(p)}", "seconds": middle["across"]["seconds"], **x} for p in [parts(middle["across"]["account"])] for i, x in enumerate(p))],
                ["part", "layers", "chunks", "seconds", *TIMES]))
    print("\nwait input: for a chunk or its seam; wait credit: for the next part to take up seams; wait rows: for the decoder to acknowledge KV;\n"
          "done early: after its last seam reached the decoder; rest: opening, encoding and hashing rows, and what isn't accounted for.")
    for k in ("local", "across"):
        print(f"{k}, {swarm.words(middle[k]['machine'])}")
    n = sum(x["disturbed"] for x in r["rounds"])
    if n or disturbed(r["ceiling_machine"]):
        print(f"other programs disturbed {n} of {len(ratios)} rounds{' and the ceiling' if disturbed(r['ceiling_machine']) else ''}: measure again when the machine is idle")


def main():
    p = swarm.flags(__doc__, rate="1gbit")
    p.add_argument("--tokens", type=int, default=6000, help="of the prompt")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--chunk", type=int, help="tokens that travel together at most, instead of the plan's choice")
    p.add_argument("--cuts", type=lambda t: [int(x) for x in t.split(",")], help="where the layers are cut, instead of the plan's choice")
    p.add_argument("--bar", type=float, default=1.85, help="ratio below which the exit status is 1")
    a = p.parse_args()
    r = swarm.report(a)
    with swarm.Swarm(a.model, 2, rate=a.rate, transport=a.transport, binary=a.starling) as s:
        r["round_trip_ms"] = s.ping()
        r["flops"] = [x["prefill_flops"] for x in s.peers[1].ask("GET", "/v1/peers")]
        r["plan"] = s.peers[1].plan(a.tokens, 1, shape="across", **{k: v for k, v in (("chunk", a.chunk), ("cuts", a.cuts)) if v})
        r["rounds"] = rounds(s, a)
        times, r["ceiling_machine"] = both_alone(s, a, 0)
        alone = statistics.median(x["local"]["seconds"] for x in r["rounds"])
        r["ceiling"] = sum(alone / t for t in times.values())
        r["ratio"] = statistics.median(x["ratio"] for x in r["rounds"])
    show(a, r)
    swarm.save(a, r)
    return r["ratio"] < a.bar


swarm.main(main)
