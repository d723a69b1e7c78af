"""Parameters that required no gradient when an optimizer was made.

They have no states and no part in the plan, which would cost memory for nothing
where a large model is tuned by a small part. As torch's optimizers train
whatever has a gradient, they join once they have one: optimizer.step() finds
them, and all ranks make their plan anew.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

import torch
from torch import nn

from ._errors import UsageError
from ._routing import Known, Route


@dataclass
class Asleep:
    """A parameter to be, and what it will be then."""

    route: Route  # once it is awake, without the parameter
    values: dict[str, Any]  # of its parameter group
    beside: str  # a parameter of the group that it joins; "": a new one
    parameter: torch.Tensor | None = None  # unless a module has it
    module: weakref.ref[nn.Module] | None = None
    attribute: str = ""

    def find(self) -> torch.Tensor | None:
        """The parameter, which fully_shard and others may have swapped."""
        if self.module is None:
            return self.parameter
        module = self.module()
        if module is None:
            return None
        return module._parameters.get(self.attribute)


def asleep_of(
    route: Route,
    known: Mapping[int, Known],
    values: dict[str, Any],
    beside: str,
    nowhere: torch.Tensor,
) -> Asleep:
    assert route.awake is not None
    p, awake = route.parameter, route.awake
    awake.parameter = nowhere
    of = known.get(id(p))
    if of is not None and of.owner is not None:
        for attribute, its in of.owner._parameters.items():
            if its is p:
                owner = weakref.ref(of.owner)
                return Asleep(awake, values, beside, None, owner, attribute)
    return Asleep(awake, values, beside, p)


class Woken(Exception):
    """Parameters have gradients that had none before; not an error."""

    def __init__(self, names: Sequence[str]):
        super().__init__(", ".join(names))
        self.names = list(names)


def woken(asleep: Mapping[str, Asleep]) -> list[str]:
    """Names of those that have a gradient now."""
    found = []
    for name, of in asleep.items():
        p = of.find()
        if p is not None and p.grad is not None:
            found.append(name)
    return found


def unlike_woken(
    told: Sequence[tuple[str, str] | None], ranks: Sequence[int]
) -> UsageError | None:
    """An error if ranks have woken different parameters; `told` by rank: kind
    and text of what it could not begin with."""
    of = {
        rank: set(t[1].split(", ")) if t and t[0] == Woken.__name__ else set()
        for rank, t in zip(ranks, told)
    }
    for name in sorted(set().union(*of.values())):
        have = [r for r in ranks if name in of[r]]
        if len(have) < len(ranks):
            lack = [r for r in ranks if r not in have]
            return UsageError(
                f"parameter {name}: required no gradient at first, and has one "
                f"now on ranks {have}, but not on ranks {lack}; unfreeze it "
                "on all ranks"
            )
    return None
