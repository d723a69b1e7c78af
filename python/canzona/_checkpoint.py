"""States of an optimizer as torch knows them.

A state that lies like its parameter is a DTensor with the parameter's mesh and
placements, or a plain tensor where the parameter is one. States that only an
owner has (factors, bases) are returned as DTensors sharded over all ranks, since
torch's full state dicts drop what one rank alone has; save() is then a
collective. _load.py loads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ._errors import UsageError
from ._layout import is_dtensor, local
from ._masters import CHECKSUM, key_of
from ._own import others_states, saved_names
from ._run import Run
from ._run_memory import State
from ._state_edits import STEP, absorb, like, remember

if TYPE_CHECKING:
    from ._optimizer import MatrixOptimizer

# Names that torch.optim has for states of ours.
_TORCH = {"momentum": "momentum_buffer"}

# The most bytes that a rank sends at once while states are handed out.
_BATCH = 64 << 20


@dataclass(frozen=True)
class Owned:
    """A state that its owner stores whole, or several ranks in parts. Where a
    parameter has untied copies, each of them has an owner."""

    parameter: int
    key: str
    shape: tuple[int, ...]
    owners: tuple[int, ...]  # ranks of the world
    in_parts: bool = False

    @property
    def owner(self) -> int:
        return self.owners[0]


def keys_of(run: Run) -> dict[int, str]:
    """The key of each of this rank's states, by its number."""
    keys = {}
    for number, s in enumerate(run.states):
        key = _TORCH.get(s.name, s.name)
        if s.matrix >= 0 and run.has_many(s.tensor):
            key = f"{key}.{s.matrix}"
        keys[number] = key
    return keys


@torch.no_grad()
def expose(optimizer: MatrixOptimizer, run: Run, kept: dict[Any, Any]) -> None:
    """Fills optimizer.state; `kept` are states of another run of this layout.

    Every rank gets the same keys, as torch's state dicts require."""
    run.keys = keys_of(run)
    of_shards, run.owned = _everyones_states(run)
    for i, p in enumerate(optimizer._bound):
        state: dict[str, Any] = {STEP: run.counted[i]}
        master = run.masters[i]
        if master is not None:
            state[key_of(master)] = like(p, master)
        optimizer._state[p] = state
    for number, s in enumerate(run.states):
        if s.whole is not None:
            continue  # parts are put together where somebody asks
        p = optimizer._bound[run.parameter_of(s.tensor)]
        value = s.value if s.matrix >= 0 else like(p, s.value)
        optimizer._state[p][run.keys[number]] = value
    run.shared = {}
    for i, key in of_shards:
        p = optimizer._bound[i]
        if run.has_alone(i):
            continue
        if optimizer._config["share_states"] and run.world > 1:
            run.shared.setdefault(i, []).append(key)
        elif key not in optimizer._state[p]:  # no element of it is here
            optimizer._state[p][key] = like(p, _fp32(local(p).shape, run))
    for owned in run.owned:
        of = optimizer._state[optimizer._bound[owned.parameter]]
        here = run.layout.rank in owned.owners and not owned.in_parts
        if not here and not run.has_alone(owned.parameter):
            of[owned.key] = _fp32((0,), run)
    # torch's collectives on state dicts go by the order of keys.
    for p, state in optimizer._state.items():
        optimizer._state[p] = {
            k: state[k] for k in sorted(state, key=lambda k: (k != STEP, k))
        }
    if kept:
        with optimizer._together():
            number = {id(p): i for i, p in enumerate(optimizer._bound)}
            for p, values in kept.items():
                i = number.get(id(p), -1)
                values = dict(values)
                if i >= 0 and CHECKSUM in values:
                    run.put_pending(i, values.pop(CHECKSUM))
                parts = _named_parts(run, i)
                _take_over(optimizer._state.get(p), values, parts)
        run.loaded = True
    run.take_counts()
    run.exposed = [dict(optimizer._state[p]) for p in optimizer._bound]
    run.memory = [
        {key: local(value).detach() for key, value in of.items()}
        for of in run.exposed
    ]
    remember(optimizer, run)


def _take_over(
    mine: dict[str, Any] | None,
    values: dict[str, Any],
    parts: dict[str, State],
) -> None:
    for key, value in values.items():
        if key in parts:
            parts[key].value.copy_(value)
            continue
        if mine is None or key not in mine:
            raise UsageError(f"state '{key}' has no place in this optimizer")
        local(mine[key]).copy_(local(value))


