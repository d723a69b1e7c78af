"""QK-clip under FSDP2: attention measures the largest logit of each head, and
the optimizer scales the heads whose logits grow too large.

torchrun --standalone --nproc-per-node 2 examples/pytorch/qk_clip.py [flex]

With `flex` attention is FlexAttention, which returns the maxima itself.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.attention.flex_attention import AuxRequest, flex_attention

import canzona
import tiny

TAU = 2.0  # Kimi K2 has 100; these logits stay small


class Attention(nn.Module):
    """Keeps the largest logit of each head until the optimizer has it."""

    def __init__(self, width: int, num_heads: int, flex: bool):
        super().__init__()
        self.num_heads, self.flex = num_heads, flex
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)
        self.max_logits = torch.full((num_heads,), -torch.inf)

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            f(y).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for f in (self.q_proj, self.k_proj, self.v_proj)
        )
        out, largest = (by_flex if self.flex else plainly)(q, k, v)
        self.max_logits = torch.maximum(
            self.max_logits, largest.detach().amax((0, 2))
        )
        return self.o_proj(out.transpose(1, 2).flatten(2))


def plainly(q, k, v):
    """Outputs, and the largest logit of each query."""
    logits = q @ k.mT / q.shape[-1] ** 0.5
    hidden = torch.ones(logits.shape[-2:], dtype=torch.bool).triu(1)
    logits = logits.masked_fill(hidden, -torch.inf)
    return logits.softmax(-1) @ v, logits.amax(-1)


def by_flex(q, k, v):
    def causal(score, batch, head, i, j):
        return torch.where(i >= j, score, -torch.inf)

    out, aux = flex_attention(
        q, k, v, score_mod=causal, return_aux=AuxRequest(max_scores=True)
    )
    return out, aux.max_scores


class Block(tiny.Block):
    def __init__(self, width: int, head: int, flex: bool):
        super().__init__(width, head)
        del self.q, self.k, self.v, self.o
        self.attention = Attention(width, width // head, flex)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class ClippedMuon(canzona.Muon):
    """Clips after each step, with what the layers have measured."""

    def step(self, closure=None):
        loss = super().step(closure)
        layers = {
            name: m
            for name, m in model.named_modules()
            if isinstance(m, Attention)
        }
        clipped = self.clip_qk(
            {name: m.max_logits for name, m in layers.items()}, tau=TAU
        )
        for m in layers.values():
            m.max_logits.fill_(-torch.inf)
        if clipped and rank == 0:
            print(f"clipped {clipped}", flush=True)
        return loss


torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
mesh = init_device_mesh("cpu", (dist.get_world_size(),))

model = tiny.Model()
model.blocks = nn.ModuleList(
    Block(64, 16, sys.argv[1:] == ["flex"]) for _ in range(2)
)
for block in model.blocks:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = ClippedMuon(model, lr=1e-2, heads="auto")
if rank == 0:
    print(optimizer.routing)
tiny.train(model, optimizer, range(60), rank, data=rank)
dist.destroy_process_group()
