#!/usr/bin/env python3
"""A whole iteration of a compiled model on a GPU, with one optimizer or another.

  pytorch_iteration.py                          Qwen3-0.6B, vocabulary 4,096
  pytorch_iteration.py --layers 4 --tokens 4096 --device cpu --eager    a trial
  pytorch_iteration.py --why                    also what slows the work after a step

A decoder with Qwen3's shapes (grouped queries, norms of queries and keys, gated MLP,
tied head), fp32 weights, bf16 autocast, compiled once by torch.compile; every
optimizer starts from the same weights. Needs torch and the package; dion is timed
where it is installed, as its README says to use it.

Columns: a whole iteration, not waited for in between, and its tokens/s; forward
and backward alone and the step alone, each waited for; the host's time of a step. The
last row but one accumulates 64k tokens. Times are medians of --rounds, in turns.

--why times forward and backward right after other things than a step: nothing, our
step without its last part (versions of parameters are not raised), a burn of the tensor
cores as long as our step, a pass over the weights. What is left is the clock: its lowest
value under each is printed, too.
"""

import argparse
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
    from dion import Muon

    return Pair(model, lambda m: Muon(m, lr=1e-4))


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
        made["dion"] = dion
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
        self.runs = (self.model if options.eager
                     else torch.compile(self.model))

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

        def no_gradients():
            optimizer.step()
            self.wait()
            optimizer.zero_grad()

        found["work_ms"] = self.median(self.work, no_gradients)
        host = []

        def step():
            begin = time.perf_counter()
            optimizer.step()
            host.append(1e3 * (time.perf_counter() - begin))

        found["step_ms"] = self.median(step)
        found["host_ms"] = statistics.median(host)
        if self.options.accumulate:
            parts = max(1, self.options.accumulate // self.options.tokens)
            found["accumulated_ms"] = self.stretch(lambda: iteration(parts))
        return found, optimizer

    def burn(self, milliseconds):
        """Tensor cores at work, without memory traffic to speak of."""
        a = torch.randn(8, 2048, 2048, device=self.device, dtype=torch.float16)
        once = self.median(lambda: torch.bmm(a, a))
        count = max(1, round(milliseconds / once))

        def act():
            for _ in range(count):
                torch.bmm(a, a)

        return act

    def why(self, optimizer, step_ms):
        """Forward and backward after this and that."""
        weights = list(self.model.parameters())
        raised = torch.autograd.graph.increment_version

        def quietly():
            torch.autograd.graph.increment_version = lambda *_: None
            try:
                optimizer.step()
            finally:
                torch.autograd.graph.increment_version = raised

        befores = {
            "nothing": lambda: None,
            "our step": optimizer.step,
            "our step, versions as they were": quietly,
            "tensor cores, as long as our step": self.burn(step_ms),
            "a pass over the weights": lambda: torch._foreach_mul_(
                [p.detach() for p in weights], 1.0),
        }
        found = {}
        for name, before in befores.items():
            def prepare(before=before):
                self.work()
                before()
                self.wait()
                for p in weights:
                    p.grad = None

            with Clock() as clock:
                found[name] = {"work_ms": self.median(self.work, prepare)}
            found[name]["lowest_mhz"] = clock.lowest
        stats = torch.cuda.memory_stats() if self.device == "cuda" else {}
        found["allocations"] = {
            k: stats.get(k) for k in ("num_alloc_retries", "num_device_alloc",
                                      "num_device_free")}
        return found


class Clock:
    """The lowest clock of the multiprocessors meanwhile."""

    lowest = None

    def __enter__(self):
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()
        return self

    def look(self):
        while not self.over.wait(0.2):
            try:
                said = subprocess.run(
                    ["nvidia-smi", "--query-gpu=clocks.sm",
                     "--format=csv,noheader,nounits"],
                    capture_output=True, text=True, check=True).stdout
            except (OSError, subprocess.SubprocessError):
                return
            clock = int(said.split()[0])
            self.lowest = min(clock, self.lowest or clock)

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


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
    add("--why", action="store_true")
    add("--only", help="optimizers whose name contains this")
    options = parser.parse_args()
    bench = Bench(options)
    import canzona

    print(f"torch {torch.__version__}, canzona {canzona.__version__}, "
          f"{options.layers} layers, {options.tokens} tokens")
    names = ("iteration_ms", "tokens_s", "work_ms", "step_ms", "host_ms",
             "accumulated_ms")
    print(f"{'':28}" + "".join(f"{n:>16}" for n in names), flush=True)
    found = {}
    for name, make in optimizers(options.device).items():
        if options.only and options.only not in name:
            continue
        row, optimizer = bench.row(make)
        found[name] = row
        print(f"{name:28}" + "".join(
            f"{row.get(n, float('nan')):16,.2f}" for n in names), flush=True)
        if options.why and name == "canzona.Muon":
            found["why"] = bench.why(optimizer, row["step_ms"])
            for before, value in found["why"].items():
                print(f"  after {before}: {value}", flush=True)
        if hasattr(optimizer, "close"):
            optimizer.close()
        del optimizer
    print(json.dumps(found))


if __name__ == "__main__":
    main()
