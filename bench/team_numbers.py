#!/usr/bin/env python3
"""How level do teams make plans, and how long does planning take with them?

    python3 bench/team_numbers.py build/canzona

Plans only: makespan over the mean work of a rank (work of whole owners by
ranks), with whole owners and with teams, and the lower bound with teams; the same
of rules whose matrices fall apart into blocks; then every cell of
tests/data/makespan_optimum.json on tp=8; then planning times, the least of some
runs.
"""

import argparse
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
STRIPS = ["--rule", "muon", "--rule-option", "strips=8"]
BLOCKS = [("shampoo", [], 1.08),
          ("soap", ["--rule-option", "long_sides=cut", "--rule-option",
                    "max_preconditioner_dim=1024"], "–")]
NAMED = [("qwen3-32b", 1.10), ("qwen3-14b", 1.35), ("qwen3-8b", 1.35)]
TIMED = [("32B fused, dp=32,tp=8", 0.050,
          ["--model", "qwen3-32b", "--fused", "--mesh", "dp=32,tp=8"]),
         ("235B-A22B, dp=128,tp=8", 0.200,
          ["--model", "qwen3-235b-a22b", "--mesh", "dp=128,tp=8"]),
         ("32B fused, dp=1280,tp=8", 1.000,
          ["--model", "qwen3-32b", "--fused", "--mesh", "dp=1280,tp=8"])]


def plan(program, arguments, teams, rule=STRIPS):
    command = [program, "plan", *arguments, *rule, "--teams", teams, "--json"]
    return json.loads(subprocess.run(command, check=True, text=True,
                                     capture_output=True).stdout)


def cell_arguments(model, fused, ranks, standard):
    tp = min(ranks, 8)
    return (["--model", model, "--mesh", f"dp={ranks // tp},tp={tp}"] +
            (["--fused"] if fused else []) +
            ["--newton-schulz", "standard" if standard else "auto"])


def both_plans(program, arguments, rule=STRIPS):
    """Plans with whole owners and with teams, and the first cells of a row."""
    off, on = (plan(program, arguments, teams, rule) for teams in ("off", "auto"))
    ratios = [off["all_ranks"]["makespan_over_mean"],
              on["all_ranks"]["makespan_over_mean"],
              on["all_ranks"]["team_bound_over_mean"]]
    steps = [p["predicted"]["step_seconds_mean"] * 1e3 for p in (off, on)]
    return on, [f"{x:.3f}" for x in ratios], f"{steps[0]:.2f} : {steps[1]:.2f} ms"


def print_named(program):
    print("| fused, dp=32,tp=8 | form | whole owners | teams | limit | bound "
          "with teams | teams of 2, 4, 8 | predicted step |")
    print("|---|---|---|---|---|---|---|---|")
    for model, limit in NAMED:
        for standard in (False, True):
            on, (whole, teams, bound), steps = both_plans(
                program, cell_arguments(model, True, 256, standard))
            sizes = ", ".join(str(n) for n in on["teams"].values())
            print(f"| {model} | {'standard' if standard else 'auto'} | {whole} "
                  f"| {teams} | {limit} | {bound} | {sizes} | {steps} |")


def print_blocks(program):
    print("\n| 14B, pp=2,dp=32,tp=4 | rule | whole owners | owners of blocks | "
          "limit | bound | matrices in blocks | predicted step |")
    print("|---|---|---|---|---|---|---|---|")
    for fused in (["--fused"], []):
        arguments = ["--model", "qwen3-14b", "--mesh", "pp=2,dp=32,tp=4", *fused]
        for rule, options, limit in BLOCKS:
            on, (whole, blocks, bound), steps = both_plans(
                program, arguments, ["--rule", rule, *options])
            print(f"| {'fused' if fused else 'separate'} | {rule} | {whole} "
                  f"| {blocks} | {limit} | {bound} | {sum(on['teams'].values())} "
                  f"of {on['num_matrices']} | {steps} |")


def print_cells(program):
    lines = json.loads(
        (ROOT / "tests/data/makespan_optimum.json").read_text())
    worse, better, largest = 0, 0, (1, "")
    for line in lines:
        arguments = cell_arguments(f"qwen3-{line['model']}",
                                   line["form"] == "fused", line["ranks"],
                                   line["cost"] == "standard")
        off = plan(program, arguments, "off")["makespan"]
        on = plan(program, arguments, "auto")["makespan"]
        worse += on > off
        better += on < off
        largest = max(largest, (off / on, " ".join(arguments[:4])))
    print(f"\n{len(lines)} cells: {better} better with teams, {worse} worse; "
          f"the most, {largest[0]:.2f} times, on {largest[1]}")


def print_times(program, runs):
    print("\n| request | plan ms, off : auto | limit ms |\n|---|---|---|")
    for label, limit, arguments in TIMED:
        least = [min(plan(program, arguments, teams)["plan_seconds"]
                     for _ in range(runs)) * 1e3 for teams in ("off", "auto")]
        print(f"| {label} | {least[0]:.1f} : {least[1]:.1f} "
              f"| {limit * 1e3:.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--times-only", action="store_true")
    options = parser.parse_args()
    if not options.times_only:
        print_named(options.program)
        print_blocks(options.program)
        print_cells(options.program)
    print_times(options.program, options.runs)


if __name__ == "__main__":
    main()
