"""A small model under every layout, with gradients made from names.

    model, told = laid_out("fsdp2", "cpu")
    optimizer = optimizer_of("muon", model, told)
    train(model, optimizer, range(1, 5))
    values = whole_values(model, optimizer)       # on every rank

A weight and a gradient follow from the parameter's name, the step and the
place in the tensor alone, so every layout must end with the same bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import canzona

from .. import _layout
from .._routing import clean

RULES = ("muon", "soap", "shampoo", "adamw")
STEPS = 4

_SPLITS = {"qkv.weight": [20, 12, 8]}
# Every run crosses two refreshes.
_OPTIONS: dict[str, dict[str, Any]] = {
    "muon": {"splits": _SPLITS},
    "soap": {"splits": _SPLITS, "precondition_frequency": 2},
    "shampoo": {
        "splits": _SPLITS,
        "precondition_frequency": 2,
        "start_step": 2,
    },
    "adamw": {},
}
_KINDS = {
    "muon": "Muon",
    "soap": "SOAP",
    "shampoo": "Shampoo",
    "adamw": "AdamW",
}


class Model(nn.Module):
    """Matrices that ranks do not divide, splits, one row, vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(19, 24)
        self.qkv = nn.Linear(24, 40, bias=False)
        self.up = nn.Linear(24, 56)
        self.down = nn.Linear(56, 24, bias=False)
        self.odd = nn.Linear(13, 17, bias=False)
        self.row = nn.Linear(6, 1, bias=False)
        self.norm = nn.LayerNorm(24)


def layouts_of(world: int) -> list[str]:
    """The layouts that fit a number of ranks."""
    if world == 1:
        return []
    both = ["hsdp", "tp_fsdp2"] if world >= 4 and world % 2 == 0 else []
    return ["ddp", "fsdp2", "tp", *both]


def _wrapped(number: int) -> int:
    """The 64 lowest bits, as a signed number."""
    return (number + 2**63) % 2**64 - 2**63


def _mixed(z: torch.Tensor) -> torch.Tensor:
    """SplitMix64, by products that wrap around."""

    def shifted(bits: int) -> torch.Tensor:  # zeros come from the left
        return (z >> bits) & (2 ** (64 - bits) - 1)

    z = (z ^ shifted(30)) * _wrapped(0xBF58476D1CE4E5B9)
    z = (z ^ shifted(27)) * _wrapped(0x94D049BB133111EB)
    return z ^ shifted(31)


