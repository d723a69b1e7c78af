"""State dicts back into an optimizer, on any layout.

    load(optimizer, state_dict)

It takes what save() of _checkpoint.py gave, whole tensors, and state dicts of
torch.optim.Muon and AdamW. Everything is checked before anything changes;
UsageError names the parameter, the state, what was expected and what came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from . import _options
from ._checkpoint import MASTER, STEP, mesh_of, places_of
from ._errors import UsageError
from ._layout import is_dtensor, local
from ._routing import ELEMENTS
from ._run import Run

if TYPE_CHECKING:
    from ._optimizer import MatrixOptimizer

_WHO = "load_state_dict()"


def load(
    optimizer: MatrixOptimizer, state_dict: dict[str, Any], partly: bool = False
) -> None:
    """`partly`: parameters without saved states keep theirs."""
    groups, states = _parts(state_dict)
    places = _match(optimizer, groups, partly)
    _check_rules(optimizer, groups, places)
    _check_groups(optimizer, groups, places)
    names = optimizer._names()
    given = {
        i: _values(names[i], states[saved])
        for i, saved in places.items()
        if saved in states
    }
    wanted = {i: values for i, values in given.items() if values}
    # torch forgets states that are not saved: so does who loads a fresh one's.
    begun = optimizer._run is not None or bool(optimizer._state)
    fresh = set() if partly else set(places) - set(wanted)
    if wanted or fresh and begun:
        run = optimizer._built()
        _check_alike(optimizer, run, wanted)
        run.reset(fresh)
        for i in sorted(wanted):
            _load_one(optimizer, run, i, wanted[i])
        run.refresh_masters(optimizer._bound)
    _load_groups(optimizer, groups, places)
    optimizer._gathered = None


# What a state dict must be.


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"a tensor {list(value.shape)} of {dtype}"
    return f"{type(value).__name__} {str(value)[:40]!r}"


def require_parts(state_dict: Any) -> None:
    """UsageError for what is no state dict at all."""
    if not isinstance(state_dict, Mapping):
        raise UsageError(
            f"{_WHO}: is {_kind(state_dict)}; expected a dict with 'state' "
            "and 'param_groups'"
        )


def _parts(
    state_dict: Mapping[str, Any],
) -> tuple[list[dict[str, Any]], Mapping[Any, Any]]:
    """Its groups and states."""
    require_parts(state_dict)
    for key, kind in (("param_groups", (list, tuple)), ("state", Mapping)):
        if key not in state_dict:
            raise UsageError(
                f"{_WHO}: has no '{key}', but "
                f"{', '.join(map(repr, list(state_dict)[:4])) or 'nothing'}; "
                "expected what state_dict() of an optimizer returns"
            )
        if not isinstance(state_dict[key], kind):
            raise UsageError(
                f"{_WHO}: '{key}' is {_kind(state_dict[key])}; expected a "
                f"{'list of groups' if key == 'param_groups' else 'dict'}"
            )
    groups = list(state_dict["param_groups"])
    seen: set[Any] = set()
    for number, group in enumerate(groups):
        _check_group(number, group, seen)
    return groups, state_dict["state"]


def _check_group(number: int, group: Any, seen: set[Any]) -> None:
    if not isinstance(group, Mapping):
        raise UsageError(
            f"{_WHO}: group {number} is {_kind(group)}; expected a dict"
        )
    params, names = group.get("params"), group.get("param_names")
    if not isinstance(params, (list, tuple)):
        raise UsageError(
            f"{_WHO}: group {number} has "
            + ("no 'params'" if params is None else f"params {_kind(params)}")
            + "; expected a list of numbers or names"
        )
    if names is not None and (
        not isinstance(names, (list, tuple)) or len(names) != len(params)
    ):
        raise UsageError(
            f"{_WHO}: group {number} has {len(params)} params, but param_names "
            f"{_kind(names)}; expected as many names"
        )
    for i, key in enumerate(params):
        name = names[i] if names is not None else key
        if isinstance(key, (torch.Tensor, list, dict, set)):
            raise UsageError(
                f"{_WHO}: parameter {i} of group {number} is {_kind(key)}; "
                "expected its number or name"
            )
        if key in seen:
            raise UsageError(
                f"{_WHO}: parameter {name} (number {key}) is in it twice"
            )
        seen.add(key)


def _values(name: str, values: Any) -> dict[str, Any]:
    """A parameter's saved states."""
    if not isinstance(values, Mapping):
        raise UsageError(
            f"{_WHO}: the state of parameter {name} is {_kind(values)}; "
            "expected a dict of states"
        )
    for key in values:
        if not isinstance(key, str):
            raise UsageError(
                f"{_WHO}: parameter {name} has a state named {_kind(key)}; "
                "expected a text"
            )
    return dict(values)


