"""Which rectangles of every parameter each rank stores.

    described = describe(name, parameter, replicas, stored)
    boxes_of(described, rank)               # [(first, count), ...]

A DTensor says by mesh and placements what each rank of its mesh stores; of a
plain tensor a `Stored` (_stored.py) says it. Any other plain tensor is stored
whole by this rank, and by the ranks of `replicas` if they are named (a DDP
module names them); a rank that names itself alone has a tensor of its own,
whatever others call theirs. _agree.py puts together what all ranks know.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Sequence, TypeGuard

import torch
import torch.distributed as dist

from ._errors import UsageError
from ._meeting import spread
from ._stored import Box, Cut, Stored, elements, places

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16"}


@dataclass(frozen=True)
class Described:
    """What one rank knows of a parameter."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    mesh: tuple[int, ...] = ()  # its shape; (): a plain tensor
    ranks: tuple[int, ...] = ()  # of the mesh, row-major
    cuts: tuple[Cut, ...] = ()  # by axis of the mesh
    replicas: tuple[int, ...] = ()
    boxes: tuple[Box, ...] | None = None  # of this rank, instead of cuts

    def tied_to(self, rank: int) -> set[int]:
        return {rank, *self.ranks, *self.replicas}

    def is_own_of(self, rank: int) -> bool:
        """True if a rank has said that nobody else has this tensor."""
        return not self.mesh and self.replicas == (rank,)


@dataclass
class CutTensor:
    """A tensor of the request: a parameter, or one of its untied copies."""

    name: str
    parameter: int
    shape: tuple[int, ...]
    dtype: str
    stored: list[list[Box]]  # by rank of the world
    holders: list[int]  # ranks of the world that have it as a parameter


@dataclass
class Layout:
    ranks: list[int]  # global ranks of the world, ascending
    rank: int  # this one's number in it
    tensors: list[CutTensor]
    mine: list[int]  # by parameter: its tensor on this rank
    unclear: str = ""  # a parameter whose copies may be one tensor or several
    serial: int = 0  # of this agreement; all its ranks have the same
    described: list[Described] = field(default_factory=list)

    @property
    def world(self) -> int:
        return len(self.ranks)


def own_name(name: str, rank: int) -> str:
    """Of a tensor that one rank alone has, among all ranks' tensors."""
    return f"{name}@rank{rank}"


