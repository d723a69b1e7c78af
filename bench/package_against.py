#!/usr/bin/env python3
"""Has the PyTorch package become slower? Two trees, taking turns.

    python bench/package_against.py OLD NEW [--turns N] [--json]

OLD and NEW are checkouts with build/libcanzona.so in them (the target canzona_c),
both Release builds of one compiler; run it with a Python that has torch. Every turn
is one run of bench/first_step.py of this tree for each of the two: many small
matrices, where the host's time is seen, and few larger ones. Ranks are processes of
this machine with one thread each. The table has medians of the turns and the median
of their ratios, old : new, with the smallest and the largest.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

PROGRAM = pathlib.Path(__file__).with_name("first_step.py")
RANKS = {"alone": (1,), "ddp": (2,), "fsdp2": (2, 4)}
SIZES = {
    "252 small matrices": ["--steps", "12"],
    "28 matrices of 512": ["--width", "512", "--layers", "4", "--steps", "8"],
}


def run(tree, ranks, layout, size):
    environment = {
        **os.environ,
        "PYTHONPATH": str(pathlib.Path(tree, "python").resolve()),
        "CANZONA_LIBRARY": str(pathlib.Path(tree, "build/libcanzona.so").resolve()),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone",
               "--nproc-per-node", str(ranks), str(PROGRAM), layout, "--json",
               *SIZES[size]]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"error: {' '.join(command)} failed in {tree}:\n{ran.stderr[-2000:]}")
    return json.loads(ran.stdout.strip().splitlines()[-1])


def compare(trees, ranks, layout, size, turns):
    rounds = [[run(tree, ranks, layout, size) for tree in trees]
              for _ in range(turns)]
    for what in rounds[0][0]:
        old, new = ([found[i][what] for found in rounds] for i in (0, 1))
        ratios = sorted(a / b for a, b in zip(old, new))
        yield {"layout": layout, "ranks": ranks, "size": size, "what": what,
               "old_ms": statistics.median(old) * 1e3,
               "new_ms": statistics.median(new) * 1e3,
               "ratio": statistics.median(ratios),
               "smallest": ratios[0], "largest": ratios[-1]}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    if not options.json:
        print("| layout | matrices | | old, ms | new, ms | old : new |\n"
              "|---|---|---|---|---|---|")
    for size in SIZES:
        for layout, counts in RANKS.items():
            for ranks in counts:
                for row in compare((options.old, options.new), ranks, layout,
                                   size, options.turns):
                    rows.append(row)
                    if not options.json:
                        print("| {layout}, {ranks} | {size} | {what} | "
                              "{old_ms:.1f} | {new_ms:.1f} | {ratio:.3f} "
                              "({smallest:.3f} to {largest:.3f}) |".format(**row),
                              flush=True)
    if options.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
