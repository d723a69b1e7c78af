"""A step on the matrices of a Qwen3 model, ours and others'.

Every contender gets the same weights and gradients, on all ranks under FSDP2.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import canzona

from .. import _layout
from .layouts import mesh_of
from .machine import ranks_per_gpu

# Hidden size, queries, keys, inner size, layers.
MODELS = {
    "tiny": (64, 64, 32, 192, 2),
    "small": (256, 512, 256, 768, 4),
    "0.6b": (1024, 2048, 1024, 3072, 28),
    "1.7b": (2048, 2048, 1024, 6144, 28),
    "4b": (2560, 4096, 1024, 9728, 36),
    "8b": (4096, 4096, 1024, 12288, 36),
}
# Steps that are not timed, since they plan, compile and capture; steps that are,
# and the seconds after which no other begins.
_WARM = {"cpu": 1, "cuda": 3}
_TIMED = 5
_ENOUGH = 3.0


class _Layer(nn.Module):
    def __init__(self, shapes: list[tuple[int, int]], device: str):
        super().__init__()
        for number, (rows, columns) in enumerate(shapes):
            linear = nn.Linear(columns, rows, bias=False, device=device)
            self.add_module(f"linear_{number}", linear)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def _shapes(model: str) -> list[tuple[int, int]]:
    hidden, queries, keys, inner, _ = MODELS[model]
    return [
        (queries, hidden),
        (keys, hidden),
        (keys, hidden),
        (hidden, queries),
        (inner, hidden),
        (inner, hidden),
        (hidden, inner),
    ]


def weights_of(model: str, layers: int) -> int:
    return layers * sum(a * b for a, b in _shapes(model))


def chosen(model: str, layers: int, device: str) -> tuple[str, int]:
    """A model and its number of layers; by memory unless they are given."""
    if model != "auto":
        return model, layers or MODELS[model][4]
    if device == "cpu":
        return "small", layers or MODELS["small"][4]
    if ranks_per_gpu(device) > 1:  # sockets would be all that is measured
        return "tiny", layers or MODELS["tiny"][4]
    free = _smallest(torch.cuda.mem_get_info()[0])
    for name in ("1.7b", "0.6b"):
        count = layers or MODELS[name][4]
        # Weights, gradients, momentum, new gradients, and scratch.
        if 24 * weights_of(name, count) < free:
            return name, count
    return "tiny", layers or MODELS["tiny"][4]


def _smallest(free: int) -> int:
    """Bytes that every rank may take, where ranks share a GPU, too."""
    if not dist.is_initialized():
        return free
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    share = free // -(-ranks // torch.cuda.device_count())
    number = torch.tensor([share], device="cuda")
    dist.all_reduce(number, dist.ReduceOp.MIN)
    return int(number)


def _model(name: str, layers: int, device: str) -> nn.Module:
    torch.manual_seed(0)
    model = nn.ModuleList(_Layer(_shapes(name), device) for _ in range(layers))
    if dist.is_initialized() and dist.get_world_size() > 1:
        from torch.distributed.fsdp import fully_shard

        mesh = mesh_of(device, (dist.get_world_size(),))
        for layer in model:
            fully_shard(layer, mesh=mesh)
    return model


def _gradients(model: nn.Module, device: str) -> list[torch.Tensor]:
    generator = torch.Generator(device).manual_seed(1)
    kept = [_layout.local(p) for p in model.parameters()]
    return [
        torch.randn(p.shape, device=device, generator=generator) for p in kept
    ]


def _give(model: nn.Module, gradients: list[torch.Tensor]) -> None:
    """New tensors, as zero_grad(set_to_none=True) leaves them."""
    for p, gradient in zip(model.parameters(), gradients):
        value: Any = gradient.clone()
        if _layout.is_dtensor(p):
            from torch.distributed.tensor import DTensor

            dtensor: Any = p
            value = DTensor.from_local(
                value,
                dtensor.device_mesh,
                dtensor.placements,
                run_check=False,
                shape=p.shape,
                stride=p.stride(),
            )
        p.grad = value


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _slowest(value: float, device: str) -> float:
    if not dist.is_initialized():
        return value
    number = torch.tensor([value], device=device, dtype=torch.float64)
    dist.all_reduce(number, dist.ReduceOp.MAX)
    return float(number)


def _dion(model: nn.Module) -> Any:
    from dion import Muon

    # Its README: import it and train; its own functions are compiled.
    first: Any = next(model.parameters())
    mesh = first.device_mesh if _layout.is_dtensor(first) else None
    return Muon(list(model.parameters()), distributed_mesh=mesh, lr=1e-3)


def _contenders(peers: bool) -> dict[str, Callable[[nn.Module], Any]]:
    made: dict[str, Callable[[nn.Module], Any]] = {
        "canzona.Muon": lambda m: canzona.Muon(m, lr=1e-3)
    }
    if hasattr(torch.optim, "Muon"):
        made["torch.optim.Muon"] = lambda m: torch.optim.Muon(
            m.parameters(), lr=1e-3
        )
    if peers and importlib.util.find_spec("dion") is not None:
        made["dion"] = _dion
    return made


def _measured(
    make: Callable[[nn.Module], Any], name: str, layers: int, device: str
) -> dict[str, Any]:
    model = _model(name, layers, device)
    optimizer = make(model)
    gradients = _gradients(model, device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    times, host = [], []
    for step in range(_WARM[device] + _TIMED):
        _give(model, gradients)
        if dist.is_initialized():
            dist.barrier()
        _wait(device)
        begin = time.perf_counter()
        optimizer.step()
        returned = time.perf_counter() - begin
        _wait(device)
        if step >= _WARM[device]:
            times.append(_slowest(time.perf_counter() - begin, device))
            host.append(_slowest(returned, device))
        if sum(times) > _ENOUGH:
            break
    row: dict[str, Any] = {
        "ms": round(1e3 * statistics.median(times), 3),
        "host_ms": round(1e3 * statistics.median(host), 3),
    }
    if device == "cuda":
        row["peak_mib"] = torch.cuda.max_memory_allocated() >> 20
    if isinstance(optimizer, canzona.Muon):
        predicted = optimizer.plan.json["predicted"]
        row["sent_mb"] = round(predicted["bytes_per_rank_max"] / 1e6, 1)
    bad = [
        n
        for n, p in model.named_parameters()
        if not bool(_layout.local(p).isfinite().all())
    ]
    if bad:
        raise RuntimeError(f"{bad[0]} is not finite after a step")
    if hasattr(optimizer, "close"):
        optimizer.close()
    return row


def steps(
    name: str, layers: int, device: str, peers: bool, at: Callable[[str], None]
) -> dict[str, Any]:
    """Times of every contender, the slowest rank's. A collective."""
    rows = {}
    for who, make in _contenders(peers).items():
        at(f"step, {who}")
        rows[who] = _measured(make, name, layers, device)
        if device == "cuda":
            torch.cuda.empty_cache()
    return {"model": name, "layers": layers, "contenders": rows}
