"""Which rectangles of every parameter each rank stores.

    described = [describe(name, parameter, replicas), ...]
    layout = agree(described, about)        # a collective, unless all is ours
    layout.tensors[i].stored[rank]          # [(first, count), ...]

A DTensor says by mesh and placements what each rank of its mesh stores. A plain
tensor is stored whole by this rank, and by the ranks of `replicas` if they are
named (a DDP module names them). Ranks that are tied to each other by any
parameter form a *world*, which is planned together; its ranks are numbered from
0 in the ascending order of their global ranks. A parameter that several meshes
of one world hold, untied, is as many tensors.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Iterable, Sequence, TypeGuard

import torch
import torch.distributed as dist

from ._errors import UsageError

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

Box = tuple[tuple[int, ...], tuple[int, ...]]  # first, count

DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16"}


@dataclass(frozen=True)
class Cut:
    """How one axis of a mesh cuts a tensor; `dim` -1: not at all."""

    dim: int = -1
    split: int = 1  # of a strided shard: how often the dimension was cut before


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

    def tied_to(self, rank: int) -> set[int]:
        return {rank, *self.ranks, *self.replicas}


@dataclass
class PlacedTensor:
    """A tensor of the request: a parameter, or one of its untied copies."""

    name: str
    parameter: int
    shape: tuple[int, ...]
    dtype: str
    stored: list[list[Box]]  # by rank of the world


@dataclass
class Layout:
    ranks: list[int]  # global ranks of the world, ascending
    rank: int  # this one's number in it
    tensors: list[PlacedTensor]
    mine: list[int]  # by parameter: its tensor on this rank
    untied: bool = False  # several copies of a parameter, each its rank's own
    serial: int = 0  # of this agreement; all its ranks have the same
    described: list[Described] = field(default_factory=list)

    @property
    def world(self) -> int:
        return len(self.ranks)


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
    name: str, parameter: torch.Tensor, replicas: Sequence[int] = ()
) -> Described:
    """Checks a parameter and says how it lies; throws UsageError."""
    check_kind(name, parameter)
    if replicas and dist.get_rank() not in replicas:
        raise UsageError(
            f"parameter {name}: replicas= names the ranks "
            f"{list(replicas)}, but not this one, "
            f"{dist.get_rank()}"
        )
    dtype = DTYPES[parameter.dtype]
    shape = tuple(parameter.shape)
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
        _check_local(described, local(parameter))
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


def _check_local(described: Described, tensor: torch.Tensor) -> None:
    boxes = boxes_of(described, dist.get_rank())
    expected = sum(_elements(count) for _, count in boxes)
    if expected != tensor.numel():
        raise UsageError(
            f"parameter {described.name}: its placements give this rank "
            f"{expected} elements, but its local tensor is "
            f"{tuple(tensor.shape)}; such an uneven cut is not supported: "
            "choose sizes that the mesh divides"
        )


def _elements(count: Iterable[int]) -> int:
    product = 1
    for c in count:
        product *= c
    return product


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
    if not described.mesh:
        count = tuple(shape)
        return [((0,) * len(shape), count)] if _elements(count) else []
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


class _Sets:
    """Union-find over ranks."""

    def __init__(self) -> None:
        self.parent: dict[int, int] = {}

    def find(self, rank: int) -> int:
        parent = self.parent
        parent.setdefault(rank, rank)
        while parent[rank] != rank:
            parent[rank] = parent[parent[rank]]
            rank = parent[rank]
        return rank

    def join(self, ranks: Iterable[int]) -> None:
        first, *others = [self.find(r) for r in ranks]
        for other in others:
            a, b = self.find(first), self.find(other)
            self.parent[max(a, b)] = min(a, b)


def agree(
    described: list[Described] | UsageError,
    about: Any,
    repeated: Sequence[bool] = (),
) -> Layout:
    """The layout of this rank's world.

    A collective of all ranks if any parameter is tied to another rank. `about`
    is what ranks of one world must have alike besides (rules, options). A
    UsageError in place of descriptions is raised on every rank. `repeated`, by
    parameter: copies of it that are cut alike are one tensor, which the ranks
    update without a word to each other.
    """
    if isinstance(described, UsageError):
        if spread():
            _exchange({"error": str(described)}, "")
        raise described
    me = dist.get_rank() if spread() else 0
    if all(d.tied_to(me) == {me} for d in described):
        return _layout({me: described}, me, repeated)
    text = json.dumps([_to_json(described), about], sort_keys=True)
    views, serial = _exchange(
        {"digest": hashlib.sha256(text.encode()).hexdigest()}, text
    )
    by_text = {t: json.loads(t) for t in set(views)}
    parsed = {t: _from_json(v[0]) for t, v in by_text.items()}
    world = _world_of(me, [parsed[t] for t in views])
    _check_alike(
        world, {r: (parsed[views[r]], by_text[views[r]][1]) for r in world}
    )
    layout = _layout({r: parsed[views[r]] for r in world}, me, repeated)
    layout.serial = serial
    return layout


def spread() -> bool:
    return (
        dist.is_available()
        and dist.is_initialized()
        and dist.get_world_size() > 1
    )


# Agreements that this process has taken part in, or is behind others by.
_agreements = 0


def _exchange(mine: dict[str, Any], text: str) -> tuple[list[str], int]:
    """Everybody's text, of which equal ones travel once, and a number that no
    agreement between any of these ranks had before."""
    global _agreements
    heads: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(heads, {**mine, "agreements": _agreements})
    _agreements = 1 + max(head["agreements"] for head in heads)
    if "error" in mine:
        return [], _agreements
    for rank, head in enumerate(heads):
        if "error" in head:
            raise UsageError(f"rank {rank}: {head['error']}")
    digests = [h["digest"] for h in heads]
    texts = {mine["digest"]: text}
    if len(set(digests)) > 1:
        for digest in dict.fromkeys(digests):
            source = digests.index(digest)
            box: list[Any] = [text if source == dist.get_rank() else None]
            dist.broadcast_object_list(box, src=source)
            texts[digest] = box[0]
    return [texts[d] for d in digests], _agreements


def _to_json(described: list[Described]) -> list[Any]:
    ways: dict[Any, int] = {}
    rows = []
    for d in described:
        way = (
            d.mesh,
            d.ranks,
            tuple((c.dim, c.split) for c in d.cuts),
            d.replicas,
        )
        rows.append([d.name, d.shape, d.dtype, ways.setdefault(way, len(ways))])
    return [list(ways), rows]


def _from_json(value: list[Any]) -> list[Described]:
    ways, rows = value
    known = [
        (
            tuple(mesh),
            tuple(ranks),
            tuple(Cut(*c) for c in cuts),
            tuple(replicas),
        )
        for mesh, ranks, cuts, replicas in ways
    ]
    return [
        Described(name, tuple(shape), dtype, *known[way])
        for name, shape, dtype, way in rows
    ]


def _world_of(me: int, views: list[list[Described]]) -> list[int]:
    sets = _Sets()
    for rank, view in enumerate(views):
        for tied in {frozenset(d.tied_to(rank)) for d in view}:
            sets.join(sorted(tied))
    return [r for r in range(len(views)) if sets.find(r) == sets.find(me)]


def _check_alike(
    world: list[int], seen: dict[int, tuple[list[Described], Any]]
) -> None:
    first = world[0]
    ours, ours_about = seen[first]
    for rank in world[1:]:
        theirs, about = seen[rank]
        for i in range(max(len(ours), len(theirs))):
            a, b = _what(ours, i), _what(theirs, i)
            if a != b:
                raise UsageError(
                    f"ranks have different models: parameter number {i} is "
                    f"{a} on rank {first} and {b} on rank {rank}; build the "
                    "same model in the same order on every rank"
                )
        if about != ours_about:
            raise UsageError(
                "ranks have different options: "
                f"{_difference(ours_about, about)}"
                f" (rank {first} and rank {rank}); give every rank the same"
            )


def _what(described: list[Described], i: int) -> str:
    if i >= len(described):
        return "missing"
    d = described[i]
    return f"{d.name} {list(d.shape)} {d.dtype}"


def _difference(a: Any, b: Any, at: str = "") -> str:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}):
            if a.get(key) != b.get(key):
                return _difference(
                    a.get(key), b.get(key), f"{at}.{key}" if at else key
                )
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b)):
            if x != y:
                return _difference(x, y, f"{at}[{i}]")
    return f"{at} is {a!r} and {b!r}"


def _layout(
    views: dict[int, list[Described]], me: int, repeated: Sequence[bool]
) -> Layout:
    """From what each rank of a world knows to what each rank stores."""
    ranks = sorted(views)
    layout = Layout(ranks, ranks.index(me), [], [], described=views[me])
    ties: dict[Any, list[list[int]]] = {}
    boxes: dict[Any, list[list[Box]]] = {}
    for p, own in enumerate(views[me]):
        seen = [views[r][p] for r in ranks]
        # Equal ways to lie are the same objects, so that their ids are keys.
        way = tuple((id(d.ranks), id(d.replicas), id(d.cuts)) for d in seen)
        alike = p < len(repeated) and repeated[p]
        group = (way, alike, own.shape if alike else ())
        if group not in ties:
            ties[group] = _copies(ranks, seen, alike)
        copies = ties[group]
        layout.untied |= len(copies) > 1
        for holders in copies:
            if me in holders:
                layout.mine.append(len(layout.tensors))
            key = (way, own.shape, holders[0])
            if key not in boxes:
                boxes[key] = [
                    boxes_of(d, r) if r in holders else []
                    for r, d in zip(ranks, seen)
                ]
            name = (
                own.name
                if holders is copies[0]
                else f"{own.name}@rank{holders[0]}"
            )
            layout.tensors.append(
                PlacedTensor(name, p, own.shape, own.dtype, boxes[key])
            )
    return layout


def _copies(
    ranks: list[int], seen: list[Described], alike: bool
) -> list[list[int]]:
    """The ranks of each untied copy of a parameter."""
    sets = _Sets()
    for tied in {frozenset(d.tied_to(r)) for r, d in zip(ranks, seen)}:
        sets.join(sorted(tied))
    copies: dict[int, list[int]] = {}
    for r in ranks:
        copies.setdefault(sets.find(r), []).append(r)
    found = [copies[leader] for leader in sorted(copies)]
    if alike and len(found) > 1:
        of = dict(zip(ranks, seen))
        pieces = [
            sorted({tuple(boxes_of(of[r], r)) for r in holders})
            for holders in found
        ]
        if all(p == pieces[0] for p in pieces):
            return [ranks]
    return found
