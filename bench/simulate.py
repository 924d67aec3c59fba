"""Reckons how long a prefill takes over 1 to 8 peers, from times of single chunks that were measured on one.

The simulated peers are alike and keep the protocol's rules (docs/protocol.md, order of a session): a part starts a chunk when its
seam is here and it is at most two chunks ahead of its successor and of the decoder's acknowledgements of KV; on an uplink seams go
before KV, which comes in slices; everything for the decoder shares its downlink. Prompts are cut as decoders cut them
(node/chunks.go). Layers are shared out evenly, whole ones. What it leaves out: interrupts, encryption, and other users of links and
processors."""
import heapq
import json
import math

import swarm

AHEAD = 2          # chunks before the receiver (node/staging.go)
LAST = 4           # rows of the last chunks, of which there are three (route/cost.go, node/chunks.go)
STEP = 8           # rows of which larger chunks have a multiple
SLICE = 64 << 10   # bytes of KV that go at once
CHUNKS = [8, 32, 64, 128, 256, 512]
PROMPTS = [512, 1024, 2048, 4096, 8192, 16384, 32768]
PEERS = range(1, 9)
BAR = 0.9          # of the number of peers


class Costs:
    """Seconds of one peer for a chunk: linear in the depth, and between the sizes measured."""

    def __init__(self, results, layers, overhead):
        self.layers, self.overhead, self.line = layers, overhead, {}
        at = {(x["prompt"], x["depth"]): x["prompt"] / x["tps"] for x in results}
        depths = sorted({d for _, d in at})
        for c in sorted({c for c, _ in at}):
            t0, t1 = at[c, depths[0]], at[c, depths[-1]]
            slope = (t1 - t0) / (depths[-1] - depths[0])
            self.line[c] = (t0 - slope * depths[0], slope)

    def whole(self, n, depth):
        """Seconds for n positions in all layers."""
        sizes = sorted(self.line)
        hi = next((c for c in sizes if c >= n), sizes[-1])
        lo = max((c for c in sizes if c < hi), default=0)
        value = [a + b * depth for a, b in (self.line.get(lo, (0.0, 0.0)), self.line[hi])]
        return value[0] + (value[1] - value[0]) * (n - lo) / (hi - lo)

    def cut(self, prompt, chunk, last):
        """The sizes of a prompt's chunks, in order."""
        row = lambda depth: self.whole(chunk, depth)
        sizes, left, small = [], prompt, min(last, chunk)
        while left:
            n = max(chunk // 2, left // 3)
            n = min(n, chunk, int(chunk * row(prompt // 2) / row(left)))
            n = n - n % STEP if n > STEP else n
            sizes.append(min(max(n, last), small, left))
            left -= sizes[-1]
            if len(sizes) >= 3:
                small = min(2 * small, chunk)
        return sizes[::-1]

    def part(self, n, depth, layers):
        return self.whole(n, depth) * layers / self.layers + self.overhead


class Uplink:
    """A peer's sending side: seams first, then KV in slices."""

    def __init__(self, sim):
        self.sim, self.seams, self.rows, self.busy = sim, [], [], False

    def add(self, seam, size, then):
        (self.seams if seam else self.rows).append([size, then])
        self.go()

    def go(self):
        if self.busy or not (self.seams or self.rows):
            return
        self.busy = True
        if self.seams:
            size, then = self.seams.pop(0)
        else:
            job = self.rows[0]
            size, then = min(SLICE, job[0]), None
            job[0] -= size
            if job[0] <= 0:
                then = self.rows.pop(0)[1]

        def sent():
            self.busy = False
            if then:
                self.sim.after(self.sim.rtt / 2, then)
            self.go()
        self.sim.after(size / self.sim.rate, sent)


class Prefill:
    """One simulated prefill."""

    def __init__(self, costs, model, peers, prompt, chunk, rate, rtt):
        self.costs, self.model, self.rate, self.rtt = costs, model, rate, rtt
        share = [len(range(i, model["layers"], peers)) for i in range(peers)]
        self.share = sorted(share)[::-1]  # the decoder, last, has one less where they aren't equal
        self.sizes = costs.cut(prompt, chunk, LAST) if peers > 1 else [min(chunk, prompt - at) for at in range(0, prompt, chunk)]
        self.starts = [sum(self.sizes[:j]) for j in range(len(self.sizes))]
        self.peers, self.chunk = peers, chunk
        self.now, self.events, self.count, self.down = 0.0, [], 0, 0.0
        self.uplinks = [Uplink(self) for _ in range(peers)]
        self.input = [len(self.sizes) if i == 0 else 0 for i in range(peers)]  # chunks whose input is here
        self.started, self.done, self.acked = [0] * peers, [0] * peers, [0] * peers
        self.taken = [0] * (peers + 1)  # of each part's input, as its sender knows
        self.end = None

    def after(self, seconds, what):
        self.count += 1
        heapq.heappush(self.events, (self.now + seconds, self.count, what))

    def run(self):
        for i in range(self.peers):
            self.try_start(i)
        while self.end is None:
            self.now, _, what = heapq.heappop(self.events)
            what()
        return self.end

    def try_start(self, i):
        j, last = self.started[i], i == self.peers - 1
        window = self.peers - 1 + AHEAD
        if j == len(self.sizes) or self.done[i] < j or self.input[i] <= j:
            return
        if not last and (j - self.taken[i + 1] >= AHEAD or j - self.acked[i] >= AHEAD):
            return
        if i == 0 and not last and j - self.taken[self.peers] >= window:
            return
        self.started[i] += 1
        if i > 0:
            self.after(self.rtt / 2, lambda: self.note(self.taken, i, j + 1, i - 1))
        if last:
            self.after(self.rtt / 2, lambda: self.note(self.taken, self.peers, j + 1, 0))
        self.after(self.costs.part(self.sizes[j], self.starts[j], self.share[i]), lambda: self.finish(i, j))

    def note(self, what, i, upto, who):
        what[i] = max(what[i], upto)
        self.try_start(who)

    def finish(self, i, j):
        self.done[i] = j + 1
        if i == self.peers - 1:
            if j + 1 == len(self.sizes):
                self.end = self.now
            self.try_start(i)
            return
        n = self.sizes[j]
        to_decoder = i + 1 == self.peers - 1
        self.uplinks[i].add(True, n * self.model["seam"], lambda: self.reach(to_decoder, n * self.model["seam"], lambda: self.got(i + 1)))
        rows = n * self.model["kv"] * self.share[i]
        self.uplinks[i].add(False, rows, lambda: self.reach(True, rows, lambda: self.after(self.rtt / 2, lambda: self.note(self.acked, i, j + 1, i))))
        self.try_start(i)

    def reach(self, decoder, size, then):
        """The end of size bytes is here; what the decoder gets shares its downlink."""
        if not decoder:
            then()
            return
        self.down = max(self.now, self.down + size / self.rate)
        self.after(self.down - self.now, then)

    def got(self, i):
        self.input[i] += 1
        self.try_start(i)


def chunk_times(s_binary, model, cpu):
    """Times of single chunks of the whole model, by "starling bench" on one processor."""
    out = swarm.command("taskset", "--cpu-list", cpu, s_binary, "bench", "-m", model, "-p", ",".join(map(str, CHUNKS)), "-n", 0,
                        "-d", "0,3072", "-r", 3, "-t", 1, "--no-limits", "--json")
    return json.loads(out)["results"]


def report(a, measured):
    """Simulates, prints and returns what a measured run's model would do with more peers."""
    stage, decoder = measured["rounds"][0]["across"]["account"]["stages"][0], measured["rounds"][0]["across"]["account"]["decoder"]
    layers = decoder["layers"]["last"] + 1
    own = stage["layers"]["last"] - stage["layers"]["first"] + 1
    model = {"layers": layers, "seam": stage["seam_bytes"] / stage["tokens"], "kv": stage["kv_bytes"] / stage["tokens"] / own}
    results = chunk_times(a.starling or swarm.ROOT / "bin" / "starling", a.model, 0)
    first = measured["rounds"][0]["across"]
    spare = first["seconds"] - first["handoff"] - sum(stage[k] for k in ("compute_ns", "wait_input_ns", "wait_credit_ns", "wait_rows_ns")) / 1e9
    costs = Costs(results, layers, max(0.0, spare) / stage["chunks"])
    rate, rtt = swarm.bits(a.rate) / 8, measured["round_trip_ms"] / 1e3

    def seconds(n, prompt, chunk):
        return Prefill(costs, model, n, prompt, chunk, rate, rtt).run()

    def best(n, prompt):
        return min((seconds(n, prompt, c), c) for c in CHUNKS)
    print("\nsimulated peers: seconds of one chunk of all layers at depth 0 and 3072: " + "; ".join(
        f"{c}: {costs.whole(c, 0):.3f}, {costs.whole(c, 3072):.3f}" for c in CHUNKS) + f"; {1e3 * costs.overhead:.2f} ms beside, each chunk and part")
    check = seconds(2, a.tokens, measured["plan"]["chunk"])
    print(f"the measured run of two, simulated: {check:.2f} s, measured {first['seconds']:.2f}")
    print("\nspeed-up by peers, and the chunk that is best; in brackets what whole layers allow\n")
    head = ["prompt", *(f"{n} ({layers / math.ceil(layers / n):.2f})" for n in PEERS)]
    print("| " + " | ".join(head) + " |\n| " + " | ".join(["---:"] * len(head)) + " |")
    rows = {}
    for prompt in PROMPTS:
        one = best(1, prompt)[0]
        rows[prompt] = {n: (one / t, c) for n in PEERS for t, c in [best(n, prompt)]}
        print(f"| {prompt} | " + " | ".join(f"{r:.2f} ({c})" for r, c in rows[prompt].values()) + " |")
    reach = {n: next((p for p in PROMPTS if all(rows[q][n][0] >= BAR * n for q in PROMPTS if q >= p)), None) for n in PEERS}
    print(f"\n{BAR} of the number of peers from which prompt on: " + ", ".join(f"{n} peers: {p or 'never'}" for n, p in reach.items()))
    return {"chunks": results, "overhead": costs.overhead, "model": model, "check": check, "speedup": rows, "reach": reach}
