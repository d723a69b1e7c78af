"""How a plain tensor of an engine's own lies: what `layout=` returns.

    def layout(name, tensor):
        return canzona.Stored((4096, 1024), over=tp_group, cuts=[0])

    canzona.Muon(named, layout=layout, group=tp_group)

DTensors say all this by themselves; layout= returns None for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from ._errors import UsageError
from ._meeting import spread

Box = tuple[tuple[int, ...], tuple[int, ...]]  # first, count

_Mesh = tuple[int, ...]
_Places = tuple[
    _Mesh, tuple[int, ...], "tuple[Cut, ...]", "tuple[Box, ...] | None"
]


@dataclass(frozen=True)
class Cut:
    """How one axis of a mesh cuts a tensor; `dim` -1: not at all."""

    dim: int = -1
    split: int = 1  # of a strided shard: how often the dimension was cut before


@dataclass(frozen=True)
class Stored:
    """Where the pieces of a plain tensor are.

    shape: of the whole tensor, of which this rank's tensor is a piece.
    over: the ranks that hold pieces: a process group, a mesh, or global ranks
        in order; None: this rank alone.
    cuts: by axis of `over`, the dimension that it cuts as torch.chunk does, or
        None where its ranks hold the same. (0, 2) is a cut of stride 2: a rank
        holds its piece of each half of dimension 0, as of [gate; up].
    boxes: instead of cuts, what this rank holds: rectangles (first, count) of
        the whole tensor, one after another in its memory.
    """

    shape: Sequence[int]
    over: Any = None
    cuts: Sequence[int | tuple[int, int] | None] = ()
    boxes: Sequence[tuple[Sequence[int], Sequence[int]]] | None = None


def elements(count: Iterable[int]) -> int:
    product = 1
    for c in count:
        product *= c
    return product


def places(name: str, stored: Stored, is_dtensor: bool) -> _Places:
    """Mesh, ranks, cuts and boxes; throws UsageError."""
    what = f"layout= of parameter {name}"
    if is_dtensor:
        raise UsageError(
            f"{what}: it is a DTensor, which says by itself where its pieces "
            "are; return None for it"
        )
    mesh, ranks = _over(what, stored.over)
    me = dist.get_rank() if spread() else 0
    if me not in ranks:
        raise UsageError(
            f"{what}: over= names the ranks {list(ranks)}, but not this one, "
            f"{me}"
        )
    dims = len(stored.shape)
    if stored.boxes is not None:
        if stored.cuts:
            raise UsageError(f"{what}: has cuts and boxes; give one of them")
        boxes = tuple(_box(what, stored.shape, *box) for box in stored.boxes)
        return mesh, ranks, (), boxes
    if len(stored.cuts) not in (0, len(mesh)):
        raise UsageError(
            f"{what}: {len(stored.cuts)} cuts, but over= has {len(mesh)} axes; "
            "expected one for each, or none"
        )
    cuts = tuple(_cut(what, dims, cut) for cut in stored.cuts)
    return mesh, ranks, cuts or (Cut(),) * len(mesh), None


def _over(what: str, over: Any) -> tuple[_Mesh, tuple[int, ...]]:
    if over is None:
        return (1,), (dist.get_rank() if spread() else 0,)
    if hasattr(over, "get_group"):  # a mesh
        ranks = tuple(int(r) for r in over.mesh.flatten().tolist())
        return tuple(over.mesh.shape), ranks
    if isinstance(over, Iterable) and not isinstance(over, str):
        ranks = tuple(int(r) for r in over)
    elif isinstance(over, dist.ProcessGroup):
        ranks = tuple(dist.get_process_group_ranks(over))
    else:
        raise UsageError(
            f"{what}: over={over!r}; expected a process group, a mesh or a "
            "list of ranks"
        )
    if len(set(ranks)) < len(ranks):
        raise UsageError(f"{what}: over={list(ranks)} names a rank twice")
    return (len(ranks),), ranks


def _cut(what: str, dims: int, cut: Any) -> Cut:
    dim, stride = cut if isinstance(cut, tuple) else (cut, 1)
    if dim is None:
        return Cut()
    if not -dims <= dim < dims or stride < 1:
        raise UsageError(
            f"{what}: cut {cut!r} of a tensor of {dims} dimensions; expected "
            "a dimension, (dimension, stride) or None"
        )
    return Cut(dim % dims, stride)


def _box(
    what: str, shape: Sequence[int], first: Sequence[int], count: Sequence[int]
) -> Box:
    box = tuple(map(int, first)), tuple(map(int, count))
    inside = len(box[0]) == len(box[1]) == len(shape) and all(
        a >= 0 and n >= 1 and a + n <= size for a, n, size in zip(*box, shape)
    )
    if not inside:
        raise UsageError(
            f"{what}: box {box} is not inside the tensor {list(shape)}; "
            "expected (first, count), each with an index per dimension"
        )
    return box