def _check_groups(
    optimizer: MatrixOptimizer,
    groups: Sequence[dict[str, Any]],
    places: dict[int, Any],
) -> None:
    """Options that would be loaded: the library must be able to read them."""
    for group, saved in _saved_groups(optimizer, groups, places):
        if saved is None:
            continue
        what = f"{_WHO}: the group of {group['param_names'][0]}"
        _options.refuse_switches(saved, what)
        merged = {**group, **_loadable(saved)}
        try:
            _options.check_numbers(merged)
            _options.to_rule(merged, "cpu")
        except UsageError as error:
            raise UsageError(f"{what}: {error}") from None
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"{what}: an option cannot be read ({error}); its values are "
                f"{_loadable(saved)}"
            ) from None


def _loadable(saved: Mapping[str, Any]) -> dict[str, Any]:
    return {
        k: v
        for k, v in saved.items()
        if k not in ("params", "param_names", "rule")
    }


def _saved_groups(
    optimizer: MatrixOptimizer,
    groups: Sequence[dict[str, Any]],
    places: dict[int, Any],
) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Each group of the optimizer, with the saved one that it takes over."""
    group_of = {key: g for g in groups for key in g["params"]}
    found, at = [], 0
    for group in optimizer.param_groups:
        found.append((group, group_of.get(places.get(at))))
        at += len(group["params"])
    return found


def _check_alike(
    optimizer: MatrixOptimizer, run: Run, wanted: dict[int, dict[str, Any]]
) -> None:
    """Checks all states; raises on every rank what is wrong on one."""
    error: UsageError | None = None
    try:
        for i in sorted(wanted):
            _check(optimizer, run, i, wanted[i])
    except UsageError as wrong:
        error = wrong
    if run.everyone is not None:
        told: list[Any] = [None] * run.world
        text = None if error is None else str(error)
        dist.all_gather_object(told, text, group=run.everyone)
        for rank, said in zip(run.layout.ranks, told):
            if error is None and said is not None:
                error = UsageError(f"rank {rank}: {said}")
    if error is not None:
        raise error


# What of it goes where.


def _match(
    optimizer: MatrixOptimizer, groups: Sequence[dict[str, Any]], partly: bool
) -> dict[int, Any]:
    """By this optimizer's parameter: the key of its saved state."""
    names = optimizer._names()
    saved = [key for g in groups for key in g["params"]]
    if groups and all("param_names" in g for g in groups):
        by_name = {
            n: key
            for g in groups
            for n, key in zip(g["param_names"], g["params"])
        }
        if set(by_name) <= set(names) or partly:
            _require_all(optimizer, names, by_name, partly)
            return {i: by_name[n] for i, n in enumerate(names) if n in by_name}
    ours = [len(g["params"]) for g in optimizer.param_groups]
    if (
        [len(g["params"]) for g in groups] == ours
        or len(saved) == len(names)
        and len(groups) == 1
    ):
        return dict(enumerate(saved))
    for rule in (optimizer.rule, ELEMENTS):
        of = [
            i for i, n in enumerate(names) if optimizer._routes[n].rule == rule
        ]
        if len(of) == len(saved) and of:
            return dict(zip(of, saved))
    raise UsageError(
        f"{_WHO}: it has groups of "
        f"{[len(g['params']) for g in groups]} parameters and no names, this "
        f"optimizer has groups of {ours}; save it from an optimizer made from "
        "named parameters, or give the same groups"
    )


def _require_all(
    optimizer: MatrixOptimizer,
    names: Sequence[str],
    by_name: dict[str, Any],
    partly: bool,
) -> None:
    """A state dict of one of our rules alone is welcome: torch's is such."""
    missing = [n for n in names if n not in by_name]
    rules = {
        optimizer._routes[n].rule for n in by_name if n in optimizer._routes
    }
    alone = len(rules) == 1 and all(
        optimizer._routes[n].rule not in rules for n in missing
    )
    if missing and not partly and not alone:
        raise UsageError(
            f"{_WHO}: parameter {missing[0]} has no "
            f"saved state ({len(missing)} have none)"
        )


