"""Where the plain tensors of Megatron-Core lie, by their attributes.

    Megatron's attribute              what it says of a shard
    partition_dim                     the dimension that the TP group cuts, or -1
    partition_stride                  2 for [gate; up]: a piece of each half
    is_qkv, qkv_split_shapes          rows of q, k and v alternate by query group
    expert_tp                         the group is that of the experts
    is_gtp_weight_remat               cut by another group as well: refused

Nothing here imports Megatron: tests use tensors with these attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from ._errors import UsageError
from ._stored import Stored


@dataclass(frozen=True)
class World:
    """Ranks that have the pieces of the same matrices, by tensor parallelism."""

    group: Any  # a process group; None: this rank alone
    has_experts: bool
    is_whole: bool = True  # False: every shard is a matrix of its own

    @property
    def size(self) -> int:
        return self.group.size() if self.group is not None else 1

    @property
    def ranks(self) -> list[int] | None:
        """Global ranks that share matrices; None: this one alone."""
        if self.size == 1 or not self.is_whole:
            return None
        return dist.get_process_group_ranks(self.group)


def worlds_of(pg_collection: Any, is_whole: bool) -> list[World]:
    """Those of dense matrices and of experts, in the order of all ranks."""
    group_of = {
        False: getattr(pg_collection, "tp", None),
        True: getattr(pg_collection, "expt_tp", None),
    }
    return [World(group, e, is_whole) for e, group in group_of.items()]


def is_expert(tensor: torch.Tensor) -> bool:
    return bool(getattr(tensor, "expert_tp", False))


@dataclass(frozen=True)
class Matrix:
    """How a shard lies in its matrix, and the matrices that are fused in it."""

    stored: Stored
    splits: list[int]  # rows of each; empty: there is one


def matrix_of(
    name: str, p: torch.Tensor, world: World, qkv: Sequence[int] | None
) -> Matrix:
    """`qkv`: rows of q, k, v for a query group, if this tensor is split so."""
    if p.dim() != 2:
        raise UsageError(
            f"parameter {name}: has {p.dim()} dimensions; Megatron's Muon is "
            "for matrices"
        )
    if getattr(p, "is_gtp_weight_remat", False):
        raise UsageError(
            f"parameter {name}: is a GTP weight (is_gtp_weight_remat), cut by "
            "a second group; canzona.megatron does not support GTP: use "
            "tensor parallelism alone, or canzona.megatron.unregister()"
        )
    ranks = world.ranks
    size = 1 if ranks is None else len(ranks)
    dim = int(getattr(p, "partition_dim", -1))
    stride = int(getattr(p, "partition_stride", 1))
    if qkv is not None:
        return _interleaved(name, p, ranks, dim, list(qkv))
    if dim < 0 or size == 1:
        cut: tuple[int, int] | None = None
    else:
        cut = (dim, stride)
    shape = list(p.shape)
    if cut is not None:
        shape[dim] *= size
    return Matrix(Stored(shape, ranks, [cut]), [])


def _interleaved(
    name: str,
    p: torch.Tensor,
    ranks: list[int] | None,
    dim: int,
    rows: list[int],
) -> Matrix:
    """[q; k; v], of which a rank stores some rows of each in turn."""
    each, (height, width) = sum(rows), p.shape
    if dim > 0 or height % each != 0:
        raise UsageError(
            f"parameter {name}: {height} rows of q, k and v cut by dimension "
            f"{dim}; expected whole query groups of {rows} rows; "
            "--muon-no-split-qkv keeps it one matrix"
        )
    size = 1 if ranks is None or dim < 0 else len(ranks)
    here = height // each
    rank = 0 if ranks is None or size == 1 else ranks.index(dist.get_rank())
    groups, boxes = here * size, []
    for g in range(here * rank, here * (rank + 1)):
        first = 0
        for n in rows:
            boxes.append(((first + g * n, 0), (n, width)))
            first += groups * n
    return Matrix(
        Stored((groups * each, width), ranks, boxes=boxes),
        [groups * n for n in rows],
    )
