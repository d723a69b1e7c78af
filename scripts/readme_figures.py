#!/usr/bin/env python3
"""Figures of README.md that the program itself can print.

  python3 scripts/readme_figures.py build/canzona            rewrites README.md
  python3 scripts/readme_figures.py build/canzona --check    fails if it differs

Rewritten are the table of strategies for Qwen3-32B, by `canzona compare --json`,
and the number of matrices of Qwen3-235B-A22B, by `canzona plan --json`. Words in
the first column stay as they are; rows are found by the strategy's name.
"""
import argparse
import difflib
import json
import pathlib
import re
import subprocess
import sys

README = pathlib.Path(__file__).resolve().parent.parent / "README.md"
COMPARE = ["compare", "--model", "qwen3-32b", "--fused", "--mesh", "dp=32,tp=8",
           "--rule", "muon", "--json", "--quiet"]
LARGEST = ["plan", "--model", "qwen3-235b-a22b", "--mesh", "dp=128,tp=8",
           "--rule", "muon", "--split", "expert", "--json", "--quiet"]
BEST = "balanced"


def ask(program, arguments):
    """Runs the program and returns its JSON."""
    done = subprocess.run([program, *arguments], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"canzona {' '.join(arguments)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def digits(value):
    """Three digits, as 145, 40.1, 4.53; 1.000 for what is one."""
    if abs(value - 1) < 5e-4:
        return "1.000"
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{decimals}f}"


def seconds(value):
    return f"{value:.1f} s" if value >= 1 else f"{value * 1e3:.0f} ms"


def cells(strategy):
    """The figures of a row, in the order of the columns."""
    gib = 2 ** 30
    return [digits(strategy["all_ranks"]["makespan_over_bound"]),
            f"{strategy['all_ranks']['idle_ranks']}",
            f"{digits(strategy['bytes_per_rank_max'] / gib)} GiB",
            f"{digits(strategy['memory_per_rank_max'] / gib)} GiB",
            seconds(strategy["predicted_step_seconds"])]


def with_table(text, strategies):
    """The README with the rows of the strategies' table made anew."""
    for strategy in strategies:
        name = strategy["name"]
        row = re.compile(rf"^\| (\**`{name}`\**[^|]*)\|[^\n]*\|$", re.MULTILINE)
        if len(row.findall(text)) != 1:
            sys.exit(f"README.md: expected one row of `{name}`, found "
                     f"{len(row.findall(text))}")
        shown = cells(strategy)
        if name == BEST:
            shown = [f"**{cell}**" for cell in shown]
        text = row.sub(lambda found, shown=shown:
                       f"| {found[1]}| {' | '.join(shown)} |", text)
    return text


def with_count(text, count):
    found = re.compile(r"[\d,]+ matrices of Qwen3-235B-A22B")
    if len(found.findall(text)) != 1:
        sys.exit("README.md: expected one number of matrices of "
                 f"Qwen3-235B-A22B, found {len(found.findall(text))}")
    return found.sub(f"{count:,} matrices of Qwen3-235B-A22B", text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("program", help="path of canzona")
    parser.add_argument("--check", action="store_true",
                        help="change nothing; fail if README.md differs")
    parser.add_argument("--readme", type=pathlib.Path, default=README)
    args = parser.parse_args()
    before = args.readme.read_text(encoding="utf-8")
    after = with_table(before, ask(args.program, COMPARE)["strategies"])
    after = with_count(after, ask(args.program, LARGEST)["num_matrices"])
    if after == before:
        return
    if not args.check:
        args.readme.write_text(after, encoding="utf-8")
        return
    sys.stdout.writelines(difflib.unified_diff(
        before.splitlines(True), after.splitlines(True), "README.md",
        "what canzona prints", n=0))
    sys.exit("README.md is stale: run python3 scripts/readme_figures.py "
             f"{args.program}")


if __name__ == "__main__":
    main()
