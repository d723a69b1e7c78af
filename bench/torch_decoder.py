#!/usr/bin/env python3
"""Times forward and backward of the decoder in eager PyTorch, alone or in turns
with ours.

    build/torch/bin/python bench/torch_decoder.py [--hidden 384 ...]
    build/torch/bin/python bench/torch_decoder.py --ours build/canzona

fp32 on the CPU, one micro-batch, the gradients of the last one thrown away
first. PyTorch runs twice: with attention in plain operations, and by its fused
scaled_dot_product_attention; the faster counts. A turn is a run of ours, then
one of each of PyTorch's; medians of --rounds within a turn, and over turns.
"""
import argparse
import json
import statistics
import subprocess

import torch

from torch_measure import times_of
from torch_model import (decoder_loss, fused_attention, plain_attention,
                         rotation)

ATTENTIONS = {"plain": plain_attention, "sdpa": fused_attention}
OURS = ["hidden", "ffn", "layers", "heads", "kv_heads", "head_dim", "length",
        "vocab"]  # keys of canzona, under model.


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    numbers = {"hidden": 384, "ffn": 768, "layers": 6, "heads": 8,
               "kv_heads": 4, "head_dim": 64, "length": 128, "micro_batch": 8,
               "vocab": 256, "threads": 1, "rounds": 7, "turns": 5}
    for name, default in numbers.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int,
                            default=default, help=f"default {default}")
    parser.add_argument("--ours", help="build/canzona, for turns")
    parser.add_argument("--attention", choices=ATTENTIONS,
                        help="one kind alone")
    return parser.parse_args()


def make_config(arguments):
    return {**vars(arguments), "tied": True, "norm_epsilon": 1e-6,
            "rope_base": 10000.0}


def make_weights(config):
    """Fused as ours are."""
    torch.manual_seed(0)
    hidden, ffn, dim = config["hidden"], config["ffn"], config["head_dim"]
    heads, groups = config["heads"], config["kv_heads"]
    shapes = {"model.embed_tokens.weight": (config["vocab"], hidden),
              "model.norm.weight": (hidden,)}
    for layer in range(config["layers"]):
        name = f"model.layers.{layer}."
        shapes |= {
            name + "self_attn.qkv_proj.weight": ((heads + 2 * groups) * dim,
                                                 hidden),
            name + "self_attn.o_proj.weight": (hidden, heads * dim),
            name + "self_attn.q_norm.weight": (dim,),
            name + "self_attn.k_norm.weight": (dim,),
            name + "mlp.gate_up_proj.weight": (2 * ffn, hidden),
            name + "mlp.down_proj.weight": (hidden, ffn),
            name + "input_layernorm.weight": (hidden,),
            name + "post_attention_layernorm.weight": (hidden,)}
    return {name: torch.nn.Parameter(
        torch.ones(shape) if len(shape) == 1 else torch.randn(shape) * 0.02)
        for name, shape in shapes.items()}


class TorchDecoder:
    def __init__(self, config):
        self.config = config
        self.weights = make_weights(config)
        self.turn = rotation(config, config["length"], torch.float32)
        self.sequences = torch.randint(
            config["vocab"], (config["micro_batch"], config["length"] + 1))

    def step(self, attend):
        for weight in self.weights.values():
            weight.grad = None
        loss, _ = decoder_loss(self.config, self.weights, self.sequences,
                               attend, self.turn)
        loss.backward()

    def milliseconds(self, attention, rounds):
        step = lambda: self.step(ATTENTIONS[attention])
        times_of(step, 2, "cpu")
        return 1e3 * statistics.median(times_of(step, rounds, "cpu"))


def our_milliseconds(arguments):
    keys = [f"model.{name}={getattr(arguments, name)}" for name in OURS]
    keys += [f"batch.micro={arguments.micro_batch}",
             f"batch.global={arguments.micro_batch}", "model.tied=on"]
    words = [word for key in keys for word in ("--set", key)]
    text = subprocess.run(
        [arguments.ours, "bench", "decoder", "--json", "--rounds",
         str(arguments.rounds), *words],
        check=True, capture_output=True, text=True).stdout
    found = json.loads(text)
    return 1e3 * (found["forward_seconds"] + found["backward_seconds"])


def main():
    arguments = read_arguments()
    if arguments.ours and arguments.threads != 1:
        raise SystemExit("ours computes on one thread")
    torch.set_num_threads(arguments.threads)
    decoder = TorchDecoder(make_config(arguments))
    kinds = [arguments.attention] if arguments.attention else list(ATTENTIONS)
    turns = {kind: [] for kind in (["ours"] if arguments.ours else []) + kinds}
    for _ in range(arguments.turns):
        for kind, times in turns.items():
            times.append(our_milliseconds(arguments) if kind == "ours" else
                         decoder.milliseconds(kind, arguments.rounds))
    print(f"torch {torch.__version__}, {arguments.threads} threads, "
          f"{arguments.turns} turns of {arguments.rounds}")
    for kind, times in turns.items():
        print(f"{kind:6} {statistics.median(times):8.1f} ms "
              f"({min(times):.1f} to {max(times):.1f})")
    if arguments.ours:
        ratios = [min(torch_times) / ours for ours, *torch_times
                  in zip(*turns.values())]
        print(f"ours is {statistics.median(ratios):.2f} times as fast "
              f"({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
