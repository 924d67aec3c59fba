"""A private swarm of starling processes for measuring: each in a network namespace of its own and on one processor.

Without delay the namespaces are joined by a bridge, and `tc` (a token bucket) bounds each peer's uplink and downlink; with
delay by bench/delay, a program of ours through which every packet goes, since few kernels have netem. Linux, and root.

Namespaces have no names: each lives as long as a process of ours that waits for the end of its standard input, and so do the
peers (serve --attached). Whatever ends the script, even SIGKILL, leaves nothing behind but a folder in the temporary directory.
"""
import argparse
import ctypes
import fcntl
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TICK = os.sysconf("SC_CLK_TCK")
NETWORK = "10.213.7."
PORT = 4077


class Failed(Exception):
    """One line that says what went wrong."""


def end_on_signals():
    """Makes the usual ends of a process run `finally`; Ctrl-C also where a script started this one in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def end(number, _frame):
        raise SystemExit(128 + number)
    for s in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(s, end)


def command(*words, stdin=None):
    """Runs a program and returns what it prints."""
    words = [str(w) for w in words]
    r = subprocess.run(words, input=stdin, capture_output=True, text=True)
    if r.returncode:
        raise Failed(f"{' '.join(words)}: {(r.stderr or r.stdout).strip() or r.returncode}")
    return r.stdout.strip()


class Namespace:
    """A network namespace that ends with this script."""

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       start_new_session=True)
        if not self.holder.stdout.readline():
            raise Failed("no network namespace to be had: this needs root on Linux")
        self.pid = self.holder.pid
        self.run("ip", "link", "set", "lo", "up")

    def inside(self, *words):
        """The words that run a program in it."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", *map(str, words)]

    def run(self, *words):
        return command(*self.inside(*words))

    def close(self):
        self.holder.stdin.close()
        self.holder.wait()


def bits(rate):
    """A rate such as 1gbit or 100mbit in bits per second."""
    m = re.fullmatch(r"([0-9.]+)([kmg]?)bit", rate.lower())
    if not m or float(m[1]) <= 0:
        raise Failed(f"rate {rate!r}: write 100mbit or 1gbit")
    return float(m[1]) * {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}[m[2]]


class Bridge:
    """Namespaces on one bridge; each link is bounded in both directions by a token bucket of 256 KiB and a queue of 50 ms; `down` is the
    downlinks' rate where it is another."""

    def __init__(self, spaces, rate, down=None):
        self.hub = Namespace()
        self.hub.run("ip", "link", "add", "br0", "type", "bridge")
        self.hub.run("ip", "link", "set", "br0", "up")
        for i, s in enumerate(spaces):
            s.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", f"port{i}", "netns", self.hub.pid)
            self.hub.run("ip", "link", "set", f"port{i}", "master", "br0", "up")
            s.run("ip", "addr", "add", f"{NETWORK}{i + 1}/24", "dev", "eth0")
            s.run("ip", "link", "set", "eth0", "up")
            if rate:
                for where, dev, r in ((s, "eth0", rate), (self.hub, f"port{i}", down or rate)):
                    where.run("tc", "qdisc", "add", "dev", dev, "root", "tbf", "rate", f"{bits(r):.0f}bit", "burst", "256kb", "latency", "50ms")

    def pids(self):
        return {}

    def close(self):
        self.hub.close()


