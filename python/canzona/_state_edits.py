"""What scripts do to optimizer.state: write, replace, move or delete.

    absorb(optimizer, run)      # before a step, a save or a copy

The library computes on memory of its own, which optimizer.state shows. Writes in
place therefore count at once; absorb() finds the other changes by the identity
of the values, copies them into that memory, and shows it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from operator import is_
from typing import TYPE_CHECKING, Any

import torch

from ._errors import UsageError
from ._layout import is_dtensor, local
from ._masters import CHECKSUM, MASTER, REMAINDER, reset_master

if TYPE_CHECKING:
    from ._optimizer import MatrixOptimizer
    from ._run import Run

STEP = "step"
_END = object()


def remember(optimizer: MatrixOptimizer, run: Run) -> None:
    """Notes what optimizer.state shows, to see later what a script changed."""
    run.seen = [*_shown_by(optimizer._state)]
    # One state of each parameter, since scripts that move states move them all.
    last = [[*of.values()][-1] for of in run.exposed]
    run.watched = [v._local_tensor if is_dtensor(v) else v for v in last]
    run.addresses = [v.data_ptr() for v in run.watched]


def is_changed(optimizer: MatrixOptimizer, run: Run) -> bool:
    """True if values were replaced or deleted, or moved (v.data = …). Every
    step asks this, so it loops in C."""
    try:
        is_same = all(map(is_, _shown_by(optimizer._state), run.seen))
    except TypeError:  # a script has put something else in place of a dict
        return True
    moved = list(map(torch.Tensor.data_ptr, run.watched)) != run.addresses
    return moved or not is_same


def _shown_by(states: dict[Any, Any]) -> Iterator[Any]:
    """Parameters, their states, the values of these, and an end, which tells
    more or fewer of them from as many."""
    values = chain.from_iterable(map(dict.values, states.values()))
    return chain(states, states.values(), values, (_END,))


def _address(value: Any) -> int:
    if is_dtensor(value):
        value = value._local_tensor
    return value.data_ptr() if isinstance(value, torch.Tensor) else 0


@torch.no_grad()
def absorb(optimizer: MatrixOptimizer, run: Run) -> None:
    """Takes over what a script has changed in optimizer.state since the last
    look: what it deleted begins anew, what it replaced is copied. UsageError,
    before anything changes, names what has no place."""
    if run.captured:
        run.synchronize()
    if is_changed(optimizer, run):
        changed = [
            (i, p, optimizer._state.get(p) or {})
            for i, p in enumerate(optimizer._bound)
        ]
        for i, _, given in changed:
            _check_given(run, i, given)
        run.loaded = True
        run.take_counts()
        for i, p, given in changed:
            _absorb_one(run, i, p, given)
            optimizer._state[p] = dict(run.exposed[i])
        remember(optimizer, run)
    run.take_counts()


def discard(optimizer: MatrixOptimizer, run: Run, parameters: set[int]) -> None:
    """Forgets what a script has changed in the states of parameters that are
    about to be loaded or to begin anew."""
    for i in parameters:
        p = optimizer._bound[i]
        for key, mine in list(run.exposed[i].items()):
            if _was_moved(run, i, key):
                run.exposed[i][key] = _shown(p, mine, run.memory[i][key])
        optimizer._state[p] = dict(run.exposed[i])
    remember(optimizer, run)


def _check_given(run: Run, i: int, given: dict[str, Any]) -> None:
    mine = run.exposed[i]
    for key, value in given.items():
        what = f"optimizer.state: state '{key}' of parameter {run.names[i]}"
        if key not in mine:
            raise UsageError(f"{what} is not known; expected {', '.join(mine)}")
        if key == STEP:
            check_step(what, value)
            continue
        if value is mine[key] and not _was_moved(run, i, key):
            continue
        expected = run.memory[i][key].shape
        if (
            not isinstance(value, torch.Tensor)
            or is_dtensor(value) != is_dtensor(mine[key])
            or local(value).shape != expected
        ):
            raise UsageError(
                f"{what} is {kind_of(value)} now; expected "
                f"{kind_of(mine[key])}, laid out like the parameter"
            )


def _absorb_one(
    run: Run, i: int, p: torch.Tensor, given: dict[str, Any]
) -> None:
    for key, mine in list(run.exposed[i].items()):
        value = given.get(key)
        moved = _was_moved(run, i, key)
        if value is mine and not moved:
            continue
        memory = run.memory[i][key]
        if key == STEP:
            run.set_counts({i: 0 if value is None else int(float(value))})
        elif value is not None:
            memory.copy_(local(value))
            if key == REMAINDER:
                run.accept_weights(i)
        elif key in (MASTER, REMAINDER):
            reset_master(local(p), memory)
        else:
            run.reset_state(i, key)
        if moved:
            run.exposed[i][key] = _shown(p, mine, memory)
    run.forget_versions()


def _was_moved(run: Run, i: int, key: str) -> bool:
    """True if a script has given a state of ours other memory."""
    return _address(run.exposed[i][key]) != _address(run.memory[i][key])


def _shown(
    p: torch.Tensor, before: torch.Tensor, memory: torch.Tensor
) -> torch.Tensor:
    return like(p, memory) if is_dtensor(before) else memory.detach()


def check_step(what: str, value: Any) -> None:
    """UsageError for what is no number of steps."""
    try:
        number = float(value)
    except (RuntimeError, TypeError, ValueError):
        number = -1.0
    if not (number >= 0 and number.is_integer()):
        raise UsageError(
            f"{what} is {kind_of(value)}; expected a number of steps, from 0 on"
        )


def check_checksum(what: str, value: Any) -> None:
    """UsageError for what tells nothing of the weights of a remainder."""
    try:
        int(value)
    except (RuntimeError, TypeError, ValueError):
        raise UsageError(
            f"{what} has the state '{REMAINDER}' of its master, but "
            f"'{CHECKSUM}' {kind_of(value)}; expected an integer, as "
            "state_dict() returns it"
        ) from None


def kind_of(value: Any) -> str:
    """A value that was expected to be another, in words."""
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"a tensor {list(value.shape)} of {dtype}"
    return f"{type(value).__name__} {str(value)[:40]!r}"


def like(p: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """A state laid out like its parameter."""
    value = value.view(local(p).shape)
    if is_dtensor(p):
        from torch.distributed.tensor import DTensor

        return DTensor.from_local(
            value,
            p.device_mesh,
            p.placements,
            run_check=False,
            shape=p.shape,
            stride=p.stride(),
        )
    return value
