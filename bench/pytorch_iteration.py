#!/usr/bin/env python3
"""A whole iteration of a compiled model on a GPU, with one optimizer or another.

  pytorch_iteration.py                          Qwen3-0.6B, vocabulary 4,096
  pytorch_iteration.py --layers 4 --tokens 4096 --device cpu --eager    a trial
  pytorch_iteration.py --rates 0 1200           also with the GPU at one rate

A decoder with Qwen3's shapes (grouped queries, norms of queries and keys, gated MLP,
tied head), fp32 weights, bf16 autocast, compiled once by torch.compile; every
optimizer starts from the same weights. Needs torch and the package; dion is timed
where it is installed, as its README says to use it.

Columns: a whole iteration, not waited for in between, and its tokens/s; its forward and
backward, and its step, by the GPU's own clock; the mean rate of the multiprocessors and
the power during both; their product, the work in millions of cycles; a step that is
waited for, and the host's time of it; an iteration that accumulates 64k tokens.

What forward and backward take depends on what runs between them, where power limits the
GPU: the cycles then stay the same, and the rate falls. --rates 0 1200 also measures at a rate
that is fixed (it needs the right to), where no part slows another.
"""

import argparse
import contextlib
import importlib.util
import json
import statistics
import subprocess
import threading
import time

import torch
import torch.nn.functional as F
from torch import nn

HIDDEN, HEADS, KEYS, HEAD, INNER = 1024, 16, 8, 128, 3072


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.q = nn.Linear(HIDDEN, HEADS * HEAD, bias=False)
        self.k = nn.Linear(HIDDEN, KEYS * HEAD, bias=False)
        self.v = nn.Linear(HIDDEN, KEYS * HEAD, bias=False)
        self.o = nn.Linear(HEADS * HEAD, HIDDEN, bias=False)
        self.q_norm, self.k_norm = nn.RMSNorm(HEAD), nn.RMSNorm(HEAD)
        self.gate = nn.Linear(HIDDEN, INNER, bias=False)
        self.up = nn.Linear(HIDDEN, INNER, bias=False)
        self.down = nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x, cos, sin):
        y = self.norm1(x)
        q, k, v = (
            f(y).unflatten(-1, (-1, HEAD)).transpose(1, 2)
            for f in (self.q, self.k, self.v)
        )
        q, k = (turned(n(t), cos, sin)
                for n, t in ((self.q_norm, q), (self.k_norm, k)))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                           enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return (x * cos + torch.cat((-b, a), -1) * sin).to(x.dtype)


class Model(nn.Module):
    def __init__(self, layers, vocabulary, length):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, HIDDEN)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm = nn.RMSNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, vocabulary, bias=False)
        self.head.weight = self.embed.weight
        nn.init.normal_(self.embed.weight, std=0.02)
        angle = torch.outer(torch.arange(length),
                            1e6 ** -(torch.arange(0, HEAD, 2) / HEAD))
        angle = torch.cat((angle, angle), -1)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


class Pair:
    """torch's Muon for matrices of blocks, fused AdamW for the rest."""

    def __init__(self, model, muon):
        matrices = [p for p in model.blocks.parameters() if p.dim() == 2]
        rest = [p for p in model.parameters()
                if all(p is not m for m in matrices)]
        self.parts = [muon(matrices),
                      torch.optim.AdamW(rest, lr=1e-4, fused=rest[0].is_cuda)]

    def step(self):
        for part in self.parts:
            part.step()

    def zero_grad(self):
        for part in self.parts:
            part.zero_grad()


def dion(model):
    """As its README says: imported, its own functions compiled, with Triton."""
    from dion import Muon

    return Pair(model, lambda m: Muon(m, lr=1e-4, use_triton=m[0].is_cuda))


