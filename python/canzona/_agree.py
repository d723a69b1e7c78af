"""What all ranks know of their parameters becomes one layout.

    layout = agree(described, about)        # a collective, unless all is ours
    layout.tensors[i].stored[rank]          # [(first, count), ...]

Ranks that are tied to each other by any parameter form a *world*, which is
planned together; its ranks are numbered from 0 in the ascending order of their
global ranks. A parameter that several meshes of one world hold, untied, is as
many tensors.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Iterable, Sequence

import torch.distributed as dist

from ._errors import UsageError
from ._layout import Box, Cut, Described, Layout, PlacedTensor, boxes_of
from ._meeting import identity_of, meet, spread


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

    A collective of all ranks if any parameter is tied to another rank; a rank
    with none such does not come (_meeting.py). `about` is what ranks of one
    world must have alike besides (rules, options). A UsageError in place of
    descriptions is raised on every rank. `repeated`, by parameter: copies of it
    that are cut alike are one tensor, which the ranks update without a word to
    each other.
    """
    if isinstance(described, UsageError):
        if spread():
            meet("", "")
            _exchange({"error": str(described)}, "")
        raise described
    me = dist.get_rank() if spread() else 0
    if not takes_part(described, me):
        return _layout({me: described}, me, repeated)
    meet(identity_of((d.name, d.shape) for d in described), described[0].name)
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


def takes_part(described: Sequence[Described], me: int) -> bool:
    """True if a parameter is tied to another rank, or may be: whoever names
    replicas comes, though there are none but this rank."""
    return spread() and any(
        d.replicas or d.tied_to(me) != {me} for d in described
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