def numbers(
    name: str, step: int, shape: Iterable[int], device: str = "cpu"
) -> torch.Tensor:
    """From -2 to 2, of 24 bits, by name, step and place."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    size = torch.Size(shape)
    z = _mixed(torch.tensor(_wrapped(seed + step))) + torch.arange(size.numel())
    high = (_mixed(z) >> 40) & 0xFFFFFF
    return (high.float() * 2.0**-22 - 2).view(size).to(device)


def fresh(device: str) -> Model:
    model = Model().to(device)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(numbers(name, 0, p.shape) * 0.1)
    return model


def _tensor_parallel(model: nn.Module, mesh: Any) -> None:
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    styles = {
        "up": ColwiseParallel(),
        "qkv": ColwiseParallel(),
        "down": RowwiseParallel(),
    }
    parallelize_module(model, mesh, styles)


# By process group and shape: every mesh makes communicators of its own.
_meshes: dict[Any, Any] = {}


def mesh_of(device: str, shape: tuple[int, ...]) -> Any:
    """A mesh of all ranks, made once; of two dimensions, "outer", "inner"."""
    from torch.distributed.device_mesh import init_device_mesh

    key = (dist.group.WORLD, device, shape)
    if key not in _meshes:
        names = ("outer", "inner") if len(shape) == 2 else None
        _meshes[key] = init_device_mesh(device, shape, mesh_dim_names=names)
    return _meshes[key]


def laid_out(layout: str, device: str) -> tuple[nn.Module, dict[str, Any]]:
    """The model, and what its optimizer must be told. A collective."""
    from torch.distributed.fsdp import fully_shard

    model: nn.Module = fresh(device)
    world = dist.get_world_size() if dist.is_initialized() else 1
    if layout == "alone":
        return model, {}
    if layout == "ddp":
        return nn.parallel.DistributedDataParallel(model), {}
    if layout == "fsdp2":
        fully_shard(model, mesh=mesh_of(device, (world,)))
        return model, {}
    if layout == "tp":
        _tensor_parallel(model, mesh_of(device, (world,)))
        return model, {"replicas": dist.group.WORLD}
    if layout == "hsdp":
        fully_shard(model, mesh=mesh_of(device, (2, world // 2)))
    else:
        mesh = mesh_of(device, (world // 2, 2))
        _tensor_parallel(model, mesh["inner"])
        fully_shard(model, mesh=mesh["outer"])
    return model, {}


# Process groups of optimizers that were closed, by all ranks' and their ranks:
# the next one takes them, since a new communicator of NCCL takes seconds.
_groups: dict[Any, dict[tuple[int, ...], Any]] = {}


def optimizer_of(rule: str, model: nn.Module, told: Mapping[str, Any]) -> Any:
    kind = getattr(canzona, _KINDS[rule])
    optimizer = kind(model, lr=0.02, **_OPTIONS[rule], **told)
    optimizer._groups.update(_groups.get(dist.group.WORLD, {}))
    return optimizer


def close(optimizer: Any) -> None:
    """Closes it, but for its process groups. A collective."""
    _groups.setdefault(dist.group.WORLD, {}).update(optimizer._groups)
    optimizer._groups.clear()
    optimizer.close()


def named(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(clean(n), p) for n, p in model.named_parameters()]


def like(p: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """A whole tensor, cut as a parameter is."""
    if not _layout.is_dtensor(p):
        return value.clone()
    from torch.distributed.tensor import DTensor

    described = _layout.describe("p", p.detach())
    parts = [
        value[tuple(slice(a, a + n) for a, n in zip(first, count))]
        for first, count in _layout.boxes_of(described, dist.get_rank())
    ]
    kept = _layout.local(p)
    pieces = [x.reshape(-1) for x in parts] or [value.new_empty(0)]
    dtensor: Any = p
    return DTensor.from_local(
        torch.cat(pieces).view(kept.shape),
        dtensor.device_mesh,
        dtensor.placements,
        run_check=False,
        shape=p.shape,
        stride=p.stride(),
    )


def train(model: nn.Module, optimizer: Any, steps: Iterable[int]) -> None:
    for step in steps:
        for name, p in named(model):
            value = numbers(name, step, p.shape, p.device.type)
            p.grad = like(p, value.to(p.dtype))
        optimizer.step()


def whole(p: torch.Tensor) -> torch.Tensor:
    p = p.detach()
    dtensor: Any = p
    return (dtensor.full_tensor() if _layout.is_dtensor(p) else p).contiguous()


def whole_values(model: nn.Module, optimizer: Any) -> dict[str, torch.Tensor]:
    """Weights and states of all ranks by name, on the CPU. A collective."""
    values = {name: whole(p) for name, p in named(model)}
    optimizer.consolidate(None)
    saved = optimizer.state_dict()
    names = [n for g in saved["param_groups"] for n in g["param_names"]]
    for number, name in enumerate(names):
        for key, value in saved["state"][number].items():
            values[f"{name}, state {key}"] = whole(value)
    return {name: values[name].cpu() for name in sorted(values)}


def digest(values: Mapping[str, torch.Tensor]) -> str:
    total = hashlib.sha256()
    for name, value in values.items():
        data = value.reshape(-1).view(torch.uint8)
        total.update(f"{name} {tuple(value.shape)} ".encode())
        total.update(bytes(data.tolist()))
    return total.hexdigest()[:16]


def first_difference(
    values: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]
) -> str:
    """Where bits differ first, in words; empty if they do not."""
    for name, want in expected.items():
        got = values.get(name)
        if got is None or got.shape != want.shape:
            return f"{name} is missing or of another shape"
        wrong = _bits(got) != _bits(want)
        if wrong.any():
            place = int(wrong.reshape(-1).nonzero()[0])
            at = [
                int(i)
                for i in torch.unravel_index(torch.tensor(place), want.shape)
            ]
            return (
                f"{name} differs first at {at}: "
                f"{got.reshape(-1)[place].item():.9g} instead of "
                f"{want.reshape(-1)[place].item():.9g}"
            )
    more = [name for name in values if name not in expected]
    return f"{more[0]} should not be there" if more else ""


def _bits(value: torch.Tensor) -> torch.Tensor:
    kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    return value.contiguous().view(kinds[value.element_size()])