def optimizers(device):
    import canzona

    made = {
        "AdamW, fused": lambda m: torch.optim.AdamW(
            m.parameters(), lr=1e-4, fused=device == "cuda"),
        "canzona.Muon": lambda m: canzona.Muon(m, lr=1e-4),
        'canzona.Muon, wire="bf16"': lambda m: canzona.Muon(
            m, lr=1e-4, wire="bf16"),
        "torch.optim.Muon": lambda m: Pair(
            m, lambda p: torch.optim.Muon(p, lr=1e-4)),
    }
    if importlib.util.find_spec("dion") is not None:
        made["dion, Triton"] = dion
    return made


class Bench:
    def __init__(self, options):
        self.options = options
        self.device = options.device
        length = 1024 if options.tokens >= 1024 else options.tokens
        shape = (options.tokens // length, length)
        torch.manual_seed(0)
        self.model = Model(options.layers, options.vocabulary, length).to(
            self.device)
        self.start = [p.detach().clone() for p in self.model.parameters()]
        self.tokens = torch.randint(options.vocabulary, shape,
                                    device=self.device)
        self.targets = torch.randint(options.vocabulary, shape,
                                     device=self.device).flatten()
        self.runs = self.model
        if options.per_block:
            for block in self.model.blocks:
                block.compile()
        elif not options.eager:
            self.runs = torch.compile(self.model)

    def wait(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def reset(self):
        with torch.no_grad():
            for p, value in zip(self.model.parameters(), self.start):
                p.copy_(value)
                p.grad = None

    def work(self):
        """Forward and backward."""
        with torch.autocast(self.device, torch.bfloat16):
            out = self.runs(self.tokens)
            loss = F.cross_entropy(out.flatten(0, 1).float(), self.targets)
        loss.backward()

    def median(self, act, before=None):
        """Milliseconds of `act`; `before` is not timed, but not waited for."""
        times = []
        for _ in range(self.options.rounds):
            if before is not None:
                before()
            self.wait()
            begin = time.perf_counter()
            act()
            self.wait()
            times.append(1e3 * (time.perf_counter() - begin))
        return statistics.median(times)

    def stretch(self, act):
        """Milliseconds of one of several `act` that are not waited for."""
        count = self.options.rounds
        self.wait()
        begin = time.perf_counter()
        for _ in range(count):
            act()
        self.wait()
        return 1e3 * (time.perf_counter() - begin) / count

    def parts(self, optimizer):
        """Medians of an iteration's two parts, and the GPU's state in each."""
        def mark():
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            return event

        with Sensors() as sensors:
            self.wait()
            begin, first, marks = time.perf_counter(), mark(), []
            for _ in range(2 * self.options.rounds):
                optimizer.zero_grad()
                self.work()
                middle = mark()
                optimizer.step()
                marks.append((middle, mark()))
            self.wait()
        times = [[begin + 1e-3 * first.elapsed_time(m) for m in pair]
                 for pair in marks]
        steps = [(a, b) for a, b in times]
        works = [(a, b) for (_, a), (b, _) in zip(times, times[1:])]
        found = {}
        for name, spans in (("work", works), ("step", steps)):
            ms = 1e3 * statistics.median(b - a for a, b in spans)
            found[f"{name}_ms"] = ms
            for key, value in sensors.during(spans).items():
                found[f"{name}_{key}"] = value
            found[f"{name}_mcycles"] = ms * found.get(f"{name}_mhz", 0) / 1e3
        return found

    def row(self, make):
        self.reset()
        optimizer = make(self.model)

        def iteration(parts=1):
            optimizer.zero_grad()
            for _ in range(parts):
                self.work()
            optimizer.step()

        for _ in range(4):
            iteration()
        found = {"iteration_ms": self.stretch(iteration)}
        found["tokens_s"] = 1e3 * self.options.tokens / found["iteration_ms"]

        if self.device == "cuda":
            found.update(self.parts(optimizer))
        self.work()
        host = []

        def step():
            begin = time.perf_counter()
            optimizer.step()
            host.append(1e3 * (time.perf_counter() - begin))

        found["waited_step_ms"] = self.median(step)
        found["host_ms"] = statistics.median(host)
        if self.options.accumulate:
            parts = max(1, self.options.accumulate // self.options.tokens)
            found["accumulated_ms"] = self.stretch(lambda: iteration(parts))
        return found, optimizer


class Sensors:
    """The rate of the multiprocessors and the power, as nvidia-smi says."""

    def __enter__(self):
        self.seen, self.program = [], None
        with contextlib.suppress(OSError):
            self.program = subprocess.Popen(
                ["nvidia-smi", "--query-gpu=clocks.sm,power.draw.instant",
                 "--format=csv,noheader,nounits", "-lms", "10"],
                stdout=subprocess.PIPE, text=True)
            self.thread = threading.Thread(target=self.look, daemon=True)
            self.thread.start()
            time.sleep(0.5)
        return self

    def look(self):
        for line in self.program.stdout:
            with contextlib.suppress(ValueError):
                self.seen.append(
                    (time.perf_counter(), *map(float, line.split(","))))

    def __exit__(self, *_):
        if self.program is not None:
            self.program.terminate()
            self.thread.join()

    def during(self, spans):
        """Means over what was seen within spans of time."""
        seen = [s for s in self.seen if any(a < s[0] < b for a, b in spans)]
        if not seen:
            return {}
        return {"mhz": statistics.mean(s[1] for s in seen),
                "watts": statistics.mean(s[2] for s in seen)}


@contextlib.contextmanager
def fixed_rate(megahertz):
    """The multiprocessors at one rate; False if that is not allowed."""
    def tell(*words):
        return subprocess.run(["nvidia-smi", *words], capture_output=True,
                              text=True, check=False)

    if not megahertz:
        yield True
        return
    said = tell("-lgc", f"{megahertz},{megahertz}")
    print(f"{megahertz} MHz: {said.stdout.strip()} {said.stderr.strip()}")
    try:
        yield said.returncode == 0
    finally:
        tell("-rgc")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--device", default="cuda", choices=("cpu", "cuda"))
    add("--layers", type=int, default=28)
    add("--vocabulary", type=int, default=4096)
    add("--tokens", type=int, default=16 * 1024)
    add("--accumulate", type=int, default=64 * 1024, help="tokens; 0: not timed")
    add("--rounds", type=int, default=10)
    add("--eager", action="store_true", help="do not compile the model")
    add("--per-block", action="store_true",
        help="compile a block, which takes seconds, instead of the model")
    add("--rates", type=int, nargs="*", default=[0],
        help="MHz of the multiprocessors, one after the other; 0: free")
    add("--only", nargs="*", help="names of optimizers")
    options = parser.parse_args()
    bench = Bench(options)
    import canzona

    print(f"torch {torch.__version__}, canzona {canzona.__version__}, "
          f"{options.layers} layers, {options.tokens} tokens")
    found = {}
    for rate in options.rates:
        with fixed_rate(rate) as is_fixed:
            if is_fixed:
                found[rate] = measure(bench)
    print(json.dumps(found))


_COLUMNS = ("iteration_ms", "tokens_s", "work_ms", "step_ms", "work_mhz",
            "work_watts", "work_mcycles", "step_mhz", "step_watts",
            "waited_step_ms", "host_ms", "accumulated_ms")


def measure(bench):
    options = bench.options
    print(f"{'':28}" + "".join(f"{n:>15}" for n in _COLUMNS), flush=True)
    found = {}
    for name, make in optimizers(options.device).items():
        if options.only and name not in options.only:
            continue
        row, optimizer = bench.row(make)
        found[name] = row
        print(f"{name:28}" + "".join(
            f"{row.get(n, float('nan')):15,.2f}" for n in _COLUMNS), flush=True)
        if hasattr(optimizer, "close"):
            optimizer.close()
        del optimizer
    return found


if __name__ == "__main__":
    main()
