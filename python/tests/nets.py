"""Small nets for tests of one process."""

import torch
from torch import nn

import canzona

KINDS = {
    "muon": canzona.Muon,
    "soap": canzona.SOAP,
    "shampoo": canzona.Shampoo,
    "adamw": canzona.AdamW,
}


def net(seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(
        dtype
    )


def backward(model, seed=1, scale=1.0):
    torch.manual_seed(seed)
    p = next(model.parameters())
    loss = model(torch.randn(5, 8, dtype=p.dtype)).square().mean() * scale
    loss.backward()
    return loss


def values(model):
    return [p.detach().clone() for p in model.parameters()]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b))


def follow(mine, theirs, model, other, count=10):
    for step in range(1, count + 1):
        for p, q in zip(model.parameters(), other.parameters()):
            p.grad = torch.randn(
                p.shape,
                generator=torch.Generator().manual_seed(step * 100 + p.numel()),
            )
            q.grad = p.grad.clone()
        mine.step()
        theirs.step()
