"""Muon as Megatron-Core's table of emerging optimizers has it, by our plans.

A torch.optim.Optimizer with the constructor of Megatron's own. It plans at the
first step, since Megatron replaces parameters by fp32 masters after construction;
until then it is its groups and a dict of states. Each step passes on the
numbers of the groups, and takes over states that were loaded or moved.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple

import torch
import torch.distributed as dist

from ._errors import UsageError
from ._routing import clean
from ._storage_plan import StoragePlan
from .megatron_layout import World, matrix_of, worlds_of
from .optim import Muon as Inner

_log = logging.getLogger("canzona")

MOMENTUM = "momentum_buffer"
_STATES = {MOMENTUM, "step"}  # of ours, of which Megatron gets the first

_SCALES = {
    "spectral": "sqrt_max",
    "unit_rms_norm": "unit_rms",
    "shape_scaling": "original",
}
# "medium" is 16-bit products for Megatron, too.
_PRECISIONS = {"medium": "auto", "high": "fp32", "highest": "fp32"}
# True: every shard is a matrix of its own.
_TP_MODES = {"blockwise": True, "duplicated": False, "distributed": False}
# Sets that go on with their last coefficients; the others start over.
_REPEAT_LAST = ("polar_express", "cans", "deepseekv4")
# Arguments of canzona.Muon that canzona.megatron gives itself.
_THEIRS = ("layout", "group", "splits", "lr", "weight_decay", "momentum")
# Keys of a group that may change from step to step.
_NUMBERS = ("lr", "weight_decay", "momentum")


def _known(option: str, value: str, values: dict[str, Any]) -> Any:
    """What an option's value stands for here."""
    if value not in values:
        raise UsageError(
            f"{option} {value}: is not supported by canzona.megatron; "
            f"expected {', '.join(values)}"
        )
    return values[value]


class _Part(NamedTuple):
    """One world's optimizer, and the groups of Megatron's that it steps."""

    inner: Inner
    groups: list[dict[str, Any]]
    shown: list[tuple[torch.Tensor, torch.Tensor]]  # parameter, its momentum


