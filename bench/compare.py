"""Runs starling and its peers in turn, one test at a time, and reports the ratios of each round (see compare.sh).

A round runs every engine once on one test, in an order that rotates from round to round, so that a slow minute of a
shared machine meets them all. What is reported is the median of the rounds' ratios, with the smallest and largest."""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))

# Settings of the peers that are tried: nobody is to be compared with a badly configured peer. Which one is fastest
# depends on model, test and processor, so each test tries all of them first and goes on with the best one.
LLAMA = [["-fa", "off"], ["-fa", "on"]]
IK = [["-fa", fa, "-rtr", rtr] for rtr in "01" for fa in "01"]

MODES = {  # rounds, timed repetitions in a round, tests of a small model and of one of a gigabyte or more
    "quick": (3, 1, ["pp512", "tg128"], ["pp512", "tg32"]),
    "full": (10, 2, ["pp128", "pp512", "pp2048", "tg128", "tg128@d2048"], ["pp128", "pp512", "tg32"]),
}
LARGE = 1 << 30  # bytes


def parse_test(name):
    m = re.fullmatch(r"(pp|tg)(\d+)(?:xB(\d+))?(?:@d(\d+))?", name)
    if not m:
        sys.exit(f"compare: test {name!r}: write pp512, tg128, tg128xB4, tg128@d2048")
    kind, n, batch, depth = m.groups()
    return kind, int(n), int(batch or 1), int(depth or 0)


def run(command, nice):
    """Returns a command's standard output."""
    if nice:
        command = ["nice", "-n", str(nice)] + command
    p = subprocess.run(command, capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit {p.returncode}: {p.stderr.strip()[-300:]}")
    return p.stdout


class Starling:
    def __init__(self, a, name="starling", extra=()):
        self.a, self.name, self.extra, self.about, self.limits = a, name, list(extra), {}, {}

    def settings(self, test):
        return [self.extra]

    def speed(self, model, test, threads, setting, reps, limits=False):
        kind, n, batch, depth = parse_test(test)
        what = ["-p", str(n), "-n", "0"] if kind == "pp" else ["-p", "0", "-n", str(n), "-b", str(batch)]
        command = [self.a.starling, "bench", "-m", model, *what, "-d", str(depth), "-t", str(threads), "-r", str(reps), "--json", *setting]
        if not limits:
            command.append("--no-limits")
        out = json.loads(run(command, self.a.nice))
        self.about = {k: out[k] for k in ("version", "platform", "cpu", "variant")}
        if limits:
            self.limits = out["limits"]
        (result,) = out["results"]
        return result["limit_tps"] if limits else result["tps"]


class LlamaBench:
    def __init__(self, a, name, binary, settings, is_ik):
        self.a, self.name, self.binary, self.all, self.is_ik = a, name, binary, settings, is_ik

    def settings(self, test):
        if parse_test(test)[2] > 1:
            return []  # it has no test of concurrent streams
        return self.all

    def speed(self, model, test, threads, setting, reps):
        kind, n, _, depth = parse_test(test)
        if kind == "pp":
            what = ["-p", str(n), "-n", "0"]
        elif depth and self.is_ik:
            what = ["-p", "0", "-n", "0", "-gp", f"{depth},{n}"]
        else:
            what = ["-p", "0", "-n", str(n)]
        if depth and not self.is_ik:
            what += ["-d", str(depth)]
        if depth and kind == "pp" and self.is_ik:
            raise RuntimeError(f"{test}: ik's llama-bench reads no prompt at a depth")
        out = json.loads(run([self.binary, "-m", model, *what, "-t", str(threads), "-r", str(reps), "-o", "json", *setting], self.a.nice))
        (result,) = out
        return float(result["avg_ts"])


def best_setting(engine, model, test, threads, tries):
    """Returns the fastest setting of an engine, or None if it has no such test."""
    settings = engine.settings(test)
    if len(settings) < 2:
        return settings[0] if settings else None
    speeds = {}
    for _ in range(tries):
        for i, s in enumerate(settings):
            speeds[i] = max(speeds.get(i, 0), engine.speed(model, test, threads, s, 1))
    return settings[max(speeds, key=speeds.get)]


def compare(a, engines, model, test, threads, rounds, reps):
    """Returns one row: every engine's samples, and ratios of the first engine to the others, round by round."""
    chosen = {}
    for e in engines:
        s = best_setting(e, model, test, threads, a.tries)
        if s is not None:
            chosen[e.name] = s
    taking_part = [e for e in engines if e.name in chosen]
    samples = {e.name: [] for e in taking_part}
    for r in range(rounds):
        for i in range(len(taking_part)):
            e = taking_part[(r + i) % len(taking_part)]
            samples[e.name].append(e.speed(model, test, threads, chosen[e.name], reps))
            say(f"{os.path.basename(model)} {test} t{threads} round {r + 1}/{rounds} {e.name}: {samples[e.name][-1]:.2f}")
    row = {"model": os.path.basename(model), "test": test, "threads": threads, "engines": {}}
    ours = samples[engines[0].name]
    for name, list_ in samples.items():
        row["engines"][name] = {"setting": chosen[name], "median": statistics.median(list_), "samples": list_}
        if name != engines[0].name:
            ratios = [x / y for x, y in zip(ours, list_)]
            row["engines"][name]["ratio"] = {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios), "samples": ratios}
    if isinstance(engines[0], Starling) and a.limits:
        limit = engines[0].speed(model, test, threads, chosen[engines[0].name], 1, limits=True)
        row["limit"], row["limits"] = limit, engines[0].limits
        row["limit_fraction"] = row["engines"][engines[0].name]["median"] / limit
    return row


