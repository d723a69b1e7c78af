"""What scripts do to an optimizer, as actions on a Life.

An action is a function of a life and of a random number generator, which is in
the same state on every life. It does nothing where it has no meaning, so that
any list of actions is a sequence. Those of `GOOD`, to which life_copies.py adds
more, are never refused; life_refusals.py has those that are.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from dataclasses import dataclass
from random import Random
from typing import Any, Callable

import torch
from torch import nn
from torch.optim import lr_scheduler as lrs
from torch.optim import swa_utils

import layouts
from canzona import _layout
from life import (
    ALWAYS,
    LATE,
    MOMENTS,
    Life,
    Recipe,
    plain,
)

Act = Callable[[Life, Random], None]


@dataclass(frozen=True)
class Action:
    act: Act
    weight: float
    families: tuple[str, ...]


ALL = ("adamw", "fsdp2", "ddp2")
OURS = ("fsdp2", "ddp2")
GOOD: dict[str, Action] = {}


def good(weight: float, families: tuple[str, ...] = ALL) -> Any:
    def add(act: Act) -> Act:
        GOOD[act.__name__] = Action(act, weight, families)
        return act

    return add


def some(draw: Random, names: list[str], most: int = 3) -> list[str]:
    return draw.sample(names, min(len(names), draw.randint(1, most)))


# Steps.


@good(12)
def train(life: Life, draw: Random) -> None:
    to_none = draw.random() < 0.7
    for _ in range(draw.randint(1, 3)):
        life.gradients()
        life.step()
        life.optimizer.zero_grad(set_to_none=to_none)
        life.schedule()


@good(3)
def step_partly(life: Life, draw: Random) -> None:
    life.gradients(leave_out=some(draw, list(life.named())))
    life.step()
    life.optimizer.zero_grad(set_to_none=draw.random() < 0.5)


@good(3)
def accumulate(life: Life, draw: Random) -> None:
    for _ in range(draw.randint(2, 3)):
        life.gradients(scale=0.5)
    life.step()
    life.optimizer.zero_grad()


@good(1)
def step_again(life: Life, draw: Random) -> None:
    """Gradients of last time are still there, or none are."""
    life.step()


@good(2)
def closure(life: Life, draw: Random) -> None:
    def loss() -> Any:
        life.optimizer.zero_grad()
        life.gradients()
        return torch.tensor(float(life.clock))

    life.events.append(plain(life.step(loss)))
    life.optimizer.zero_grad()


@good(2)
def throw_gradients_away(life: Life, draw: Random) -> None:
    life.gradients()
    life.optimizer.zero_grad(set_to_none=draw.random() < 0.5)


@good(2.5)
def grad_scaler(life: Life, draw: Random) -> None:
    overflow = draw.random() < 0.4
    name = draw.choice(ALWAYS)
    unscale = draw.random() < 0.5
    life.optimizer.zero_grad()
    life.scaler.scale(torch.ones(()))
    life.gradients(scale=8.0)
    p = life.named()[name]
    if overflow and p.grad is not None:
        _layout.local(p.grad).fill_(float("inf"))

    def step() -> None:
        if unscale:
            life.scaler.unscale_(life.optimizer)
        life.scaler.step(life.optimizer)
        life.scaler.update(8.0)

    if any(
        q.grad is not None
        for g in life.optimizer.param_groups
        for q in g["params"]
    ):
        life.call(step)
    life.optimizer.zero_grad()


@good(1.5)
def not_finite(life: Life, draw: Random) -> None:
    """Ours leaves the step out; torch's would become NaN."""
    name = draw.choice(ALWAYS)
    life.gradients()
    p, seen = life.named()[name], len(life.events)
    if p.grad is not None and not life.reference:
        _layout.local(p.grad).fill_(float("nan"))
        life.step()
    if life.family == "adamw":
        del life.events[seen:]
    for q in life.named().values():
        q.grad = None


@good(1, ("adamw",))
def clip(life: Life, draw: Random) -> None:
    life.gradients()
    nn.utils.clip_grad_norm_(life.model.parameters(), 1.0)
    life.step()
    life.optimizer.zero_grad()


# Parameters.


@good(3)
def freeze(life: Life, draw: Random) -> None:
    stale = draw.random() < 0.2
    for name in some(draw, list(life.named())):
        life.freeze(name, stale)


@good(4)
def unfreeze(life: Life, draw: Random) -> None:
    share = draw.random()
    for p in life.named().values():
        if not p.requires_grad and draw.random() < share:
            p.requires_grad_(True)


