"""Actions (life_actions.py) that copy an optimizer, save it and load it."""

from __future__ import annotations

import copy
import io
import pickle
from random import Random
from typing import Any

import torch

import layouts
from life import Checkpoint, Life, Recipe, build
from life_actions import GOOD, OURS, good, scheduler_of

__all__ = ["GOOD"]

# Copies.


def twin(life: Life, other: Any) -> None:
    """A copy, whose parameters are its own, makes a step."""
    names = {id(p): n for n, p in life.named().items()}
    for group, its in zip(life.optimizer.param_groups, other.param_groups):
        for p, q in zip(group["params"], its["params"]):
            if not q.requires_grad:
                continue
            name = names[id(p)]
            value = layouts.numbers(name, 2000 + life.clock, q.shape)
            q.grad = layouts.like(q, value.to(q.dtype))
            life.extra[f"{name} twin"] = q.detach()
    life.call(other.step)
    if not life.reference:
        other.close()


@good(1.5)
def deepcopy(life: Life, draw: Random) -> None:
    if life.family == "fsdp2" or draw.random() < 0.3:
        twin(life, life.call(lambda: copy.deepcopy(life.optimizer)))
        return
    model, other = life.call(
        lambda: copy.deepcopy((life.model, life.optimizer))
    )
    life.begin(other)
    life.model = model


@good(1.5)
def pickled(life: Life, draw: Random) -> None:
    if life.family == "fsdp2":
        return
    model, other = life.call(
        lambda: pickle.loads(pickle.dumps((life.model, life.optimizer)))
    )
    life.begin(other)
    life.model = model


# State dicts.


@good(2)
def load_own(life: Life, draw: Random) -> None:
    saved = life.save()
    way = draw.choice(["itself", "copy", "file"])
    if way == "copy":
        saved = copy.deepcopy(saved)
    elif way == "file":
        data = io.BytesIO()
        torch.save(saved, data)
        data.seek(0)
        saved = torch.load(data, weights_only=False)
    life.load(saved)


@good(1)
def load_fresh(life: Life, draw: Random) -> None:
    """A state dict from before the first step: states begin anew."""
    if life.fresh is not None and not life.recipe.added:
        life.scheduler, life.scheduler_name = None, ""
        life.load(life.fresh)


@good(2)
def save(life: Life, draw: Random) -> None:
    assert life.recipe is not None
    life.checkpoint = Checkpoint(
        life.recipe,
        life.recipe.members(),
        copy.deepcopy(life.model.state_dict()),
        copy.deepcopy(life.save()),
    )


def load_both(life: Life, draw: Random, model: Any, optimizer: Any) -> None:
    if draw.random() < 0.5:
        life.model.load_state_dict(model)
        life.load(copy.deepcopy(optimizer))
    else:
        life.load(copy.deepcopy(optimizer))
        life.model.load_state_dict(model)


@good(2)
def restore(life: Life, draw: Random) -> None:
    """Back to a checkpoint, in the same process."""
    of = life.checkpoint
    if (
        of is None
        or of.recipe is not life.recipe
        or of.members != life.recipe.members()
    ):
        return
    life.scheduler, life.scheduler_name = None, ""
    load_both(life, draw, of.model, of.optimizer)


@good(2)
def resume(life: Life, draw: Random) -> None:
    """The script runs once more, from its beginning."""
    model, optimizer = copy.deepcopy((life.model.state_dict(), life.save()))
    scheduler = life.scheduler and copy.deepcopy(life.scheduler.state_dict())
    name, recipe = life.scheduler_name, life.recipe
    assert recipe is not None
    now = {n: p.requires_grad for n, p in life.named().items()}
    life.model = build(life.kind, life.dtype)
    for n, p in life.named().items():
        p.requires_grad_(n not in recipe.frozen)
    life.begin(life.call(life.make))
    if scheduler is not None:
        life.scheduler_name = name
        life.scheduler = scheduler_of(name, life.optimizer)
        life.scheduler.load_state_dict(scheduler)
    load_both(life, draw, model, optimizer)
    for n, p in life.named().items():
        p.requires_grad_(now[n])


@good(1.5)
def reorder(life: Life, draw: Random) -> None:
    """Parameters in another order, and in one group, by their names."""
    old = life.recipe
    assert old is not None
    names = old.members()[::-1]
    if not old.named:
        return
    frozen = {n for n, p in life.named().items() if not p.requires_grad}
    saved = copy.deepcopy(life.save())
    life.recipe = Recipe("named", [(names, {})], old.options, frozen)
    life.fresh = None
    life.begin(life.call(life.make))
    life.load(reordered(saved, names) if life.reference else saved)


def reordered(saved: Any, names: list[str]) -> Any:
    """For torch, which goes by positions: the first one's group counts."""
    at = {
        n: k
        for g in saved["param_groups"]
        for n, k in zip(g["param_names"], g["params"])
    }
    group = next(
        g for g in saved["param_groups"] if names[0] in g["param_names"]
    )
    return {
        "state": {
            i: saved["state"][at[n]]
            for i, n in enumerate(names)
            if at[n] in saved["state"]
        },
        "param_groups": [
            {**group, "params": list(range(len(names))), "param_names": names}
        ],
    }


@good(1.5, ("adamw",))
def load_torchs(life: Life, draw: Random) -> None:
    """Ours takes torch's state dict; both are at the same place."""
    if life.peer is not None:
        seen = len(life.peer.events)
        saved = copy.deepcopy(life.peer.save())
        del life.peer.events[seen:]
        seen = len(life.events)
        life.load(saved)
        del life.events[seen:]


@good(0.7, OURS)
def consolidate(life: Life, draw: Random) -> None:
    life.call(lambda: life.optimizer.consolidate(None))
    life.load(copy.deepcopy(life.save()))


@good(1, OURS)
def checkpoint_api(life: Life, draw: Random) -> None:
    """torch.distributed.checkpoint's way."""
    from torch.distributed.checkpoint import state_dict as api

    way = draw.randrange(3)  # torch 2.13 loads none that is full and flat
    options = api.StateDictOptions(
        full_state_dict=way == 1, flatten_optimizer_state_dict=way == 2
    )
    # torch counts a step of its own where there are no states yet, and flat
    # dicts of its own lack frozen parameters.
    if life.recipe is None or life.recipe.form != "module":
        return
    state = life.optimizer.state
    if not life.updated() or not all(
        p.requires_grad and state.get(p) for p in life.named().values()
    ):
        return

    def there_and_back() -> None:
        saved = api.get_optimizer_state_dict(
            life.model, life.optimizer, options=options
        )
        api.set_optimizer_state_dict(
            life.model, life.optimizer, saved, options=options
        )

    life.call(there_and_back)


@good(1.5)
def look(life: Life, draw: Random) -> None:
    what = draw.choice(["repr", "state", "plan", "routing", "numbers"])
    of = life.optimizer
    if what == "repr":
        repr(of)
    elif what == "state":
        len(of.state)
    elif life.reference:
        return
    elif what == "plan":
        of.plan.explain(0)
    elif what == "routing":
        str(of.routing)
    elif life.family != "adamw":
        life.events.append(of.skipped_steps)