class Muon(torch.optim.Optimizer):
    """Takes the place of TensorParallelMuon."""

    def __init__(
        self,
        params: Any,
        lr: float = 3e-4,
        momentum: float = 0.95,
        nesterov: bool = True,
        weight_decay: float = 0.01,
        use_decoupled_weight_decay: bool = True,
        split_qkv: bool = False,
        is_qkv_fn: Callable[[torch.Tensor], bool] | None = None,
        qkv_split_shapes: Sequence[int] | None = None,
        fp32_matmul_prec: str = "medium",
        coefficient_type: str = "quintic",
        num_ns_steps: int = 5,
        scale_mode: str = "spectral",
        extra_scale_factor: float = 1.0,
        pg_collection: Any = None,
        tp_mode: str = "duplicated",
        *,
        model_chunks: Sequence[torch.nn.Module] = (),
        ours: Mapping[str, Any] = {},
    ):
        self._options: dict[str, Any] = dict(
            preset="nvidia",
            rules={"*": "muon"},
            nonfinite="propagate",
            nesterov=nesterov,
            decay_form="decoupled" if use_decoupled_weight_decay else "l2",
            coefficients=coefficient_type,
            ns_steps=num_ns_steps,
            overrun="last" if coefficient_type in _REPEAT_LAST else "cycle",
            eps=1e-7,
            precision=_known(
                "--muon-fp32-matmul-prec", fp32_matmul_prec, _PRECISIONS
            ),
            scale=_known("--muon-scale-mode", scale_mode, _SCALES),
            scale_extra=extra_scale_factor,
        )
        for name in ours.keys() & {*self._options, *_THEIRS}:
            raise UsageError(f"register({name}=…): Megatron sets {name} itself")
        self._options.update(ours)
        self._by_head = bool(self._options.pop("heads", False))
        is_blockwise = _known("--muon-tp-mode", tp_mode, _TP_MODES)
        self._worlds = worlds_of(pg_collection, not is_blockwise)
        self._is_qkv = (is_qkv_fn if split_qkv else None) or (lambda _: False)
        self._qkv, self._chunks = qkv_split_shapes, list(model_chunks)
        self._parts: list[_Part] = []
        self._planned: list[int] | None = None  # ids of the plans' parameters
        super().__init__(
            params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay)
        )
        try:  # refuses options and numbers that are not right
            Inner([torch.zeros(2, 2)], **self._options, **self.defaults)
        except UsageError as error:
            raise UsageError(f"Muon's options: {error}") from None
        sizes = [w.group.size() for w in self._worlds if w.group is not None]
        if is_blockwise and max(sizes, default=1) > 1 and dist.get_rank() == 0:
            _log.warning(
                "--muon-tp-mode blockwise: every shard is orthogonalised by "
                "itself, so the optimizer depends on the TP size; "
                "--muon-tp-mode duplicated gives whole matrices, each by one "
                "rank of its TP group"
            )

    # The plan.

    def plans(self) -> list[StoragePlan]:
        """One for each TP group with matrices of this rank. The first call is
        a collective of these groups, unless a step was made."""
        return [part.inner.plan for part in self._built()]

    def _members(self) -> Iterator[torch.Tensor]:
        for group in self.param_groups:
            yield from group["params"]

    def _built(self) -> list[_Part]:
        """Planned parts; anew where Megatron has other tensors by now."""
        members = list(map(id, self._members()))
        if members != self._planned:
            for part in self._parts:
                part.inner.close()
            names = self._names()
            parts = [self._part(world, names) for world in self._worlds]
            self._parts = [part for part in parts if part is not None]
            self._planned = members
        return self._parts

    def _names(self) -> dict[int, str]:
        """By id of a parameter: as Megatron's model calls it. A master has no
        name, but the model's parameter knows its master."""
        names = {id(p): f"matrix{i}" for i, p in enumerate(self._members())}
        for number, chunk in enumerate(self._chunks):
            before = f"chunk{number}." if len(self._chunks) > 1 else ""
            for name, p in chunk.named_parameters():
                p = getattr(p, "main_param", p)
                if id(p) in names:
                    names[id(p)] = clean(before + name)
        return names

    def _part(self, world: World, names: dict[int, str]) -> _Part | None:
        """None for a world of which this rank has no matrix."""
        theirs, groups, splits, stored = [], [], {}, {}
        for group in self.param_groups:
            named = [
                (names[id(p)], p)
                for p in group["params"]
                if bool(getattr(p, "expert_tp", False)) == world.has_experts
            ]
            for name, p in named:
                rows = getattr(p, "qkv_split_shapes", None) or self._qkv
                qkv = rows if self._is_qkv(p) else None
                stored[name], splits[name] = matrix_of(
                    name, p, world, qkv, self._by_head
                )
            if named:
                theirs.append(group)
                numbers = {k: group[k] for k in _NUMBERS}
                groups.append({"params": named, **numbers})
        if not groups:
            return None
        inner = Inner(
            groups,
            splits={name: rows for name, rows in splits.items() if rows},
            layout=lambda name, _: stored[name],
            group=world.group,
            **self._options,
        )
        inner.plan  # makes states
        mine = [p for group in groups for _, p in group["params"]]
        more = {key for p in mine for key in inner.state[p]} - _STATES
        if more:
            raise UsageError(
                f"register(): these options need the states {sorted(more)}, "
                "which checkpoints of Megatron's Muon do not have"
            )
        shown = [(p, inner.state[p][MOMENTUM]) for p in mine]
        return _Part(inner, theirs, shown)

    # Steps.

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Updates every parameter that has a gradient."""
        if closure is not None:
            raise UsageError("step(): Megatron's Muon takes no closure")
        for part in self._built():
            for mine, theirs in zip(part.inner.param_groups, part.groups):
                mine.update((key, theirs[key]) for key in _NUMBERS)
            self._take_states(part)
            part.inner.step()

    def _take_states(self, part: _Part) -> None:
        """What was loaded, or moved to the host and back, are other tensors
        now: their values go into the plan's memory, which is shown again. A
        state that is gone begins anew."""
        for p, memory in part.shown:
            given = self.state[p].get(MOMENTUM)
            if given is memory:
                continue
            if given is None:
                memory.zero_()
            elif given.data_ptr() != memory.data_ptr():
                memory.copy_(given)
            self.state[p] = {MOMENTUM: memory}

    def init_states(self) -> None:
        """Zeros where a parameter has no state yet, for checkpoints to load
        into. Plans nothing."""
        for p in self._members():
            if MOMENTUM not in self.state[p]:
                self.state[p][MOMENTUM] = torch.zeros_like(p.data)
