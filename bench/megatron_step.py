#!/usr/bin/env python3
"""What do matrices cost that are fused as Megatron-Core fuses them?

    python3 bench/megatron_step.py [--layers N] [--libraries A,B,…] [--profile]

Steps of canzona.megatron_muon.Muon, without Megatron, on plain fp32 tensors of
Qwen3-1.7B: *fused*, with q, k and v of a query group in turn and gate above up, and
*unfused*, each matrix alone. Both take turns. With several libraries (builds of
libcanzona_cuda.so) these take turns, too, each turn in a process of its own. The
table has the medians of all steps, in ms of the GPU, with the smallest and the
largest, and what the host takes to issue a step. --profile lists the kernels of one
fused step by what they cost.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

QKV = (256, 128, 128)  # rows of q, k and v for each of eight query groups
GROUPS, HIDDEN, INNER = 8, 2048, 6144


def fused():
    return [("qkv", (GROUPS * sum(QKV), HIDDEN)), ("proj", (HIDDEN, HIDDEN)),
            ("fc1", (2 * INNER, HIDDEN)), ("fc2", (HIDDEN, INNER))]


def unfused():
    rows = [GROUPS * n for n in QKV]
    return [(name, (n, HIDDEN)) for name, n in zip("qkv", rows)] + [
        ("proj", (HIDDEN, HIDDEN)), ("gate", (INNER, HIDDEN)),
        ("up", (INNER, HIDDEN)), ("fc2", (HIDDEN, INNER))]


def made(shapes, options):
    """An optimizer whose parameters have gradients."""
    import torch
    from canzona.megatron_muon import Muon

    parameters = []
    for _ in range(options.layers):
        for name, shape in shapes:
            shape = [n // options.divide for n in shape]
            p = torch.randn(shape, device=options.device) * 0.02
            p.grad = torch.randn(shape, device=options.device) * 1e-3
            p.is_qkv, p.partition_dim = name == "qkv", 0
            parameters.append(p)
    return Muon([{"params": parameters}], split_qkv=True,
                is_qkv_fn=lambda p: p.is_qkv,
                qkv_split_shapes=[n // options.divide for n in QKV])


def timed(optimizer, device):
    """Milliseconds of a step, and of the host."""
    import torch

    if device == "cpu":
        began = time.perf_counter()
        optimizer.step()
        return (1e3 * (time.perf_counter() - began),) * 2
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in "ab")
    torch.cuda.synchronize()
    began = time.perf_counter()
    begin.record()
    optimizer.step()
    end.record()
    host = 1e3 * (time.perf_counter() - began)
    torch.cuda.synchronize()
    return begin.elapsed_time(end), host


def profile(optimizer):
    import torch

    kinds = [torch.profiler.ProfilerActivity.CPU,
             torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as seen:
        optimizer.step()
        torch.cuda.synchronize()
    rows = sorted(seen.key_averages(), key=lambda r: -r.self_device_time_total)
    return [(r.self_device_time_total / 1e3, r.count, r.key[:100])
            for r in rows[:16]]


def measure(options):
    """One process: its times by kind."""
    sides = {"fused": made(fused(), options), "unfused": made(unfused(), options)}
    found = {kind: {"gpu": [], "host": []} for kind in sides}
    for turn in range(options.steps + 4):
        for kind, optimizer in sides.items():
            gpu, host = timed(optimizer, options.device)
            if turn >= 4:  # the first ones plan and capture
                found[kind]["gpu"].append(gpu)
                found[kind]["host"].append(host)
    if options.profile:
        found["profile"] = profile(sides["fused"])
    return found


def turns(options):
    """All times by library and kind, and one profile of each library."""
    found = {library: {} for library in options.libraries.split(",")}
    for turn in range(options.turns):
        for library, sums in found.items():
            environment = dict(os.environ)
            if library:
                environment["CANZONA_LIBRARY"] = os.path.abspath(library)
            words = [sys.executable, __file__, "--one", "--layers",
                     str(options.layers), "--steps", str(options.steps),
                     "--device", options.device, "--divide", str(options.divide)]
            words += ["--profile"] * (options.profile and turn == 0)
            ran = subprocess.run(words, env=environment, stdout=subprocess.PIPE,
                                 check=True, text=True)
            for kind, value in json.loads(ran.stdout.splitlines()[-1]).items():
                if kind == "profile":
                    sums[kind] = value
                    continue
                for what, times in value.items():
                    sums.setdefault(kind, {}).setdefault(what, []).extend(times)
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--libraries", default="")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--divide", type=int, default=1,
                        help="all sizes, to try the commands")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options)))
        return
    print("| library | matrices | ms | smallest to largest | host, ms |\n"
          "|---|---|---|---|---|")
    for library, kinds in turns(options).items():
        for kind in ("fused", "unfused"):
            gpu, host = (kinds[kind][what] for what in ("gpu", "host"))
            print(f"| {library or 'found'} | {kind} | {statistics.median(gpu):.2f} | "
                  f"{min(gpu):.2f} to {max(gpu):.2f} | "
                  f"{statistics.median(host):.2f} |")
        for ms, count, name in kinds.get("profile", ()):
            print(f"    {ms:8.3f} ms  {count:5}  {name}")


if __name__ == "__main__":
    main()