class Delay:
    """Namespaces joined by bench/delay."""

    def __init__(self, spaces, rate, rtt, folder):
        binary = folder / "delay"
        command("go", "build", "-C", ROOT, "-o", binary, "./bench/delay")
        files = [self.tun(s, i) for i, s in enumerate(spaces)]
        self.process = subprocess.Popen([binary, "-delay", f"{rtt / 2 * 1e6:.0f}us", "-rate", f"{bits(rate) if rate else 0:.0f}",
                                         *(f"{NETWORK}{i + 1}={f}" for i, f in enumerate(files))],
                                        pass_fds=files, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        for f in files:
            os.close(f)

    @staticmethod
    def tun(space, i):
        """A TUN device in the namespace; returns its file."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/thread-self/ns/net") as home, open(f"/proc/{space.pid}/ns/net") as there:
            if libc.setns(there.fileno(), 0):
                raise Failed(f"setns: {os.strerror(ctypes.get_errno())}")
            try:
                f = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
                fcntl.ioctl(f, 0x400454CA, struct.pack("16sH22x", b"eth0", 0x0001 | 0x1000))  # TUNSETIFF; IFF_TUN, IFF_NO_PI
            finally:
                libc.setns(home.fileno(), 0)
        space.run("ip", "addr", "add", f"{NETWORK}{i + 1}/24", "dev", "eth0")
        space.run("ip", "link", "set", "eth0", "up", "txqueuelen", "1000")
        return f

    def pids(self):
        return {"network": self.process.pid}

    def close(self):
        """Returns what the program says of its packets."""
        self.process.stdin.close()
        said = self.process.stdout.read()
        self.process.wait()
        return json.loads(said or "{}")


class Socket(http.client.HTTPConnection):
    """HTTP on a Unix socket."""

    def __init__(self, path):
        super().__init__("starling", timeout=600)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Peer:
    """One starling process."""

    def __init__(self, swarm, i, cpu):
        self.swarm, self.name, self.cpu = swarm, f"peer{i + 1}", cpu
        self.folder = swarm.folder / self.name
        self.space = swarm.spaces[i]
        self.listen = ["--listen", f"/ip4/{NETWORK}{i + 1}/" + (f"udp/{PORT}/quic-v1" if swarm.transport == "quic" else f"tcp/{PORT}")]
        self.process = None

    def words(self, *args):
        return self.space.inside("taskset", "--cpu-list", self.cpu, self.swarm.binary, "--data", self.folder, *self.listen,
                                 "--threads", "1", *self.swarm.flags, *args)

    def verb(self, *args):
        r = subprocess.run(self.words(*args), capture_output=True, text=True, env=self.swarm.env)
        if r.returncode:
            raise Failed(f"{self.name}: {r.stderr.strip()}")
        return r.stdout.strip()

    def serve(self, *args):
        """Starts the daemon and waits until it is ready."""
        self.log = open(self.folder / "log", "w")
        self.process = subprocess.Popen(self.words("serve", "--json", "--attached", *args), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.log, text=True, env=self.swarm.env, start_new_session=True)
        for line in self.process.stdout:
            event = json.loads(line)
            if event["kind"] == "started":
                self.id = event["status"]["peer"]
            if event["kind"] == "published":
                self.model = event["model"]
            if event["kind"] == "ready":
                threading.Thread(target=self.process.stdout.read, daemon=True).start()  # it says little from here on
                return
        self.process.wait()
        raise Failed(f"{self.name} ended with status {self.process.returncode}: {(self.folder / 'log').read_text().strip()[-500:]}")

    def ask(self, method, path, body=None):
        """The daemon's answer (package node/control), or of a stream the last line."""
        c = Socket(self.folder / "starling.sock")
        try:
            c.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
            last = None
            for line in c.getresponse():
                last = json.loads(line)
        finally:
            c.close()
        if last is None or isinstance(last, dict) and last.get("error"):
            raise Failed(f"{self.name} says: {last['error'] if last else 'nothing'}")
        return last

    def run(self, **request):
        """The account of a run whose client is this peer; nothing of earlier runs is used, and nothing guessed, unless the request says so."""
        time.sleep(1)  # until the offers say that earlier runs have ended
        a = self.ask("POST", "/v1/run", {"model": self.swarm.model["id"], "decode": "here", "fresh": True, "no_guess": True, **request})["run"]
        a["stages"] = a["stages"] or []
        if a.get("recovered"):
            raise Failed(f"a run lost a peer: {a['recovered'][0]}")
        return a

    def plan(self, prompt, new, **constraints):
        return self.ask("POST", "/v1/plan", {"model": self.swarm.model["id"], "prompt_tokens": prompt, "new_tokens": new, "decode": "here",
                                             **constraints})["plan"]

    def close(self):
        if self.process:
            self.process.stdin.close()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.log.close()


class Swarm:
    """n peers that all serve all of a model, the others what the flags `serve` say; the first publishes it. Use it in a `with` statement."""

    def __init__(self, model, n, rate=None, rtt=0, cpus=None, transport="tcp", binary=None, flags=(), serve=(), keep=False):
        self.file, self.n, self.rate, self.rtt, self.transport, self.flags, self.also, self.keep = model, n, rate, rtt, transport, list(flags), list(serve), keep
        self.cpus = cpus or [i % os.cpu_count() for i in range(n)]
        self.binary = pathlib.Path(binary or ROOT / "bin" / "starling").resolve()
        self.spaces, self.peers, self.net, self.packets = [], [], None, {}
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("STARLING_", "XDG_"))}

    def __enter__(self):
        if sys.platform != "linux" or os.geteuid():
            raise Failed("network namespaces need Linux and root")
        if not self.binary.exists():
            raise Failed(f"{self.binary}: missing; run 'make build' first")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="starling-bench-"))
        self.env["XDG_CONFIG_HOME"] = str(self.folder)
        try:
            self.begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def begin(self):
        for _ in range(self.n):
            self.spaces.append(Namespace())
        self.net = Delay(self.spaces, self.rate, self.rtt, self.folder) if self.rtt else Bridge(self.spaces, self.rate)
        for i in range(self.n):
            self.peers.append(Peer(self, i, self.cpus[i]))
            self.peers[i].folder.mkdir()
        first, *others = self.peers
        first.verb("swarm", "create", "bench")
        first.serve("--publish", pathlib.Path(self.file).resolve())
        self.model = first.model
        for p in others:
            p.verb("swarm", "join", first.verb("swarm", "invite", "--ttl", "5m"))
            p.serve("--model", self.model["id"], *self.also)
        self.meet()

    def meet(self):
        """Waits until every peer sees every other's offer."""
        end = time.monotonic() + 60
        for p in self.peers:
            while True:
                seen = {x["peer"] for x in p.ask("GET", "/v1/peers")}
                if {q.id for q in self.peers} <= seen:
                    break
                if time.monotonic() > end:
                    raise Failed(f"{p.name} sees {len(seen)} of {self.n} offers after a minute")
                time.sleep(0.2)

    def __exit__(self, *_):
        for p in reversed(self.peers):
            p.close()
        if self.net:
            self.packets = self.net.close() or {}
        for s in self.spaces:
            s.close()
        if self.keep:
            print(f"kept: {self.folder}", file=sys.stderr)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def ping(self, count=9):
        """Median time in ms that a TCP connection from the first peer to the second takes to be made or refused: a round trip."""
        probe = """if True:
            import socket, statistics, time
            def once():
                began = time.monotonic()
                try: socket.create_connection((%r, 9), 5)
                except ConnectionRefusedError: pass
                return time.monotonic() - began
            print(1000 * statistics.median(once() for _ in range(%d)))""" % (NETWORK + "2", count)
        return float(self.spaces[0].run(sys.executable, "-c", probe))

    def tokens(self, n, seed):
        """n token IDs drawn at random: what they say is nothing to the speed."""
        return [random.Random(seed).randrange(300, 30000) for _ in range(n)]


