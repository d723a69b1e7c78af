"""A small character model and its data, for the examples beside this file."""

from __future__ import annotations

import codecs
import contextlib
import io

import torch
import torch.nn.functional as F
from torch import nn

with contextlib.redirect_stdout(io.StringIO()):
    import this
TEXT = codecs.decode(this.s, "rot13")
CHARACTERS = sorted(set(TEXT))


class Block(nn.Module):
    def __init__(self, width: int, head: int):
        super().__init__()
        self.head = head
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, width, bias=False)
        self.v = nn.Linear(width, width, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        q, k, v = (
            f(y).unflatten(-1, (-1, self.head)).transpose(1, 2)
            for f in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, width: int = 64, depth: int = 2, length: int = 32):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(len(CHARACTERS), width)
        self.places = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, 16) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(CHARACTERS), bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


_TOKENS = torch.tensor([CHARACTERS.index(c) for c in TEXT])


def batch(seed: int, count: int = 16, length: int = 32):
    """Pieces of the text, and the same one character further."""
    at = torch.randint(
        len(_TOKENS) - length - 1,
        (count,),
        generator=torch.Generator().manual_seed(seed),
    )
    pieces = torch.stack([_TOKENS[a : a + length + 1] for a in at.tolist()])
    return pieces[:, :-1], pieces[:, 1:]


def loss_of(model: nn.Module, seed: int) -> torch.Tensor:
    x, y = batch(seed)
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    steps: range,
    rank: int,
    data: int,
) -> None:
    """`data`: whose data this rank reads; ranks of one copy read the same."""
    for step in steps:
        loss = loss_of(model, 1000 * step + data)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and (step % 10 == 0 or step == steps[-1]):
            print(f"step {step:3}  loss {loss.item():.3f}", flush=True)
