#!/usr/bin/env python3
"""What hierarchical ZeRO with background communication is worth.

    python3 bench/zero_numbers.py --ranks 2 --parts two --markdown zero.md --json zero.json
    python3 bench/zero_numbers.py --ranks 16 --parts overlap,nodes,rules --budget 600

Parts, the most telling first; every part has its share of --budget (seconds):

  two      2 ranks, tiny: background against none
  overlap  zero3 at three ratios of communication to compute, three overlaps
  bytes    slow bytes of zero3, direct and once per node, against hier:4, counted
  nodes    nodes of four, 4 micro-batches: bytes between nodes, times, memory and
           predictions of zero3, hier:4, replica:4, zero1, zero2, none
  rules    Muon, Shampoo and SOAP against AdamW on hier:4, 8k tokens a rank and step
  auto     dp=8, every triple measured at three ratios of links: what the prediction
           chooses under two memory caps against the fastest that fits
  tensor   dp=RANKS hier:4 against dp=RANKS/4,tp=4 at three lengths

All figures come from `canzona bench zero`, which measures the machine's limits in
the same run. Results are saved after every command. Standard library only.
"""
import argparse
import json
import os
import subprocess
import sys
import time

from zero_bytes import run_bytes
from zero_report import (OVERLAP_HEADER, cells, find, link_text, machine_line,
                         milliseconds, overlap_rows, sizes, time_text)

# At least 24 layers and 30M parameters: the embedding, whose gather and scatter
# nothing can hide, is a small part.
DEEP = {"model.layers": 24, "model.hidden": 384, "model.ffn": 768,
        "model.heads": 8, "model.kv_heads": 4, "model.head_dim": 48,
        "model.length": 128}
SHARES = {"two": 60, "bytes": 60, "overlap": 300, "nodes": 240, "rules": 240,
          "auto": 180, "tensor": 180}


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
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--markdown")
    parser.add_argument("--json")
    return parser.parse_args()


class Bench:
    """Runs commands inside a budget and keeps what they said."""

    def __init__(self, args, seconds):
        self.args = args
        self.seconds = seconds  # by part
        self.results = []
        self.text = []

    def save(self):
        if self.args.json:
            with open(self.args.json, "w") as file:
                json.dump(self.results, file, indent=1)
        if self.args.markdown:
            with open(self.args.markdown, "w") as file:
                file.write("\n".join(self.text) + "\n")

    def say(self, *lines):
        for text in lines:
            print(text, flush=True)
        self.text += lines
        self.save()

    def run(self, part, limit, *words, settings=None):
        """The JSON of one command, or None if it did not end well in time."""
        command = [self.args.canzona, "bench", "zero", "--quiet", "--json",
                   "--limit", f"{max(1, limit):.0f}s", *map(str, words)]
        for key, value in (settings or {}).items():
            command += ["--set", f"{key}={value}"]
        for text in self.args.set:
            command += ["--set", text]
        begin = time.monotonic()
        try:
            done = subprocess.run(command, capture_output=True, text=True,
                                  timeout=max(30, 3 * limit))
        except subprocess.TimeoutExpired:
            print(f"{part}: no end after {3 * limit:.0f} s:", *command,
                  file=sys.stderr)
            return None
        if not done.stdout.startswith("{"):
            print(f"{part}: {done.stderr}", *command, file=sys.stderr)
            return None
        answer = json.loads(done.stdout)
        seconds = time.monotonic() - begin
        self.results.append({"part": part, "command": " ".join(command),
                             "seconds": seconds, "answer": answer})
        print(f"{part}: {seconds:.0f} s:", *command[3:], file=sys.stderr,
              flush=True)
        self.save()
        return answer


def run_two(bench, seconds):
    answer = bench.run("two", seconds / 3, "--preset", "tiny", "--mesh", "dp=2",
                       "--zero", "zero3", "--overlap", "all", "--comm-ratio",
                       0.5, "--micro-batches", 4, "--tokens", 512, "--steps", 3,
                       "--repeat", bench.args.repeat)
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
    ratios = [0.5, 1.0, 0.25]
    for ratio in ratios:
        answer = bench.run(
            "overlap", seconds / len(ratios), "--mesh",
            f"dp={bench.args.ranks}", "--zero", "zero3", "--overlap", "all",
            "--comm-ratio", ratio, "--tokens", bench.args.tokens, "--steps", 2,
            "--repeat", bench.args.repeat, settings=DEEP)
        if answer is not None:
            bench.say(*overlap_rows(answer, ratio))
            last = answer
    if bench.results and bench.results[-1]["part"] == "overlap":
        bench.say("", f"{last['parameters'] / 1e6:.1f}M parameters, "
                  f"{last['tokens']} tokens a rank. {machine_line(last)}")


def run_nodes(bench, seconds):
    ranks = bench.args.ranks
    common = ["--mesh", f"dp={ranks}", "--overlap", "background",
              "--ranks-per-node", 4, "--micro-batches", 4, "--tokens",
              bench.args.tokens // 4, "--steps", 1, "--repeat",
              bench.args.repeat]
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
            f"{100 * cell['hidden_fraction']:.0f} % |")
    bench.say("", "## Nodes of four, 4 micro-batches", "",
              "zero3's slow traffic takes twice the compute; inside a node "
              "links are ten times as fast. Wanted: zero3 : hier:4 24 times "
              "the slow bytes and 1.6 times the time; predictions within 15 %.",
              "", machine_line(answer), "",
              "| z1,z2,z3 | iteration, ms (spread) | zero3 : it | "
              "predicted, ms (: measured) | slow MB | predicted | zero3 : it | "
              "memory, MB | hidden |", "|---|---|---|---|---|---|---|---|---|",
              *rows)