def scaling(a, model, test, rounds, reps):
    """Compares starling with itself: two threads with one in reading, streams together with one in decoding."""
    kind, n, _, depth = parse_test(test)
    at = f"@d{depth}" if depth else ""
    base = (f"{kind}{n}{at}", a.threads[0])
    others = [(base[0], t) for t in a.threads[1:]] if kind == "pp" else [(f"tg{n}xB{b}{at}", a.threads[0]) for b in a.batch]
    e, rows = Starling(a, extra=a.starling_args), []
    samples = {c: [] for c in [base, *others]}
    for r in range(rounds):
        for c in samples:
            samples[c].append(e.speed(model, c[0], c[1], e.extra, reps))
            say(f"{os.path.basename(model)} {c[0]} t{c[1]} round {r + 1}/{rounds}: {samples[c][-1]:.2f}")
    for c in others:
        ratios = [x / y for x, y in zip(samples[c], samples[base])]
        rows.append({"model": os.path.basename(model), "test": c[0], "threads": c[1], "of": {"test": base[0], "threads": base[1]},
                     "median": statistics.median(samples[c]), "base": statistics.median(samples[base]),
                     "ratio": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios), "samples": ratios}})
    return rows, e.about


def save(report, path):
    """Writes what there is so far; a run that is interrupted loses a row at most."""
    with open(path + ".part", "w") as f:
        json.dump(report, f, indent=1)
    os.replace(path + ".part", path)


def say(text):
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K" + text)
        sys.stderr.flush()


def done():
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")


def spread(r):
    return f"{r['median']:.2f} ({r['min']:.2f}–{r['max']:.2f})"


def markdown(report):
    if report["mode"] == "scaling":
        print("| model | test | threads | t/s | of | t/s | ratio, median (min–max) |\n| --- | --- | ---: | ---: | --- | ---: | ---: |")
        for r in report["rows"]:
            print(f"| {r['model']} | {r['test']} | {r['threads']} | {r['median']:.2f} | {r['of']['test']}, t{r['of']['threads']} | {r['base']:.2f} | {spread(r['ratio'])} |")
        return
    first, *peers = report["engines"]
    head = ["model", "test", "threads", f"{first} t/s", "of the limit"]
    for p in peers:
        head += [f"{p} t/s", f"ratio to {p}, median (min–max)", "its flags"]
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for r in report["rows"]:
        cells = [r["model"], r["test"], str(r["threads"]), f"{r['engines'][first]['median']:.2f}", f"{100 * r['limit_fraction']:.0f} %" if "limit_fraction" in r else "–"]
        for p in peers:
            e = r["engines"].get(p)
            cells += [f"{e['median']:.2f}", spread(e["ratio"]), " ".join(e["setting"])] if e else ["–", "–", "–"]
        print("| " + " | ".join(cells) + " |")


