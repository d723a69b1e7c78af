"""Which saved state belongs to which parameter of an optimizer.

Names decide where both sides have them, whatever wrappers have put between
their words. Without names it is positions, as in torch: those of the parameters
in the order in which the optimizer was given them, not that of its groups.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._errors import UsageError
from ._routing import ELEMENTS, FROZEN, Route, clean, nearest

if TYPE_CHECKING:
    from ._optimizer import MatrixOptimizer

_WHO = "load_state_dict()"
_Groups = Sequence[Mapping[str, Any]]

# What parameters are called that were given without names (_collect.py).
_INVENTED = re.compile(r"parameter\d+")


def saved_names(group: Mapping[str, Any]) -> list[str] | None:
    """The names of a saved group's parameters, if it has as many: keys that
    torch.distributed.checkpoint makes are names themselves."""
    keys = list(group["params"])
    if all(isinstance(key, str) for key in keys):
        return [clean(key) for key in keys]
    names = group.get("param_names")
    if not isinstance(names, (list, tuple)) or len(names) != len(keys):
        return None
    if not all(isinstance(name, str) for name in names):
        return None
    return [clean(name) for name in names]


def match(optimizer: MatrixOptimizer, groups: _Groups) -> dict[str, Any]:
    """By name of this optimizer's parameters, frozen ones included: the key of
    the saved state."""
    named = [saved_names(g) for g in groups]
    if groups and all(names is not None for names in named):
        by_name = {
            name: key
            for group, names in zip(groups, named)
            for name, key in zip(names or (), group["params"])
        }
        unknown = [n for n in by_name if n not in optimizer._routes]
        if not unknown:
            _require_all(optimizer, by_name)
            return by_name
        if not _invented(by_name) and not _invented(optimizer._routes):
            raise UsageError(
                f"{_WHO}: this optimizer has no parameter {unknown[0]}"
                f"{nearest(unknown[0], optimizer._routes)} "
                f"({len(unknown)} of {len(by_name)} names are unknown)"
            )
        if all(isinstance(key, str) for key in by_name.values()):
            return _by_own_order(optimizer, groups)
    return _by_position(optimizer, groups)


def _invented(names: Any) -> bool:
    return all(_INVENTED.fullmatch(name) for name in names)


def _require_all(
    optimizer: MatrixOptimizer, by_name: Mapping[str, Any]
) -> None:
    """A state dict of one of our rules alone is welcome: torch's is such. So
    is one from before a parameter was unfrozen."""
    missing = [
        n
        for n in optimizer._names()
        if n not in by_name and n not in optimizer._joined
    ]
    rules = {optimizer._routes[n].rule for n in by_name} - {FROZEN}
    alone = len(rules) == 1 and all(
        optimizer._routes[n].rule not in rules for n in missing
    )
    if missing and not alone:
        raise UsageError(
            f"{_WHO}: parameter {missing[0]} has no saved state "
            f"({len(missing)} have none)"
        )


def _sizes(groups: _Groups) -> list[int]:
    return [len(g["params"]) for g in groups]


def _by_own_order(
    optimizer: MatrixOptimizer, groups: _Groups
) -> dict[str, Any]:
    """For names that torch knows and we do not, in the order of our groups."""
    if _sizes(groups) != _sizes(optimizer.param_groups):
        raise _unlike(optimizer, groups)
    keys = [key for g in groups for key in g["params"]]
    return dict(zip((name for name, _ in optimizer._members()), keys))


def _by_position(optimizer: MatrixOptimizer, groups: _Groups) -> dict[str, Any]:
    keys = [key for g in groups for key in g["params"]]
    routes = list(optimizer._routes.values())
    members = [r for r in routes if (r.awake or r).rule != FROZEN]
    awake = [r for r in members if r.rule != FROZEN]
    for given in (routes, members, awake):
        if _given_sizes(given) == _sizes(groups):
            return dict(zip((r.name for r in given), keys))
    if _sizes(groups) == _sizes(optimizer.param_groups):
        return _by_own_order(optimizer, groups)
    for rule in _likely_rules(optimizer, groups):
        given = [r for r in routes if r.rule == rule]
        if len(given) == len(keys) and given:
            return dict(zip((r.name for r in given), keys))
    raise _unlike(optimizer, groups)


def _given_sizes(routes: Sequence[Route]) -> list[int]:
    """How many parameters each group had that the caller gave."""
    sizes: dict[int, int] = {}
    for r in routes:
        sizes[r.group] = sizes.get(r.group, 0) + 1
    return [sizes[group] for group in sorted(sizes)]


def _likely_rules(
    optimizer: MatrixOptimizer, groups: _Groups
) -> tuple[str, str]:
    """torch keeps matrices and the rest in two optimizers: which one's state
    dict this may be, the likelier first."""
    elements = any("betas" in g and "ns_steps" not in g for g in groups)
    rules = (optimizer.rule, ELEMENTS)
    return rules[::-1] if elements else rules


def _unlike(optimizer: MatrixOptimizer, groups: _Groups) -> UsageError:
    given = _given_sizes(list(optimizer._routes.values()))
    return UsageError(
        f"{_WHO}: it has groups of {_sizes(groups)} parameters and no names "
        f"that are known here; this optimizer was given groups of {given}. "
        "Save it from an optimizer made from named parameters, or give the "
        "same groups"
    )
