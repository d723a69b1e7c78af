#!/usr/bin/env python3
"""Predicted against measured step times, rank by rank.

    python3 bench/step_prediction.py --ranks 16 --markdown prediction.md
    python3 bench/step_prediction.py --ranks 2 --small --rules muon

For every rule and mesh: a plan, a cost table of what the plan needs, measured
by as many ranks at once as the mesh has, and a run of the plan with that table.
The run comes before and after the table, so that a machine that changes under
the measurement is seen. Standard library only.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

from step_model import model_flags


def flags_of(args, rule):
    muon = rule in ("muon", "adamw")
    scale, layers = (("1/8", 14) if muon else ("1/8", 4)) if args.small else (
        ("1/4", 0) if muon else ("1/8", 14))
    return model_flags(rule, scale, layers) + ["--parameters", "fp32"]


def canzona(args, *words):
    done = subprocess.run([args.canzona, *words, "--quiet"], timeout=args.limit,
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]}: exit {done.returncode}: "
                           f"{done.stderr.strip()[-300:]}")
    return done.stdout


def run_once(args, flags, rule, cost):
    steps = ["--steps", "12", "--warmup", "2"] if rule in (
        "soap", "shampoo") else ["--steps", "7", "--warmup", "2"]
    words = ["bench", "step", *flags, "--strategy", args.strategy, *steps,
             "--iterations", "0", "--compute", "0", "--json"]
    if cost:
        words += ["--cost", cost]
    return json.loads(canzona(args, *words))["strategies"][0]


def one(args, rule, mesh, folder):
    """Predicted and measured of one rule on one mesh, in seconds."""
    flags = flags_of(args, rule) + ["--mesh", mesh]
    plan = os.path.join(folder, "plan.json")
    cost = os.path.join(folder, "cost.json")
    device = [] if rule == "adamw" else ["--rule-option", "device=cpu"]
    canzona(args, "plan", *flags, *device, "--strategy", args.strategy, "-o",
            plan)
    before = run_once(args, flags, rule, None)
    canzona(args, "calibrate", "--ranks", str(args.ranks), "--for", plan, "-o",
            cost)
    after = run_once(args, flags, rule, cost)
    with open(cost) as file:
        rate = json.load(file)["element_wise_bytes_per_second"]
    pairs = zip(after["rank_predicted_seconds"], after["rank_step_seconds"])
    off = [p / m - 1 for p, m in pairs]
    return {"rule": rule, "mesh": mesh, "rate": rate,
            "before": before["step_seconds_mean"],
            "measured": after["step_seconds_mean"],
            "predicted": after["predicted_step_seconds"],
            "rank_off_median": statistics.median(off),
            "rank_off_worst": max(off, key=abs), "run": after}


def row(found):
    ms = [f"{found[k] * 1e3:.1f}" for k in ("predicted", "measured", "before")]
    off = found["predicted"] / found["measured"] - 1
    return (f"| {found['rule']} | {found['mesh']} | {ms[0]} | {ms[1]} | {ms[2]} "
            f"| {100 * off:+.0f} % | {100 * found['rank_off_median']:+.0f} % "
            f"| {100 * found['rank_off_worst']:+.0f} % "
            f"| {found['rate'] / 1e9:.1f} GB/s |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--canzona", default="build/canzona")
    parser.add_argument("--ranks", type=int, default=os.cpu_count())
    parser.add_argument("--rules", default="muon,shampoo,soap,adamw")
    parser.add_argument("--meshes", default="")
    parser.add_argument("--strategy", default="balanced")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--limit", type=int, default=120)
    parser.add_argument("--markdown")
    parser.add_argument("--json")
    args = parser.parse_args()
    lines = ["| rule | mesh | predicted, ms | measured, ms | before | slowest "
             "rank | ranks, median | ranks, worst | passes over memory |",
             "|---|---|---|---|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    all_found = []
    meshes = args.meshes.split(";") if args.meshes else [f"dp={args.ranks}"]
    with tempfile.TemporaryDirectory() as folder:
        for rule in args.rules.split(","):
            for mesh in meshes:
                try:
                    found = one(args, rule, mesh, folder)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    lines.append(f"{rule} {mesh}: {error}")
                else:
                    all_found.append(found)
                    lines.append(row(found))
                print(lines[-1], flush=True)
    if args.markdown:
        with open(args.markdown, "w") as file:
            file.write("\n".join(lines) + "\n")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(all_found, file)


if __name__ == "__main__":
    main()