def keep(optimizer: MatrixOptimizer) -> dict[Any, Any]:
    """States for a copy of the optimizer on the same layout."""
    optimizer._require_open()
    if optimizer._run is not None:
        optimizer._run.synchronize()
        absorb(optimizer, optimizer._run)
        optimizer._run.refresh_remainders(optimizer._bound)
    kept = {p: dict(values) for p, values in optimizer._state.items()}
    run = optimizer._run
    for i, p in enumerate(optimizer._bound if run is not None else ()):
        if i in run.pending:
            kept[p][CHECKSUM] = run.pending[i]
        for name, part in _named_parts(run, i).items():
            kept[p][name] = part.value
    return kept


def _named_parts(run: Run, parameter: int) -> dict[str, State]:
    """This rank's parts of a parameter's states, as copies keep them."""
    return {
        f"{run.keys[number]}@{','.join(map(str, s.first))}": s
        for number, s in enumerate(run.states)
        if s.whole is not None and run.parameter_of(s.tensor) == parameter
    }


def parts_of(run: Run, parameter: int, key: str) -> list[State]:
    """This rank's parts of a state."""
    return [
        s
        for number, s in enumerate(run.states)
        if s.whole is not None
        and run.keys[number] == key
        and run.parameter_of(s.tensor) == parameter
    ]


def _assembled(run: Run, owned: Owned) -> torch.Tensor:
    """A state in parts as a whole, on all ranks. One rank provides an element;
    all others add the integer 0 to its bits."""
    whole = torch.zeros(owned.shape, dtype=torch.int32, device=run.device)
    for s in parts_of(run, owned.parameter, owned.key):
        if s.given:
            whole[s.place()] = s.value.view(torch.int32)
    if run.everyone is not None:
        dist.all_reduce(whole, group=run.everyone)
    return whole.view(torch.float32)


def _fp32(shape: Sequence[int], run: Run) -> torch.Tensor:
    """Memory for states, whatever torch's default dtype is."""
    return torch.empty(tuple(shape), dtype=torch.float32, device=run.device)


def _everyones_states(run: Run) -> tuple[list[tuple[int, str]], list[Owned]]:
    """Keys of states that lie like their parameter, and the states that owners
    have, of all ranks, in one order."""
    mine = [
        (
            run.parameter_of(s.tensor),
            run.keys[n],
            (s.whole or tuple(s.value.shape)) if s.matrix >= 0 else None,
            s.whole is not None,
        )
        for n, s in enumerate(run.states)
        if s.matrix < 0 or not run.has_alone(run.parameter_of(s.tensor))
    ]
    everyones: list[Any] = [mine]
    if run.everyone is not None:
        everyones = [None] * run.world
        dist.all_gather_object(everyones, mine, group=run.everyone)
    of_shards = {
        e[:2]: None for entries in everyones for e in entries if e[2] is None
    }
    owners: dict[Any, list[int]] = {}
    for owner, entries in enumerate(everyones):
        for e in dict.fromkeys(entries):
            if e[2] is not None:
                owners.setdefault(e, []).append(owner)
    return (
        sorted(of_shards),
        [Owned(*e[:3], tuple(owners[e]), e[3]) for e in sorted(owners)],
    )


def makes_states_alone(optimizer: MatrixOptimizer, run: Run) -> bool:
    """True on all ranks if this first step is torch.distributed.checkpoint's,
    which gives a new optimizer states to load into: gradients and rates of zero.
    It counts for nothing, so that what is saved then is of a new optimizer."""
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    if run.loaded or any(rates):
        return False
    gradients = [p.grad for p in optimizer._bound if p.grad is not None]
    moves: list[Any] = [any(bool(local(g).any()) for g in gradients)]
    if run.everyone is not None:
        mine, moves = moves[0], [None] * run.world
        dist.all_gather_object(moves, mine, group=run.everyone)
    return not any(moves)


# Saving.


def save(optimizer: MatrixOptimizer) -> dict[str, Any]:
    optimizer._require_open()
    if optimizer._run is None and not optimizer._state:
        return {"state": {}, "param_groups": _packed_groups(optimizer)}
    run = optimizer._built()
    states = states_of(optimizer, run)
    number = {name: i for i, (name, _) in enumerate(optimizer._members())}
    # Those of other ranks' own tensors, if any, come after all members.
    more = len(number) - len(run.names)
    return {
        "state": {
            number[run.names[i]] if i < len(run.names) else i + more: values
            for i, values in states.items()
        },
        "param_groups": _packed_groups(optimizer),
    }


