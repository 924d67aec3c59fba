#!/usr/bin/env python3
"""What guesses are worth where decoding walks the route over links with delay.

    bench/guess.py MODEL.gguf [--prompt FILE] [--alone]

Two peers in network namespaces, joined by links of the given round trip (bench/delay), answer in the pipelined shape, with guesses and
without, in turn; with --alone one of them decodes alone, and links mean nothing. The prompt repeats itself unless a file says otherwise, and end tokens are banned, so that the answer does too. Tokens,
logits and caches must be equal. Linux and root."""
import pathlib
import statistics
import sys

import swarm

REPEATS = "List the numbers and their names again and again:\n" + "one is 1, two is 2, three is 3, four is 4, five is 5.\n" * 8


def main():
    p = swarm.flags(__doc__, rate="100mbit", rtt=20)
    p.add_argument("--prompt", metavar="FILE", help="text to go on with, instead of one that repeats itself")
    p.add_argument("--alone", action="store_true", help="decode on one peer")
    p.add_argument("--new", type=int, default=128, help="tokens decoded")
    p.add_argument("--ban", type=lambda t: [int(x) for x in t.split(",")], default=[0, 2], help="IDs of tokens that would end the answer")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--bar", type=float, default=3, help="of the ratio: below it the exit status is 1")
    a = p.parse_args()
    r = swarm.report(a) | {"rounds": []}
    text = pathlib.Path(a.prompt).read_text() if a.prompt else REPEATS
    with swarm.Swarm(a.model, 2, rate=a.rate, rtt=a.rtt / 1000, transport=a.transport, binary=a.starling) as s:
        first, decoder = s.peers
        route = {"shape": "pipelined", "cuts": [s.model["num_layers"] // 2], "assign": [first.id], "decoder": decoder.id}
        if a.alone:
            route = {"shape": "local", "decoder": decoder.id}

        def run(new, without):
            return decoder.run(prompt=text, max_new_tokens=new, temperature=0, proof=True, no_guess=without, logit_bias=[{"token": t, "ban": True} for t in a.ban], **route)
        run(8, True)  # connections, caches
        for i in range(a.rounds):
            got = {without: run(a.new, without) for without in ((False, True), (True, False))[i % 2]}
            for k in ("new_tokens", "logits_hash", "kv_hash"):
                if got[True][k] != got[False][k]:
                    raise swarm.Failed(f"with guesses {k} is {got[False][k]}, without {got[True][k]}")
            x = {"with": got[False]["decode_tokens_per_s"], "without": got[True]["decode_tokens_per_s"], "guessed": got[False]["guessed_tokens"],
                 "right": got[False]["accepted_tokens"], "made": len(got[True]["new_tokens"])}
            x["ratio"] = x["with"] / x["without"]
            r["rounds"].append(x)
            print(f"round {i + 1}: {x['with']:.2f} tokens/s with guesses, {x['without']:.2f} without, ratio {x['ratio']:.2f}; "
                  f"{x['right']} of {x['guessed']} guesses right, {x['made']} tokens", file=sys.stderr, flush=True)
    m = {k: statistics.median(x[k] for x in r["rounds"]) for k in ("with", "without", "ratio")}
    print(f"{r['machine']['cpu']}, {r['machine']['processors']} processors, load {r['machine']['load']:.1f} before; round trip {a.rtt:g} ms, {a.rate}, {a.transport}{', alone' if a.alone else ''}: "
          f"{m['with']:.2f} tokens/s with guesses, {m['without']:.2f} without, ratio {m['ratio']:.2f}, median of {a.rounds}; all tokens, logits and caches equal; bar {a.bar:g}")
    swarm.save(a, r | {"median": m})
    return m["ratio"] < a.bar


swarm.main(main)
