#!/usr/bin/env python3
"""Times our rules on a GPU beside PyTorch's, and prints ratios.

    sh scripts/bench_cuda.sh [--large] [--only muon,soap] [--markdown FILE]

Needs a python3 with PyTorch for CUDA. Peers are torch.optim.Muon, fused AdamW,
and transcriptions of KellerJordan/Muon, nikhilvyas/SOAP and Meta's Shampoo
(torch_rules.py, torch_shampoo.py); ours is bench/rule, run before and
after them on the same shapes, the mean of the two. Medians of --rounds steps
after three; a step of SOAP and Shampoo is the mean over one period.
"""
import argparse
import gc
import json
import os
import shlex
import statistics
import subprocess
import sys

import torch

from torch_measure import (copy_bytes_per_second, free, parameters,
                           periodic_seconds, product_tflops, step_seconds)
from torch_report import Report, milliseconds
from torch_rules import BatchedGramMuon, KellerMuon, Soap
from torch_shampoo import Shampoo, eigen_root, newton_root

PERIOD = 10
# layers, hidden, ffn, width of the queries, of keys and of values
MODELS = {"qwen3-0.6b": (28, 1024, 3072, 2048, 1024),
          "qwen3-1.7b": (28, 2048, 6144, 2048, 1024),
          "qwen3-8b": (36, 4096, 12288, 4096, 1024)}
OURS = ("{folder}/bench/rule --rule {rule} --model {model} --layers {layers} "
        "--device {device} --rounds {rounds} --json")
HEADER = ["step of", "ms", "plain step ms", "refresh step ms", "floor ms",
          "host ms", "over ours", "over fused AdamW"]
ADAMW = "AdamW, torch fused"


def shapes_of(model, layers):
    _, hidden, ffn, queries, keys = MODELS[model]
    return [(queries, hidden), (keys, hidden), (keys, hidden),
            (hidden, queries), (ffn, hidden), (ffn, hidden),
            (hidden, ffn)] * layers


class Bench:
    """One run: what was asked for, what came out."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.device = arguments.device
        self.report = Report()
        self.results = {"sections": {}}
        self.failures = []

    def ours(self, rule, model, layers):
        """Returns what bench/rule says, or None and a remark."""
        command = shlex.split(self.arguments.ours.format(
            folder=os.path.dirname(self.arguments.canzona) or ".",
            rule=rule, model=model,
            layers=layers, device=self.device, rounds=self.arguments.rounds))
        gc.collect()
        free(self.device)
        try:
            done = subprocess.run(command, capture_output=True, text=True,
                                  check=True, timeout=600)
            return json.loads(done.stdout)
        except subprocess.CalledProcessError as error:
            why = error.stderr.strip() or f"exit status {error.returncode}"
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            why = str(error)
        self.fail(f"{shlex.join(command)}: {why}")
        return None

    def fail(self, what):
        self.failures.append(what)
        print(f"failed: {what}", file=sys.stderr)

    def peer(self, name, make, shapes, measure):
        """Measures one peer; what it held is free again afterwards."""
        try:
            return measure(make(parameters(shapes, self.device)))
        except RuntimeError as error:  # out of memory, as a rule
            self.fail(f"{name}: {error}")
            return None
        finally:
            gc.collect()
            free(self.device)

    def plain(self, optimizer):
        return {"seconds": step_seconds(optimizer, self.arguments.rounds,
                                        self.device)}

    def periodic(self, optimizer):
        return periodic_seconds(optimizer, PERIOD, self.arguments.periods,
                                self.device)

    def section(self, title, model, layers, peers, rules):
        """peers: name -> (constructor, measure), the name beginning with the
        rule's; rules: which of ours to measure."""
        shapes = shapes_of(model, layers)
        runs = {rule: [self.ours(rule, model, layers)] for rule in rules}
        rows = {name: self.peer(name, make, shapes, measure)
                for name, (make, measure) in peers.items()}
        for rule in rules:
            runs[rule].append(self.ours(rule, model, layers))
            rows[f"{rule}, ours"] = mean_of(runs[rule])
        rows = {name: row for name, row in rows.items() if row}
        weights = sum(height * width for height, width in shapes)
        label = (f"{title}: {len(shapes)} matrices of {model}, "
                 f"{weights / 1e9:.2f} G weights")
        self.results["sections"][label] = rows
        self.report.table(label, HEADER, table_of(rows))


def mean_of(runs):
    """Several runs of ours as one; None if there is none."""
    runs = [run for run in runs if run]
    if not runs:
        return None
    seconds = [run["seconds"] for run in runs]
    return {**runs[-1], "runs": seconds, "seconds": statistics.mean(seconds)}