def states_of(optimizer: MatrixOptimizer, run: Run) -> dict[int, Any]:
    """All states by number of the parameter in the plan."""
    # All ranks take part where only owners have a state that is not here yet.
    alone = optimizer._gathered is not None or not (
        run.owned or run.needs_sums()
    )
    with nullcontext() if alone else optimizer._together():
        run.synchronize()
        absorb(optimizer, run)
    if optimizer._gathered is not None:
        return _gathered(optimizer, run)
    if optimizer._config["share_states"] and run.world > 1:
        raise UsageError(
            "state_dict(): with share_states=True every rank has a part of "
            "the states; call optimizer.consolidate(to=0) on all ranks first, "
            "then state_dict() on rank 0"
        )
    run.refresh_remainders(optimizer._bound)
    state = {
        i: dict(optimizer._state[p]) for i, p in enumerate(optimizer._bound)
    }
    for i, checksum in run.checksums(optimizer._bound).items():
        state[i][CHECKSUM] = torch.tensor(checksum)
    for owned, value in _handed_out(optimizer, run):
        if not run.has_alone(owned.parameter):
            state[owned.parameter][owned.key] = value
    return state


def _packed_groups(optimizer: MatrixOptimizer) -> list[dict[str, Any]]:
    packed, at = [], 0
    names = saved_names(optimizer)
    for group in optimizer.param_groups:
        values = {k: v for k, v in group.items() if k != "params"}
        values["params"] = list(range(at, at + len(group["params"])))
        values["param_names"] = names[at : at + len(group["params"])]
        at += len(group["params"])
        packed.append(values)
    others = (optimizer._gathered or {}).get("others", ())
    for key, (number, name, _) in enumerate(others, at):
        packed[number]["params"].append(key)
        packed[number]["param_names"].append(name)
    return packed


def _gathered(optimizer: MatrixOptimizer, run: Run) -> dict[int, Any]:
    gathered = optimizer._gathered or {}
    to, state = gathered["to"], gathered["state"]
    me = run.layout.ranks[run.layout.rank]
    if to is not None and to != me:
        raise UsageError(
            f"state_dict(): states were consolidated to rank {to}, "
            f"this is rank {me}"
        )
    others = [values for _, _, values in gathered["others"]]
    everyones = [*state.items(), *enumerate(others, len(run.names))]
    return {i: dict(values) for i, values in everyones}


