"""Plain tensors that one rank alone has, replicas=[rank], in state dicts.

Other ranks may have different tensors of the same name. So a state dict calls
such a tensor "name@rank3", and a consolidated one has every rank's. Each rank
loads its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ._errors import UsageError
from ._layout import is_dtensor, own_name
from ._meeting import spread

if TYPE_CHECKING:
    from ._optimizer import MatrixOptimizer
    from ._run import Run


def saved_names(optimizer: MatrixOptimizer) -> list[str]:
    """The names of all members of an optimizer's groups in state dicts."""
    return [_saved_name(optimizer, name, p) for name, p in optimizer._members()]


def _saved_name(optimizer: MatrixOptimizer, name: str, p: torch.Tensor) -> str:
    replicas = optimizer._replicas.get(name) or optimizer._replicated
    if spread() and replicas == (dist.get_rank(),) and not is_dtensor(p):
        return own_name(name, dist.get_rank())
    return name


def named_here(
    optimizer: MatrixOptimizer, groups: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Saved groups with the names that this rank's parameters have, without
    those of other ranks' own; UsageError if it is not clear whose to take."""
    names = [name for name, _ in optimizer._members()]
    mine = dict(zip(saved_names(optimizer), names))
    found, taken = [], dict[str, str]()
    for group in groups:
        if "param_names" not in group:
            found.append(group)
            continue
        pairs = []
        for key, saved in zip(group["params"], group["param_names"]):
            name = mine.get(saved) or _name_of(saved, mine)
            if name is None:
                continue
            if taken.setdefault(name, saved) != saved:
                raise UsageError(
                    f"load_state_dict(): has {taken[name]} and {saved}, two "
                    f"ranks' own tensors; say which parameter {name} is: "
                    "replicas=[rank]"
                )
            pairs.append((key, name))
        found.append(
            {
                **group,
                "params": [key for key, _ in pairs],
                "param_names": [name for _, name in pairs],
            }
        )
    return found


def _name_of(saved: str, mine: dict[str, str]) -> str | None:
    """None: a tensor of another rank's own, of which this rank has one, too."""
    name, found, rank = saved.rpartition("@rank")
    if not found or not rank.isdigit() or name not in mine.values():
        return saved
    return name if name in mine else None


def others_states(
    optimizer: MatrixOptimizer, run: Run, to: int | None
) -> list[tuple[int, str, dict[str, Any]]]:
    """Group, name and states of the tensors that other ranks alone have, on
    rank `to` (None: on every rank). A collective."""
    if all(len(t.holders) > 1 for t in run.layout.tensors) or run.world == 1:
        return []
    me = run.layout.ranks[run.layout.rank]
    group_of = {
        name: number
        for number, group in enumerate(optimizer.param_groups)
        for name in group["param_names"]
    }
    mine = [
        (group_of[name], saved, _copied(optimizer._state[p]))
        for name, p in zip(run.names, optimizer._bound)
        if (saved := _saved_name(optimizer, name, p)) != name
    ]
    told: list[Any] = [None] * run.world
    if to is None:
        dist.all_gather_object(told, mine, group=run.everyone)
    else:
        dist.gather_object(
            mine, told if to == me else None, dst=to, group=run.everyone
        )
    ours = {saved for _, saved, _ in mine}
    return [o for of in told for o in of or () if o[1] not in ours]


def _copied(states: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Without the memory around them, which would be sent along."""
    return {key: value.clone().cpu() for key, value in states.items()}
