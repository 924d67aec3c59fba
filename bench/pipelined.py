#!/usr/bin/env python3
"""Tokens per second where decoding walks the route, too, over links with delay.

    bench/pipelined.py MODEL.gguf

Two starling processes (--peers: more), a network namespace and a processor each, joined by links of the given round trip
(bench/delay), read a prompt and decode in the pipelined shape, without guesses (guess.py has those); in turn with it one of them decodes alone. A token that walks costs
every part's compute, a round trip for two parts, and what the machinery adds: that is

    efficiency = (round trip + a token's compute in all parts) / seconds per token

where the round trip is what a TCP connection needs at that moment, and the compute what the parts account for. Linux and root."""
import statistics
import sys

import swarm


def run(s, a, shape, seed):
    """Seconds per token, and what they are made of."""
    decoder = s.peers[-1]
    route = {"shape": "local", "decoder": decoder.id}
    if shape == "pipelined":
        route = {"shape": "pipelined", "cuts": a.cuts, "assign": [p.id for p in s.peers[:-1]], "decoder": decoder.id}
    request = {"tokens": s.tokens(a.tokens, seed), "max_new_tokens": a.new, "no_guess": True, **route}
    with swarm.Window(s) as w:
        account = decoder.run(**request)
    made = len(account["new_tokens"])
    if made < 8:
        raise swarm.Failed(f"the answer ended after {made} tokens; use another --seed")
    token = account["decode_ns"] / 1e9 / (made - 1)
    stages = [*account["stages"], account["decoder"]]
    # A prompt's positions cost less than decoded ones: only the tokens' share counts, from a run that reads the prompt alone.
    with_prompt = [p["compute_ns"] / 1e9 for p in stages]
    prompt = decoder.run(**{**request, "max_new_tokens": 1})
    only = [p["compute_ns"] / 1e9 for p in [*prompt["stages"], prompt["decoder"]]]
    return {"token": token, "made": made, "compute": [max(0.0, x - y) / (made - 1) for x, y in zip(with_prompt, only)], "machine": w.report()}


def main():
    p = swarm.flags(__doc__, rate="100mbit", rtt=20)
    p.add_argument("--peers", type=int, default=2)
    p.add_argument("--cuts", type=lambda t: [int(x) for x in t.split(",")], help="where the layers are cut; default: evenly")
    p.add_argument("--tokens", type=int, default=128, help="of the prompt")
    p.add_argument("--new", type=int, default=64, help="tokens decoded")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    r = swarm.report(a) | {"rounds": []}
    with swarm.Swarm(a.model, a.peers, rate=a.rate, rtt=a.rtt / 1000, transport=a.transport, binary=a.starling) as s:
        if not a.cuts:
            layers = s.model["num_layers"]
            a.cuts = [layers * i // a.peers for i in range(1, a.peers)]
        run(s, a, "pipelined", a.seed)
        for i in range(a.rounds):
            got = {"round_trip": s.ping() / 1000}
            for shape in (("pipelined", "local"), ("local", "pipelined"))[i % 2]:
                got[shape] = run(s, a, shape, a.seed)
            x = got["pipelined"]
            # Positions between neighbours, and the chunk's announcement: a round trip for two parts, half of one more for each part beyond.
            got["least"] = got["round_trip"] * a.peers / 2 + sum(x["compute"])
            got["efficiency"] = got["least"] / x["token"]
            print(f"round {i + 1}: {1 / x['token']:.2f} tokens/s, alone {1 / got['local']['token']:.2f}, efficiency {got['efficiency']:.3f}", file=sys.stderr, flush=True)
            r["rounds"].append(got)
    r["packets"] = s.packets

    def middle(f):
        v = sorted(f(x) for x in r["rounds"])
        return statistics.median(v), v[0], v[-1]
    print(f"{r['machine']['cpu']}, {r['machine']['processors']} processors, load {r['machine']['load']:.1f} before; {a.peers} peers, cut before {a.cuts}, "
          f"{a.transport}, {a.rate}; {a.tokens} prompt tokens, {r['rounds'][0]['pipelined']['made']} new ones\n")
    print("| median of rounds | | least | most |\n| --- | ---: | ---: | ---: |")
    for name, f, scale in (
            ("round trip asked for, ms", lambda x: a.rtt, 1), ("round trip measured, ms", lambda x: x["round_trip"], 1e3),
            *((f"compute of part {i + 1}, ms a token", lambda x, i=i: x["pipelined"]["compute"][i], 1e3) for i in range(a.peers)),
            ("beside these, ms a token", lambda x: x["pipelined"]["token"] - x["least"], 1e3),
            ("tokens/s", lambda x: 1 / x["pipelined"]["token"], 1), ("tokens/s alone", lambda x: 1 / x["local"]["token"], 1),
            ("efficiency", lambda x: x["efficiency"], 1)):
        print(f"| {name} | " + " | ".join(f"{scale * v:.3g}" for v in middle(f)) + " |")
    print("\n" + swarm.words(r["rounds"][0]["pipelined"]["machine"]))
    print(f"packets {r['packets'].get('forwarded')}, dropped {r['packets'].get('dropped')}, late by {r['packets'].get('late_us', 0):.0f} µs on average")
    r["tokens_per_s"], r["efficiency"] = 1 / middle(lambda x: x["pipelined"]["token"])[0], middle(lambda x: x["efficiency"])[0]
    swarm.save(a, r)


swarm.main(main)
