#!/usr/bin/env python3
"""Has planning become slower? Two programs, one after the other on the same
requests; the second is compared with the first.

    python3 bench/planning_against.py OLD/canzona build/canzona [--runs N] [--json]

Both are Release builds of one compiler; OLD is the last release's
(`git worktree add --detach OLD <tag>`, then CANZONA_PLAN_ONLY=ON). Exit code 1
if the least time or the peak memory of a request is more than 5 % above OLD's.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

REQUESTS = {
    "32B fused, dp=32,tp=8":
        "--model qwen3-32b --fused --mesh dp=32,tp=8 --rule muon",
    "32B, dp=32,tp=8, soap":
        "--model qwen3-32b --mesh dp=32,tp=8 --rule soap",
    "235B-A22B, dp=128,tp=8":
        "--model qwen3-235b-a22b --mesh dp=128,tp=8 --rule muon",
    "235B-A22B, dp=128,tp=8, shampoo":
        "--model qwen3-235b-a22b --mesh dp=128,tp=8 --rule shampoo",
    "235B-A22B, dp=16,tp=8,ep=8":
        "--model qwen3-235b-a22b --mesh dp=16,tp=8,ep=8 --rule muon",
}
ALLOWED = 1.05


def run(program, request):
    """Milliseconds to plan and validate, and of the command; peak in MB, which
    is never below that of this script."""
    command = [program, "plan", *request.split(), "--json", "-o", os.devnull]
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL)
    view = json.load(process.stdout)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"error: {' '.join(command)} failed")
    return (view["plan_seconds"] * 1e3, (time.monotonic() - start) * 1e3,
            usage.ru_maxrss / 1024)


def measure(programs, request, runs):
    rounds = [[run(program, request) for program in programs]
              for _ in range(runs)]
    rows = []
    for own in zip(*rounds):
        plan, command, peak = zip(*own)
        rows.append({"plan_ms": min(plan), "median_ms": statistics.median(plan),
                     "command_ms": min(command), "peak_mb": max(peak)})
    return rows


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    slower, results = False, []
    if not arguments.json:
        print("| request | | old | new | ratio |\n|---|---|---|---|---|")
    for name, request in REQUESTS.items():
        old, new = measure((arguments.old, arguments.new), request,
                           arguments.runs)
        ratios = {key: new[key] / old[key] for key in old}
        slower |= max(ratios["plan_ms"], ratios["peak_mb"]) > ALLOWED
        results.append({"request": request, "old": old, "new": new,
                        "ratio": ratios})
        for key in old if not arguments.json else ():
            print(f"| {name} | {key} | {old[key]:.4g} | {new[key]:.4g} | "
                  f"{ratios[key]:.3f} |", flush=True)
    if arguments.json:
        print(json.dumps(results, indent=2))
    return slower


if __name__ == "__main__":
    sys.exit(main())