def processor_time(pid):
    """Seconds of processor time that a process has used."""
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def machine_time():
    """For each processor, seconds: busy of any kind, in interrupts, taken by the hypervisor."""
    cpus = {}
    with open("/proc/stat") as f:
        for line in f:
            if m := re.match(r"cpu(\d+) (.*)", line):
                user, nice, system, _idle, _wait, hard, soft, steal = (int(x) / TICK for x in m[2].split()[:8])
                cpus[int(m[1])] = (user + nice + system + hard + soft, hard + soft, steal)
    return cpus


class Window:
    """What processors did between its two ends: `with Window(swarm) as w: …`, then w.report()."""

    def __init__(self, swarm):
        self.pids = {p.name: p.process.pid for p in swarm.peers} | swarm.net.pids() | {"this script": os.getpid()}

    def read(self):
        return time.monotonic(), {n: processor_time(p) for n, p in self.pids.items()}, machine_time()

    def __enter__(self):
        self.before = self.read()
        return self

    def __exit__(self, *_):
        self.after = self.read()

    def report(self):
        """Seconds of processor time by process and by processor; "others" is what ran beside the processes named."""
        (t0, p0, m0), (t1, p1, m1) = self.before, self.after
        used = {n: round(p1[n] - p0[n], 2) for n in p0}
        busy, soft, steal = (sum(m1[c][k] - m0[c][k] for c in m1) for k in range(3))
        return {"seconds": round(t1 - t0, 2), "processes": used, "interrupts": round(soft, 2), "stolen": round(steal, 2),
                "others": round(max(0.0, busy - soft - sum(used.values())), 2)}


def words(report):
    """A window's report on one line, as shares of one processor."""
    s = report["seconds"]
    parts = {**report["processes"], "interrupts": report["interrupts"], "others": report["others"], "stolen": report["stolen"]}
    return f"processor time in {s:.1f} s: " + ", ".join(f"{n} {100 * v / s:.1f} %" for n, v in parts.items())


def median_interval(samples):
    """The median, and the order statistics that hold it with 95 % confidence or the next more (fewer than 6: the extremes)."""
    x = sorted(samples)
    n, lo, tail = len(x), 0, 0.5 ** len(x)
    step = tail
    for k in range(1, n // 2):  # P(at most k of n below the median)
        step *= (n - k + 1) / k
        if tail + step > 0.025:
            break
        tail += step
        lo = k
    return statistics.median(x), x[lo], x[n - 1 - lo]


def machine():
    """What the figures were measured on."""
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    return {"cpu": model, "processors": os.cpu_count(), "kernel": os.uname().release, "load": os.getloadavg()[0]}


def flags(doc, rate, rtt=None):
    """A parser with what scripts share: rtt is the default round trip in ms of those whose links have one."""
    p = argparse.ArgumentParser(description=doc.split("\n\n")[0])
    p.add_argument("model", help="GGUF file")
    p.add_argument("--rate", default=rate, help="of each peer's uplink and downlink")
    if rtt is not None:
        p.add_argument("--rtt", type=float, default=rtt, help="round trip in ms")
    p.add_argument("--transport", choices=["tcp", "quic"], default="tcp")
    p.add_argument("--starling", help="our binary; default: bin/starling")
    p.add_argument("--json", metavar="FILE", help="also write everything, every sample included, to a file")
    return p


def report(a):
    """What a script's result begins with."""
    return {"machine": machine(), "arguments": vars(a)}


def save(a, result):
    """Writes the result where --json says."""
    if a.json:
        with open(a.json, "w") as f:
            json.dump(result, f, indent=1)


def main(run):
    """Runs a script's main function; its errors are lines."""
    end_on_signals()
    try:
        sys.exit(run())
    except Failed as err:
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {err}")
    except KeyboardInterrupt:
        sys.exit(130)
