#!/usr/bin/env python3
"""Training steps of a compiled PyTorch model on a GPU, beside `canzona train`.

  pytorch_training.py --model 1.7b --length 4096 --micro 4 --accumulate 4
  pytorch_training.py --canzona build-cuda/canzona --rounds 3        both, in turns
  pytorch_training.py --deterministic --weights bf16

The model is that of pytorch_iteration.py (Qwen3's shapes, tied head), compiled block by
block, the head with the loss. fp32 weights run under bf16 autocast; AdamW is fused. Both sides
have the same lengths, micro-batches and steps, random weights and AdamW; tokens/s is the
median of the steps after the third. Memory is the peak that torch has allocated, and
what canzona reserves. One JSON object per measurement goes to standard output.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import time

import pytorch_iteration as base
import torch
import torch.nn.functional as F

SIZES = {"0.6b": (1024, 16, 8, 128, 3072), "1.7b": (2048, 16, 8, 128, 6144)}
LAYERS = 28


def flops_per_token(model, vocabulary, length):
    """Counts forward and backward, with the causal half of attention."""
    hidden, heads, keys, head, inner = SIZES[model]
    layer = hidden * head * (2 * heads + 2 * keys) + 3 * hidden * inner
    weights = LAYERS * layer + vocabulary * hidden
    return 6 * weights + 6 * LAYERS * length * heads * head


def told(side, options, seconds, memory, first):
    tokens = options.length * options.micro * options.accumulate
    rate = tokens / statistics.median(seconds[3:])
    flops = flops_per_token(options.model, options.vocabulary, options.length)
    print(json.dumps({
        "side": side, "model": options.model, "vocabulary": options.vocabulary,
        "length": options.length, "micro": options.micro,
        "tokens_per_step": tokens, "tokens_per_second": round(rate),
        "share_of_989": round(rate * flops / 989e12, 4),
        "memory_gib": round(memory / 2**30, 2),
        "first_step_seconds": round(first, 1),
    }), flush=True)


def torch_steps(options):
    torch.manual_seed(0)
    (base.HIDDEN, base.HEADS, base.KEYS, base.HEAD,
     base.INNER) = SIZES[options.model]
    begin = time.perf_counter()
    with torch.device("cuda"):
        model = base.Model(LAYERS, options.vocabulary, options.length)
    if options.weights == "bf16":
        model = model.bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    shape = (options.accumulate, options.micro, options.length + 1)
    tokens = torch.randint(256, shape, device="cuda")

    if options.compile == "blocks":
        for block in model.blocks:
            block.compile()

    @torch.compile(disable=options.compile == "no")
    def head_loss(x, targets):
        out = model.head(model.norm(x))
        return F.cross_entropy(out.flatten(0, 1).float(), targets.flatten())

    def loss_of(batch):
        with torch.autocast("cuda", torch.bfloat16):
            x = model.embed(batch[:, :-1])
            for block in model.blocks:
                x = block(x, model.cos, model.sin)
            return head_loss(x, batch[:, 1:])

    if options.compile == "whole":
        loss_of = torch.compile(loss_of)

    seconds, first = [], 0
    torch.cuda.reset_peak_memory_stats()
    for step in range(options.steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        for batch in tokens:
            (loss_of(batch) / options.accumulate).backward()
        optimizer.step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
        if step == 0:
            first = time.perf_counter() - begin
    told(f"torch {torch.__version__}, compiled: {options.compile}"
         + (", deterministic" if options.deterministic else "")
         + f", {options.weights} weights", options, seconds,
         torch.cuda.max_memory_allocated(), first)


def our_steps(options):
    begin = time.perf_counter()
    command = [
        options.canzona, "train", "--device", "cuda", "--model",
        "qwen3-" + options.model, "--data", "synthetic", "--rule", "adamw",
        "--steps", str(options.steps + 1), "--set",
        f"model.vocab={options.vocabulary}", "--set",
        f"model.length={options.length}", "--set",
        f"batch.global={options.micro * options.accumulate}", "--set",
        f"batch.micro={options.micro}", "--set", "eval.sequences=1",
        *options.ours]
    tokens = options.length * options.micro * options.accumulate
    seconds, memory, first = [], 0, 0
    with tempfile.TemporaryFile("w+") as errors:
        run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors,
                               text=True)
        for line in run.stdout:
            found = re.search(r"tps: +([\d,]+).*memory: +([\d.]+)([MG])iB",
                              line)
            if not found:
                continue
            seconds.append(tokens / int(found[1].replace(",", "")))
            memory = float(found[2]) * 2**(20 if found[3] == "M" else 30)
            first = first or time.perf_counter() - begin
            if len(seconds) == options.steps:
                run.kill()  # its weights are not wanted
        run.wait()
        if len(seconds) < options.steps:
            errors.seek(0)
            print(json.dumps({"side": "canzona",
                              "error": errors.read()[-800:]}), flush=True)
            return
    told(" ".join(["canzona", *options.ours]), options, seconds, memory, first)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=sorted(SIZES), default="0.6b")
    parser.add_argument("--vocabulary", type=int, default=151936)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--micro", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--weights", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--compile", choices=["blocks", "whole", "no"],
                        default="blocks",
                        help="blocks: each, and the head with the loss")
    parser.add_argument("--canzona", help="the program, to time it as well")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("ours", nargs="*", default=[],
                        help="further options of canzona train, after --")
    options = parser.parse_args()
    if options.deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.use_deterministic_algorithms(True)
    for _ in range(options.rounds):
        if options.canzona:
            our_steps(options)
        if not options.no_torch:
            torch_steps(options)


if __name__ == "__main__":
    main()
