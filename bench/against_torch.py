#!/usr/bin/env python3
"""Times our rules beside PyTorch's, turn by turn, and prints ratios.

    sh scripts/bench_torch.sh [--rounds 10] [--only bf16] [--markdown FILE]

Needs torch 2.13.0, which the script installs into build/torch; the project
itself never does. Our side is build/bench/steps, asked line by line, so both
sides run in the same minute and what disturbs the machine disturbs both. One
thread: CPU time of that thread; two: time by the wall. The least of all rounds
counts.
"""
import argparse
import json
import subprocess
import sys
import time

import torch

from torch_report import Report, milliseconds
from torch_rules import SIMPLE, Soap
from torch_shampoo import Shampoo

QWEN3_06B_LAYER = [(2048, 1024), (1024, 1024), (1024, 1024), (1024, 2048),
                   (3072, 1024), (3072, 1024), (1024, 3072)]
FOUR_LAYERS = QWEN3_06B_LAYER * 4
# Ours looks at every gradient before it changes anything; torch does not.
AS_TORCH = {"nonfinite": "propagate"}


class Ours:
    """build/bench/steps, asked line by line."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.machine = json.loads(self.process.stdout.readline())

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        reply = json.loads(self.process.stdout.readline())
        if "failed" in reply:
            raise RuntimeError(f"{line}: {reply['failed']}")
        return reply

    def stepper(self, rule, shapes, threads, **options):
        words = " ".join(f"{k}={v}" for k, v in options.items())
        line = f"{rule} threads={threads} shapes={shape_text(shapes)} {words}"
        return lambda: self.ask(line.strip())["seconds"]

    def error(self, shape, **options):
        words = " ".join(f"{k}={v}" for k, v in options.items())
        return self.ask(f"error shapes={shape_text([shape])} {words}")["error"]

    def best_rates(self):
        """The machine at its best so far: it has slow phases."""
        for _ in range(3):
            for name, rate in self.ask("rates").items():
                self.machine[name] = max(self.machine[name], rate)

    def forget(self):
        self.ask("forget threads=1")


def shape_text(shapes):
    return ",".join(f"{rows}x{cols}" for rows, cols in shapes)


def parameters(shapes):
    torch.manual_seed(0)
    made = []
    for shape in shapes:
        parameter = torch.nn.Parameter(torch.randn(*shape) * 0.02)
        parameter.grad = torch.randn(*shape)
        made.append(parameter)
    return made


def clock(threads):
    return time.thread_time if threads == 1 else time.perf_counter


def timed(step, threads):
    """A function that takes one step and returns its seconds."""
    now = clock(threads)

    def run():
        start = now()
        step()
        return now() - start

    step()
    step()
    return run


def torch_muon(shapes, threads, fp32=False):
    optimizer = torch.optim.Muon(parameters(shapes), lr=1e-3)
    shorten = torch.Tensor.bfloat16

    def step():
        if fp32:  # the same code, without its rounding to bf16
            torch.Tensor.bfloat16 = lambda tensor: tensor.clone()
        try:
            optimizer.step()
        finally:
            torch.Tensor.bfloat16 = shorten

    return timed(step, threads)


def torch_error(shape, dtype):
    """The error of torch's Newton-Schulz on noise and a bump, against fp64."""
    torch.manual_seed(1)
    g = torch.randn(*shape) + 0.3 * torch.outer(torch.randn(shape[0]),
                                                torch.randn(shape[1]))

    def orthogonal(x):
        x = x.T if shape[0] > shape[1] else x
        x = x / x.norm().clamp(min=1e-7)
        a, b, c = SIMPLE
        for _ in range(5):
            gram = x @ x.T
            x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c),
                            x, beta=a)
        return x.double()

    exact = orthogonal(g.double())
    return float((orthogonal(g.to(dtype)) - exact).norm() / exact.norm())


def torch_soap(shape, period):
    return Soap(parameters([shape]), period, lr=1e-3)


def torch_shampoo(shape, period):
    return Shampoo(parameters([shape]), period, start=1)


def period_of(step, period):
    """Mean seconds of a step over one whole period."""
    return lambda: sum(step() for _ in range(period)) / period


