#!/usr/bin/env python3
"""How long it takes until a model that one node has is on several others, over slow uplinks.

    bench/fanout.py

One node publishes a file of noise; the others pull all of it, beginning together. Each has a network namespace of its own and one of the
processors; `tc` bounds every uplink:

    ratio = the time until the last one has everything / the time that the first one's uplink takes for the file once

of bytes over bits per second, so that headers and hashing count against us. What a node sends and receives is read from its network device.
Linux and root."""
import argparse
import os
import pathlib
import struct
import sys
import threading
import time

import swarm


def write_model(path, size):
    """A GGUF file of noise that a card can be made of: layers of 16 MiB."""
    def string(s):
        return struct.pack("<Q", len(s)) + s.encode()
    layers, shape, each = max(1, round(size / (16 << 20))), (1024, 4096), 16 << 20
    pairs = [string("general.architecture") + struct.pack("<I", 8) + string("llama")]
    for key, v in ("block_count", layers), ("embedding_length", 1024), ("context_length", 1024), ("attention.head_count", 8):
        pairs.append(string(f"llama.{key}") + struct.pack("<II", 4, v))
    pairs.append(string("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 1) + string("a"))
    head = b"GGUF" + struct.pack("<IQQ", 3, layers, len(pairs)) + b"".join(pairs)
    for i in range(layers):
        head += string(f"blk.{i}.ffn_up.weight") + struct.pack("<IQQIQ", 2, *shape, 0, i * each)
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32))
        for _ in range(layers):
            f.write(os.urandom(each))
    return os.path.getsize(path)


class Fanout(swarm.Swarm):
    """Nodes that compute nothing; the first one has the model."""

    def begin(self):
        for _ in range(self.n):
            self.spaces.append(swarm.Namespace())
        self.net = swarm.Bridge(self.spaces, self.rate, self.down)
        for i in range(self.n):
            self.peers.append(swarm.Peer(self, i, self.cpus[i]))
            self.peers[i].folder.mkdir()
        first, *others = self.peers
        first.verb("swarm", "create", "bench")
        first.serve()
        self.model = first.ask("POST", "/v1/publish", {"path": str(self.file)})["model"]
        for p in others:
            p.verb("swarm", "join", first.verb("swarm", "invite", "--ttl", "5m"))
            p.serve()
        end = time.monotonic() + 60
        while any(self.model["id"] not in {m["id"] for m in p.ask("GET", "/v1/models")} for p in others):
            if time.monotonic() > end:
                raise swarm.Failed("the model is not known to all after a minute")
            time.sleep(0.2)

    def bytes(self, i):
        """What peer i has sent and received."""
        words = self.spaces[i].run("cat", "/proc/net/dev").partition("eth0:")[2].split()
        return int(words[8]), int(words[0])


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--size", type=float, default=1e9, help="of the model, in bytes")
    p.add_argument("--nodes", type=int, default=6, help="that fetch it")
    p.add_argument("--rate", default="100mbit", help="of each uplink")
    p.add_argument("--down", default="1gbit", help="of each downlink")
    p.add_argument("--transport", choices=["tcp", "quic"], default="tcp")
    p.add_argument("--bar", type=float, default=1.35, help="of the ratio: above it the exit status is 1")
    p.add_argument("--starling", help="our binary; default: bin/starling")
    p.add_argument("--json", metavar="FILE", help="also write everything to a file")
    a = p.parse_args()
    s = Fanout(None, a.nodes + 1, rate=a.rate, transport=a.transport, binary=a.starling)
    s.down = a.down
    model = pathlib.Path("/var/tmp") / f"starling-fanout-{os.getpid()}.gguf"
    try:
        size = write_model(model, a.size)
        s.file = model
        with s:
            ends, failed = [0.0] * a.nodes, []

            def pull(i):
                try:
                    s.peers[i + 1].ask("POST", "/v1/pull", {"model": s.model["id"]})
                except swarm.Failed as e:
                    failed.append(e)
                ends[i] = time.monotonic()
            with swarm.Window(s) as w:
                before, began = [s.bytes(i) for i in range(s.n)], time.monotonic()
                threads = [threading.Thread(target=pull, args=(i,)) for i in range(a.nodes)]
                for t in threads:
                    t.start()
                for t in threads:
                    t.join()
                after = [s.bytes(i) for i in range(s.n)]
            if failed:
                raise failed[0]
    finally:
        model.unlink(missing_ok=True)
    once = 8 * size / swarm.bits(a.rate)
    times = [e - began for e in ends]
    ratio = max(times) / once
    m, used = swarm.machine(), w.report()
    print(f"{m['cpu']}, {m['processors']} processors; {size / 1e6:.0f} MB to {a.nodes} nodes, uplinks {a.rate}, downlinks {a.down}, {a.transport}\n")
    print("| node | done after, s | sent, of the model | received |\n| --- | ---: | ---: | ---: |")
    moved = [[(y - x) / size for x, y in zip(b, c)] for b, c in zip(before, after)]
    for i, (sent, received) in enumerate(moved):
        print(f"| {s.peers[i].name} | {times[i - 1] if i else 0:.1f} | {sent:.2f} | {received:.2f} |")
    print(f"\nonce: {once:.1f} s; the last after {max(times):.1f} s, ratio {ratio:.2f}; bar {a.bar}\n{swarm.words(used)}")
    swarm.save(a, {**swarm.report(a), "once": once, "times": times, "ratio": ratio, "moved": moved, "window": used})
    return ratio > a.bar


swarm.main(main)
