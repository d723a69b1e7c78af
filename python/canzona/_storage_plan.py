"""Plans for storage that is given: who computes which matrix, and when.

    plan = StoragePlan({"canzona_storage": 1, "world": 2, …})
    print(plan.explain(rank=1))

docs/plan.md describes the request and the plan. Needs no torch.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ._library import Library, load
from ._view import frame


def _matrices(
    name: str, shape: list[int], splits: list[int]
) -> list[tuple[str, list[int]]]:
    """The matrices of a tensor, in the plan's order, with their shapes."""
    stack, found = math.prod(shape[:-2]), []
    for number in range(stack):
        one = f"{name}[{number}]" if len(shape) > 2 else name
        if not splits:
            found.append((one, shape[-2:]))
        for i, rows in enumerate(splits):
            found.append((f"{one}:{i}", [rows, shape[-1]]))
    return found


class StoragePlan:
    """A plan of held storage; shows itself in notebooks.

    The same request gives the same plan, and the same digest, everywhere.
    """

    def __init__(self, request: Mapping[str, Any] | str | bytes):
        if isinstance(request, Mapping):
            request = json.dumps(request, separators=(",", ":"))
        self._request = (
            request.encode() if isinstance(request, str) else request
        )
        self._handles: dict[tuple[Library, int], int] = {}
        self.handle(load("cpu"))

    def handle(self, library: Library | None = None) -> int:
        """The handle of this plan in a library, made if need be: a forked
        child makes its own."""
        library = library or load("cpu")
        key = (library, os.getpid())
        handle = self._handles.get(key)
        if handle is None:
            handle = library.found(
                library.canzona_plan_new(self._request, len(self._request))
            )
            self._handles[key] = handle
        return handle

    def _text(self, function: str, *arguments: Any) -> str:
        library = load("cpu")
        return library.text(
            getattr(library, function)(self.handle(library), *arguments)
        )

    @property
    def request(self) -> bytes:
        """What was asked, as JSON: the library makes the same plan of it."""
        return self._request

    @cached_property
    def text(self) -> str:
        """The plan as JSON text, the same bytes everywhere."""
        return self._text("canzona_plan_json")

    @cached_property
    def json(self) -> dict[str, Any]:
        """The plan as docs/plan.md describes it."""
        return json.loads(self.text)

    @property
    def world(self) -> int:
        """The number of ranks."""
        return self.json["storage"]["world"]

    @property
    def digest(self) -> str:
        """SHA-256 of request and decisions."""
        return self._text("canzona_plan_digest")

    def explain(self, rank: int | None = None) -> str:
        """What a rank does in a step, in words; without one, the whole plan."""
        return self._text("canzona_plan_explain", -1 if rank is None else rank)

    @cached_property
    def audit(self) -> list[dict[str, Any]]:
        """Every matrix, and every tensor that is updated element by element:
        its rule, its owner and round (None: every rank updates what it stores;
        round -1: it never moves), and its cost in ticks."""
        request, decisions = self.json["request"], self.json["decisions"]
        ticks = {
            tuple(row[:3]): row[3] + row[4] for row in request["cost"]["ticks"]
        }
        decided = zip(decisions["owners"], decisions["rounds"])
        rows: list[dict[str, Any]] = []
        tensors = self.json["storage"]["tensors"]
        for name, shape, _, group, splits, *_ in tensors:
            rule = request["groups"][group]["rule"]
            if not any(key[0] == group for key in ticks):
                row = {"name": name, "rule": rule, "shape": shape}
                rows.append({**row, "owner": None, "round": None, "ticks": 0})
                continue
            for matrix, sides in _matrices(name, shape, splits):
                owner, turn = next(decided)
                row = {"name": matrix, "rule": rule, "shape": sides}
                cost = ticks[(group, *sides)]
                rows.append(
                    {**row, "owner": owner, "round": turn, "ticks": cost}
                )
        return rows

    def html(self) -> str:
        """A page that opens in a browser and needs nothing else."""
        return self._text("canzona_plan_html")

    def _repr_html_(self) -> str:
        return frame(self.html())

    def __repr__(self) -> str:
        return f"<canzona.StoragePlan {self.digest[:12]}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return StoragePlan, (self._request,)

    def __del__(self) -> None:
        for (library, _), handle in getattr(self, "_handles", {}).items():
            library.canzona_plan_free(handle)