def main():
    p = argparse.ArgumentParser(prog="compare.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--peers", required=True, help="folder of the peers' builds and of models/*.gguf (see bench/README.md)")
    p.add_argument("--mode", choices=[*MODES, "scaling"], default="quick", help="quick: 3 rounds of few tests; full: 10 rounds of all; scaling: starling with more threads or streams against itself")
    p.add_argument("--pairs", type=int, help="rounds, instead of the mode's")
    p.add_argument("--reps", type=int, help="timed repetitions in a round, instead of the mode's")
    p.add_argument("--tries", type=int, default=1, help="how often each setting of a peer is tried before the best is taken")
    p.add_argument("--models", help="files, comma-separated, instead of those in the folder")
    p.add_argument("--tests", help="tests, comma-separated, such as pp512,tg128,tg128@d2048, instead of the mode's")
    p.add_argument("--threads", default="1", help="numbers of threads, comma-separated (scaling: the first is the base)")
    p.add_argument("--batch", default="4,8", help="scaling: streams")
    p.add_argument("--engines", default="llama.cpp,ik", help="peers, comma-separated")
    p.add_argument("--starling", default=os.path.join(HERE, "..", "bin", "starling"), help="our binary (make build)")
    p.add_argument("--starling-args", default="", help="more arguments of starling bench, such as '--pack off'")
    p.add_argument("--ik-args", help="ik's flags, instead of the fastest of those tried, such as '-fa 1 -rtr 0': without run-time repacking")
    p.add_argument("--no-limits", dest="limits", action="store_false", help="leave out the machine's limits")
    p.add_argument("--nice", type=int, default=0, help="niceness of what is measured")
    p.add_argument("--json", metavar="FILE", help="also write everything, every sample included, to a file")
    a = p.parse_args()
    a.threads = [int(t) for t in a.threads.split(",")]
    a.batch = [int(b) for b in a.batch.split(",")]
    a.starling_args = a.starling_args.split()
    if a.mode == "scaling" and len(a.threads) < 2 and any(parse_test(t)[0] == "pp" for t in (a.tests or "pp512").split(",")):
        p.error("--mode scaling compares reading with several numbers of threads: --threads 1,2")
    models = a.models.split(",") if a.models else [os.path.join(a.peers, "models", m) for m in sorted(os.listdir(os.path.join(a.peers, "models"))) if m.endswith(".gguf")]
    rounds, reps, small, large = MODES.get(a.mode, (10, 2, ["pp512", "tg128"], ["pp512", "tg32"]))
    rounds, reps = a.pairs or rounds, a.reps or reps
    known = {
        "llama.cpp": lambda: LlamaBench(a, "llama.cpp", os.path.join(a.peers, "build-llama", "bin", "llama-bench"), LLAMA, False),
        "ik": lambda: LlamaBench(a, "ik", os.path.join(a.peers, "build-ik", "bin", "llama-bench"), [a.ik_args.split()] if a.ik_args else IK, True),
    }
    engines = [Starling(a, extra=a.starling_args)]
    for e in filter(None, a.engines.split(",")):
        if e not in known:
            p.error(f"engine {e!r}: there are {', '.join(known)}")
        engines.append(known[e]())
    report = {"mode": a.mode, "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "rounds": rounds, "reps": reps,
              "engines": [e.name for e in engines], "load_before": os.getloadavg()[0], "rows": [], "failed": []}
    for m in models:
        tests = a.tests.split(",") if a.tests else large if os.path.getsize(m) >= LARGE else small
        for test in tests:
            for t in a.threads if a.mode != "scaling" else a.threads[:1]:
                try:
                    if a.mode == "scaling":
                        rows, report["starling"] = scaling(a, m, test, rounds, reps)
                        report["rows"] += rows
                    else:
                        report["rows"].append(compare(a, engines, m, test, t, rounds, reps))
                        report["starling"] = engines[0].about
                except (RuntimeError, ValueError, OSError) as err:
                    report["failed"].append({"model": os.path.basename(m), "test": test, "threads": t, "error": str(err)})
                if a.json:
                    save(report, a.json)
    done()
    report["load_after"] = os.getloadavg()[0]
    about = report.get("starling", {})
    print(f"starling {about.get('version')}, {about.get('variant')} kernels, {about.get('cpu')}, {report['began']}; {rounds} rounds, "
          f"load {report['load_before']:.1f} before and {report['load_after']:.1f} after\n")
    markdown(report)
    for f in report["failed"]:
        print(f"\nFAILED {f['model']} {f['test']} t{f['threads']}: {f['error']}")
    if a.json:
        save(report, a.json)
    return 1 if report["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
