"""What computes here, and how fast ranks send to each other."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from .._library import load

_SEND = {"cpu": 1 << 20, "cuda": 1 << 24}  # fp32 numbers
_ROUNDS = 3


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.machine()
    found = re.search(r"model name\s*:\s*(.+)", text)
    return found.group(1) if found else platform.machine()


def _driver() -> str | None:
    """The version of NVIDIA's driver."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
        found = re.search(r"Kernel Module.*?\s(\d+\.\d+[.\d]*)", text)
        if found:
            return found.group(1)
    except OSError:
        pass
    try:
        said = subprocess.run(
            [
                "nvidia-smi",
                "--query-gpu=driver_version",
                "--format=csv,noheader",
            ],
            capture_output=True,
            text=True,
            check=True,
            timeout=20,
        ).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return None
    return said[0] if said else None


def installation(device: str) -> dict[str, Any]:
    """What all ranks must have alike."""
    library = load(device)
    found: dict[str, Any] = {
        "canzona": library.version(),
        "library": hashlib.sha256(library.path.read_bytes()).hexdigest()[:16],
        "kernels": library.describe(device),
        "torch": torch.__version__,
        "device": _processor(),
    }
    if device == "cuda":
        gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
        found["device"] = f"{gpu.name}, {gpu.major}.{gpu.minor}"
        found["memory_gib"] = round(gpu.total_memory / 2**30)
        found["driver"] = _driver()
        found["cuda"] = torch.version.cuda
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return found


def surroundings() -> dict[str, Any]:
    """What may differ from rank to rank."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "kernel": platform.release().partition("-")[0],
        "libc": "-".join(platform.libc_ver()),
    }


def first_unlike(found: list[dict[str, Any]]) -> str:
    """The first thing that ranks do not have alike; empty if there is none."""
    for rank, other in enumerate(found):
        for name, value in found[0].items():
            if other.get(name) != value:
                return f"{name} is {other.get(name)} on rank {rank}, {value} on rank 0"
    return ""


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def ranks_per_gpu(device: str) -> float:
    """How many ranks of this machine share a GPU; 1 on CPUs."""
    if device != "cuda":
        return 1
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return ranks / torch.cuda.device_count()


def is_crowded(device: str) -> bool:
    """True if so many ranks share a GPU that all checks would take minutes:
    they take turns on it, and send through sockets."""
    return ranks_per_gpu(device) > 4


def _pattern(rank: int, size: int) -> torch.Tensor:
    return torch.arange(size, dtype=torch.float32) % 8191 + rank


def _timed(device: str, send: Any) -> float:
    """Seconds of the fastest round, on the slowest rank."""
    best = float("inf")
    for _ in range(_ROUNDS):
        dist.barrier()
        _wait(device)
        begin = time.perf_counter()
        send()
        _wait(device)
        spent = torch.tensor([time.perf_counter() - begin], device=device)
        dist.all_reduce(spent, dist.ReduceOp.MAX)
        best = min(best, float(spent))
    return best


def links(device: str) -> dict[str, Any]:
    """GB/s from every rank to the others, one pair at a time, and of an
    all-reduce. Raises if a number arrives changed. Ranks that share a GPU have
    sockets, and send a little to the next one alone."""
    rank, world = dist.get_rank(), dist.get_world_size()
    shared = ranks_per_gpu(device) > 1
    size = _SEND["cpu" if shared else device]
    mine = _pattern(rank, size).to(device)
    got = torch.empty_like(mine)
    dist.all_reduce(got.clone().zero_())  # makes the communicator

    def send(first: int, second: int) -> None:
        if rank == first:
            work = [dist.P2POp(dist.isend, mine, second)]
        elif rank == second:
            work = [dist.P2POp(dist.irecv, got, first)]
        else:
            return
        for each in dist.batch_isend_irecv(work):
            each.wait()

    pairs = {}
    for first in range(world):
        last = first + 1 if shared else world - 1
        for second in range(first + 1, min(last, world - 1) + 1):
            got.zero_()
            spent = _timed(device, lambda: send(first, second))
            pairs[f"{first}-{second}"] = round(4e-9 * size / spent, 2)
            if rank == second and not torch.equal(
                got, _pattern(first, size).to(device)
            ):
                raise RuntimeError(f"numbers from rank {first} arrived changed")
    total = _pattern(0, size).to(device)
    spent = _timed(device, lambda: dist.all_reduce(total.zero_().add_(rank)))
    if float(total[-1]) != world * (world - 1) / 2:
        raise RuntimeError("an all-reduce gave a wrong sum")
    moved = 8e-9 * size * (world - 1) / world
    return {"pairs_gb_s": pairs, "all_reduce_gb_s": round(moved / spent, 2)}