def best_of(candidates, rounds):
    """The least seconds of each, taking turns."""
    best = dict.fromkeys(candidates, float("inf"))
    for _ in range(rounds):
        for name, run in candidates.items():
            best[name] = min(best[name], run())
    return best


def fp32_forms(ours, report, rounds):
    forms = ("standard", "symmetric", "gram")
    rows = []
    for shape in ((1024, 1024), (768, 2304), (1024, 3072), (1024, 5120)):
        runs = {"torch": torch_muon([shape], 1, fp32=True)}
        for form in forms:
            runs[form] = ours.stepper("muon", [shape], 1, precision="fp32",
                                      newton_schulz=form, **AS_TORCH)
        best = best_of(runs, rounds)
        base = min(best["torch"], best["standard"])
        for name in ("torch",) + forms:
            error = (torch_error(shape, torch.float32) if name == "torch" else
                     ours.error(shape, precision="fp32", newton_schulz=name))
            rows.append([f"{shape[0]} × {shape[1]}", name,
                         milliseconds(best[name]), f"{base / best[name]:.2f}×",
                         f"{error:.1e}"])
        ours.forget()
    report.table("fp32: a Muon step on one matrix, one thread",
                 ["shape", "form", "ms", "against the faster of torch and "
                  "standard", "error against fp64"], rows)


def bf16_forms(ours, report, rounds):
    forms = ("standard", "symmetric", "gram")
    cases = [[(1024, 1024)], [(1024, 3072)], [(3072, 1024)], [(2048, 1024)],
             [(768, 2304)], [(1024, 5120)], [(512, 512)] * 4,
             [(128, 512)] * 16]
    rows = []
    for shapes in cases:
        runs = {"torch": torch_muon(shapes, 1)}
        for form in forms:
            runs[form] = ours.stepper("muon", shapes, 1, precision="bf16",
                                      newton_schulz=form, **AS_TORCH)
        best = best_of(runs, rounds)
        shape = shapes[0]
        label = f"{shape[0]} × {shape[1]}"
        if len(shapes) > 1:
            label = f"{len(shapes)} of {label}"
        for name in ("torch",) + forms:
            error = (torch_error(shape, torch.bfloat16) if name == "torch" else
                     ours.error(shape, precision="bf16", newton_schulz=name))
            rows.append([label, name, milliseconds(best[name]),
                         f"{best['torch'] / best[name]:.2f}×", f"{error:.1e}"])
        ours.forget()
    report.table("bf16: a Muon step, one thread, against torch.optim.Muon",
                 ["matrices", "form", "ms", "against torch",
                  "error against fp64"], rows)


def floors(ours, threads):
    """Triangular flops at the packed loop's rate; bytes at the copy rate."""
    ours.best_rates()
    flops = {"bf16": 0.0, "fp32": 0.0}
    elements = 0
    for shape in FOUR_LAYERS:
        m, n = min(shape), max(shape)
        a = n / m
        elements += m * n
        flops["bf16"] += m ** 3 * (9 * a + 11 if a >= 2 else 15 * a + 5)
        flops["fp32"] += m ** 3 * (6 * a + 14 if a >= 1.5 else 15 * a + 5)
    rates = {"bf16": ours.machine["packed_gflops"],
             "fp32": ours.machine["sgemm_gflops"]}
    # gradient read, momentum and weights read and written
    memory = 20 * elements / ours.machine["copy_bytes_per_second"]
    return {p: (flops[p] / (rates[p] * 1e9) / threads, memory / threads)
            for p in flops}


def whole_step(ours, report, rounds, precisions):
    rows = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        least = floors(ours, threads)
        for precision in precisions:
            runs = {
                "torch": torch_muon(FOUR_LAYERS, threads,
                                    fp32=precision == "fp32"),
                "ours": ours.stepper("muon", FOUR_LAYERS, threads,
                                     precision=precision, **AS_TORCH),
                "checked": ours.stepper("muon", FOUR_LAYERS, threads,
                                        precision=precision)}
            best = best_of(runs, rounds)
            flops, memory = least[precision]
            rows.append([precision, str(threads), milliseconds(best["torch"]),
                         milliseconds(best["ours"]),
                         f"{best['torch'] / best['ours']:.2f}×",
                         milliseconds(best["checked"]),
                         milliseconds(flops), milliseconds(memory),
                         f"{best['ours'] / max(flops, memory):.2f}×"])
            ours.forget()
    torch.set_num_threads(1)
    report.table("A Muon step on the 28 matrices of four Qwen3-0.6B layers",
                 ["precision", "threads", "torch ms", "ours ms",
                  "against torch", "ours, looking for NaN first, ms",
                  "flops floor ms", "bytes floor ms", "of the floor"], rows)