@good(3)
def add_param_group(life: Life, draw: Random) -> None:
    assert life.recipe is not None
    members = set(life.recipe.members())
    free = [n for n in life.named() if n not in members]
    options: dict[str, Any] = {}
    if draw.random() < 0.5:
        options["lr"] = draw.choice([0.01, 0.03])
    if draw.random() < 0.3:
        options["weight_decay"] = 0.05
    if isinstance(life.recipe.options["lr"], torch.Tensor):
        options.setdefault("lr", 0.03)  # torch would share the tensor
    names = some(draw, free) if free else []
    if not names:
        return
    if life.scheduler_name not in ("StepLR", "ExponentialLR"):
        life.scheduler, life.scheduler_name = None, ""
    life.call(
        lambda: life.optimizer.add_param_group(life.group(names, options))
    )
    life.recipe.added.append((names, options))


def draw_recipe(life: Life, draw: Random) -> Recipe:
    named = life.named()
    form = draw.choice(["module", "named", "list", "groups", "filtered"])
    names = list(named)
    if form != "module" and draw.random() < 0.5:
        names = [n for n in names if n not in LATE]
    if form == "filtered":
        names = [n for n in names if named[n].requires_grad]
    options: dict[str, Any] = dict(
        lr=draw.choice([0.01, 0.02, torch.tensor(0.02)]),
        weight_decay=draw.choice([0.0, 0.1]),
    )
    if life.rule == "muon":
        options["momentum"] = draw.choice([0.9, 0.95])
    else:
        options["betas"] = draw.choice([(0.9, 0.99), (0.8, 0.95)])
    groups: list[tuple[list[str], dict[str, Any]]] = [(names, {})]
    if form == "groups":
        vectors = [n for n in names if named[n].ndim < 2]
        groups = [
            ([n for n in names if n not in vectors], {"lr": 0.03}),
            (vectors, {"weight_decay": 0.0}),
        ]
    frozen = {n for n in named if not named[n].requires_grad}
    return Recipe(form, groups, options, frozen)


@good(1)
def construct(life: Life, draw: Random) -> None:
    named = life.named()
    if draw.random() < 0.5:
        for name in some(draw, [n for n in named if n not in ALWAYS], 4):
            life.freeze(name)
    for name in ALWAYS:
        named[name].requires_grad_(True)
    life.recipe = draw_recipe(life, draw)
    life.begin(life.call(life.make))
    # Its tensors are the optimizer's: schedulers write rates into them.
    life.fresh = copy.deepcopy(life.save()) if draw.random() < 0.5 else None


@good(0.7)
def close(life: Life, draw: Random) -> None:
    """And go on with another one."""
    saved = copy.deepcopy(life.save())
    life.begin(life.call(life.make))
    life.load(saved)


# Weights that other code writes.


@good(2)
def write_weights(life: Life, draw: Random) -> None:
    for name in some(draw, list(life.named())):
        p = life.named()[name]
        value = layouts.numbers(name, 1000 + life.clock, p.shape) * 0.1
        with torch.no_grad():
            p.copy_(layouts.like(p, value.to(p.dtype)))


@good(1.5)
def swap_data(life: Life, draw: Random) -> None:
    """Weights move elsewhere, with other values now and then."""
    other = draw.random() < 0.5
    for name in some(draw, list(life.named())):
        p = life.named()[name]
        value = p.detach() * 0.5 if other else p.detach().clone()
        if _layout.is_dtensor(p):
            with torch.no_grad():
                p.copy_(value)
        else:
            p.data = value


@good(1.5, OURS)
def to_dtype(life: Life, draw: Random) -> None:
    """A model of another dtype gets an optimizer of its own."""
    dtype = draw.choice([torch.float32, torch.bfloat16])
    saved = copy.deepcopy(life.save())
    for p in life.named().values():
        p.grad = None
    life.model.to(dtype)
    life.begin(life.call(life.make))
    life.load(saved)


# Options.


def scheduler_of(name: str, of: Any) -> Any:
    def chained(*made: Any) -> Any:
        return lrs.ChainedScheduler(list(made), optimizer=of)

    makers: dict[str, Callable[[], Any]] = {
        "LambdaLR": lambda: lrs.LambdaLR(of, lambda k: 1 / (1 + 0.1 * k)),
        "MultiplicativeLR": lambda: lrs.MultiplicativeLR(of, lambda k: 0.95),
        "StepLR": lambda: lrs.StepLR(of, 2, 0.7),
        "MultiStepLR": lambda: lrs.MultiStepLR(of, [2, 5], 0.5),
        "ConstantLR": lambda: lrs.ConstantLR(of, 0.5, 3),
        "LinearLR": lambda: lrs.LinearLR(of, 0.3, 1.0, 5),
        "ExponentialLR": lambda: lrs.ExponentialLR(of, 0.95),
        "PolynomialLR": lambda: lrs.PolynomialLR(of, 20),
        "CosineAnnealingLR": lambda: lrs.CosineAnnealingLR(of, 10, 1e-3),
        "CosineAnnealingWarmRestarts": (
            lambda: lrs.CosineAnnealingWarmRestarts(of, 4)
        ),
        "CyclicLR": lambda: lrs.CyclicLR(of, 0.01, 0.03, 3),
        "OneCycleLR": lambda: lrs.OneCycleLR(of, 0.05, total_steps=1000),
        "ReduceLROnPlateau": lambda: lrs.ReduceLROnPlateau(
            of, factor=0.5, patience=1
        ),
        "SequentialLR": lambda: lrs.SequentialLR(
            of, [lrs.ConstantLR(of, 0.5, 3), lrs.CosineAnnealingLR(of, 9)], [3]
        ),
        "ChainedScheduler": lambda: chained(
            lrs.StepLR(of, 3, 0.8), lrs.ExponentialLR(of, 0.97)
        ),
        "SWALR": lambda: swa_utils.SWALR(of, 0.01, 3),
    }
    return makers[name]() if name else list(makers)


