"""State dicts back into an optimizer, on any layout.

    load(optimizer, state_dict)

It loads what save() of _checkpoint.py returned, whole tensors, and state dicts
of torch.optim.Muon and AdamW. Everything is checked before anything changes;
UsageError names the parameter, the state, what was expected and what came.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from . import _options
from ._checkpoint import mesh_of, parts_of, places_of
from ._errors import UsageError
from ._layout import is_dtensor, local
from ._matching import match, saved_names
from ._masters import (
    CHECKSUM,
    MASTER,
    REMAINDER,
    Pending,
    checksum,
    is_remainder,
    split,
)
from ._own import named_here
from ._routing import FROZEN, Route
from ._run import Run
from ._state_edits import (
    STEP,
    absorb,
    check_checksum,
    check_step,
    discard,
    kind_of,
)

if TYPE_CHECKING:
    from ._optimizer import MatrixOptimizer

_WHO = "load_state_dict()"
_log = logging.getLogger("canzona")

# Keys of a group that loading leaves alone.
_NOT_LOADED = ("params", "param_names", "rule", "capturable")
# What a group still takes over if states of its parameters begin anew.
_RATES = ("lr", "initial_lr")


@dataclass
class _Saved:
    """A state dict, by names of this optimizer's parameters."""

    groups: Sequence[Mapping[str, Any]]
    group_of: dict[str, Mapping[str, Any]]
    states: dict[str, dict[str, Any]]  # of parameters that have some
    begins: bool = False  # states that are not saved begin anew
    begun: dict[str, list[str]] = field(default_factory=dict)


def load(
    optimizer: MatrixOptimizer, state_dict: Any, missing: str = "error"
) -> None:
    with optimizer._together(plans=_may_have_states(state_dict)):
        if missing not in ("error", "init"):
            raise UsageError(
                f"{_WHO}: missing={missing!r}; expected 'error' or 'init'"
            )
        require_parts(state_dict)
        state_dict = dict(state_dict)
        for before in optimizer._optimizer_load_state_dict_pre_hooks.values():
            changed = before(optimizer, state_dict)
            state_dict = state_dict if changed is None else changed
        saved = _read(optimizer, state_dict)
        saved.begins = missing == "init"
    sleeping = [n for n in saved.states if n in optimizer._asleep]
    if optimizer._asleep:
        _agree_on(optimizer, {n: saved.states[n] for n in sleeping})
    if sleeping:
        optimizer._settle()
        optimizer._join(sleeping)
        optimizer._planned_anew()
    # torch forgets states that are not saved: so does who loads a fresh one's.
    begun = optimizer._run is not None or bool(optimizer._state)
    if saved.states or begun:
        _load_saved(optimizer, saved)
    _load_groups(optimizer, saved)
    optimizer._gathered = None


def load_states(
    optimizer: MatrixOptimizer, states: dict[str, dict[str, Any]]
) -> None:
    """Loads states that save() returned, by name; those of other parameters
    stay."""
    _load_saved(optimizer, _Saved((), {}, states))


def _may_have_states(state_dict: Any) -> bool:
    """False if ranks that load one like this make no plan."""
    if not isinstance(state_dict, Mapping):
        return True
    states = state_dict.get("state", True)
    return bool(states) if isinstance(states, Mapping) else True


def _read(
    optimizer: MatrixOptimizer,
    state_dict: Mapping[str, Any],
) -> _Saved:
    """Checks all that can be checked without a plan."""
    groups, states = _parts(state_dict)
    groups = named_here(optimizer, groups)
    keys = {
        name: key
        for name, key in match(optimizer, groups).items()
        if rule_of(optimizer, name) != FROZEN
    }
    by_key = {key: g for g in groups for key in g["params"]}
    saved = _Saved(
        groups,
        {name: by_key[key] for name, key in keys.items()},
        {
            name: _values(name, states[key])
            for name, key in keys.items()
            if key in states
        },
    )
    saved.states = {n: values for n, values in saved.states.items() if values}
    _check_rules(optimizer, saved)
    _check_groups(optimizer, saved)
    return saved


