#!/usr/bin/env python3
"""How long tokens wait where a decoder gets the layers that it lacks in the middle of a session, over links with delay.

    bench/growth.py MODEL.gguf

Two starling processes, a network namespace and a processor each, joined by links of the given round trip (bench/delay). The second has
the model's last layers alone. It decodes a run of its own over the route, fetches the other layers by torrent meanwhile, and goes on alone:

    fetching = the mean time between two tokens up to the switch / the same while nothing is fetched
    wait     = the longest time between two tokens from three before the switch to three after it / the same

where the latter are of a run before, during which nothing is fetched. What the switch itself costs is the longer of the times of the first two
tokens made alone. Every round has a new decoder. Linux and root."""
import argparse
import json
import re
import statistics
import sys
import time

import swarm


def ask(s, **request):
    """The account of a run, and when each of its tokens came to its client, the decoder."""
    time.sleep(1)  # until the offers say that earlier runs have ended
    c, came = swarm.Socket(s.peers[-1].folder / "starling.sock"), []
    try:
        c.request("POST", "/v1/run", json.dumps({"model": s.model["id"], "decode": "here", "fresh": True, **request}), {"Content-Type": "application/json"})
        for line in c.getresponse():
            e = json.loads(line)
            if e["kind"] == "text":
                came.append(time.monotonic())
    finally:
        c.close()
    if e.get("error"):
        raise swarm.Failed(e["error"])
    return e["run"], came


def gaps(came):
    return [b - a for a, b in zip(came, came[1:])]


def fetched(peer):
    """Bytes a second at which a peer has fetched what it lacked, as it says in its log."""
    log = (peer.folder / "log").read_text()
    size, took = re.search(r"msg=growing .*fetch=(\d+)", log), re.search(r"msg=grown .*fetched_in=([0-9.]+)(ms|s) ", log)
    if not size or not took:
        raise swarm.Failed("the decoder didn't say what it fetched")
    return int(size[1]) / float(took[1]) * {"s": 1, "ms": 1000}[took[2]]


def measure(a):
    """One round."""
    with swarm.Swarm(a.model, 2, rate=a.rate, rtt=a.rtt / 1000, transport=a.transport, binary=a.starling, serve=["--layers", f"{a.cut}-{a.layers - 1}"]) as s:
        request = {"tokens": s.tokens(a.tokens, a.seed), "max_new_tokens": a.new, "no_guess": True, "logit_bias": [{"token": t, "ban": True} for t in a.ban]}
        route = {"shape": "pipelined", "cuts": [a.cut], "assign": [s.peers[0].id]}
        _, came = ask(s, **{**request, "max_new_tokens": a.still}, **route)  # who says how gets no growth
        token = statistics.mean(gaps(came))
        run, came = ask(s, **request)
        alone, _ = ask(s, **request, decoder=s.peers[-1].id)
        times = gaps(came)
        made = run.get("switched_at", 0) - a.tokens
        if not 8 < made < len(times) - 8:
            raise swarm.Failed(f"the decoder switched after {made} of {len(came)} tokens: choose other --new or --rate")
        if run["new_tokens"] != alone["new_tokens"]:
            raise swarm.Failed("the answer is not that of one peer")
        # The token behind position switched_at is the first one made alone; the gap before it is times[made].
        return {"token": token, "made": made, "rate": fetched(s.peers[-1]), "fetching": statistics.mean(times[:made]), "fetching_99": sorted(times[:made])[int(0.99 * made)], "alone": statistics.median(times[made + 3:]),
                "wait": max(times[made - 3:made + 4]), "switch": run["switch_ns"] / 1e9, "times": times}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("model", help="GGUF file")
    p.add_argument("--layers", type=int, default=30, help="of the model")
    p.add_argument("--cut", type=int, default=20, help="the decoder's first layer")
    p.add_argument("--tokens", type=int, default=128, help="of the prompt")
    p.add_argument("--new", type=int, default=500, help="tokens decoded")
    p.add_argument("--still", type=int, default=64, help="tokens decoded while nothing is fetched")
    p.add_argument("--rtt", type=float, default=20, help="round trip in ms")
    p.add_argument("--rate", default="100mbit", help="of each peer's uplink and downlink")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--ban", type=lambda t: [int(x) for x in t.split(",")], default=[0, 2], help="tokens that would end the answer")
    p.add_argument("--transport", choices=["tcp", "quic"], default="tcp")
    p.add_argument("--starling", help="our binary; default: bin/starling")
    p.add_argument("--json", metavar="FILE", help="also write every sample to a file")
    a = p.parse_args()
    rounds = []
    for i in range(a.rounds):
        x = measure(a)
        rounds.append(x)
        print(f"round {i + 1}: switched after {x['made']} tokens, which took {x['fetching'] / x['token']:.2f} times as long; waited {1e3 * x['wait']:.1f} ms, "
              f"{x['wait'] / x['token']:.2f} tokens' time", file=sys.stderr, flush=True)
    m = swarm.machine()
    print(f"{m['cpu']}, {m['processors']} processors; decoder with layers from {a.cut} on, {a.transport}, {a.rate}, {a.rtt} ms; {a.tokens} prompt tokens, {a.new} new ones\n")
    link = swarm.bits(a.rate) / 8
    print("| median of rounds | | least | most |\n| --- | ---: | ---: | ---: |")
    for name, f in (
            ("a token that walks, ms", lambda x: 1e3 * x["token"]), ("… while layers are fetched and packed, ms", lambda x: 1e3 * x["fetching"]), ("… the slowest of a hundred, ms", lambda x: 1e3 * x["fetching_99"]),
            ("… in tokens that walk while nothing is fetched", lambda x: x["fetching"] / x["token"]), ("fetched, share of the link", lambda x: x["rate"] / link),
            ("tokens that walked", lambda x: x["made"]), ("longest wait round the switch, ms", lambda x: 1e3 * x["wait"]), ("… in tokens that walk", lambda x: x["wait"] / x["token"]),
            ("… of the first two tokens made alone, ms", lambda x: 1e3 * x["switch"]), ("a token made alone, ms", lambda x: 1e3 * x["alone"])):
        v = sorted(f(x) for x in rounds)
        print(f"| {name} | {statistics.median(v):.3g} | {v[0]:.3g} | {v[-1]:.3g} |")
    if a.json:
        with open(a.json, "w") as f:
            json.dump({"machine": m, "arguments": vars(a), "rounds": rounds}, f, indent=1)


swarm.main(main)
