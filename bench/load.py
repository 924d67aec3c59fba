"""Many sessions on one decoder: throughput, fairness, an arriving prompt, overload.

    load.py [--starling FILE] [--sessions 16] [--new 48] [--prompt 4096] [--limit SECONDS] [--ban ID,ID] [--only TEST,TEST] MODEL.gguf

Starts a node of its own, in a folder of its own, that serves all of MODEL, and talks to its socket. Sessions have a prompt of 8
random tokens. Tests:

    throughput   tokens/s of one session, and of all of them together while all decode; the bar is 3 times as many, where memory is
                 what bounds decoding, and no session faster than twice another
    arrival      half the sessions decode, then a prompt of --prompt tokens comes: time between their tokens before it and while it
                 is read (--limit bounds the watch; 0: until it is read); the bar is 2 times as long on average
    overload     a node with room for 4 sessions is asked for 12: the time from a request to its refusal as busy (bar: 50
                 ms), resident memory before and after, and whether all KV and every goroutine is given back

--ban lists tokens that no answer may have: those that would end it early. Exits with 1 where a bar is missed.
"""

import argparse
import http.client
import json
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time


SHORT = 8  # tokens of a short prompt


class Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path):
        super().__init__("starling")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Node:
    """A node that serves a model; its memory for KV may be limited."""

    def __init__(self, starling, model, kv=None):
        self.dir = tempfile.TemporaryDirectory(prefix="load")
        data = ["--data", self.dir.name]
        subprocess.run([starling, "swarm", "create", "--public", "load", *data], check=True, stdout=subprocess.DEVNULL)
        more = ["--kv-memory", str(kv)] if kv else []
        self.process = subprocess.Popen([starling, "serve", "--publish", model, "--listen", "/ip4/127.0.0.1/tcp/0", "--log", "error", "--json", "--attached",
                                         *more, *data], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # it ends with this process
        for line in self.process.stdout:
            event = json.loads(line)
            if event["kind"] == "published":
                self.model = event["model"]["id"]
            if event["kind"] == "ready":
                return
        sys.exit("load.py: the node did not start")

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.dir.cleanup()

    def connect(self):
        return Connection(os.path.join(self.dir.name, "starling.sock"))

    def get(self, path):
        c = self.connect()
        c.request("GET", path)
        text = c.getresponse().read().decode()
        c.close()
        return text

    def metric(self, name, label=""):
        found = re.findall(rf"^{name}(?:{{[^}}]*{label}[^}}]*}})? (\S+)$", self.get("/metrics"), re.M)
        return sum(float(x) for x in found)


class Session(threading.Thread):
    """One answer: when each token came, how far the prompt was read, and how it ended."""

    def __init__(self, node, prompt, new, ban, seed):
        super().__init__(daemon=True)
        self.node, self.tokens, self.asked, self.ended, self.error, self.done = node, [], None, None, None, False
        rng = random.Random(seed)
        self.request = {"model": node.model, "tokens": [rng.randrange(300, 3000) for _ in range(prompt)], "max_new_tokens": new, "seed": seed, "no_guess": True,
                        "logit_bias": [{"token": t, "ban": True} for t in ban]}
        self.connection = node.connect()

    def run(self):
        self.asked = time.monotonic()
        try:
            self.connection.request("POST", "/v1/run", json.dumps(self.request), {"Content-Type": "application/json"})
            for line in self.connection.getresponse():
                now, event = time.monotonic(), json.loads(line)
                if event["kind"] == "text" and event.get("token") is not None:
                    self.tokens.append(now)
                elif event["kind"] == "error":
                    self.error = event["error"]
                elif event["kind"] == "done":
                    self.done = True
        except (OSError, http.client.HTTPException) as e:
            self.error = self.error or str(e)
        self.ended = time.monotonic()
        self.connection.close()

    def stop(self):
        if self.connection.sock:
            self.connection.sock.shutdown(socket.SHUT_RDWR)


def finish(sessions):
    for s in sessions:
        s.join()
        if not s.done:
            sys.exit(f"load.py: a session failed: {s.error}")


def within(session, first, last):
    return [t for t in session.tokens if first <= t <= last]


def throughput(node, a):
    one = Session(node, SHORT, a.new, a.ban, 1)
    one.start()
    finish([one])
    alone = (len(one.tokens) - 1) / (one.tokens[-1] - one.tokens[0])
    many = [Session(node, SHORT, a.new, a.ban, 2 + i) for i in range(a.sessions)]
    for s in many:
        s.start()
    finish(many)
    first, last = max(s.tokens[0] for s in many), min(s.tokens[-1] for s in many)
    counts = [len(within(s, first, last)) for s in many]
    together = sum(n - 1 for n in counts) / (last - first)
    fair = max(counts) / min(counts)
    print(f"throughput: 1 session {alone:.2f} tokens/s, {a.sessions} sessions {together:.2f} tokens/s: {together / alone:.2f} times as many; "
          f"progress {min(counts)} to {max(counts)} tokens, ratio {fair:.2f}")
    return together >= 3 * alone and fair <= 2


def arrival(node, a):
    count = max(a.sessions // 2, 1)
    many = [Session(node, SHORT, 4000, a.ban, 2 + i) for i in range(count)]
    for s in many:
        s.start()
    while min(len(s.tokens) for s in many) < a.new:
        time.sleep(0.01)
    comes, had = time.monotonic(), node.metric("starling_tokens_total", 'phase="prefill"')
    prompt = Session(node, a.prompt, 1, a.ban, 99)
    prompt.start()
    until = comes + a.limit if a.limit else float("inf")
    while prompt.is_alive() and time.monotonic() < until and all(s.is_alive() for s in many):
        time.sleep(0.01)
    gone = time.monotonic()
    read = node.metric("starling_tokens_total", 'phase="prefill"') - had
    for s in [prompt, *many]:
        s.stop()
    for s in [prompt, *many]:
        s.join()
    begins = max(s.tokens[0] for s in many)
    slow, worst, gaps = [], [], []
    for s in many:
        before, during = within(s, begins, comes), within(s, comes, gone)
        usual = (before[-1] - before[0]) / (len(before) - 1)
        slow.append((during[-1] - during[0]) / (len(during) - 1) / usual)
        each = sorted((b - a) / usual for a, b in zip(during, during[1:]))
        worst.append(each[-1])
        gaps += each
    gaps.sort()
    print(f"arrival: {a.prompt} prompt tokens beside {count} decoding sessions, {read:.0f} of them read in {gone - comes:.1f} s: their tokens take "
          f"{statistics.mean(slow):.2f} times as long (most {max(slow):.2f}; 99 of 100 single ones at most {gaps[len(gaps) * 99 // 100]:.2f}, the slowest {max(worst):.2f})")
    return max(slow) <= 2


def overload(starling, a):
    probe = Node(starling, a.model)
    s = Session(probe, SHORT, a.new, a.ban, 1)
    s.start()
    while not s.tokens:
        time.sleep(0.005)
    each = int(probe.metric("starling_kv_reserved_bytes"))
    s.join()
    probe.close()
    node = Node(starling, a.model, kv=4 * each + each // 2)
    rest = node.metric("go_goroutines")
    for attempt in range(2):  # the first one makes everything warm
        before = node.metric("process_resident_memory_bytes")
        admitted = [Session(node, SHORT, a.new * 4, a.ban, 2 + i) for i in range(4)]
        for s in admitted:
            s.start()
        while min(len(s.tokens) for s in admitted) < 2:
            time.sleep(0.005)
        excess = [Session(node, SHORT, a.new, a.ban, 20 + i) for i in range(8)]
        for s in excess:
            s.start()
        for s in excess:
            s.join()
        finish(admitted)
    busy = [s for s in excess if s.error and s.error.startswith("busy")]
    waits = [1000 * (s.ended - s.asked) for s in busy]
    time.sleep(2)
    after = node.metric("process_resident_memory_bytes")
    held = sum(s["kv_bytes"] for s in json.loads(node.get("/v1/status")).get("sessions") or [])  # caches kept for next turns give way
    now = node.metric("go_goroutines")
    node.close()
    print(f"overload: 12 sessions, room for 4: {len(busy)} of {len(excess)} busy after {statistics.median(waits):.1f} ms (most {max(waits):.1f}); "
          f"KV of sessions {held} bytes afterwards; goroutines {rest:.0f} before and {now:.0f} after; "
          f"resident {before / 2**20:.0f} and {after / 2**20:.0f} MiB, 4 sessions have {4 * each / 2**20:.0f} MiB of KV")
    print(f"  said: {busy[0].error}")
    return len(busy) == len(excess) and max(waits) < 50 and held == 0 and now <= rest + 5 and after - before < 4 * each + (64 << 20)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--starling", default=os.path.join(os.path.dirname(__file__), "..", "bin", "starling"))
    p.add_argument("--sessions", type=int, default=16)
    p.add_argument("--new", type=int, default=48)
    p.add_argument("--prompt", type=int, default=4096)
    p.add_argument("--limit", type=float, default=0)
    p.add_argument("--ban", type=lambda s: [int(x) for x in s.split(",")], default=[])
    p.add_argument("--only", type=lambda s: s.split(","), default=["throughput", "arrival", "overload"])
    p.add_argument("model")
    a = p.parse_args()
    good = True
    node = None
    for name in a.only:
        if name == "overload":
            good = overload(a.starling, a) and good
            continue
        node = node or Node(a.starling, a.model)
        good = {"throughput": throughput, "arrival": arrival}[name](node, a) and good
    if node:
        node.close()
    sys.exit(0 if good else 1)


main()
