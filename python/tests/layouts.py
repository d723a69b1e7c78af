"""One small model under every layout, with gradients made from names.

`train(layout, rule, ...)` runs on the ranks of a test and returns a hash of all
parameters and states as whole tensors, which must be the same everywhere.
"""

from __future__ import annotations

import hashlib
import os

import torch
import torch.distributed as dist
from torch import nn

import canzona
from canzona.selftest import layouts as shared
from canzona.selftest.layouts import like, named, whole

# Layout → number of ranks.
LAYOUTS = {
    "one": 1,
    "ddp2": 2,
    "ddp3": 3,
    "ddp4": 4,
    "shared2": 2,
    "shared3": 3,
    "fsdp2": 2,
    "fsdp3": 3,
    "fsdp4": 4,
    "columns2": 2,
    "hsdp": 4,
    "tp2": 2,
    "fsdp_tp": 4,
    "ddp_tp": 4,
    "experts": 4,
}
SPLITS = {"qkv.weight": [4, 2, 6]}


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.empty(4, 6, 8))


class Model(nn.Module):
    """Primes, one row, fewer rows than ranks, splits, a stack, vectors."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.up = nn.Linear(8, 12)
        self.down = nn.Linear(12, 8, bias=False)
        self.qkv = nn.Linear(8, 12, bias=False)
        self.odd = nn.Linear(5, 7, bias=False)
        self.row = nn.Linear(6, 1, bias=False)
        self.few = nn.Linear(4, 2)
        self.experts = Experts()
        self.norm = nn.LayerNorm(3)


def device() -> str:
    """Where models are; tests on GPUs say "cuda"."""
    return os.environ.get("CANZONA_TEST_DEVICE", "cpu")


def numbers(name: str, step: int, shape) -> torch.Tensor:
    """From -2 to 2, of 24 bits, by name and place; alone.cc has the same."""
    return shared.numbers(name, step, shape, device())


def fresh(dtype=torch.float32) -> Model:
    model = Model().to(device())
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(numbers(name, 0, p.shape) * 0.1)
    return model.to(dtype)


def mesh(*shape, names=None):
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(device(), shape, mesh_dim_names=names)


def sharded():
    """The model under FSDP2, over all ranks."""
    from torch.distributed.fsdp import fully_shard

    return fully_shard(fresh(), mesh=mesh(dist.get_world_size()))


def build(layout: str, dtype=torch.float32):
    """A model under a layout, and what its optimizer must be told."""
    model, told = fresh(dtype), {}
    if layout == "one":
        return model, told
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )
    from torch.nn.parallel import DistributedDataParallel as DDP

    world = dist.get_world_size()

    def tensor_parallel(of):
        # Rows and columns, by numbers that do not divide as well.
        styles = {
            "up": ColwiseParallel(),
            "down": RowwiseParallel(),
            "qkv": ColwiseParallel(),
        }
        if layout != "fsdp_tp":
            styles["odd"] = RowwiseParallel()
        parallelize_module(model, of, styles)

    if layout.startswith(("ddp", "shared")) and layout != "ddp_tp":
        told["share_states"] = layout.startswith("shared")
        model = DDP(model)
    elif layout.startswith("fsdp") and layout != "fsdp_tp":
        fully_shard(model, mesh=mesh(world))
    elif layout == "columns2":
        fully_shard(
            model,
            mesh=mesh(world),
            shard_placement_fn=lambda p: Shard(
                1 if p.ndim > 1 and p.shape[1] % world == 0 else 0
            ),
        )
    elif layout == "hsdp":
        fully_shard(model, mesh=mesh(2, 2, names=("r", "s")))
    elif layout == "tp2":
        tensor_parallel(mesh(2))
        told["replicas"] = dist.group.WORLD
    elif layout == "fsdp_tp":
        both = mesh(2, 2, names=("dp", "tp"))
        tensor_parallel(both["tp"])
        fully_shard(model, mesh=both["dp"])
    elif layout == "ddp_tp":
        both = mesh(2, 2, names=("dp", "tp"))
        tensor_parallel(both["tp"])
        told["replicas"] = dist.group.WORLD
    elif layout == "experts":
        both = mesh(2, 2, names=("dp", "ep"))
        model.experts.w = nn.Parameter(
            distribute_tensor(
                model.experts.w.detach(), both, [Replicate(), Shard(0)]
            )
        )
        fully_shard(model, mesh=mesh(world), ignored_params={model.experts.w})
    else:
        raise ValueError(layout)
    return model, told


def optimizer_of(model, told, rule, **options):
    kind = {
        "muon": canzona.Muon,
        "soap": canzona.SOAP,
        "shampoo": canzona.Shampoo,
        "adamw": canzona.AdamW,
    }[rule]
    if rule in ("soap", "shampoo"):
        options.setdefault("precondition_frequency", 3)
    if rule == "shampoo":
        options.setdefault("start_step", 3)
    if rule != "adamw":
        options.setdefault("splits", SPLITS)
    return kind(model, lr=0.02, **{**told, **options})


def set_gradients(model, step, leave_out=()):
    for name, p in named(model):
        if name in leave_out:
            p.grad = None
            continue
        p.grad = like(p, numbers(name, step, p.shape).to(p.dtype))


def digest(model, optimizer):
    """Of all parameters and states, put together, under their names."""
    optimizer.consolidate(None)
    state = optimizer.state_dict()
    names = [n for g in state["param_groups"] for n in g["param_names"]]
    values = {f"{n}": whole(p) for n, p in named(model)}
    for i, name in enumerate(names):
        for key, value in state["state"][i].items():
            values[f"{name} {key}"] = whole(value)
    total = hashlib.sha256()
    parts = {}
    for name in sorted(values):
        data = (
            values[name].cpu().contiguous().view(torch.uint8)
            if values[name].dim()
            else values[name].view(1).view(torch.uint8)
        )
        text = hashlib.sha256(bytes(data.reshape(-1).tolist())).hexdigest()
        parts[name] = text[:12]
        total.update(f"{name} {text}\n".encode())
    return total.hexdigest(), parts


def steps(model, optimizer, first, last, **options):
    for step in range(first, last + 1):
        set_gradients(model, step, **options)
        optimizer.step()


def train(layout, rule, options=None, count=20, dtype=torch.float32):
    model, told = build(layout, dtype)
    optimizer = optimizer_of(model, told, rule, **(options or {}))
    steps(model, optimizer, 1, count)
    return digest(model, optimizer)


def train_all(layout, runs, count=20):
    """Several runs in one go: by name (rule, options, dtype)."""
    return {
        name: train(layout, rule, options, count, dtype)
        for name, (rule, options, dtype) in runs.items()
    }