def _agree_on(
    optimizer: MatrixOptimizer, states: Mapping[str, Mapping[str, Any]]
) -> None:
    """UsageError on all ranks unless all of them load the same states, by name
    of the parameter. Without a plan there is nobody to agree with yet."""
    run = optimizer._run
    if run is None or run.everyone is None:
        return
    alone = {name for i, name in enumerate(run.names) if run.has_alone(i)}
    mine = {
        name: _kinds(values)
        for name, values in states.items()
        if name not in alone
    }
    digest = hashlib.sha256(repr(sorted(mine.items())).encode()).hexdigest()
    everyones: list[Any] = [None] * run.world
    dist.all_gather_object(everyones, digest, group=run.everyone)
    if len({*everyones}) == 1:
        return
    dist.all_gather_object(everyones, mine, group=run.everyone)
    first = everyones[0]
    for rank, theirs in zip(run.layout.ranks, everyones):
        for name in sorted({*first, *theirs}):
            if first.get(name) != theirs.get(name):
                raise UsageError(
                    f"{_WHO}: parameter {name} has "
                    f"{_in_words(first.get(name))} on rank "
                    f"{run.layout.ranks[0]}, but {_in_words(theirs.get(name))} "
                    f"on rank {rank}; load the same state dict on every rank"
                )


def _kinds(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """States by name, and how ranks have to bring them together."""
    return sorted(
        (key, " and ".join(map(str, v.placements)) if is_dtensor(v) else "")
        for key, v in values.items()
    )


def _in_words(kinds: list[tuple[str, str]] | None) -> str:
    if kinds is None:
        return "no states"
    words = [f"{key} as {how}" if how else key for key, how in kinds]
    return f"states {', '.join(words)}"


def _load_saved(optimizer: MatrixOptimizer, saved: _Saved) -> None:
    run = optimizer._built()
    number = {name: i for i, name in enumerate(run.names)}
    wanted = {number[n]: values for n, values in saved.states.items()}
    fresh = {number[n] for n in _fresh(optimizer, saved)} - {*wanted}
    with optimizer._together():
        for i in sorted(wanted):
            lacking = _check(optimizer, run, i, wanted[i], saved.begins)
            if lacking:
                saved.begun[run.names[i]] = lacking
    _agree_on(optimizer, saved.states)
    with optimizer._together():
        discard(optimizer, run, fresh | {*wanted})
        absorb(optimizer, run)
    run.synchronize()
    # A state dict may hold this run's own tensors, filled by somebody else.
    counts = {i: int(of[STEP]) for i, of in wanted.items() if STEP in of}
    run.reset(fresh, optimizer._bound)
    for i in sorted(wanted):
        for key in saved.begun.get(run.names[i], ()):
            run.reset_state(i, key)
        _load_one(optimizer, run, i, wanted[i])
    run.set_counts(counts)
    run.forget_versions()
    run.loaded = True
    run.has_moved = False
    if saved.begun:
        _log.info(
            "%s: states that were not saved begin anew: %s of %d parameters",
            _WHO,
            ", ".join(sorted({k for keys in saved.begun.values() for k in keys})),
            len(saved.begun),
        )


def _fresh(optimizer: MatrixOptimizer, saved: _Saved) -> set[str]:
    """Parameters whose states begin anew unless the state dict has some: those
    that it knows, and those that joined after it was saved."""
    rules = {rule_of(optimizer, n) for n in saved.group_of}
    joined = {n for n in optimizer._joined if rule_of(optimizer, n) in rules}
    here = set(optimizer._names())
    return here & (saved.group_of.keys() | joined)


# What a state dict must be.


def require_parts(state_dict: Any) -> None:
    """UsageError unless the argument is a dict."""
    if not isinstance(state_dict, Mapping):
        raise UsageError(
            f"{_WHO}: is {kind_of(state_dict)}; expected a dict with 'state' "
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
                f"{_WHO}: '{key}' is {kind_of(state_dict[key])}; expected a "
                f"{'list of groups' if key == 'param_groups' else 'dict'}"
            )
    groups = list(state_dict["param_groups"])
    seen: set[Any] = set()
    for number, group in enumerate(groups):
        _check_group(number, group, seen)
    for key in state_dict["state"]:
        if isinstance(key, int) and key not in seen:
            raise UsageError(
                f"{_WHO}: has states of parameter number {key}, which is in "
                "none of its groups"
            )
    return groups, state_dict["state"]


def _check_group(number: int, group: Any, seen: set[Any]) -> None:
    if not isinstance(group, Mapping):
        raise UsageError(
            f"{_WHO}: group {number} is {kind_of(group)}; expected a dict"
        )
    params = group.get("params")
    if not isinstance(params, (list, tuple)):
        raise UsageError(
            f"{_WHO}: group {number} has "
            + ("no 'params'" if params is None else f"params {kind_of(params)}")
            + "; expected a list of numbers or names"
        )
    for i, key in enumerate(params):
        if isinstance(key, (torch.Tensor, list, dict, set)):
            raise UsageError(
                f"{_WHO}: parameter {i} of group {number} is {kind_of(key)}; "
                "expected its number or name"
            )
    names = saved_names(group)
    given = group.get("param_names")
    if names is None and given is not None:
        raise UsageError(
            f"{_WHO}: group {number} has {len(params)} params, but param_names "
            f"{kind_of(given)}; expected as many names"
        )
    for key, name in zip(params, names or params):
        if key in seen:
            raise UsageError(
                f"{_WHO}: parameter {name} (number {key}) is in it twice"
            )
        seen.add(key)


def _values(name: str, values: Any) -> dict[str, Any]:
    """A parameter's saved states."""
    if not isinstance(values, Mapping):
        raise UsageError(
            f"{_WHO}: the state of parameter {name} is {kind_of(values)}; "
            "expected a dict of states"
        )
    for key in values:
        if not isinstance(key, str):
            raise UsageError(
                f"{_WHO}: parameter {name} has a state named {kind_of(key)}; "
                "expected a text"
            )
    return dict(values)


def _check_groups(optimizer: MatrixOptimizer, saved: _Saved) -> None:
    """Options that would be loaded: the library must be able to read them."""
    for number, (group, given) in enumerate(_saved_groups(optimizer, saved)):
        if given is None:
            continue
        names = group["param_names"]
        of = f"of {names[0]}" if names else f"number {number}"
        what = f"{_WHO}: the group {of}"
        _options.refuse_switches(given, what)
        merged = {**group, **_loadable(given)}
        try:
            _options.check_numbers(merged)
            _options.to_rule(merged, "cpu")
        except UsageError as error:
            raise UsageError(f"{what}: {error}") from None
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"{what}: an option cannot be read ({error}); its values are "
                f"{_loadable(given)}"
            ) from None


