#!/usr/bin/env python3
"""Whole iterations of `canzona train`: a matrix rule against AdamW.

    python3 bench/train_numbers.py --ranks 16 --markdown train.md --json train.json
    python3 bench/train_numbers.py --ranks 2 --tokens 1024 --meshes dp=2 --steps 4

An iteration is forward, backward, optimizer and what of the communication
nothing hides: a step's seconds, taken from metrics.jsonl, without the first
steps of a run. Every round of a mesh runs AdamW (its states cut as ZeRO-1 does)
and Muon with the strategies beside it; every other round runs them backwards
(A B, B A, ...), so that a machine that changes its pace favours none. The
median is that of all rounds; the spread is half of the steps' (the quartiles'
distance); the medians of the rounds stand beside it. Standard library only.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--canzona", default="build/canzona")
    parser.add_argument("--ranks", type=int, default=os.cpu_count())
    parser.add_argument("--meshes", default="",
                        help="separated by ';' [dp=RANKS and dp=RANKS/4,tp=4]")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--tokens", default="1024,8192",
                        help="of a rank and step")
    parser.add_argument("--rule", default="muon")
    parser.add_argument("--rule-option", action="append",
                        default=["precision=bf16"])
    parser.add_argument("--strategies", default="balanced,layerwise,replicated")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2,
                        help="runs of each rule, in alternating order")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--markdown")
    parser.add_argument("--json")
    return parser.parse_args()


class Bench:
    def __init__(self, args):
        self.args = args
        self.rows = []

    def command(self, mesh, tokens, rule, strategy):
        args = self.args
        length = 128
        sequences = tokens * args.ranks // length
        homes = args.ranks // axis(mesh, "tp")
        micro = min(8, sequences // homes)
        command = [args.canzona, "train", "--quiet", "--json", "--preset",
                   args.preset, "--mesh", mesh, "--rule", rule, "--strategy",
                   strategy, "--steps", str(args.steps),
                   "--set", f"model.length={length}",
                   "--set", f"batch.global={sequences}",
                   "--set", f"batch.micro={micro}",
                   "--set", "eval.sequences=1",
                   "--set", "plan.bucket_elements=2000000"]
        for setting in args.set:
            command += ["--set", setting]
        if rule != "adamw":
            for option in args.rule_option:
                command += ["--rule-option", option]
        return command

    def run_once(self, row):
        """One run of a row's rule; its timed steps join the row."""
        with tempfile.TemporaryDirectory() as folder:
            run = os.path.join(folder, "run")
            subprocess.run(row["command"] + ["--run", run], check=True,
                           stdout=subprocess.DEVNULL)
            with open(os.path.join(run, "metrics.jsonl")) as file:
                steps = [json.loads(text) for text in file]
        steps = steps[self.args.warmup:]
        tokens = row["tokens"] * self.args.ranks
        row["rounds"].append([tokens / step["tokens_per_second"]
                              for step in steps])
        row["optimizer_ms"] += [step["optimizer_ms"] for step in steps]
        seconds = " ".join(f"{value:.3f}" for value in row["rounds"][-1])
        print(f"{row['mesh']} {row['tokens']} {row['rule']} "
              f"{row['strategy']}: {seconds}", file=sys.stderr, flush=True)

    def measure(self, mesh, tokens):
        kinds = [("adamw", "balanced")]
        kinds += [(self.args.rule, strategy)
                  for strategy in self.args.strategies.split(",")]
        rows = [{"mesh": mesh, "tokens": tokens, "rule": rule,
                 "strategy": strategy, "rounds": [], "optimizer_ms": [],
                 "command": self.command(mesh, tokens, rule, strategy)}
                for rule, strategy in kinds]
        self.rows += rows
        for index in range(self.args.rounds):
            for row in rows if index % 2 == 0 else reversed(rows):
                self.run_once(row)
                self.save()
        for row in rows:
            row["ratio"] = median(row) / median(rows[0])
            print(line(row), flush=True)

    def save(self):
        """After every run: what was measured outlives an end by a clock."""
        if self.args.json:
            with open(self.args.json, "w") as file:
                json.dump(self.rows, file, indent=2)


def seconds_of(row):
    return [value for values in row["rounds"] for value in values]


def median(row):
    return statistics.median(seconds_of(row))


def spread(row):
    """The distance of the quartiles."""
    seconds = seconds_of(row)
    if len(seconds) < 2:
        return 0.0
    low, _, high = statistics.quantiles(seconds, method="inclusive")
    return high - low


def axis(mesh, name):
    for part in mesh.split(","):
        key, size = part.split("=")
        if key == name:
            return int(size)
    return 1


HEADER = ("| mesh | tokens of a rank | rule | strategy | iterations | "
          "iteration, ms (spread) | of each round | optimizer, ms | : AdamW |"
          "\n|---|---|---|---|---|---|---|---|---|")


def line(row):
    rounds = ", ".join(f"{1e3 * statistics.median(values):.0f}"
                       for values in row["rounds"])
    return (f"| {row['mesh']} | {row['tokens']} | {row['rule']} | "
            f"{row['strategy']} | {len(seconds_of(row))} | "
            f"{1e3 * median(row):.0f} ({1e3 * spread(row):.0f}) | {rounds} | "
            f"{statistics.median(row['optimizer_ms']):.1f} | "
            f"{row['ratio']:.3f} |")


def main():
    args = parse_arguments()
    bench = Bench(args)
    meshes = [mesh for mesh in args.meshes.split(";") if mesh]
    if not meshes:
        meshes = [f"dp={args.ranks}", f"dp={args.ranks // 4},tp=4"]
    print(HEADER)
    for tokens in args.tokens.split(","):
        for mesh in meshes:
            bench.measure(mesh, int(tokens))
    if args.markdown:
        with open(args.markdown, "w") as file:
            file.write("\n".join([HEADER] + [line(r) for r in bench.rows]))
            file.write("\n")
    bench.save()


if __name__ == "__main__":
    main()