def _check_rules(
    optimizer: MatrixOptimizer,
    groups: Sequence[dict[str, Any]],
    places: dict[int, Any],
) -> None:
    rule_of = {key: g.get("rule") for g in groups for key in g["params"]}
    names = optimizer._names()
    for i, saved in places.items():
        rule, ours = rule_of.get(saved), optimizer._routes[names[i]].rule
        if rule is not None and rule != ours:
            raise UsageError(
                f"{_WHO}: parameter {names[i]} was "
                f"saved with rule {rule}, but goes to {ours} here"
            )


def _load_groups(
    optimizer: MatrixOptimizer,
    groups: Sequence[dict[str, Any]],
    places: dict[int, Any],
) -> None:
    for group, saved in _saved_groups(optimizer, groups, places):
        for key, value in _loadable(saved or {}).items():
            group[key] = deepcopy(value)  # a rate may be a tensor


def _check(
    optimizer: MatrixOptimizer, run: Run, i: int, values: dict[str, Any]
) -> None:
    """UsageError before anything changes."""
    name, p = run.names[i], optimizer._bound[i]
    mine = optimizer._state[p]
    shapes = {o.key: o.shape for o in run.owned if o.parameter == i}
    for key in mine:
        if key not in values and key not in (STEP, MASTER):
            raise UsageError(
                f"{_WHO}: parameter {name} lacks state '{key}'; it has "
                f"{', '.join(map(str, values)) or 'none'}"
            )
    for key, value in values.items():
        if key == STEP:
            _check_step(name, value)
            continue
        if key not in mine and not optimizer._config["share_states"]:
            if key == MASTER:
                continue
            raise UsageError(
                f"{_WHO}: parameter {name} has no state '{key}'; it has "
                f"{', '.join(mine)}"
            )
        _check_tensor(name, key, value, shapes.get(key, tuple(p.shape)))


def _check_step(name: str, value: Any) -> None:
    try:
        number = float(value)
    except (RuntimeError, TypeError, ValueError):
        number = -1.0
    if not (number >= 0 and number.is_integer()):
        raise UsageError(
            f"{_WHO}: state 'step' of parameter {name} is {_kind(value)}; "
            "expected a number of steps, from 0 on"
        )


def _check_tensor(
    name: str, key: str, value: Any, expected: Sequence[int]
) -> None:
    what = f"{_WHO}: state '{key}' of parameter {name}"
    wanted = f"expected a tensor {list(expected)} of floating-point numbers"
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        raise UsageError(f"{what} is {_kind(value)}; {wanted}")
    here = local(value)
    if here.layout != torch.strided or here.is_meta:
        how = "on the meta device" if here.is_meta else "sparse"
        raise UsageError(f"{what} is {how}; {wanted}")
    if tuple(value.shape) != tuple(expected):
        raise UsageError(
            f"{what} has shape {list(value.shape)}; expected {list(expected)}"
        )


def _whole(run: Run, value: Any) -> Any:
    """A state in one piece. The mesh of an unpickled one is that of the process
    that saved it: its parts are put together over ours, of the same ranks."""
    if not is_dtensor(value):
        return value
    from torch.distributed.tensor import DTensor

    mesh = mesh_of(run)
    if value.device_mesh.mesh.tolist() == mesh.mesh.tolist():
        value = DTensor.from_local(
            local(value),
            mesh,
            value.placements,
            run_check=False,
            shape=value.shape,
            stride=value.stride(),
        )
    return value.full_tensor()


def _load_one(
    optimizer: MatrixOptimizer, run: Run, i: int, values: dict[str, Any]
) -> None:
    p = optimizer._bound[i]
    mine = optimizer._state[p]
    owners = {o.key: o.owners for o in run.owned if o.parameter == i}
    for key in sorted(values):
        value = values[key]
        if key == STEP:
            run.set_count(i, int(value))
        elif key in owners:
            whole = _whole(run, value)
            if run.layout.rank in owners[key]:
                mine[key].copy_(whole)
        elif key in mine:
            _load_like(run, i, p, local(mine[key]), value)
        elif is_dtensor(value):
            _whole(run, value)  # others take part


def _load_like(
    run: Run, i: int, p: torch.Tensor, target: torch.Tensor, value: torch.Tensor
) -> None:
    """Copies this rank's part of a state that lies like its parameter."""
    if is_dtensor(value):
        if (
            is_dtensor(p)
            and value.device_mesh == p.device_mesh
            and tuple(value.placements) == tuple(p.placements)
        ):
            target.copy_(local(value))
            return
        value = value.full_tensor()
    if not is_dtensor(p):
        target.copy_(value)
        return
    flat, at = target.reshape(-1), 0
    for place, count in places_of(run, i):
        flat[at : at + count].copy_(value[place].reshape(-1))
        at += count