def _bounds(size: int, pieces: int, number: int) -> tuple[int, int]:
    each = -(-size // pieces)
    return min(size, number * each), min(size, (number + 1) * each)


def _piece(value: torch.Tensor, pieces: int, number: int) -> torch.Tensor:
    """Cuts rows, since torch 2.9 leaves gaps where it gathers uneven columns,
    and loses values where ranks load them by broadcasts."""
    begin, end = _bounds(value.shape[0], pieces, number)
    return value.narrow(0, begin, end - begin)


def _handed_out(
    optimizer: MatrixOptimizer,
    run: Run,
) -> Iterator[tuple[Owned, torch.Tensor]]:
    """States of owners as DTensors sharded over all ranks. A collective."""
    if run.world == 1:
        return
    from torch.distributed.tensor import DTensor, Shard

    for batch in _batches(run.owned):
        pieces = _scatter(optimizer, run, batch)
        for owned, piece in zip(batch, pieces):
            yield owned, DTensor.from_local(
                piece,
                mesh_of(run),
                [Shard(0)],
                run_check=False,
                shape=torch.Size(owned.shape),
                stride=_strides(owned.shape),
            )


def mesh_of(run: Run) -> Any:
    if run.mesh is None:
        from torch.distributed.device_mesh import DeviceMesh

        group: Any = run.everyone
        run.mesh = DeviceMesh.from_group(group, run.device.type)
    return run.mesh


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def _elements(shape: Sequence[int]) -> int:
    product = 1
    for n in shape:
        product *= n
    return product


def _batches(owned: Sequence[Owned]) -> Iterator[list[Owned]]:
    batch: list[Owned] = []
    sizes: dict[int, int] = {}
    for o in owned:
        size = 4 * _elements(o.shape)
        if batch and sizes.get(o.owner, 0) + size > _BATCH:
            yield batch
            batch, sizes = [], {}
        batch.append(o)
        sizes[o.owner] = sizes.get(o.owner, 0) + size
    if batch:
        yield batch


def _scatter(
    optimizer: MatrixOptimizer, run: Run, batch: Sequence[Owned]
) -> list[torch.Tensor]:
    """This rank's piece of each state."""
    me, world = run.layout.rank, run.world
    mine = []
    for o in batch:
        of = optimizer._state[optimizer._bound[o.parameter]]
        value = _assembled(run, o) if o.in_parts else of[o.key]
        if o.owner == me:
            mine.append(value)
    sent = [
        (
            torch.cat([_piece(v, world, r).reshape(-1) for v in mine])
            if mine
            else _fp32((0,), run)
        )
        for r in range(world)
    ]
    shapes = [
        tuple(_piece(torch.empty(o.shape, device="meta"), world, me).shape)
        for o in batch
    ]
    counts = [
        sum(_elements(s) for s, o in zip(shapes, batch) if o.owner == r)
        for r in range(world)
    ]
    got = _fp32((sum(counts),), run)
    dist.all_to_all_single(
        got,
        torch.cat(sent),
        counts,
        [t.numel() for t in sent],
        group=run.everyone,
    )
    at = [sum(counts[:r]) for r in range(world)]
    pieces = []
    for shape, o in zip(shapes, batch):
        n = _elements(shape)
        pieces.append(got[at[o.owner] : at[o.owner] + n].view(shape).clone())
        at[o.owner] += n
    return pieces


# Consolidating.


def consolidate(optimizer: MatrixOptimizer, to: int | None) -> None:
    run = optimizer._built()
    with optimizer._together():
        run.synchronize()
        absorb(optimizer, run)
        if optimizer._layout is not None and run.world > 1:
            raise UsageError(
                "consolidate(): layout= has plain tensors, whose states are "
                "this rank's pieces; save every rank's state_dict()"
            )
        if to is not None and to not in run.layout.ranks:
            raise UsageError(
                f"consolidate(to={to}): expected one of the ranks "
                f"{run.layout.ranks}"
            )
    run.refresh_remainders(optimizer._bound)
    keeps = to is None or to == run.layout.ranks[run.layout.rank]
    state: dict[int, dict[str, Any]] = {
        i: {STEP: run.counted[i].clone()} for i in range(len(run.names))
    }
    for parameter, key, value in _whole_states(optimizer, run):
        if keeps:
            state[parameter][key] = value
    for i, checksum in run.checksums(optimizer._bound).items():
        state[i][CHECKSUM] = torch.tensor(checksum)
    for owned in run.owned:
        value = _from_owner(optimizer, run, owned)
        if keeps and not run.has_alone(owned.parameter):
            state[owned.parameter][owned.key] = value
    optimizer._gathered = {
        "to": to,
        "state": state if keeps else {},
        "others": others_states(optimizer, run, to),
    }


def _whole_states(
    optimizer: MatrixOptimizer,
    run: Run,
) -> Iterator[tuple[int, str, torch.Tensor]]:
    owned = {
        (o.parameter, o.key)
        for o in run.owned
        if not run.has_alone(o.parameter)
    }
    for i, p in enumerate(optimizer._bound):
        shared = run.shared.get(i, [])
        of = optimizer._state[p]
        for key in shared:
            yield i, key, _summed(run, p, i, key)
        for key in of:
            if key == STEP or key in shared or (i, key) in owned:
                continue
            value = of[key].full_tensor() if is_dtensor(of[key]) else of[key]
            yield i, key, value.clone()


def _summed(
    run: Run, p: torch.Tensor, parameter: int, key: str
) -> torch.Tensor:
    """A state gathered from the parts that ranks keep.

    One rank has an element; all others add the integer 0 to its bits."""
    whole = torch.zeros(
        _elements(p.shape), dtype=torch.int32, device=run.device
    )
    for number, s in enumerate(run.states):
        if (
            s.matrix >= 0
            or run.keys[number] != key
            or run.parameter_of(s.tensor) != parameter
        ):
            continue
        kept = _fp32((s.value.numel(),), run).zero_()
        flat = s.value.reshape(-1)
        for first, count in s.kept:
            kept[first : first + count] = flat[first : first + count]
        _put(run, parameter, whole.view(p.shape), kept.view(torch.int32))
    dist.all_reduce(whole, group=run.everyone)
    return whole.view(torch.float32).view(p.shape)


def _put(
    run: Run, parameter: int, whole: torch.Tensor, stored: torch.Tensor
) -> None:
    at = 0
    for place, count in places_of(run, parameter):
        part = whole[place]
        part.copy_(stored[at : at + count].view(part.shape))
        at += count


def places_of(run: Run, parameter: int) -> Iterator[tuple[Any, int]]:
    held = run.layout.tensors[run.layout.mine[parameter]]
    for first, count in held.stored[run.layout.rank]:
        place = tuple(slice(a, a + n) for a, n in zip(first, count))
        yield place, _elements(count)


def _from_owner(
    optimizer: MatrixOptimizer, run: Run, owned: Owned
) -> torch.Tensor:
    if owned.in_parts:
        return _assembled(run, owned)
    value = optimizer._state[optimizer._bound[owned.parameter]][owned.key]
    if run.everyone is None:
        return value.clone()
    if owned.owner != run.layout.rank:
        value = _fp32(owned.shape, run)
    whole = value.clone()
    dist.broadcast(whole, run.layout.ranks[owned.owner], group=run.everyone)
    return whole