@good(5)
def use_scheduler(life: Life, draw: Random) -> None:
    life.scheduler_name = draw.choice(scheduler_of("", None))
    life.scheduler = scheduler_of(life.scheduler_name, life.optimizer)


@good(1)
def resume_scheduler(life: Life, draw: Random) -> None:
    if life.scheduler is None:
        return
    saved = copy.deepcopy(life.scheduler.state_dict())
    life.scheduler = scheduler_of(life.scheduler_name, life.optimizer)
    life.scheduler.load_state_dict(saved)


@good(2)
def set_rate(life: Life, draw: Random) -> None:
    value = draw.choice([0.0, 0.005, 0.02])
    way = draw.choice(["number", "tensor", "in place"])
    for group in life.optimizer.param_groups:
        if way == "in place" and isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(value)
        else:
            group["lr"] = value if way == "number" else torch.tensor(value)


@good(2)
def set_option(life: Life, draw: Random) -> None:
    options = {
        "weight_decay": draw.choice([0.0, 0.2]),
        "betas": draw.choice([(0.9, 0.9), (0.5, 0.95)]),
        "momentum": draw.choice([0.8, 0.9]),
        "eps": draw.choice([1e-8, 1e-6]),
    }
    name = draw.choice(sorted(options))
    for group in life.optimizer.param_groups:
        if name in group:
            group[name] = options[name]


# Hooks.


@good(3)
def hook(life: Life, draw: Random) -> None:
    of, kind = life.optimizer, draw.randrange(6)

    def seen(what: str) -> Callable[..., None]:
        return lambda *_: life.events.append(what)

    def stamp(_: Any, state_dict: Any) -> Any:
        life.events.append("saved")
        return {**state_dict, "stamp": 1}

    def unstamp(_: Any, state_dict: Any) -> Any:
        life.events.append("loads")
        return {k: v for k, v in state_dict.items() if k != "stamp"}

    register: list[Callable[[], Any]] = [
        lambda: of.register_step_pre_hook(seen("before")),
        lambda: of.register_step_post_hook(seen("after")),
        lambda: of.register_state_dict_pre_hook(seen("saves")),
        lambda: of.register_state_dict_post_hook(stamp),
        lambda: of.register_load_state_dict_pre_hook(unstamp),
        lambda: of.register_load_state_dict_post_hook(seen("loaded")),
    ]
    life.handles.append(register[kind]())


@good(1)
def unhook(life: Life, draw: Random) -> None:
    while life.handles:
        life.handles.pop().remove()


# State surgery.


def operated(life: Life, draw: Random) -> list[str]:
    names = sorted(life.updated())
    return some(draw, names) if names else []


@good(1.5)
def delete_states(life: Life, draw: Random) -> None:
    for name in operated(life, draw):
        del life.optimizer.state[life.named()[name]]


@good(1.5)
def replace_states(life: Life, draw: Random) -> None:
    for name in operated(life, draw):
        state = life.optimizer.state[life.named()[name]]
        for key in MOMENTS:
            if key in state:
                state[key] = state[key] * 0.5


@good(1.5)
def edit_states(life: Life, draw: Random) -> None:
    for name in operated(life, draw):
        state = life.optimizer.state[life.named()[name]]
        for key in MOMENTS:
            if key in state:
                state[key].mul_(0.25)


@good(1.5)
def restart_counts(life: Life, draw: Random) -> None:
    way = draw.choice(["zero", "fill", "replace"])
    for name in operated(life, draw):
        state = life.optimizer.state[life.named()[name]]
        if way == "zero":
            state["step"].zero_()
        elif way == "fill":
            state["step"].fill_(7.0)
        else:
            state["step"] = torch.tensor(3.0)


@good(1)
def clear_states(life: Life, draw: Random) -> None:
    if draw.random() < 0.5:
        life.optimizer.state.clear()
    else:
        life.optimizer.state = defaultdict(dict)
