"""QK-clip: scales rows of queries and keys where logits grow too large.

    optimizer.step()
    optimizer.clip_qk({"layers.0.attn": largest_logits_of_its_heads})

After Kimi K2: a head whose largest logit S exceeds tau has the rows of its
query scaled by gamma^alpha and those of its key by gamma^(1-alpha), with gamma
= tau / S; a query's part that meets a key shared by all heads takes all of
gamma. Factors are the same on all ranks and every row is scaled where it is, so
the result has the same bits on every layout.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from ._errors import UsageError
from ._groups import GroupedOptimizer
from ._heads import HeadRows
from ._layout import Box, local
from ._library import load
from ._masters import exact, put
from ._routing import clean, nearest

_GROUPS = ("group_max", "q_only")


@dataclass
class _Asked:
    """What one rank wants; all ranks compare it."""

    tau: float
    alpha: float
    group: str
    largest: dict[str, list[float]]

    @property
    def how(self) -> str:
        return f"tau={self.tau}, alpha={self.alpha}, group={self.group!r}"


class QkClip(GroupedOptimizer):
    """The part of an optimizer that clips logits."""

    @torch.no_grad()
    def clip_qk(
        self,
        max_logits: Mapping[str, Any],
        tau: float = 100.0,
        alpha: float = 0.5,
        group: str = "group_max",
    ) -> dict[str, list[int]]:
        """Scales rows of queries and keys, so that the logits of the last
        batch would be at most `tau`. A collective of all ranks, after a step;
        a layer is clipped once after each.

        `max_logits`: by name of the attention layer, the largest logit of each
        of its query heads on this rank, as it enters the softmax; ranks whose
        heads are others leave layers out, or have -inf there. `alpha`: the
        query's share. `group`: "group_max" clips the queries of a key together,
        with the key; "q_only" clips each query head and no key. Returns the
        heads that were clipped. Does nothing after a step that was skipped, or
        before one."""
        run = self._built()
        own: Any
        try:
            found = self._found_heads()
            own = _asked(max_logits, tau, alpha, group, found)
        except UsageError as error:
            own = error
        everywhere = [own]
        if run.everyone is not None:  # errors travel with the numbers
            everywhere = [None] * len(run.layout.ranks)
            dist.all_gather_object(everywhere, own, group=run.everyone)
        for rank, theirs in enumerate(everywhere):
            if isinstance(theirs, UsageError):
                if isinstance(own, UsageError):
                    raise own
                raise UsageError(f"rank {run.layout.ranks[rank]}: {theirs}")
            if theirs.how != everywhere[0].how:
                raise UsageError(
                    f"clip_qk: rank {run.layout.ranks[rank]} has {theirs.how}, "
                    f"rank {run.layout.ranks[0]} {everywhere[0].how}; expected "
                    "the same on all ranks"
                )
        run.synchronize()
        largest = _largest(everywhere)  # and errors, alike on all ranks
        for layer, logits in largest.items():
            _check_finite(layer, logits)
        clipped = {
            layer: [h for h, s in enumerate(logits) if s > tau]
            for layer, logits in largest.items()
            if max(logits) > tau and layer not in run.clipped
        }
        if not run.has_moved or not clipped:
            return {}
        factors = {
            name: row_factors(of, largest[of.layer], tau, alpha, group)
            for name, of in found.items()
            if of.layer in clipped
        }
        _check_there(run, factors)
        run.refresh_masters(self._parameters())
        run.clipped.update(clipped)
        for i, name in enumerate(run.names):
            by_row = factors.get(name)
            if by_row is not None:
                _scale(run, i, self._parameters()[i], by_row)
        run.remember_versions(self._parameters())
        return clipped


def _asked(
    max_logits: Mapping[str, Any],
    tau: float,
    alpha: float,
    group: str,
    found: Mapping[str, HeadRows],
) -> _Asked:
    if not isinstance(tau, (int, float)) or not tau > 0:
        raise UsageError(f"clip_qk: tau={tau!r}; expected a number above 0")
    if not isinstance(alpha, (int, float)) or not 0 <= alpha <= 1:
        raise UsageError(f"clip_qk: alpha={alpha!r}; expected 0 to 1")
    if group not in _GROUPS:
        raise UsageError(
            f"clip_qk: group={group!r}; expected {' or '.join(_GROUPS)}"
        )
    if not isinstance(max_logits, Mapping):
        raise UsageError(
            f"clip_qk: max_logits is a {type(max_logits).__name__}; expected a "
            "dict of largest logits by name of the layer"
        )
    heads = {of.layer: of.heads for of in found.values()}
    listed = {}
    for layer, logits in max_logits.items():
        name = clean(f"{layer}.").removesuffix(".")
        if name in listed:
            raise UsageError(f"clip_qk: {layer!r}: is given twice")
        listed[name] = _numbers(name, logits, heads)
    return _Asked(float(tau), float(alpha), group, listed)


def _numbers(layer: Any, logits: Any, heads: Mapping[str, int]) -> list[float]:
    """The largest logits of a layer's heads."""
    if layer not in heads:
        raise UsageError(
            f"clip_qk: {layer!r}: is no attention layer of the model"
            f"{nearest(str(layer), heads)}"
        )
    try:
        wide = torch.as_tensor(logits, dtype=torch.float64)
        listed: list[float] = wide.flatten().tolist()
    except Exception as error:
        raise UsageError(
            f"clip_qk: {layer}: the largest logits are {type(logits).__name__}; "
            f"expected a number for each of {heads[layer]} heads ({error})"
        ) from error
    if len(listed) != heads[layer]:
        raise UsageError(
            f"clip_qk: {layer}: {len(listed)} maxima for {heads[layer]} heads"
        )
    for head, largest in enumerate(listed):
        if largest != largest:
            raise _not_finite(layer, head, largest)
    return listed


