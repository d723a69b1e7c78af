"""What an optimizer refuses, and what docs/pytorch.md says of it.

Each of these actions does something that must be refused, on every rank alike,
with everything as it was before the call; then it undoes what it did. Where
`when` says no, the action does nothing.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from random import Random
from typing import Any, Callable

import torch
from torch import nn

from canzona import _layout
from life import ALWAYS, LATE, Life, Refused
from life_actions import ALL, OURS, Act


@dataclass(frozen=True)
class Refusal:
    act: Act
    families: tuple[str, ...]
    sentence: str  # of docs/pytorch.md, or why none is needed
    kinds: tuple[str, ...] = ("UsageError",)
    when: Callable[[Life], bool] = lambda life: True


BAD: dict[str, Refusal] = {}

# Refusals that torch's own optimizers have, too.
AS_TORCH = "torch.optim refuses it, too"


def bad(sentence: str, families: tuple[str, ...] = ALL, **more: Any) -> Any:
    def add(act: Act) -> Act:
        BAD[act.__name__] = Refusal(act, families, sentence, **more)
        return act

    return add


def must_refuse(life: Life, act: Callable[[], Any], undo=lambda: None) -> None:
    """Raises Refused once `undo` has made good what was wrong."""
    try:
        life.call(act)
    except Refused:
        undo()
        raise


def only_on_ranks(life: Life) -> bool:
    """A life on one rank cannot do this; it counts as refused there."""
    if life.kind == "one":
        raise Refused("UsageError", "one rank alone cannot differ")
    return True


def has_stepped(life: Life) -> bool:
    return bool(life.updated())


def _step_with_option(life: Life, name: str, value: Any) -> None:
    if life.reference:
        return
    group = life.optimizer.param_groups[0]
    had, before = name in group, group.get(name)
    group[name] = value

    def undo() -> None:
        if had:
            group[name] = before
        else:
            del group[name]

    life.gradients()
    must_refuse(life, life.optimizer.step, undo)


SWITCHES = "`maximize` and `amsgrad` are refused whenever they are set."
AS_BEFORE = "after it, groups, states, plan and weights are as before"


@bad(SWITCHES)
def set_maximize(life: Life, draw: Random) -> None:
    _step_with_option(life, "maximize", True)


@bad(SWITCHES)
def set_amsgrad(life: Life, draw: Random) -> None:
    _step_with_option(life, "amsgrad", True)


@bad(AS_BEFORE)
def option_out_of_range(life: Life, draw: Random) -> None:
    name = "weight_decay" if draw.random() < 0.5 else "lr"
    _step_with_option(life, name, -1.0)


KIND_CHANGED = (
    "A parameter that changes its shape, strides, dtype or device after the "
    "first step is an error"
)


@bad(KIND_CHANGED, when=has_stepped)
def other_dtype(life: Life, draw: Random) -> None:
    if life.reference:
        return
    weights = copy.deepcopy(life.model.state_dict())
    dtype = life.dtype
    other = torch.bfloat16 if dtype == torch.float32 else torch.float32
    for p in life.named().values():
        p.grad = None
    life.model.to(other)
    life.gradients()

    def undo() -> None:
        for p in life.named().values():
            p.grad = None
        life.model.to(dtype)
        life.model.load_state_dict(weights)

    must_refuse(life, life.optimizer.step, undo)


@bad(KIND_CHANGED, ("adamw", "ddp2"), when=has_stepped)
def transposed(life: Life, draw: Random) -> None:
    if life.reference:
        return
    p = life.named()["square.weight"]
    if "square.weight" not in life.states():
        raise Refused("UsageError", "there is no such parameter")

    def turn() -> None:
        p.data = p.data.t()

    p.grad = None
    turn()
    life.gradients()
    must_refuse(life, life.optimizer.step, turn)


@bad("A closed optimizer refuses to step.")
def step_closed(life: Life, draw: Random) -> None:
    saved = copy.deepcopy(life.save())

    def undo() -> None:
        life.begin(life.make())
        life.load(saved)

    if life.reference:
        return undo()
    life.close()
    life.gradients()
    must_refuse(life, life.optimizer.step, undo)


@bad(AS_TORCH, kinds=("UsageError", "ValueError"))
def add_twice(life: Life, draw: Random) -> None:
    assert life.recipe is not None
    # A frozen member may be added: it leaves its group.
    name = draw.choice([n for n in ALWAYS if n in life.recipe.members()])
    must_refuse(
        life,
        lambda: life.optimizer.add_param_group(life.group([name], {})),
    )


@bad("It reports flat parameters of FSDP1, Partial placements, meta, fp16")
def add_fp16(life: Life, draw: Random) -> None:
    if life.reference:
        return
    other = nn.Parameter(torch.zeros(4, 4, dtype=torch.float16))
    group = {"params": [("other", other)]}
    must_refuse(life, lambda: life.optimizer.add_param_group(group))


@bad(AS_BEFORE)
def add_out_of_range(life: Life, draw: Random) -> None:
    """The library refuses what the package has let pass."""
    if life.reference:
        return
    assert life.recipe is not None
    members = set(life.recipe.members())
    free = [n for n in LATE if n not in members]
    name = "momentum" if life.rule == "muon" else "betas"
    if not free:
        raise Refused("UsageError", "there is no parameter to add")
    value = 1.5 if life.rule == "muon" else (1.5, 0.9)
    group = life.group(free, {name: value})

    def add() -> None:
        life.optimizer.add_param_group(group)
        life.optimizer.plan

    must_refuse(life, add)


@bad(AS_TORCH, kinds=("UsageError", "ValueError"))
def load_damaged(life: Life, draw: Random) -> None:
    saved = copy.deepcopy(life.save())
    # The last one that has states is missing, since frozen ones may be; or all.
    last = max((k for k, of in saved["state"].items() if of), default=None)
    for group in saved["param_groups"]:
        if last is None or last in group["params"]:
            group.pop("param_names", None)
            kept = [k for k in group["params"] if last not in (None, k)]
            group["params"] = kept
    must_refuse(life, lambda: life.optimizer.load_state_dict(saved))


@bad(AS_TORCH, kinds=("UsageError", "ValueError", "KeyError"))
def load_nothing(life: Life, draw: Random) -> None:
    must_refuse(life, lambda: life.optimizer.load_state_dict({}))


# What one rank does alone.

ALIKE = (
    "ranks with different models, orders, options or learning rates, a state "
    "dict that does not fit, and a gradient that only some of a tensor's ranks "
    "have"
)


@bad(ALIKE, OURS, when=has_stepped)
def gradient_of_one_rank(life: Life, draw: Random) -> None:
    life.gradients()
    p = life.named()[draw.choice(ALWAYS)]
    only_on_ranks(life)
    if p.grad is None:
        p.grad = torch.zeros_like(p)
    if life.rank == 1:
        p.grad = None
    must_refuse(life, life.optimizer.step)


@bad(ALIKE, OURS, when=has_stepped)
def option_of_one_rank(life: Life, draw: Random) -> None:
    life.gradients()
    name = draw.choice(["weight_decay", "lr", "eps"])
    value = draw.choice([0.123, -1.0])
    only_on_ranks(life)
    group = life.optimizer.param_groups[0]
    before = group[name]
    if life.rank == 1:
        group[name] = value

    def undo() -> None:
        group[name] = before

    must_refuse(life, life.optimizer.step, undo)


@bad(ALIKE, OURS, when=has_stepped)
def damaged_on_one_rank(life: Life, draw: Random) -> None:
    saved = copy.deepcopy(life.save())
    only_on_ranks(life)
    if life.rank == 1:
        saved.pop("param_groups")
    must_refuse(life, lambda: life.optimizer.load_state_dict(saved))


@bad(
    "It must be unfrozen on all ranks that plan together",
    OURS,
    when=has_stepped,
)
def unfrozen_on_one_rank(life: Life, draw: Random) -> None:
    """Gradients of a sleeping parameter, on rank 1 alone."""
    life.gradients()
    only_on_ranks(life)
    asleep = sorted(life.optimizer._asleep)
    if not asleep or not life.recipe.named:
        life.gradients()
        raise Refused("UsageError", "no parameter sleeps")
    p = life.named()[asleep[0]]
    p.grad = torch.zeros_like(p) if life.rank == 1 else None
    must_refuse(life, life.optimizer.step)


# What the caller has asked for.


@bad('`"raise"` also raises NumericalError', kinds=("NumericalError",))
def raise_at_nan(life: Life, draw: Random) -> None:
    """An optimizer that was told to raise; then the one that was not."""
    assert life.recipe is not None
    saved, options = copy.deepcopy(life.save()), life.recipe.options

    def undo() -> None:
        life.recipe.options = options
        life.begin(life.make())
        life.load(saved)

    if life.reference:
        return undo()
    life.recipe.options = {**options, "nonfinite": "raise"}
    life.begin(life.call(life.make))
    life.load(saved)
    life.gradients()
    p = life.named()[ALWAYS[0]]
    p.grad = torch.zeros_like(p)
    _layout.local(p.grad).fill_(float("nan"))
    must_refuse(life, life.optimizer.step, undo)
