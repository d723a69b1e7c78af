#!/usr/bin/env python3
"""Measures what hierarchical ZeRO with background communication is worth.

    python3 bench/zero_numbers.py --ranks 2 --parts overlap --markdown zero.md
    python3 bench/zero_numbers.py --ranks 16 --parts overlap,nodes,auto --json zero.json

  overlap  zero3 at three ratios of communication to compute, three overlaps
  bytes    slow bytes of zero3, direct and once per node, against hier:4, counted
  nodes    nodes of four, 4 micro-batches: bytes between nodes, times, memory and
           predictions of zero3, hier:4, replica:4, zero1, zero2, none
  step     Muon, SOAP and Shampoo on hier:4: what of their gathers and scatters is
           hidden
  auto     dp=8, every triple measured at three ratios of links: what the prediction
           chooses under two memory caps against the fastest that fits

All figures come from `canzona bench step`; forward and backward are timed work.
Standard library only.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

from own_model import model_flags

# At least 24 layers and 30M parameters: the embedding, whose gather and scatter
# nothing can hide, is a small part.
DEEP = (24, 384, 768, 8, 4, 48)
SMALL = (8, 256, 512, 8, 4, 32)
TINY = (4, 128, 384, 8, 4, 16)
RULES = [("muon", []), ("soap", ["precondition_frequency=3"]),
         ("shampoo", ["precondition_frequency=3"])]


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--canzona", default="build/canzona")
    parser.add_argument("--ranks", type=int, default=os.cpu_count())
    parser.add_argument("--parts", default="overlap,bytes")
    parser.add_argument("--compute", type=float, default=1,
                        help="seconds of forward and backward of an iteration")
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--markdown")
    parser.add_argument("--json")
    return parser.parse_args()


class Bench:
    """Runs commands and keeps what they said."""

    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.results, self.text = [], []

    def say(self, *lines):
        print("\n".join(lines), flush=True)
        self.text += lines

    def run(self, model, *words):
        command = [self.args.canzona, "bench", "step", "--quiet", "--json",
                   *model_flags(self.folder, *model), "--strategy", "balanced",
                   *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True)
        if not done.stdout.startswith("{"):
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
        answer = json.loads(done.stdout)
        self.results.append({"command": " ".join(command), "answer": answer})
        return answer

    def timed(self, model, *words):
        return self.run(model, "--compute", self.args.compute, "--iterations",
                        self.args.iterations, "--steps", 2, *words)


def sizes(plan):
    zero = plan["zero"]
    return f"{zero['z1']},{zero['z2']},{zero['z3']}"


def plans(answer):
    return [plan for plan in answer["strategies"] if "error" not in plan]


def milliseconds(seconds):
    return f"{1e3 * seconds:.0f}"


def time_text(plan):
    return (f"{milliseconds(plan['iteration_seconds'])} "
            f"({milliseconds(plan['iteration_seconds_spread'])})")


def hidden_text(plan, kind=""):
    """1 - waits / links, and the share of links' time that compute went on."""
    return (f"{100 * plan[kind + 'hidden_fraction']:.0f} % "
            f"({100 * plan[kind + 'covered_fraction']:.0f} %)")


def table(header, rows):
    return ["| " + " | ".join(header) + " |", "|---" * len(header) + "|",
            *("| " + " | ".join(map(str, row)) + " |" for row in rows)]


