#!/usr/bin/env python3
"""Measures what hierarchical ZeRO with background communication is worth.

    python3 bench/zero_numbers.py --ranks 2 --parts two --markdown zero.md --json zero.json
    python3 bench/zero_numbers.py --ranks 16 --parts overlap,nodes,rules --budget 600

Parts, the most telling first; every part has its share of --budget (seconds):

  two      2 ranks, tiny: background against none
  overlap  zero3 at three ratios of communication to compute, three overlaps
  bytes    slow bytes of zero3, direct and once per node, against hier:4, counted
  nodes    nodes of four, 4 micro-batches: bytes between nodes, times, memory and
           predictions of zero3, hier:4, replica:4, zero1, zero2, none
  rules    Muon, Shampoo and SOAP against AdamW on hier:4, 8k tokens a rank and step
  step     the same rules with 24 layers and few tokens: what of their gathers and
           scatters is hidden; links as in rules
  auto     dp=8, every triple measured at three ratios of links: what the prediction
           chooses under two memory caps against the fastest that fits
  tensor   dp=RANKS hier:4 against dp=RANKS/4,tp=4 at six lengths, and where the
           better one changes

All figures come from `canzona bench zero`, which measures the machine's limits in
the same run. Results are saved after every command. Standard library only.
"""
import argparse
import os

from zero_bytes import run_bytes
from zero_report import (OVERLAP_HEADER, cells, find, hidden_text, link_text,
                         machine_line, milliseconds, overlap_rows, sizes,
                         time_text)
from zero_rules import run_auto, run_rules, run_step, run_tensor
from zero_session import DEEP, Bench

SHARES = {"two": 60, "bytes": 120, "overlap": 200, "nodes": 150, "rules": 220,
          "step": 80, "auto": 180, "tensor": 130}


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--canzona", default="build/canzona")
    parser.add_argument("--ranks", type=int, default=os.cpu_count())
    parser.add_argument("--parts", default="",
                        help="[two,bytes on fewer than 16 ranks, else all but "
                        "two]")
    parser.add_argument("--budget", type=float, default=0,
                        help="seconds of all parts together [their own]")
    parser.add_argument("--tokens", type=int, default=1024,
                        help="of a rank and iteration, in overlap and nodes")
    parser.add_argument("--repeat", type=int, default=3,
                        help="rounds of two iterations, in overlap")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--markdown")
    parser.add_argument("--json")
    return parser.parse_args()


def run_two(bench, seconds):
    answer = bench.run("two", seconds / 3, "--preset", "tiny", "--mesh", "dp=2",
                       "--zero", "zero3", "--overlap", "all", "--comm-ratio",
                       0.5, "--micro-batches", 4, "--tokens", 512, "--steps", 3,
                       "--repeat", 5)
    if answer is None:
        return
    bench.say("", "## Two ranks, tiny, 4 micro-batches, ratio 0.5", "",
              "Wanted: background 1.25 times as fast as none, 80 % hidden.", "",
              machine_line(answer), "", *OVERLAP_HEADER,
              *overlap_rows(answer, 0.5))


def run_overlap(bench, seconds):
    bench.say("", "## zero3, three ratios of communication to compute", "",
              "Wanted: none : background 1.35 at 0.5 and 1.6 at 1.0, 90 % "
              "hidden; main : background 1.0.", "", *OVERLAP_HEADER)
    ratios, lines = [0.5, 1.0, 0.25], []
    for ratio in ratios:
        answer = bench.run(
            "overlap", seconds / len(ratios), "--mesh",
            f"dp={bench.args.ranks}", "--zero", "zero3", "--overlap", "all",
            "--comm-ratio", ratio, "--tokens", bench.args.tokens, "--steps", 2,
            "--repeat", bench.args.repeat, settings=DEEP)
        if answer is not None:
            bench.say(*overlap_rows(answer, ratio))
            lines.append(f"At {ratio}: {machine_line(answer)}")
            last = answer
    if lines:
        bench.say("", f"{last['parameters'] / 1e6:.1f}M parameters, "
                  f"{last['tokens']} tokens a rank.", *lines)


def run_nodes(bench, seconds):
    ranks = bench.args.ranks
    common = ["--mesh", f"dp={ranks}", "--overlap", "background",
              "--ranks-per-node", 4, "--micro-batches", 4, "--tokens",
              bench.args.tokens // 4, "--steps", 5, "--repeat", 1]
    answer = bench.run(
        "nodes", seconds * 6 / 7, *common, "--zero",
        "zero3;hier:4;replica:4;zero1;zero2;none", "--link",
        "intra=10GB/s,inter=1GB/s", "--comm-ratio", 2, settings=DEEP)
    if answer is None:
        return
    once = bench.run("nodes", seconds / 7, *common, "--zero", "zero3",
                     "--collectives", "node", "--link",
                     link_text(answer["link"]), settings=DEEP)
    zero3 = find(answer, f"{ranks},{ranks},{ranks}")
    rows = []
    named = [(sizes(cell), cell) for cell in cells(answer)]
    if once is not None:
        named += [(f"{sizes(cell)} once per node", cell)
                  for cell in cells(once)]
    for name, cell in named:
        ratio = cell["predicted_seconds"] / cell["iteration_seconds"]
        slow = cell["slow_bytes_per_rank"]
        rows.append(
            f"| {name} | {time_text(cell)} | "
            f"{zero3['iteration_seconds'] / cell['iteration_seconds']:.2f} | "
            f"{milliseconds(cell['predicted_seconds'])} ({ratio:.2f}) | "
            f"{slow / 1e6:.1f} | {cell['slow_bytes_predicted'] / 1e6:.1f} | "
            f"{zero3['slow_bytes_per_rank'] / slow if slow else 0:.1f} | "
            f"{cell['memory_bytes_max'] / 1e6:.1f} | "
            f"{milliseconds(cell['compute_seconds'])} | "
            f"{milliseconds(cell['waited_seconds'])} | "
            f"{milliseconds(cell['busy_seconds'])} | {hidden_text(cell)} | "
            f"{100 * cell['edge_fraction']:.1f} % |")
    bench.say("", "## Nodes of four, 4 micro-batches", "",
              "zero3's slow traffic takes twice the compute; inside a node "
              "links are ten times as fast. Wanted: zero3 : hier:4 24 times "
              "the slow bytes and 1.6 times the time; predictions within 15 %.",
              "", machine_line(answer), "",
              "| z1,z2,z3 | iteration, ms (spread) | zero3 : it | "
              "predicted, ms (: measured) | slow MB | predicted | zero3 : it | "
              "memory, MB | computes, ms | waits, ms | links, ms | "
              "hidden (covered) | edge |", "|---" * 13 + "|", *rows)


PARTS = {"two": run_two, "bytes": run_bytes, "overlap": run_overlap,
         "nodes": run_nodes, "rules": run_rules, "step": run_step,
         "auto": run_auto,
         "tensor": run_tensor}


def main():
    args = parse_arguments()
    names = [name for name in args.parts.split(",") if name]
    if not names:
        small = ["two", "bytes"]
        names = small if args.ranks < 16 else [n for n in PARTS if n != "two"]
    total = sum(SHARES[name] for name in names)
    scale = args.budget / total if args.budget > 0 else 1
    bench = Bench(args, {name: scale * SHARES[name] for name in names})
    bench.say(f"# Hierarchical ZeRO on {args.ranks} ranks", "",
              "Modelled links between threads; medians, spread = largest - "
              "smallest.")
    for name in names:
        PARTS[name](bench, bench.seconds[name])
    bench.save()


if __name__ == "__main__":
    main()