def run_rules(bench, seconds):
    """The link is scaled for AdamW, and then the same for all."""
    model = {"model.length": 128}
    common = ["--preset", "small", "--mesh", f"dp={bench.args.ranks}", "--zero",
              "hier:4", "--overlap", "background", "--ranks-per-node", 4,
              "--micro-batches", 8, "--tokens", 1024]
    kinds = [("adamw", [], 2), ("muon", ["precision=bf16"], 2),
             ("soap", ["precondition_frequency=3"], 3),
             ("shampoo", ["precondition_frequency=3"], 3)]
    rows, first = [], None
    for rule, options, steps in kinds:
        words = list(common)
        for option in options:
            words += ["--rule-option", option]
        if first is None:
            words += ["--link", "intra=10GB/s,inter=1GB/s", "--comm-ratio", 0.5]
        else:
            words += ["--link", link_text(first["link"])]
        answer = bench.run("rules", seconds / len(kinds), *words, "--rule",
                           rule, "--steps", steps, "--repeat", 2,
                           settings=model)
        if answer is None:
            if first is None:
                return
            continue
        first = first or answer
        cell, base = cells(answer)[0], cells(first)[0]
        rows.append(
            f"| {rule} | {time_text(cell)} | "
            f"{milliseconds(cell['iteration_seconds_mean'])} | "
            f"{milliseconds(cell['iteration_seconds_worst'])} | "
            f"{cell['iteration_seconds_mean'] / base['iteration_seconds_mean']:.3f}"
            f" | {milliseconds(cell['optimizer_seconds'])} | "
            f"{100 * cell['step_hidden_fraction']:.0f} % | "
            f"{100 * cell['hidden_fraction']:.0f} % |")
    bench.say("", "## Rules on hier:4, 8k tokens a rank and step", "",
              "Wanted: Muon 1.05 times AdamW; 85 % of the step's gathers and "
              "scatters hidden.", "", machine_line(first), "",
              "| rule | iteration, ms (spread) | mean | worst | : AdamW | "
              "optimizer, ms | hidden in the step | hidden |",
              "|---|---|---|---|---|---|---|---|", *rows)


def run_auto(bench, seconds):
    """Every triple is measured: the prediction's choice against the best."""
    rows = []
    links = ["intra=10GB/s,inter=1GB/s", "intra=3GB/s,inter=1GB/s",
             "intra=1GB/s,inter=1GB/s"]
    for link in links:
        answer = bench.run(
            "auto", seconds / len(links), "--mesh", "dp=8", "--zero", "all",
            "--overlap", "background", "--ranks-per-node", 4, "--tokens", 512,
            "--link", link, "--comm-ratio", 1.5, "--steps", 2, "--repeat", 3,
            settings={"model.layers": 8, "model.hidden": 256, "model.ffn": 512,
                      "model.head_dim": 32, "model.length": 128})
        if answer is None:
            continue
        triples = cells(answer)
        memory = sorted(cell["memory_predicted_max"] for cell in triples)
        for cap in (memory[-1], memory[len(memory) // 2]):
            fits = [cell for cell in triples
                    if cell["memory_predicted_max"] <= cap]
            chosen = min(fits, key=lambda cell: cell["predicted_seconds"])
            best = min(fits, key=lambda cell: cell["iteration_seconds"])
            rows.append(
                f"| {link} | {cap / 1e6:.1f} | {len(fits)} | {sizes(chosen)} | "
                f"{time_text(chosen)} | {sizes(best)} | {time_text(best)} | "
                f"{chosen['iteration_seconds'] / best['iteration_seconds']:.3f}"
                " |")
    bench.say("", "## What the prediction chooses, dp=8, all triples measured",
              "", "Wanted: within 10 % of the fastest that fits.", "",
              "| link | cap, MB | fit | chosen | its ms | fastest | its ms | "
              "ratio |", "|---|---|---|---|---|---|---|---|", *rows)


def run_tensor(bench, seconds):
    """Sequences of one length make a micro-batch; the link is the first's."""
    ranks, rows, link = bench.args.ranks, [], None
    for length in (128, 512, 2048):
        pair = []
        for mesh, zero, tokens in ((f"dp={ranks}", "hier:4", length),
                                   (f"dp={ranks // 4},tp=4", "zero1",
                                    4 * length)):
            words = ["--preset", "small", "--mesh", mesh, "--zero", zero,
                     "--overlap", "background", "--ranks-per-node", 4,
                     "--tokens", tokens, "--steps", 2, "--repeat", 2]
            if link is None:
                words += ["--link", "intra=10GB/s,inter=1GB/s", "--comm-ratio",
                          1.0]
            else:
                words += ["--link", link_text(link)]
            answer = bench.run("tensor", seconds / 6, *words,
                               settings={"model.length": length})
            if answer is None:
                return
            link = link or answer["link"]
            pair.append(cells(answer)[0])
        zero, tensor = pair
        rows.append(
            f"| {length} | {time_text(zero)} | {time_text(tensor)} | "
            f"{tensor['iteration_seconds'] / zero['iteration_seconds']:.2f} | "
            f"{tensor['predicted_seconds'] / zero['predicted_seconds']:.2f} |")
    bench.say("", f"## dp={ranks} hier:4 against dp={ranks // 4},tp=4", "",
              "| tokens of a rank | hier:4, ms (spread) | tp=4, ms (spread) | "
              "tp : hier | predicted |", "|---|---|---|---|---|", *rows)


PARTS = {"two": run_two, "bytes": run_bytes, "overlap": run_overlap,
         "nodes": run_nodes, "rules": run_rules, "auto": run_auto,
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
