"""torch.optim.Optimizer over plans and steps of Canzona's.

Construction routes parameters to rules and checks options; nothing is read from
layouts yet, since frameworks swap parameters afterwards. The first use (a step,
a look at `plan` or `state`, a state dict that is not empty) reads layouts,
plans and takes memory: on every rank alike, for it is a collective.
"""

from __future__ import annotations

import logging
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Callable

import torch
import torch.distributed as dist

from . import _checkpoint, _load, _options, _routing
from ._agree import agree, takes_part
from ._arguments import make_config, ranks_of
from ._asleep import Asleep, Woken, woken
from ._errors import UsageError
from ._groups import GroupedOptimizer
from ._layout import Layout, describe, is_dtensor, local
from ._library import load
from ._meeting import Watch, announce, identity_of, spread
from ._placed import PlacedPlan
from ._request import make_request, settled_precision
from ._routing import ELEMENTS, Route
from ._run import Run
from ._run_memory import Setup

_log = logging.getLogger("canzona")


class MatrixOptimizer(GroupedOptimizer):
    """What the optimizers of canzona.optim have in common."""

    def __init__(
        self,
        params: Any,
        lr: float | torch.Tensor | None = None,
        *,
        preset: str | None = None,
        adamw: Mapping[str, Any] | None = None,
        groups: Mapping[str, Mapping[str, Any]] | None = None,
        rules: Mapping[str, str] | None = None,
        splits: Mapping[str, Sequence[int]] | None = None,
        flatten: str = "none",
        replicas: Any = None,
        wire: str = "fp32",
        share_states: bool = False,
        clip_norm: float | None = None,
        nonfinite: str = "skip",
        capacity_bytes: int | None = None,
        ranks_per_node: int | None = None,
        threads: int | None = None,
        **options: Any,
    ):
        self._config: dict[str, Any] = make_config(
            wire=wire,
            share_states=share_states,
            nonfinite=nonfinite,
            clip_norm=clip_norm,
            capacity_bytes=capacity_bytes,
            ranks_per_node=ranks_per_node,
            threads=threads,
            flatten=flatten,
            rules=rules,
            splits=splits,
        )
        options = {k: v for k, v in options.items() if v is not _UNSET}
        if lr is not None:
            options["lr"] = lr
        self._given: dict[str, Any] = dict(
            preset=preset,
            options=options,
            adamw=dict(adamw or {}),
            groups=dict(groups or {}),
        )
        self._check_options()
        self._replicated = ranks_of(replicas)
        self._replicas: dict[str, tuple[int, ...]] = {}
        self._routes: dict[str, Route] = {}
        self._asleep: dict[str, Asleep] = {}
        self._run: Run | None = None
        self._state: dict[Any, Any] = defaultdict(dict)
        self._groups: dict[tuple[int, ...], Any] = {}
        self._closed = False
        self._watch: Watch | None = None  # while all parameters are this rank's
        self._gathered: dict[str, Any] | None = None
        self._warned = False
        super().__init__(self._route(params), {})
        self.defaults = {
            k: v
            for k, v in self._values(self.rule, {}).items()
            if k not in ("rule", "preset")
        }

    # First use.

    @property  # type: ignore[override]
    def state(self) -> dict[Any, Any]:
        """States by parameter; they exist from the first look on."""
        if (
            not self._state
            and self._run is None
            and getattr(self, "param_groups", None)
        ):
            self._built()
        return self._state

    @state.setter
    def state(self, value: dict[Any, Any]) -> None:
        self._state = value

    def _built(self) -> Run:
        if self._closed:
            raise UsageError("this optimizer was closed; make a new one")
        if self._run is not None and not self._state:
            self._forget()  # somebody has cleared `state`, to begin anew
        if self._run is None:
            kept, self._state = self._state, defaultdict(dict)
            try:
                self._run = self._build()
            except BaseException:
                self._state = kept
                raise
            self._bound = self._parameters()
            _checkpoint.expose(self, self._run, kept)
            self._tell()
        return self._run

    def _build(self) -> Run:
        parameters = self._parameters()
        names = self._names()
        tied = spread() and bool(
            self._replicated
            or self._replicas
            or any(is_dtensor(p) for p in parameters)
        )
        try:
            described: Any = [
                describe(n, p, self._replicas.get(n) or self._replicated)
                for n, p in zip(names, parameters)
            ]
            device = self._device(names, parameters)
        except UsageError as error:
            if tied:
                agree(error, {})
            raise
        kind = device.type
        if tied:
            self._check_backend(kind)
        groups = [
            {
                "rule": g["rule"],
                "options": _options.to_rule(g, kind, settled_precision(kind)),
            }
            for g in self.param_groups
        ]
        about = dict(
            groups=groups,
            **{
                k: self._config[k]
                for k in (
                    "wire",
                    "share_states",
                    "clip_norm",
                    "nonfinite",
                    "capacity_bytes",
                    "ranks_per_node",
                    "flatten",
                )
            },
        )
        about["version"] = load("cpu").version()
        about["rates"] = [float(g["lr"]) for g in self.param_groups]
        about["splits"] = [self._routes[n].splits for n in names]
        about["in_group"] = [len(g["params"]) for g in self.param_groups]
        repeated = [
            self._routes[n].rule == ELEMENTS
            and not self._config["share_states"]
            for n in names
        ]
        if not takes_part(described, dist.get_rank() if spread() else 0):
            self._watch = announce(
                identity_of((d.name, d.shape) for d in described)
            )
        layout = agree(described, about, repeated)
        self._check_layout(layout)
        self._groups_given = [g["options"] for g in groups]
        in_group = [
            i for i, g in enumerate(self.param_groups) for _ in g["params"]
        ]
        plan = PlacedPlan(
            make_request(layout, self._routes, groups, in_group, self._config)
        )
        return Run(
            Setup(
                layout,
                plan,
                names,
                device,
                self._config["wire"],
                self._config["nonfinite"],
                self._config["clip_norm"],
                self._config["threads"] or torch.get_num_threads(),
                [
                    self._routes[names[t.parameter]].splits
                    for t in layout.tensors
                ],
                {
                    n
                    for n, p in zip(names, parameters)
                    if len(self._routes[n].shape) != p.dim()
                },
                self._groups,
            ),
            parameters,
        )

    def _device(
        self, names: Sequence[str], parameters: Sequence[torch.Tensor]
    ) -> torch.device:
        first = local(parameters[0]).device
        for name, p in zip(names, parameters):
            device = local(p).device
            if device != first:
                raise UsageError(
                    f"parameter {name}: is on {device}, but {names[0]} is on "
                    f"{first}; one optimizer has one device"
                )
        return first

    def _check_layout(self, layout: Layout) -> None:
        alone = [
            d.name
            for d in layout.described
            if len(d.tied_to(layout.ranks[layout.rank])) == 1
        ]
        if layout.untied and self._config["clip_norm"] is not None:
            raise UsageError(
                f"clip_norm: parameter {alone[0]} is stored by every rank, and "
                "it is not known whether as one tensor or several; name the "
                "ranks that have it alike: replicas=group"
            )
        matrices = [n for n in alone if self._routes[n].rule != ELEMENTS]
        if spread() and matrices and not self._warned:
            self._warned = True
            warnings.warn(
                f"canzona: {len(matrices)} matrices ({matrices[0]}, …) are "
                "plain tensors: every rank updates its own, and repeats the "
                "work where they are alike. Give the DDP module, or "
                "replicas=group, and ranks share it.",
                stacklevel=6,
            )

    def _check_backend(self, device: str) -> None:
        everyone: Any = dist.group.WORLD
        types = {str(t).partition(":")[0] for t in everyone._device_types}
        if device not in types:
            raise UsageError(
                f"parameters are on {device}, but the process group has "
                f"backends for {', '.join(sorted(types))} alone "
                f"({dist.get_backend()}); begin with init_process_group("
                '"cpu:gloo,cuda:nccl")'
            )

    def _tell(self) -> None:
        run = self._run
        assert run is not None
        if run.layout.ranks[run.layout.rank] != 0:
            return
        rules = [self._routes[n].rule for n in run.names]
        predicted = run.plan.json["predicted"]
        share = predicted["makespan_ticks"] / max(1, predicted["bound_ticks"])
        _log.info(
            "%s: %d tensors to %s, %d to adamw; %d ranks of %s, wire %s: "
            "%.2f of the least time, %.1f MB sent per rank and step; plan %s",
            type(self).__name__,
            sum(r != ELEMENTS for r in rules),
            self.rule,
            sum(r == ELEMENTS for r in rules),
            run.world,
            run.device,
            self._config["wire"],
            share,
            predicted["bytes_per_rank_max"] / 1e6,
            run.plan.digest[:12],
        )

    # Steps.

    @torch._disable_dynamo
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        run = self._built()
        if self._watch is not None:
            self._watch.check()
        parameters = self._parameters()
        if len(parameters) != len(run.names) or any(
            a is not b for a, b in zip(parameters, self._bound)
        ):
            run = self._rebuilt()
        self._gathered = None
        try:
            self._update(run, parameters)
        except Woken as found:  # on all ranks; nothing was done yet
            self._wake(found.names)
            self._update(self._built(), self._parameters())
        return loss

    def _update(self, run: Run, parameters: Sequence[torch.Tensor]) -> None:
        self._tell_options(run)
        rates = [float(g["lr"]) for g in self.param_groups]
        names = woken(self._asleep) if self._asleep else []
        run.step(parameters, rates, Woken(names) if names else None)

    def _rebuilt(self) -> Run:
        """Parameters were swapped: layouts are read again."""
        assert self._run is not None
        if any(self._run.counts):
            raise UsageError(
                "the optimizer's parameters were swapped after its first step; "
                "make it anew and load the old one's state_dict()"
            )
        self._forget()
        return self._built()

    def _kept_states(self) -> dict[str, Any] | None:
        """States for a plan of other parameters; a collective."""
        if self._run is None:
            return None
        if self._config["share_states"] and self._run.world > 1:
            _checkpoint.consolidate(self, None)
        return self.state_dict()

    def _begin_anew(self, before: dict[str, Any] | None) -> None:
        """Plans once more, since there are more parameters now."""
        if before is None or self._run is None:
            return
        skipped = self._run.skipped
        self._forget()
        _load.load(self, before, partly=True)
        self._built().skipped = skipped

    def _forget(self) -> None:
        if self._run is not None:
            self._run.close()
        self._run = self._watch = None
        self._state = defaultdict(dict)

    def _tell_options(self, run: Run) -> None:
        kind = run.device.type
        for i, group in enumerate(self.param_groups):
            options = _options.to_rule(group, kind, settled_precision(kind))
            if options != self._groups_given[i]:
                run.set_options(i, options)
                self._groups_given[i] = options

    def close(self) -> None:
        """Gives memory and process groups back; on all ranks. For those who
        make many optimizers: the end of a process does it, too."""
        self._forget()
        for group in self._groups.values():
            dist.destroy_process_group(group)
        self._groups.clear()
        self._closed = True

    # Looking.

    @property
    def plan(self) -> PlacedPlan:
        """Who computes what, and when: .explain(rank), .html(), .json."""
        return self._built().plan

    @property
    def routing(self) -> str:
        """Every parameter with its rule and the reason, as lines."""
        return _routing.table(list(self._routes.values()))

    @property
    def skipped_steps(self) -> int:
        """Steps left out because of gradients that were not finite."""
        run = self._built()
        run.synchronize()
        return run.skipped

    @property
    def grad_norm(self) -> float:
        """Of the last step's gradients, before they were clipped."""
        return self._built().norm

    # State dicts.

    def state_dict(self) -> dict[str, Any]:
        for before in self._optimizer_state_dict_pre_hooks.values():
            before(self)
        result = _checkpoint.save(self)
        for after in self._optimizer_state_dict_post_hooks.values():
            changed = after(self, result)
            result = result if changed is None else changed
        return result

    @torch._disable_dynamo
    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        _load.require_parts(state_dict)
        state_dict = dict(state_dict)
        for before in self._optimizer_load_state_dict_pre_hooks.values():
            changed = before(self, state_dict)
            state_dict = state_dict if changed is None else changed
        _load.load(self, state_dict)
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)

    def consolidate(self, to: int | None = 0) -> None:
        """Brings all states to rank `to`, None: to every rank. A collective;
        state_dict() there is whole, and nobody's matter but that rank's, until
        the next step."""
        _checkpoint.consolidate(self, to)

    def __getstate__(self) -> dict[str, Any]:
        kept = (
            "_config",
            "_given",
            "_replicated",
            "_replicas",
            "_routes",
            "_warned",
            "defaults",
            "param_groups",
        )
        state = {k: self.__dict__[k] for k in kept}
        state["_saved"] = _checkpoint.keep(self)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        saved = state.pop("_saved", None)
        self._run, self._groups, self._gathered = None, {}, None
        self._closed, self._watch, self._asleep = False, None, {}
        self._state = defaultdict(dict)
        super().__setstate__(state)
        self.defaults.pop("differentiable", None)
        if saved:
            self._state.update(saved)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for group in self.param_groups:
            values = ", ".join(
                f"{k}={v}"
                for k, v in group.items()
                if k not in ("params", "param_names", "rule")
            )
            lines.append(
                f"  {group['rule']}: {len(group['params'])} tensors, "
                f"{values}"
            )
        return "\n".join(lines + [")"])


_UNSET = object()