def _loadable(saved: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in saved.items() if k not in _NOT_LOADED}


def _saved_groups(
    optimizer: MatrixOptimizer, saved: _Saved
) -> list[tuple[dict[str, Any], Mapping[str, Any] | None]]:
    """Each group of the optimizer, with the saved one that it takes over: that
    of its first parameter; without parameters, an empty one at its place."""
    alike = len(saved.groups) == len(optimizer.param_groups)
    found = []
    for i, group in enumerate(optimizer.param_groups):
        names = group["param_names"]
        given = next(
            (saved.group_of[n] for n in names if n in saved.group_of), None
        )
        if not names and alike and not saved.groups[i]["params"]:
            given = saved.groups[i]
            given = given if given.get("rule") == group["rule"] else None
        found.append((group, given))
    return found


# What of it goes where.


def _check_rules(optimizer: MatrixOptimizer, saved: _Saved) -> None:
    for name, group in saved.group_of.items():
        rule, ours = group.get("rule"), rule_of(optimizer, name)
        if rule is not None and rule != ours:
            raise UsageError(
                f"{_WHO}: parameter {name} was saved with rule {rule}, but "
                f"goes to {ours} here"
            )


def rule_of(optimizer: MatrixOptimizer, name: str) -> str:
    """The rule of a parameter, of a frozen one once it is trained."""
    route: Route = optimizer._routes[name]
    return (route.awake or route).rule


def _load_groups(optimizer: MatrixOptimizer, saved: _Saved) -> None:
    """A saved group takes the place of ours, but for options that it lacks,
    since torch's has not all of them."""
    for group, given in _saved_groups(optimizer, saved):
        if given is None:
            continue
        values = _loadable(given)
        if saved.begun.keys() & {*group["param_names"]} or (
            saved.begins and values.get("preset") != group.get("preset")
        ):
            # The options that were saved are those of another form.
            group.update({k: values[k] for k in _RATES if k in values})
            continue
        options = _options.known(group["rule"]) | {"lr", "preset", *_NOT_LOADED}
        for key in [k for k in group if k not in options and k not in values]:
            del group[key]
        # A rate may be a tensor, which schedulers may have as initial_lr, too.
        rate = group.get("lr")
        group.update(deepcopy(values))
        if group.get("capturable") and isinstance(rate, torch.Tensor):
            group["lr"] = rate.fill_(float(group["lr"]))  # a graph may read it