def table_of(rows):
    adamw = rows.get(ADAMW)
    table = []
    for name, row in rows.items():
        ours = rows.get(name.split(",")[0].lower() + ", ours")
        cells = [name, milliseconds(row["seconds"])]
        for key in ("plain_seconds", "refresh_seconds", "floor_seconds"):
            cells.append(milliseconds(row[key]) if key in row else "")
        cells.append(f"{row['host_seconds'] * 1e3:.2f}"
                     if "host_seconds" in row else "")
        for other in (ours, adamw):
            cells.append(f"{row['seconds'] / other['seconds']:.2f}×"
                         if other else "")
        table.append(cells)
    return table


def name_of(device):
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    return "CPU"


def version_of(canzona):
    try:
        text = subprocess.run([canzona, "--version"], capture_output=True,
                              text=True, check=True).stdout
        return "; ".join(text.split("\n")).strip("; ")
    except (OSError, subprocess.CalledProcessError):
        return "no canzona"


def machine(bench):
    """The device's own limits, measured in this run."""
    tiny = bench.device == "cpu"
    n, size = (256, 1 << 22) if tiny else (8192, 1 << 32)
    facts = {
        "device": name_of(bench.device), "torch": torch.__version__,
        "cuda": torch.version.cuda, "canzona": version_of(
            bench.arguments.canzona),
        "bf16_tflops": product_tflops(bench.device, torch.bfloat16, n),
        "fp16_tflops": product_tflops(bench.device, torch.float16, n),
        "copy_bytes_per_second": copy_bytes_per_second(bench.device, size)}
    free(bench.device)
    bench.results["machine"] = facts
    bench.report.print(
        f"{facts['device']}; torch {facts['torch']}, CUDA {facts['cuda']}; "
        f"{facts['canzona']}; products of {n} cubed: bf16 "
        f"{facts['bf16_tflops']:.0f}, fp16 {facts['fp16_tflops']:.0f} TFLOP/s; "
        f"copy {facts['copy_bytes_per_second'] / 1e12:.2f} TB/s read and "
        f"written; medians of {bench.arguments.rounds} steps")


def muon_peers(bench):
    peers = {ADAMW: (lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
                     bench.plain)}
    if hasattr(torch.optim, "Muon"):  # since 2.9
        peers["Muon, torch.optim"] = (
            lambda p: torch.optim.Muon(p, lr=1e-3), bench.plain)
    peers["Muon, as KellerJordan's"] = (KellerMuon, bench.plain)
    peers["Muon, Gram form by bmm, fp16"] = (BatchedGramMuon, bench.plain)
    return peers


def soap_peers(bench):
    # The first basis costs minutes of eigh and none of what is timed.
    return {"SOAP, as nikhilvyas's": (
        lambda p: Soap(p, PERIOD, first_basis="any"), bench.periodic)}


def shampoo_peers(bench):
    return {f"Shampoo, as Meta's, {name}": (
        lambda p, root=root: Shampoo(p, PERIOD, start=1, root=root),
        bench.periodic)
        for name, root in (("eigen roots", eigen_root),
                           ("coupled Newton", newton_root))}


def sections(bench):
    """name -> what measures it."""
    a = bench.arguments
    models = [a.model] + (["qwen3-8b"] if a.large else [])

    def muon():
        for model in models:
            layers = a.muon_layers or MODELS[model][0]
            bench.section("Muon and AdamW", model, layers, muon_peers(bench),
                          ["muon", "adamw"])

    return {"muon": muon,
            "soap": lambda: bench.section("SOAP", a.model, a.layers,
                                          soap_peers(bench), ["soap"]),
            "shampoo": lambda: bench.section("Shampoo", a.model, a.layers,
                                             shampoo_peers(bench),
                                             ["shampoo"])}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--canzona", default="build-cuda/canzona", help="our program")
    add("--ours", default=OURS, help="the command that times ours")
    add("--device", default="cuda", help="cuda, or cpu to try this script")
    add("--model", default="qwen3-1.7b", choices=MODELS)
    add("--large", action="store_true", help="Muon on qwen3-8b too")
    add("--muon-layers", type=int, help="of Muon and AdamW; default: all")
    add("--layers", type=int, default=4, help="of SOAP and Shampoo")
    add("--rounds", type=int, default=10, help="steps; their median counts")
    add("--periods", type=int, default=2, help="of SOAP and Shampoo")
    add("--only", default="", help="muon, soap, shampoo")
    add("--markdown", help="file for the tables")
    add("--json", help="file for all numbers")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    torch.backends.cuda.matmul.allow_tf32 = False
    bench = Bench(arguments)
    known = sections(bench)
    wanted = arguments.only.split(",") if arguments.only else list(known)
    for name in wanted:
        if name not in known:
            sys.exit(f"--only {name}: expected {', '.join(known)}")
    machine(bench)
    for name in wanted:
        known[name]()
        if arguments.markdown:
            bench.report.save(arguments.markdown)
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump(bench.results, file, indent=2)
    if bench.failures:
        sys.exit(f"{len(bench.failures)} measurements failed")


if __name__ == "__main__":
    main()