def run_overlap(bench):
    rows = []
    for ratio in (0.25, 0.5, 1.0):
        answer = bench.timed(DEEP, "--mesh", f"dp={bench.args.ranks}", "--zero",
                             "zero3", "--overlap", "all", "--comm-ratio", ratio)
        none, main, _ = (p["iteration_seconds"] for p in plans(answer))
        for plan in plans(answer):
            seconds = plan["iteration_seconds"]
            rows.append([ratio, plan["overlap"], time_text(plan),
                         f"{none / seconds:.2f} ({1 + min(ratio, 1 / ratio):.2f})",
                         f"{main / seconds:.3f}", hidden_text(plan),
                         milliseconds(plan["compute_seconds"]),
                         milliseconds(plan["waited_seconds"]),
                         milliseconds(plan["links_busy_seconds"]),
                         milliseconds(plan["predicted_iteration_seconds"])])
    bench.say("", "## zero3, three ratios of communication to compute", "",
              "Wanted: none : background 1.35 at 0.5 and 1.6 at 1.0, 90 % "
              "hidden; main : background 1.0.", "",
              *table(["ratio", "overlap", "iteration, ms (spread)",
                      "none : it (limit)", "main : it", "hidden (covered)",
                      "computes, ms", "waits, ms", "links, ms",
                      "predicted, ms"], rows))


def run_bytes(bench):
    """Four nodes of four, 4 micro-batches; no figure depends on the machine."""
    rows = []
    for rule in ("adamw", "muon"):
        common = ["--mesh", "dp=16", "--ranks-per-node", 4, "--micro-batches",
                  4, "--rule", rule, "--compute", 0, "--steps", 1,
                  "--iterations", 0]
        zero3, hier = plans(bench.run(TINY, *common, "--zero", "zero3;hier:4"))
        node, = plans(bench.run(TINY, *common, "--zero", "zero3",
                                "--collectives", "node"))
        for name, plan in (("zero3", zero3),
                           ("zero3 --collectives node", node),
                           ("hier:4", hier)):
            slow = plan["slow_bytes_sent_max"]
            rows.append([rule, name, slow, plan["slow_bytes_predicted_max"],
                         f"{slow / hier['slow_bytes_sent_max']:.2f}",
                         plan["digest"][:8]])
    bench.say("", "## Bytes between nodes, four nodes of four, 4 micro-batches",
              "", "Of the rank that sends most, in a step. Wanted: 24 times "
              "hier:4 for zero3, 6 times where it sends once per node; a "
              "matrix rule's step has an exchange of its own on top.", "",
              *table(["rule", "", "slow bytes, counted", "predicted",
                      ": hier:4", "digest"], rows))


def run_nodes(bench):
    common = ["--mesh", f"dp={bench.args.ranks}", "--ranks-per-node", 4,
              "--micro-batches", 4]
    answer = bench.timed(DEEP, *common, "--zero",
                         "zero3;hier:4;replica:4;zero1;zero2;none", "--link",
                         "intra=10GB/s,inter=1GB/s", "--comm-ratio", 2)
    link = answer["link"]
    rates = (f"intra={link['intra_bytes_per_second']:.6g}B/s,"
             f"inter={link['inter_bytes_per_second']:.6g}B/s")
    once = bench.timed(DEEP, *common, "--zero", "zero3", "--collectives",
                       "node", "--link", rates)
    zero3, rows = plans(answer)[0], []
    named = [(sizes(plan), plan) for plan in plans(answer)]
    named += [(f"{sizes(plan)} once per node", plan) for plan in plans(once)]
    for name, plan in named:
        seconds, slow = plan["iteration_seconds"], plan["slow_bytes_sent_max"]
        predicted = plan["predicted_iteration_seconds"]
        most = zero3["slow_bytes_sent_max"]
        rows.append([name, time_text(plan),
                     f"{zero3['iteration_seconds'] / seconds:.2f}",
                     f"{milliseconds(predicted)} ({predicted / seconds:.2f})",
                     f"{slow / 1e6:.1f}", f"{most / slow if slow else 0:.1f}",
                     f"{plan['memory_bytes_max'] / 1e6:.1f}",
                     milliseconds(plan["waited_seconds"]),
                     milliseconds(plan["links_busy_seconds"]),
                     hidden_text(plan)])
    bench.say("", "## Nodes of four, 4 micro-batches", "",
              "zero3's slow traffic takes twice the compute; inside a node "
              "links are ten times as fast. Wanted: zero3 : hier:4 24 times "
              "the slow bytes and 1.6 times the time; predictions within 15 %.",
              "", *table(["z1,z2,z3", "iteration, ms (spread)", "zero3 : it",
                          "predicted, ms (: measured)", "slow MB", "zero3 : it",
                          "memory, MB", "waits, ms", "links, ms",
                          "hidden (covered)"], rows))


