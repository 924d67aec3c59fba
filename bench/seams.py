#!/usr/bin/env python3
"""The time to the first token over a slow link, by the number formats of seams and KV rows.

    bench/seams.py MODEL.gguf [--rate 20mbit]

Two starling processes, a processor and a network namespace each, read a prompt across both, in each of some numerics profiles in
turn; the second decodes. The plan cuts for the first profile, and all others are cut there, too. Told are the time to the first
token, its ratio to that of f32 seams and f16 rows in the same round, and the bytes that the stage has sent. Linux and root."""
import statistics

import swarm

PROFILES = ["f32/f16", "f16/f16", "q8_0/f16", "f32/q8_0", "q8_0/q8_0"]  # seam/KV


def measure(s, a, cuts, profile, seed):
    seam, kv = profile.split("/")
    request = {"tokens": s.tokens(a.tokens, seed), "max_new_tokens": 1, "shape": "across", "cuts": cuts, "seam": seam, "kv": kv}
    if a.chunk:
        request["chunk"] = a.chunk
    with swarm.Window(s) as w:
        account = s.peers[1].run(**request)
    if account["kv"] != kv or not account["seam"].startswith(seam):
        raise swarm.Failed(f"asked for {profile}, got seams {account['seam']} and KV {account['kv']}")
    stage, = account["stages"]
    return {"seconds": account["prefill_ns"] / 1e9, "seam": stage["seam_bytes"] / stage["tokens"], "kv": stage["kv_bytes"] / stage["tokens"],
            "machine": w.report()}


def main():
    p = swarm.flags(__doc__, rate="20mbit")
    p.add_argument("--tokens", type=int, default=1000, help="of the prompt")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--chunk", type=int, help="tokens that travel together, instead of the plan's choice")
    p.add_argument("--cuts", type=lambda t: [int(x) for x in t.split(",")], help="where the layers are cut, instead of the plan's choice")
    a = p.parse_args()
    r = swarm.report(a) | {"rounds": []}
    with swarm.Swarm(a.model, 2, rate=a.rate, transport=a.transport, binary=a.starling) as s:
        plan = s.peers[1].plan(a.tokens, 1, shape="across", **({"cuts": a.cuts} if a.cuts else {}))
        r["cuts"] = [x["layers"]["last"] for x in plan["stages"]]
        for i in range(a.rounds):
            turn = i % len(PROFILES)
            r["rounds"].append({p: measure(s, a, r["cuts"], p, i) for p in PROFILES[turn:] + PROFILES[:turn]})
    print(f"{a.tokens} tokens over {a.rate}, cut at {', '.join(map(str, r['cuts']))}; medians of {a.rounds}\n")
    print(f"{'seam/KV':10} {'seam B/token':>12} {'KV B/token':>11} {'first token':>12} {'of f32/f16':>11}")
    for p in PROFILES:
        one = [x[p] for x in r["rounds"]]
        seconds = statistics.median(x["seconds"] for x in one)
        ratio = statistics.median(x[p]["seconds"] / x[PROFILES[0]]["seconds"] for x in r["rounds"])
        print(f"{p:10} {one[0]['seam']:12.0f} {one[0]['kv']:11.0f} {seconds:10.2f} s {ratio:11.2f}")
    print("\n" + swarm.words(r["rounds"][-1][PROFILES[0]]["machine"]))
    swarm.save(a, r)


swarm.main(main)
