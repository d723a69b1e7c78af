"""One optimizer's life: a small model, its optimizer, and what scripts keep
beside them. Actions (life_actions.py) happen to it; life_check.py runs the same
actions on several lives and compares what they leave behind.

Kinds of lives: "torch" (torch.optim.AdamW), "one" (ours on one rank), "ddp2" and
"fsdp2" (ours on two ranks).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import canzona
import layouts
from canzona import _layout

KINDS = {
    "muon": canzona.Muon,
    "soap": canzona.SOAP,
    "adamw": canzona.AdamW,
}
# These require gradients whenever an optimizer is made, so that each rule has
# a parameter.
ALWAYS = ("up.weight", "up.bias")
# States that are zero before the first update.
MOMENTS = ("momentum_buffer", "exp_avg", "exp_avg_sq")
LATE = ("spare.weight", "spare.bias", "last.weight")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.embed = nn.Embedding(5, 4)
        self.up = nn.Linear(4, 6)
        self.down = nn.Linear(6, 4, bias=False)
        self.square = nn.Linear(4, 4, bias=False)
        self.spare = nn.Linear(4, 3)
        self.last = nn.Linear(3, 2, bias=False)


class Refused(Exception):
    """A call raised, and left everything as it was."""

    def __init__(self, kind: str, text: str):
        super().__init__(f"{kind}: {text}")
        self.kind, self.text = kind, text


class Changed(AssertionError):
    """A call raised, but has changed something before."""


@dataclass
class Recipe:
    """How a script makes its optimizer; it does so again when it resumes."""

    form: str  # "module", "named", "list", "groups" or "filtered"
    groups: list[tuple[list[str], dict[str, Any]]]
    options: dict[str, Any]
    frozen: set[str]
    added: list[tuple[list[str], dict[str, Any]]] = field(default_factory=list)

    @property
    def named(self) -> bool:
        return self.form != "list"

    def members(self) -> list[str]:
        return [n for names, _ in self.groups + self.added for n in names]


@dataclass
class Checkpoint:
    recipe: Recipe
    members: list[str]
    model: Any
    optimizer: Any


_meshes: dict[int, Any] = {}


def _mesh() -> Any:
    """One mesh for all models of a process group."""
    key = id(dist.group.WORLD)
    if key not in _meshes:
        _meshes.clear()
        _meshes[key] = layouts.mesh(dist.get_world_size())
    return _meshes[key]


def build(kind: str, dtype: torch.dtype) -> nn.Module:
    model = Model()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(layouts.numbers(name, 0, p.shape) * 0.1)
    model = model.to(dtype)
    if kind == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        return fully_shard(model, mesh=_mesh())
    if kind == "ddp2":
        return nn.parallel.DistributedDataParallel(model)
    return model


gradient = lru_cache(maxsize=None)(layouts.numbers)


def count(state: dict[str, Any]) -> int:
    """Updates that a parameter's states tell of."""
    step = state.get("step")
    return 0 if step is None else int(step)


def is_new(state: dict[str, Any]) -> bool:
    """True of states before a parameter's first update."""
    return count(state) == 0 and not any(
        _layout.local(state[k]).any() for k in MOMENTS if k in state
    )


def plain(value: Any) -> Any:
    """An option as a value that can be compared and printed."""
    if isinstance(value, torch.Tensor):
        return value.item()
    if isinstance(value, (tuple, list)):
        return tuple(plain(v) for v in value)
    return value


