#!/usr/bin/env python3
"""Predicted iterations of 256 to 10,240 ranks, for bench/results/clusters.md.

    python3 bench/cluster_scaling.py --markdown scaling.md

The cluster is examples/clusters/h200_nvlink.json; every rank has as much to do
at every size. Nothing is measured. Standard library only.
"""
import argparse
import json
import subprocess
import time

SIZES = (256, 512, 1024, 2048, 4096, 10240)
WAYS = ("direct", "node", "ring")
CASES = (
    ("qwen3-32b", "dp={dp},tp=4", 4, "zero1"),
    ("qwen3-32b", "dp={dp},tp=4", 4, "replica:32"),
    ("qwen3-235b-a22b", "dp={dp},ep=8,tp=4", 32, "zero1"),
    ("qwen3-235b-a22b", "dp={dp},ep=8,tp=4", 32, "replica:64"),
)


def simulate(args, model, mesh, zero, way):
    command = [args.canzona, "simulate", "--model", model, "--mesh", mesh,
               "--zero", zero, "--cluster", args.cluster, "--collectives", way,
               "--micro-batches", str(args.micro_batches), "--activations",
               "none", "--json", "--quiet"]
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {"error": done.stderr.strip().splitlines()[0]}
    found = json.loads(done.stdout)["predicted"]
    found["took"] = time.monotonic() - begin
    return found


def cell(found, first):
    """Iteration, step, and tokens per second and card against the first."""
    if "error" in found:
        return "–"
    share = found["tflops_per_card"] / first["tflops_per_card"]
    return (f"{found['iteration_seconds']:.3f} s, "
            f"{1e3 * found['step_seconds']:.1f} ms, {100 * share:.0f} %")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--canzona", default="build/canzona")
    parser.add_argument("--cluster",
                        default="examples/clusters/h200_nvlink.json")
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--markdown", help="a file for the tables")
    args = parser.parse_args()
    lines, slowest = [], 0
    for model, mesh, per_dp, zero in CASES:
        lines += ["", f"**{model}**, {mesh.format(dp='N/' + str(per_dp))}, "
                  f"`--zero {zero}`", "",
                  "| ranks | " + " | ".join(f"`{w}`" for w in WAYS) + " |",
                  "|---|" + "---|" * len(WAYS)]
        firsts = {}
        for ranks in SIZES:
            row = []
            for way in WAYS:
                found = simulate(args, model, mesh.format(dp=ranks // per_dp),
                                 zero, way)
                firsts.setdefault(way, found)
                row.append(cell(found, firsts[way]))
                slowest = max(slowest, found.get("took", 0))
                print(model, zero, ranks, way, row[-1],
                      found.get("error", ""), flush=True)
            lines.append(f"| {ranks:,} | " + " | ".join(row) + " |")
    lines += ["", f"The slowest simulation took {slowest:.1f} s."]
    print("\n".join(lines))
    if args.markdown:
        with open(args.markdown, "w") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
