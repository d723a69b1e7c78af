"""What all ranks know of their parameters becomes one layout.

    layout = agree(described, about)        # a collective, unless all is ours
    layout = agree(more, about, within=Among(ranks, group))   # of that world
    layout.tensors[i].stored[rank]          # [(first, count), ...]

Ranks that are tied to each other by any parameter form a *world*, which is
planned together; its ranks are numbered from 0 in the ascending order of their
global ranks. A parameter that several meshes of one world hold, untied, is as
many tensors; so is one that several ranks call their own (replicas=[rank]).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence

import torch.distributed as dist

from ._errors import UsageError
from ._layout import CutTensor, Described, Layout, boxes_of, own_name
from ._meeting import identity_of, meet, spread
from ._stored import Box, Cut
from ._together import rebuilt, told


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


@dataclass(frozen=True)
class Among:
    """Ranks that agree with each other, in the order of their process group."""

    ranks: tuple[int, ...]
    group: Any = None  # None: the default one
    alone: bool = False  # no other rank may have a part


def agree(
    described: list[Described] | Exception,
    about: Any,
    repeated: Sequence[bool] = (),
    within: Among | None = None,
) -> Layout:
    """The layout of this rank's world.

    A collective of all ranks if any parameter is tied to another rank; a rank
    with none such does not come (_meeting.py). `about` is what ranks of one
    world must have alike besides (rules, options). An error in place of
    descriptions is raised on every rank. `repeated`, by parameter: copies of it
    that are cut alike are one tensor, which each of its ranks updates without
    communication. `within`: the world of an earlier layout, all of whose ranks
    call this; other ranks take part only if a parameter is tied to them now,
    which is an error if `within` is to be alone.
    """
    me = dist.get_rank() if spread() else 0
    among = _who_comes(described, me, within)
    if isinstance(described, Exception):
        if len(among.ranks) > 1:
            meet("", "", among.ranks)
            _exchange({"error": told(described)}, "", among)
        raise described
    views: dict[int, _View] = {me: (described, about)}
    serial = 0
    if len(among.ranks) > 1:
        views, serial = _everyones_views(described, about, among)
    beyond = _beyond(views)
    if within is not None and beyond and not within.alone:
        return agree(described, about, repeated)
    if beyond and among.alone:
        raise UsageError(
            f"parameter {beyond[0]}: is tied to rank {beyond[1]}, which is not "
            f"among the ranks {list(among.ranks)} of group="
        )
    world = _world_of(me, {r: view for r, (view, _) in views.items()})
    _check_alike(world, views)
    layout = _layout({r: views[r][0] for r in world}, me, repeated)
    layout.serial = serial
    return layout


# What a rank knows of its parameters, and what must be alike besides.
_View = tuple[list[Described], Any]


def _who_comes(
    described: list[Described] | Exception, me: int, within: Among | None
) -> Among:
    comes = spread() and (
        isinstance(described, Exception) or takes_part(described)
    )
    if within is not None and (comes or not within.alone):
        return within
    return Among(tuple(range(dist.get_world_size())) if comes else (me,))


def _everyones_views(
    described: list[Described], about: Any, among: Among
) -> tuple[dict[int, _View], int]:
    """By rank; equal ones are the same object."""
    identity = identity_of((d.name, d.shape) for d in described)
    meet(identity, described[0].name, among.ranks)
    text = json.dumps([_to_json(described), about], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    texts, serial = _exchange({"digest": digest}, text, among)
    read = {t: json.loads(t) for t in set(texts)}
    known = {t: (_from_json(v[0]), v[1]) for t, v in read.items()}
    return {r: known[t] for r, t in zip(among.ranks, texts)}, serial


def _beyond(views: Mapping[int, _View]) -> tuple[str, int] | None:
    """A parameter that is tied to a rank which is not among these, and that
    rank."""
    for rank, (view, _) in views.items():
        for d in view:
            others = d.tied_to(rank) - views.keys()
            if others:
                return d.name, min(others)
    return None


def takes_part(described: Sequence[Described]) -> bool:
    """True if a parameter is tied to another rank, or may be: a rank that was
    given replicas= takes part even if it names itself alone."""
    if not spread():
        return False
    me = dist.get_rank()
    return any(d.replicas or d.tied_to(me) != {me} for d in described)


# The highest number of an agreement that this process has taken part in.
_agreements = 0


def _exchange(
    mine: dict[str, Any], text: str, among: Among
) -> tuple[list[str], int]:
    """The texts of all ranks, where equal ones are sent once, and a number that
    no earlier agreement of any of these ranks has had."""
    global _agreements
    heads: list[Any] = [None] * len(among.ranks)
    dist.all_gather_object(
        heads, {**mine, "agreements": _agreements}, group=among.group
    )
    _agreements = 1 + max(head["agreements"] for head in heads)
    if "error" in mine:
        return [], _agreements
    for rank, head in zip(among.ranks, heads):
        if "error" in head:
            kind, text = head["error"]
            raise rebuilt(kind, f"rank {rank}: {text}")
    digests = [h["digest"] for h in heads]
    texts = {mine["digest"]: text}
    if len(set(digests)) > 1:
        for digest in dict.fromkeys(digests):
            source = among.ranks[digests.index(digest)]
            box: list[Any] = [text if source == dist.get_rank() else None]
            dist.broadcast_object_list(box, src=source, group=among.group)
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
            d.boxes,
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
            (
                None
                if boxes is None
                else tuple((tuple(a), tuple(n)) for a, n in boxes)
            ),
        )
        for mesh, ranks, cuts, replicas, boxes in ways
    ]
    return [
        Described(name, tuple(shape), dtype, *known[way])
        for name, shape, dtype, way in rows
    ]


def _world_of(me: int, views: Mapping[int, list[Described]]) -> list[int]:
    sets = _Sets()
    for rank, view in views.items():
        for tied in {frozenset(d.tied_to(rank)) for d in view}:
            sets.join(sorted(tied))
    return [r for r in views if sets.find(r) == sets.find(me)]


def _check_alike(world: list[int], seen: Mapping[int, _View]) -> None:
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
                    "same model in the same order on every rank, and freeze "
                    "the same parameters"
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
    ties: dict[Any, tuple[list[list[int]], bool]] = {}
    boxes: dict[Any, list[list[Box]]] = {}
    for p, own in enumerate(views[me]):
        seen = [views[r][p] for r in ranks]
        # Equal ways to lie are the same objects, so that their ids are keys.
        way = tuple(
            (id(d.ranks), id(d.replicas), id(d.cuts), id(d.boxes)) for d in seen
        )
        alike = p < len(repeated) and repeated[p]
        group = (way, alike, own.shape if alike else ())
        if group not in ties:
            ties[group] = _copies(ranks, seen, alike)
        copies, unclear = ties[group]
        if unclear and not layout.unclear:
            layout.unclear = own.name
        names = _names_of(own.name, copies, dict(zip(ranks, seen)))
        for holders, name in zip(copies, names):
            if me in holders:
                layout.mine.append(len(layout.tensors))
            key = (way, own.shape, holders[0])
            if key not in boxes:
                boxes[key] = [
                    boxes_of(d, r) if r in holders else []
                    for r, d in zip(ranks, seen)
                ]
            numbers = [ranks.index(r) for r in holders]
            layout.tensors.append(
                CutTensor(name, p, own.shape, own.dtype, boxes[key], numbers)
            )
    return layout


def _names_of(
    name: str, copies: list[list[int]], seen: Mapping[int, Described]
) -> list[str]:
    """Of a parameter's copies: the first that is nobody's own has its name."""
    names, is_free = [], True
    for first, *_ in copies:
        named = is_free and not seen[first].is_own_of(first)
        names.append(name if named else own_name(name, first))
        is_free = is_free and not named
    return names


def _copies(
    ranks: list[int], seen: list[Described], alike: bool
) -> tuple[list[list[int]], bool]:
    """The ranks of each untied copy of a parameter, and whether some copies,
    which no rank calls its own, may be one tensor."""
    sets = _Sets()
    for tied in {frozenset(d.tied_to(r)) for r, d in zip(ranks, seen)}:
        sets.join(sorted(tied))
    copies: dict[int, list[int]] = {}
    for r in ranks:
        copies.setdefault(sets.find(r), []).append(r)
    of = dict(zip(ranks, seen))
    found = [copies[leader] for leader in sorted(copies)]
    own = [c for c in found if len(c) == 1 and of[c[0]].is_own_of(c[0])]
    others = [c for c in found if c not in own]
    if not alike or len(others) < 2:
        return found, len(others) > 1
    pieces = [
        sorted({tuple(boxes_of(of[r], r)) for r in holders})
        for holders in others
    ]
    if any(p != pieces[0] for p in pieces):
        return found, True
    # A DTensor on one axis of a larger mesh is the same on the others; of plain
    # tensors nobody knows.
    unclear = any(not of[holders[0]].mesh for holders in others)
    return sorted([*own, sorted(sum(others, []))]), unclear