class Life:
    def __init__(self, family: str, kind: str, rule: str, dtype: torch.dtype):
        self.family, self.kind, self.rule = family, kind, rule
        self.model = build(kind, dtype)
        self.optimizer: Any = None
        self.recipe: Recipe | None = None
        self.scheduler: Any = None
        self.scheduler_name = ""
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        self.checkpoint: Checkpoint | None = None
        self.fresh: Any = None  # state_dict() before the first step
        self.clock = 0  # gradients are made from it
        self.events: list[Any] = []  # what hooks and closures have seen
        self.handles: list[Any] = []  # of hooks
        self.extra: dict[str, torch.Tensor] = {}  # results of this action
        self.peer: Life | None = None  # torch's, of which ours may load

    # The model.

    @property
    def reference(self) -> bool:
        return self.kind == "torch"

    @property
    def rank(self) -> int:
        return dist.get_rank() if self.kind in ("ddp2", "fsdp2") else 0

    @property
    def model(self) -> nn.Module:
        return self._model

    @model.setter
    def model(self, model: nn.Module) -> None:
        """Remembers where parameters are: they may be swapped, and are asked
        for all the time."""
        self._model = model
        self._places = []
        for name, p in layouts.named(model):
            for module in model.modules():
                for attribute, its in module._parameters.items():
                    if its is p:
                        self._places.append((name, module, attribute))

    def named(self) -> dict[str, torch.Tensor]:
        return {n: m._parameters[a] for n, m, a in self._places}

    @property
    def dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype

    def updated(self) -> list[str]:
        """Names of parameters that have had an update."""
        return [n for n, of in self.states().items() if count(of) > 0]

    def gradients(self, leave_out=(), scale: float = 1.0) -> None:
        """As backward() would, adds gradients to those that are there."""
        self.clock += 1
        for name, p in self.named().items():
            if name in leave_out:
                p.grad = None
            elif p.requires_grad:
                whole = gradient(name, self.clock, p.shape) * scale
                g = layouts.like(p, whole.to(p.dtype))
                if p.grad is None:
                    p.grad = g
                else:
                    _layout.local(p.grad).add_(_layout.local(g))

    def freeze(self, name: str, stale: bool = False) -> None:
        p = self.named()[name]
        p.requires_grad_(False)
        if not stale:
            p.grad = None

    # The optimizer.

    def make(self) -> Any:
        """An optimizer by the recipe."""
        recipe = self.recipe
        assert recipe is not None
        told: dict[str, Any] = {}
        kind: Any = torch.optim.AdamW
        if not self.reference:
            kind = KINDS[self.rule]
            if self.rule == "soap":
                told["precondition_frequency"] = 3
            if self.kind == "ddp2" and recipe.form != "module":
                told["replicas"] = dist.group.WORLD
        options = {**recipe.options, **told}
        if self.reference:
            options.pop("nonfinite", None)
        optimizer = kind(self._given(), **options)
        for names, values in recipe.added:
            optimizer.add_param_group(self.group(names, values))
        return optimizer

    def _given(self) -> Any:
        recipe = self.recipe
        assert recipe is not None
        if recipe.form == "module" and not self.reference:
            return self.model
        groups = [self.group(n, o) for n, o in recipe.groups]
        return groups if recipe.form == "groups" else groups[0]["params"]

    def group(self, names: list[str], options: dict[str, Any]) -> Any:
        assert self.recipe is not None
        of = self.named()
        return dict(
            params=[(n, of[n]) if self.recipe.named else of[n] for n in names],
            **options,
        )

    def begin(self, optimizer: Any) -> None:
        """Another optimizer takes the place of the one before."""
        self.close()
        self.optimizer = optimizer
        self.scheduler, self.scheduler_name = None, ""
        self.handles.clear()

    def close(self) -> None:
        if self.optimizer is not None and not self.reference:
            self.optimizer.close()

    def call(self, act: Any) -> Any:
        """Runs what may be refused; a refusal must change nothing."""
        before = None if self.reference else self.snapshot()
        try:
            return act()
        except Exception as error:
            if before is not None:
                changed = differences(before, self.snapshot())
                if changed:
                    raise Changed(
                        f"{type(error).__name__}: {error}; but it changed "
                        f"{', '.join(changed[:5])}"
                    ) from error
            raise Refused(type(error).__name__, str(error)) from error

    def step(self, closure: Any = None) -> Any:
        return self.call(lambda: self.optimizer.step(closure))

    def schedule(self) -> None:
        if self.scheduler is None:
            return
        if self.scheduler_name == "ReduceLROnPlateau":
            self.scheduler.step(1.0)
        else:
            self.scheduler.step()

    def save(self) -> Any:
        return self.call(lambda: self.optimizer.state_dict())

    def load(self, state_dict: Any) -> None:
        self.call(lambda: self.optimizer.load_state_dict(state_dict))

    # What there is.

    def states(self) -> dict[str, dict[str, Any]]:
        """States by name; a look that makes none."""
        of = self.optimizer
        found = of.state if self.reference else of._state
        names = {id(p): n for n, p in self.named().items()}
        return {
            names[id(p)]: dict(values)
            for p, values in found.items()
            if id(p) in names
        }

    def tensors(self, new: bool = True) -> dict[str, torch.Tensor]:
        """Parameters and states, by name; `new`: also states before the first
        update, which may come into being at any time."""
        values = {f"{n}": p.detach() for n, p in self.named().items()}
        for name, of in self.states().items():
            for key, value in of.items() if new or not is_new(of) else ():
                values[f"{name} {key}"] = torch.as_tensor(value).detach()
        values.update(self.extra)
        return values

    def options(self) -> dict[str, dict[str, Any]]:
        """Values of its group, by parameter."""
        names = {id(p): n for n, p in self.named().items()}
        return {
            names.get(id(p), "?"): {
                k: plain(v)
                for k, v in group.items()
                if k not in ("params", "param_names")
            }
            for group in self.optimizer.param_groups
            for p in group["params"]
        }

    def snapshot(self) -> dict[str, Any]:
        """All that a refused call must leave as it was."""
        if self.optimizer is None:
            return {}
        seen: dict[str, Any] = {
            k: bits(_layout.local(v))
            for k, v in self.tensors(new=False).items()
        }
        for name, p in self.named().items():
            if p.grad is not None:
                seen[f"{name} gradient"] = bits(_layout.local(p.grad))
        seen["options"] = self.options()
        seen["groups"] = [
            [id(p) for p in g["params"]] for g in self.optimizer.param_groups
        ]
        seen["asleep"] = sorted(self.optimizer._asleep)
        return seen


def bits(value: torch.Tensor) -> bytes:
    return value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Names of values that differ."""
    return [k for k in {**a, **b} if k not in a or k not in b or a[k] != b[k]]