def run_step(bench):
    rows = []
    for rule, options in RULES:
        words = [w for option in options for w in ("--rule-option", option)]
        plan, = plans(bench.run(
            DEEP, "--mesh", f"dp={bench.args.ranks}", "--zero", "hier:4",
            "--ranks-per-node", 4, "--link",
            "intra=226MB/s,inter=22.6MB/s", "--rule", rule, "--compute", 0,
            "--steps", 7, "--iterations", 0, *words))
        rows.append([" ".join([rule, *options]),
                     milliseconds(plan["step_compute_seconds"]),
                     f"{1e3 * plan['step_waited_seconds']:.1f}",
                     f"{1e3 * plan['step_exposed_seconds']:.1f}",
                     f"{1e3 * plan['step_busy_seconds']:.1f}",
                     hidden_text(plan, "step_")])
    bench.say("", "## The step on hier:4, 24 layers", "",
              "Wanted: 85 % of the step's gathers and scatters hidden.", "",
              *table(["rule", "optimizer, ms", "waits, ms",
                      "of it links busy, ms", "links, ms", "hidden (covered)"],
                     rows))


def run_auto(bench):
    """Every triple is measured: the prediction's choice against the best."""
    rows, lines = [], []
    for intra in (10, 3, 1):
        answer = bench.timed(SMALL, "--mesh", "dp=8", "--zero", "all",
                             "--ranks-per-node", 4, "--link",
                             f"intra={intra}GB/s,inter=1GB/s", "--comm-ratio",
                             1.5)
        triples = plans(answer)
        ratios = sorted(plan["predicted_iteration_seconds"] /
                        plan["iteration_seconds"] for plan in triples)
        near = sum(abs(ratio - 1) <= 0.15 for ratio in ratios)
        lines.append(f"intra : inter {intra}: predicted : measured "
                     f"{ratios[0]:.2f} to {ratios[-1]:.2f}, {near} of "
                     f"{len(ratios)} within 15 %.")
        memory = sorted(plan["memory_predicted_max"] for plan in triples)
        for cap in (memory[-1], memory[len(memory) // 2]):
            fits = [p for p in triples if p["memory_predicted_max"] <= cap]
            chosen = min(fits, key=lambda p: p["predicted_iteration_seconds"])
            best = min(fits, key=lambda p: p["iteration_seconds"])
            ratio = chosen["iteration_seconds"] / best["iteration_seconds"]
            rows.append([intra, f"{cap / 1e6:.1f}", len(fits), sizes(chosen),
                         time_text(chosen), sizes(best), time_text(best),
                         f"{ratio:.3f}"])
    bench.say("", "## What the prediction chooses, dp=8, all triples measured",
              "", "Wanted: within 10 % of the fastest that fits.", "",
              *table(["intra : inter", "cap, MB", "fit", "chosen", "its ms",
                      "fastest", "its ms", "ratio"], rows), "", *lines)


PARTS = {"overlap": run_overlap, "bytes": run_bytes, "nodes": run_nodes,
         "step": run_step, "auto": run_auto}


def main():
    args = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, folder)
        bench.say(f"# Hierarchical ZeRO on {args.ranks} ranks", "",
                  "Modelled links between threads; medians, spread = largest - "
                  "smallest.")
        for name in args.parts.split(","):
            PARTS[name](bench)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(bench.results, file, indent=1)
    if args.markdown:
        with open(args.markdown, "w") as file:
            file.write("\n".join(bench.text) + "\n")


if __name__ == "__main__":
    main()