def _not_finite(layer: str, head: int, largest: float) -> UsageError:
    return UsageError(
        f"clip_qk: {layer}: the largest logit of head {head} is {largest}; "
        "expected a finite number from one rank at least"
    )


def _largest(everywhere: Sequence[_Asked]) -> dict[str, list[float]]:
    """The largest of all ranks."""
    largest: dict[str, list[float]] = {}
    for rank in everywhere:
        for layer, logits in rank.largest.items():
            before = largest.get(layer, logits)
            largest[layer] = [*map(max, before, logits)]
    return largest


def _check_finite(layer: str, logits: Sequence[float]) -> None:
    for head, s in enumerate(logits):
        if not float("-inf") < s < float("inf"):
            raise _not_finite(layer, head, s)


def _check_there(run: Any, factors: Mapping[str, Sequence[float]]) -> None:
    """UsageError, before anything changes, if rows that have to be scaled are
    not the optimizer's."""
    for name, by_row in factors.items():
        if name not in run.names and any(f != 1 for f in by_row):
            raise UsageError(
                f"clip_qk: parameter {name}: has rows to be scaled, but is no "
                "parameter of this optimizer: it is frozen, or one with "
                "another name; leave its layer out"
            )


def row_factors(
    of: HeadRows, largest: Sequence[float], tau: float, alpha: float, group: str
) -> list[float]:
    """By row of a weight, what it is multiplied by."""
    heads, library = of.heads, load("cpu")
    given = (ctypes.c_double * heads)(*largest)
    got = (ctypes.c_double * (2 * heads + of.groups))()
    library.check(
        library.canzona_qk_factors(
            given, heads, of.groups, tau, alpha, group == "q_only", got
        )
    )
    first = {"q": 0, "q_rope": heads, "k": 2 * heads}
    factors: list[float] = []
    for r in of.rows:
        factor = 1.0 if r.part == "v" else got[first[r.part] + r.head]
        factors += [factor] * r.count
    return factors


def _scale(
    run: Any, number: int, parameter: torch.Tensor, factors: Sequence[float]
) -> None:
    """Scales the rows of a parameter that this rank has, and its master's."""
    tensor = run.layout.tensors[run.layout.mine[number]]
    boxes: Sequence[Box] = tensor.stored[run.layout.rank]
    weights, master = local(parameter), run.masters[number]
    wide = weights if master is None else exact(weights, master)
    by_row = torch.tensor(factors, dtype=wide.dtype, device=wide.device)
    flat, at = wide.view(-1), 0
    for first, count in boxes:
        elements = 1
        for n in count:
            elements *= n
        part = flat[at : at + elements].view(count[0] if count else 1, -1)
        part.mul_(by_row[first[0] : first[0] + count[0], None])
        at += elements
    if master is not None:
        put(weights, master, wide)
