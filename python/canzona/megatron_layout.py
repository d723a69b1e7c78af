"""Where the plain tensors of Megatron-Core lie, by their attributes.

    partition_dim                the dimension that the TP group cuts, or -1
    partition_stride             2 for [gate; up]: a piece of each half
    is_qkv, qkv_split_shapes     rows of q, k and v alternate by query group
    expert_tp                    the group is that of the experts
    is_gtp_weight_remat          cut by another group as well: refused

Nothing here imports Megatron: tests use tensors with these attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ._errors import UsageError
from ._stored import Stored


class World(NamedTuple):
    """Ranks that have the pieces of the same matrices, by tensor parallelism."""

    group: Any  # a process group; None: this rank alone
    has_experts: bool
    ranks: list[int] | None  # global; None: every shard is a matrix of its own


def worlds_of(pg_collection: Any, is_whole: bool) -> list[World]:
    """Those of dense matrices and of experts, in the order of all ranks."""
    worlds = []
    for name, has_experts in (("tp", False), ("expt_tp", True)):
        group = getattr(pg_collection, name, None)
        shares = is_whole and group is not None and group.size() > 1
        ranks = dist.get_process_group_ranks(group) if shares else None
        worlds.append(World(group, has_experts, ranks))
    return worlds


def matrix_of(
    name: str,
    p: torch.Tensor,
    world: World,
    qkv: Sequence[int] | None,
    by_head: bool = False,
) -> tuple[Stored, list[int]]:
    """How a shard lies in its matrix, and the rows of each of the matrices that
    are fused in it (none: there is one). `qkv`: the rows of q, k and v for a
    query group, if this tensor is split so; each head alone with `by_head`."""
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
    dim = int(getattr(p, "partition_dim", -1))
    stride = int(getattr(p, "partition_stride", 1))
    ranks = world.ranks if dim >= 0 else None
    if qkv is not None:
        if dim > 0 or len(p) % sum(qkv) != 0:
            raise UsageError(
                f"parameter {name}: {len(p)} rows of q, k and v on a rank; "
                f"expected whole query groups of {list(qkv)} rows, cut by rows; "
                "--muon-no-split-qkv keeps it one matrix"
            )
        if not by_head:
            return _interleaved(p, world.ranks, ranks or [0], list(qkv))
    shape, cut = list(p.shape), None
    if ranks is not None:
        shape[dim] *= len(ranks)
        cut = (dim, stride)
    heads = [min(qkv)] * (shape[0] // min(qkv)) if qkv is not None else []
    return Stored(shape, world.ranks, [cut]), heads


def _interleaved(
    p: torch.Tensor, over: Any, cut_over: list[int], rows: list[int]
) -> tuple[Stored, list[int]]:
    """[q; k; v], of which a rank stores some rows of each in turn."""
    each, (height, width) = sum(rows), p.shape
    here, groups = height // each, height // each * len(cut_over)
    number = cut_over.index(dist.get_rank()) if len(cut_over) > 1 else 0
    boxes = []
    for g in range(here * number, here * (number + 1)):
        first = 0
        for n in rows:
            boxes.append(((first + g * n, 0), (n, width)))
            first += groups * n
    stored = Stored((groups * each, width), over, boxes=boxes)
    return stored, [groups * n for n in rows]
