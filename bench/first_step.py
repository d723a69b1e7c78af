"""Times construction and the first steps of an optimizer of 252 small matrices.

    torchrun --standalone --nproc-per-node 4 bench/first_step.py fsdp2

The first step reads layouts, meets the other ranks and plans. Products are
small, so that this is what is seen.
"""

import argparse
import time

import canzona
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, VOCABULARY, STEPS = 128, 36, 512, 4


class Layer(nn.Module):
    """Seven matrices, as in a transformer's layer."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.out = (
            nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4)
        )
        self.gate, self.up = (
            nn.Linear(WIDTH, 3 * WIDTH, bias=False) for _ in range(2)
        )
        self.down = nn.Linear(3 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        y = self.norm(x)
        x = x + self.out(torch.tanh(self.q(y) * self.k(y) * self.v(y)))
        return x + self.down(torch.relu(self.gate(x)) * self.up(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def laid_out(model, layout):
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
    parser.add_argument("layout", choices=["ddp", "fsdp2"])
    layout = parser.parse_args().layout
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = laid_out(Model(), layout)
    optimizer, construction = seconds_of(lambda: canzona.Muon(model, lr=1e-3))
    steps = []
    for number in range(STEPS):
        generator = torch.Generator().manual_seed(dist.get_rank() + number)
        tokens = torch.randint(0, VOCABULARY, (4, 32), generator=generator)
        optimizer.zero_grad()
        logits = model(tokens).flatten(0, 1)
        nn.functional.cross_entropy(logits, tokens.flatten()).backward()
        steps.append(seconds_of(optimizer.step)[1])
    if dist.get_rank() == 0:
        later = ", ".join(f"{s:.3f}" for s in steps[1:])
        print(
            f"{layout}, {dist.get_world_size()} ranks: construction "
            f"{construction:.3f} s, first step {steps[0]:.3f} s, later {later} s"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
