#!/usr/bin/env python3
"""Plots of simulated swarms for docs/simulation.md: simulation.py REPORT.json… --out DIR. Needs matplotlib.

A report is what "starling simulate SCENARIO --json" prints. Each gives DIR/simulation-SCENARIO.svg: holders of the worst layer,
its prefill throughput beside that of the mean layer, the median time to the first token, and moves and busy peers, over time.
"""

import argparse
import json
import pathlib

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "starling"  # the same report gives the same file
import matplotlib.pyplot as plt


def plot(report, path):
    points = report["series"]
    minutes = [p["minute"] for p in points]
    figure, ((holders, coverage), (first, use)) = plt.subplots(2, 2, figsize=(10, 6), sharex=True)
    figure.suptitle(f"{report['scenario']}: {report['peers']} peers, {points[-1]['sessions']} sessions at any time")
    holders.plot(minutes, [p["worst_holders"] for p in points])
    holders.set_ylabel("holders of the worst layer")
    holders.set_ylim(bottom=0)
    coverage.plot(minutes, [p["worst_coverage"] for p in points], label="worst layer")
    coverage.plot(minutes, [p["mean_coverage"] for p in points], label="mean")
    coverage.set_ylabel("prefill, tokens/s")
    coverage.set_ylim(bottom=0)
    coverage.legend()
    first.plot(minutes, [p["first_token_seconds"] or None for p in points], ".")
    first.set_ylabel("first token, s, median")
    first.set_ylim(bottom=0)
    use.plot(minutes, [100 * p["busy"] for p in points], label="busy peers, %")
    use.plot(minutes, [p["moves"] for p in points], label="moves in the minute")
    use.set_ylim(bottom=0)
    use.legend()
    for axes in (first, use):
        axes.set_xlabel("minute")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs"))
    args = parser.parse_args()
    for name in args.reports:
        report = json.loads(name.read_text())
        plot(report, args.out / f"simulation-{report['scenario']}.svg")


if __name__ == "__main__":
    main()
