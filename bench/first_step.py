"""Times construction and the first steps of an optimizer of 252 small matrices.

    torchrun --standalone --nproc-per-node 4 bench/first_step.py fsdp2

The first step reads layouts, meets the other ranks and plans. Products are
small, so that this is what is seen; with --width 512 --layers 4 they are most
of a step.
"""

import argparse
import json
import statistics
import time

import canzona
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

VOCABULARY = 512


class Layer(nn.Module):
    """Seven matrices, as in a transformer's layer."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.gate, self.up = (
            nn.Linear(width, 3 * width, bias=False) for _ in range(2)
        )
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x):
        y = self.norm(x)
        x = x + self.out(torch.tanh(self.q(y) * self.k(y) * self.v(y)))
        return x + self.down(torch.relu(self.gate(x)) * self.up(x))


class Model(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def laid_out(model, layout):
    if layout == "alone":
        return model
    if layout == "ddp":
        return DistributedDataParallel(model)
    for layer in model.layers:
        fully_shard(layer)
    return fully_shard(model)


def seconds_of(work):
    dist.barrier()
    begin = time.perf_counter()
    result = work()
    dist.barrier()
    return result, time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("layout", choices=["alone", "ddp", "fsdp2"])
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=36)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = laid_out(Model(options.width, options.layers), options.layout)
    optimizer, construction = seconds_of(lambda: canzona.Muon(model, lr=1e-3))
    steps = []
    for number in range(options.steps):
        generator = torch.Generator().manual_seed(dist.get_rank() + number)
        tokens = torch.randint(0, VOCABULARY, (4, 32), generator=generator)
        optimizer.zero_grad()
        logits = model(tokens).flatten(0, 1)
        nn.functional.cross_entropy(logits, tokens.flatten()).backward()
        steps.append(seconds_of(optimizer.step)[1])
    first, *later = steps
    if dist.get_rank() == 0 and options.json:
        print(json.dumps({"construction": construction, "first step": first,
                          "step": statistics.median(later)}))
    elif dist.get_rank() == 0:
        print(
            f"{options.layout}, {dist.get_world_size()} ranks: construction "
            f"{construction:.3f} s, first step {first:.3f} s, later "
            f"{', '.join(f'{s:.3f}' for s in later)} s"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