def _check(
    optimizer: MatrixOptimizer,
    run: Run,
    i: int,
    values: dict[str, Any],
    begins: bool,
) -> list[str]:
    """UsageError before anything changes. Returns the states that `values`
    lacks, which is an error unless they may begin anew."""
    name, p = run.names[i], optimizer._bound[i]
    mine = run.exposed[i]
    shapes = {o.key: o.shape for o in run.owned_of(i)}
    own = (STEP, MASTER, REMAINDER)
    lacking = [k for k in mine if k not in values and k not in own]
    if lacking and not begins:
        raise UsageError(
            f"{_WHO}: parameter {name} lacks state '{lacking[0]}'; it has "
            f"{', '.join(map(str, values)) or 'none'}; "
            "load_state_dict(…, missing='init') begins it anew"
        )
    masters = MASTER in mine or REMAINDER in mine
    if REMAINDER in values and masters:
        check_checksum(f"{_WHO}: parameter {name}", values.get(CHECKSUM))
    for key, value in values.items():
        if key == CHECKSUM:
            continue
        if key == STEP:
            check_step(f"{_WHO}: state 'step' of parameter {name}", value)
            continue
        known = key in mine or masters and key in (MASTER, REMAINDER)
        if not known and not optimizer._config["share_states"]:
            if key in (MASTER, REMAINDER) and not masters:
                continue
            raise UsageError(
                f"{_WHO}: parameter {name} has no state '{key}'; it has "
                f"{', '.join(mine)}"
            )
        whole = mine[key] if run.has_alone(i) and key in mine else p
        _check_tensor(name, key, value, shapes.get(key, tuple(whole.shape)))
    return lacking


def _check_tensor(
    name: str, key: str, value: Any, expected: Sequence[int]
) -> None:
    what = f"{_WHO}: state '{key}' of parameter {name}"
    wanted = f"expected a tensor {list(expected)} of floating-point numbers"
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        raise UsageError(f"{what} is {kind_of(value)}; {wanted}")
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
    owners = {
        o.key: () if o.in_parts else o.owners for o in run.owned_of(i)
    }
    loads_master = run.masters[i] is not None
    if loads_master:
        _load_master(run, i, p, values)
    for key in sorted(values):
        value = values[key]
        if key in (STEP, CHECKSUM):
            continue
        if loads_master and key in (MASTER, REMAINDER):
            continue
        if key in owners:
            whole = _whole(run, value)
            if run.layout.rank in owners[key]:
                mine[key].copy_(whole)
            for part in parts_of(run, i, key):
                part.value.copy_(whole[part.place()])
        elif key in mine:
            _load_like(run, i, p, local(mine[key]), value)
        elif is_dtensor(value):
            _whole(run, value)  # others take part


def _load_master(
    run: Run, i: int, p: torch.Tensor, values: dict[str, Any]
) -> None:
    """Takes a master of either form into either; remainders wait for weights."""
    kept = run.masters[i]
    assert kept is not None
    run.accept_weights(i)
    if REMAINDER in values:
        found = torch.empty_like(kept, dtype=torch.bfloat16)
        _load_like(run, i, p, found, values[REMAINDER])
        pending = Pending(int(values[CHECKSUM]))
        if is_remainder(kept):
            kept.copy_(found)
        else:
            pending.remainder = found
        run.put_pending(i, pending)
    elif MASTER in values and is_remainder(kept):
        master = torch.empty_like(kept, dtype=torch.float32)
        _load_like(run, i, p, master, values[MASTER])
        weights, remainder = split(master)
        kept.copy_(remainder.view(kept.shape))
        tensor = run.layout.tensors[run.layout.mine[i]]
        of_part = checksum(tensor, run.layout.rank, weights)
        run.put_pending(i, Pending(of_part, of_part=True))
    elif MASTER in values:
        _load_like(run, i, p, kept, values[MASTER])
    elif is_remainder(kept):
        kept.zero_()


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