def adamw(ours, report, rounds):
    optimizer = torch.optim.AdamW(parameters(FOUR_LAYERS), lr=1e-3, fused=True)
    best = best_of({"torch": timed(optimizer.step, 1),
                    "ours": ours.stepper("adamw", FOUR_LAYERS, 1, **AS_TORCH),
                    "checked": ours.stepper("adamw", FOUR_LAYERS, 1)}, rounds)
    elements = sum(rows * cols for rows, cols in FOUR_LAYERS)
    floor = 28 * elements / ours.machine["copy_bytes_per_second"]
    report.table("AdamW on the same 62.9 million weights, one thread",
                 ["torch, fused, ms", "ours ms", "against torch",
                  "ours, looking for NaN first, ms", "bytes floor ms"],
                 [[milliseconds(best["torch"]), milliseconds(best["ours"]),
                   f"{best['torch'] / best['ours']:.2f}×",
                   milliseconds(best["checked"]), milliseconds(floor)]])
    ours.forget()


def factored(ours, report, rounds, rule, reference, options):
    rows = []
    for shape in ((512, 512), (512, 1024), (1024, 1024)):
        period = 10
        runs = {
            "torch": period_of(timed(reference(shape, period).step, 1),
                               period),
            "plain": period_of(ours.stepper(f"plain_{rule}", [shape], 1,
                                            period=period), period),
            "ours": period_of(ours.stepper(rule, [shape], 1,
                                           precondition_frequency=period,
                                           **options), period)}
        best = best_of(runs, max(2, rounds // 3))
        rows.append([f"{shape[0]} × {shape[1]}", milliseconds(best["torch"]),
                     milliseconds(best["plain"]), milliseconds(best["ours"]),
                     f"{best['ours'] / best['plain']:.2f}",
                     f"{best['torch'] / best['ours']:.2f}×"])
        ours.forget()
    report.table(f"{rule}: mean step over a period of 10, one thread",
                 ["shape", "torch transcription ms", "plain transcription ms",
                  "ours ms", "share of plain", "against torch"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/bench/steps")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", default="",
                        help="fp32, bf16, step, step32, adamw, soap, shampoo")
    parser.add_argument("--markdown", help="file for the tables")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    ours = Ours(arguments.program)
    report = Report()
    ours.best_rates()
    machine = ours.machine
    report.print(f"{machine['cpu']}; {machine['blas']} core {machine['core']}, "
                 f"sgemm {machine['sgemm_gflops']:.0f} GF/s; bf16 by "
                 f"{machine['bf16_kernel']}, packed loop "
                 f"{machine['packed_gflops']:.0f} GF/s; copy "
                 f"{machine['copy_bytes_per_second'] / 1e9:.1f} GB/s; torch "
                 f"{torch.__version__}; least of {arguments.rounds} rounds")
    n = arguments.rounds
    parts = {
        "fp32": lambda: fp32_forms(ours, report, n),
        "bf16": lambda: bf16_forms(ours, report, n),
        "step": lambda: whole_step(ours, report, n, ["bf16"]),
        "step32": lambda: whole_step(ours, report, n, ["fp32"]),
        "adamw": lambda: adamw(ours, report, n),
        "soap": lambda: factored(ours, report, n, "soap", torch_soap, {}),
        "shampoo": lambda: factored(ours, report, n, "shampoo", torch_shampoo,
                                    {}),
    }
    for name in (arguments.only.split(",") if arguments.only else parts):
        if name not in parts:
            sys.exit(f"--only {name}: expected {', '.join(parts)}")
        parts[name]()
    if arguments.markdown:
        report.save(arguments.markdown)


if __name__ == "__main__":
    main()
