#!/usr/bin/env python3
"""Whole iterations of `canzona train`: a matrix rule against AdamW.

    python3 bench/train_numbers.py --ranks 16 --markdown train.md --json train.json
    python3 bench/train_numbers.py --ranks 2 --tokens 1024 --meshes dp=2 --steps 4

An iteration is forward, backward, optimizer and what of the communication
nothing hides: the median of a step's seconds after the first ones, taken from
metrics.jsonl. Every mesh runs AdamW (its states cut as ZeRO-1 does), Muon with
the strategies beside it, and AdamW once more, so that a machine that changes
its pace shows. Standard library only.
"""
import argparse
import json
import os
import statistics
import subprocess
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
    parser.add_argument("--once", action="store_true",
                        help="no second round of AdamW and `balanced`")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--markdown")
    parser.add_argument("--json")
    return parser.parse_args()


class Bench:
    def __init__(self, args):
        self.args = args
        self.rows = []

    def iteration(self, mesh, tokens, rule, strategy):
        """Median seconds of an iteration, and of the optimizer in it."""
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
        with tempfile.TemporaryDirectory() as folder:
            run = os.path.join(folder, "run")
            subprocess.run(command + ["--run", run], check=True,
                           stdout=subprocess.DEVNULL)
            with open(os.path.join(run, "metrics.jsonl")) as file:
                steps = [json.loads(line) for line in file]
        steps = steps[args.warmup:]
        seconds = [tokens * args.ranks / step["tokens_per_second"]
                   for step in steps]
        return {"mesh": mesh, "tokens": tokens, "rule": rule,
                "strategy": strategy, "command": " ".join(command[1:]),
                "seconds": statistics.median(seconds),
                "spread": max(seconds) - min(seconds),
                "optimizer_ms": statistics.median(
                    [step["optimizer_ms"] for step in steps])}

    def measure(self, mesh, tokens):
        rule = self.args.rule
        runs = [("adamw", "balanced")]
        runs += [(rule, strategy)
                 for strategy in self.args.strategies.split(",")]
        if not self.args.once:
            runs += [("adamw", "balanced"), (rule, "balanced")]
        found = [self.iteration(mesh, tokens, *run) for run in runs]
        adamw = min(row["seconds"] for row in found if row["rule"] == "adamw")
        for row in found:
            row["ratio"] = row["seconds"] / adamw
            self.rows.append(row)
            print(line(row), flush=True)


def axis(mesh, name):
    for part in mesh.split(","):
        key, size = part.split("=")
        if key == name:
            return int(size)
    return 1


HEADER = ("| mesh | tokens of a rank | rule | strategy | iteration, ms "
          "(spread) | optimizer, ms | : AdamW |\n|---|---|---|---|---|---|---|")


def line(row):
    return (f"| {row['mesh']} | {row['tokens']} | {row['rule']} | "
            f"{row['strategy']} | {1e3 * row['seconds']:.0f} "
            f"({1e3 * row['spread']:.0f}) | {row['optimizer_ms']:.1f} | "
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
    if args.json:
        with open(args.json, "w") as file:
            json.dump(bench.rows, file, indent=2)


if __name__ == "__main__":
    main()