def is_dtensor(tensor: Any) -> TypeGuard[DTensor]:
    # Whoever has a DTensor has imported its module, which takes long. What
    # steps ask for is mostly one of these two.
    kind = type(tensor)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return False
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a tensor, without a copy."""
    if is_dtensor(tensor):
        tensor = tensor._local_tensor
    wait = getattr(tensor, "wait", None)  # of an AsyncCollectiveTensor
    return wait() if wait is not None else tensor


def describe(
    name: str,
    parameter: torch.Tensor,
    replicas: Sequence[int] = (),
    stored: Stored | None = None,
) -> Described:
    """Checks a parameter and says how it lies; throws UsageError."""
    check_kind(name, parameter)
    if not spread():
        replicas = ()
    if replicas and dist.get_rank() not in replicas:
        raise UsageError(
            f"parameter {name}: replicas= names the ranks "
            f"{list(replicas)}, but not this one, "
            f"{dist.get_rank()}"
        )
    dtype = DTYPES[parameter.dtype]
    shape = tuple(parameter.shape)
    if stored is not None:
        mesh, ranks, cuts, boxes = places(name, stored, is_dtensor(parameter))
        described = Described(
            name,
            tuple(stored.shape),
            dtype,
            mesh,
            ranks,
            cuts,
            tuple(sorted(replicas)),
            boxes,
        )
        _check_local(described, parameter, "layout= gives")
        return described
    if is_dtensor(parameter):
        mesh = parameter.device_mesh
        cuts = tuple(_cut(name, p, len(shape)) for p in parameter.placements)
        ranks = tuple(int(r) for r in mesh.mesh.flatten().tolist())
        described = Described(
            name,
            shape,
            dtype,
            tuple(mesh.mesh.shape),
            ranks,
            cuts,
            tuple(sorted(replicas)),
        )
        _check_local(described, local(parameter), "its placements give")
        return described
    return Described(name, shape, dtype, replicas=tuple(sorted(replicas)))


def check_kind(name: str, parameter: torch.Tensor) -> None:
    """UsageError for a parameter that cannot be updated, however it lies."""
    if type(parameter).__name__ == "FlatParameter" or getattr(
        parameter, "_fsdp_flattened", False
    ):
        raise UsageError(
            f"parameter {name}: is a flat parameter of FSDP1 "
            "(FullyShardedDataParallel), in which matrices have no shape; "
            "use FSDP2: torch.distributed.fsdp.fully_shard"
        )
    if parameter.is_complex():
        raise UsageError(
            f"parameter {name}: is {_dtype(parameter)}; complex "
            "parameters have no rule; expected fp32 or bf16"
        )
    if parameter.dtype not in DTYPES:
        hint = (
            "; keep parameters in fp32 and use torch.autocast"
            if parameter.dtype == torch.float16
            else ""
        )
        raise UsageError(
            f"parameter {name}: is {_dtype(parameter)}; expected "
            f"fp32 or bf16{hint}"
        )
    here = local(parameter)
    if here.layout != torch.strided:
        raise UsageError(
            f"parameter {name}: is sparse ({here.layout}); "
            "expected a dense tensor"
        )
    if here.is_meta:
        raise UsageError(
            f"parameter {name}: is on the meta device; give it "
            "memory first: model.to_empty(device=...)"
        )
    if here.device.type not in ("cpu", "cuda"):
        raise UsageError(
            f"parameter {name}: is on {here.device}; expected cpu " "or cuda"
        )
    if not here.is_contiguous():
        raise UsageError(
            f"parameter {name}: is not contiguous (shape {tuple(here.shape)}, "
            f"strides {here.stride()}); store it by .contiguous()"
        )


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _cut(name: str, placement: Any, dims: int) -> Cut:
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    if isinstance(placement, Replicate):
        return Cut()
    if isinstance(placement, _StridedShard):
        return Cut(placement.dim % dims, int(placement.split_factor))
    if type(placement) is Shard:
        return Cut(placement.dim % dims)
    if placement.is_partial():
        raise UsageError(
            f"parameter {name}: is {placement}, Partial: a sum not formed "
            "yet; redistribute it to Shard or Replicate first"
        )
    raise UsageError(
        f"parameter {name}: placement {placement} is not known; "
        "expected Shard or Replicate"
    )


def _check_local(
    described: Described, tensor: torch.Tensor, gives: str
) -> None:
    boxes = boxes_of(described, dist.get_rank() if spread() else 0)
    expected = sum(elements(count) for _, count in boxes)
    if expected != tensor.numel():
        raise UsageError(
            f"parameter {described.name}: {gives} this rank "
            f"{expected} elements, but its local tensor is "
            f"{tuple(tensor.shape)}; such an uneven cut is not supported: "
            "choose sizes that the mesh divides"
        )


# A dimension's indices as runs [(start, length), ...].
_Runs = list[tuple[int, int]]


def _chunk(runs: _Runs, pieces: int, number: int) -> _Runs:
    """As torch.chunk cuts: equal pieces, a smaller one, empty tails."""
    size = sum(n for _, n in runs)
    each = -(-size // pieces)
    return _take(runs, min(size, number * each), min(size, (number + 1) * each))


def _take(runs: _Runs, begin: int, end: int) -> _Runs:
    taken: _Runs = []
    at = 0
    for start, length in runs:
        a, b = max(begin, at), min(end, at + length)
        if a < b:
            first = start + a - at
            if taken and sum(taken[-1]) == first:
                taken[-1] = (taken[-1][0], taken[-1][1] + b - a)
            else:
                taken.append((first, b - a))
        at += length
    return taken


def _strided(runs: _Runs, split: int, pieces: int, number: int) -> _Runs:
    """Piece `number` of each of `split` chunks: these are cut further later."""
    taken: _Runs = []
    for s in range(split):
        for run in _chunk(_chunk(runs, split, s), pieces, number):
            if taken and sum(taken[-1]) == run[0]:
                taken[-1] = (taken[-1][0], taken[-1][1] + run[1])
            else:
                taken.append(run)
    return taken


def boxes_of(described: Described, rank: int) -> list[Box]:
    """What a rank stores, one box after another in its memory."""
    shape = described.shape
    if described.boxes is not None:
        return list(described.boxes)
    if not described.mesh:
        count = tuple(shape)
        return [((0,) * len(shape), count)] if elements(count) else []
    if rank not in described.ranks:
        return []
    runs = [[(0, n)] if n else [] for n in shape]
    for axis, coordinate in enumerate(_coordinates(described, rank)):
        cut, pieces = described.cuts[axis], described.mesh[axis]
        if cut.dim < 0:
            continue
        before = runs[cut.dim]
        runs[cut.dim] = (
            _chunk(before, pieces, coordinate)
            if cut.split == 1
            else _strided(before, cut.split, pieces, coordinate)
        )
    return _boxes(described.name, runs)


def _coordinates(described: Described, rank: int) -> list[int]:
    place = described.ranks.index(rank)
    coordinates = []
    for size in reversed(described.mesh):
        place, coordinate = divmod(place, size)
        coordinates.append(coordinate)
    return coordinates[::-1]


def _boxes(name: str, runs: list[_Runs]) -> list[Box]:
    if not all(runs):
        return []
    many = [d for d, of in enumerate(runs) if len(of) > 1]
    if not many:
        return [(tuple(r[0][0] for r in runs), tuple(r[0][1] for r in runs))]
    # Boxes lie one after another in memory only if no dimension before the one
    # that is cut into runs has more than one index.
    dim = many[0]
    if len(many) > 1 or any(sum(n for _, n in r) > 1 for r in runs[:dim]):
        raise UsageError(
            f"parameter {name}: a rank stores separate ranges of dimension "
            f"{many[-1]}; choose sizes that the mesh divides"
        )
    boxes = []
    for start, length in runs[dim]:
        first = [r[0][0] for r in runs]
        count = [r[0][1] for r in runs]
        first[dim], count[dim] = start, length
        boxes.append((tuple(first), tuple(count)))
    return boxes


def device_of(
    names: Sequence[str], parameters: Sequence[torch.Tensor]
) -> torch.device:
    """UsageError if parameters are on several."""
    first = local(parameters[0]).device
    for name, p in zip(names, parameters):
        device = local(p).device
        if device != first:
            raise UsageError(
                f"parameter {name}: is on {device}, but {names[0]} is on "
                f"{first}; one optimizer has one device"
            )
    return first
