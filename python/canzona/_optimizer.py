"""torch.optim.Optimizer over plans and steps of Canzona's.

Construction routes parameters to rules and checks options; nothing is read from
layouts yet, since frameworks swap parameters afterwards. The first use (a step,
a look at `plan`, a state dict that is not empty) reads layouts, plans and takes
memory: on every rank alike, for it is a collective.
"""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import is_
from typing import Any, Callable

import torch
import torch.distributed as dist

from . import _checkpoint, _load, _options, _routing
from ._agree import Among, agree, takes_part
from ._arguments import (
    as_dict,
    check_layout_arguments,
    make_config,
    ranks_of,
    replicas_by_name,
)
from ._capture import captured, check_capturable, is_capturing
from ._errors import UsageError
from ._groups import Woken
from ._layout import Layout, describe, device_of, is_dtensor, local
from ._library import load
from ._modules import refuse_replaced
from ._meeting import (
    Watch,
    announce,
    identity_of,
    require_backend,
    spread,
)
from ._qk_clip import QkClip
from ._request import make_request, rule_options
from ._routing import ELEMENTS, Route
from ._run import Run, Swapped
from ._run_memory import Setup
from ._state_edits import absorb
from ._storage_plan import StoragePlan
from ._together import together
from ._warn import warn

_log = logging.getLogger("canzona")

# A copy takes these attributes along.
_COPIED = """_config _given _replicated _replicas _routes _asleep _joined _warned
    defaults param_groups""".split()


class MatrixOptimizer(QkClip):
    """What the optimizers of canzona.optim have in common."""

    _fed = False  # the last step has found a gradient

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
        heads: Mapping[str, Any] | str | None = None,
        flatten: str = "none",
        replicas: Any = None,
        layout: Callable[[str, torch.Tensor], Any] | None = None,
        group: Any = None,
        wire: str = "fp32",
        master: str = "fp32",
        share_states: bool = False,
        teams: str | int = "off",
        clip_norm: float | None = None,
        nonfinite: str = "skip",
        capacity_bytes: int | None = None,
        ranks_per_node: int | None = None,
        links: str | None = None,
        cost: Any = None,
        threads: int | None = None,
        **options: Any,
    ):
        self._config: dict[str, Any] = make_config(
            wire=wire,
            master=master,
            share_states=share_states,
            teams=teams,
            nonfinite=nonfinite,
            clip_norm=clip_norm,
            capacity_bytes=capacity_bytes,
            ranks_per_node=ranks_per_node,
            links=links,
            cost=cost,
            threads=threads,
            flatten=flatten,
            rules=rules,
            splits=splits,
            heads=heads,
        )
        check_layout_arguments(layout, group, share_states)
        if lr is not None:
            options["lr"] = lr
        self._given: dict[str, Any] = dict(
            preset=preset,
            options=options,
            adamw=as_dict("adamw", adamw),
            groups=as_dict("groups", groups),
        )
        self._check_options()
        self._replicated = ranks_of(replicas)
        self._replicas: dict[str, tuple[int, ...]] = {}
        self._layout, self._group, self._is_spread = layout, group, False
        self._routes: dict[str, Route] = {}
        self._asleep, self._joined = set[str](), set[str]()
        self._run: Run | None = None
        self._state: dict[Any, Any] = defaultdict(dict)
        self._groups: dict[tuple[int, ...], Any] = {}
        self._planned: tuple[int, ...] | None = None  # the last plan's ranks
        self._closed = False
        self._watch: Watch | None = None  # while all parameters are this rank's
        self._gathered: dict[str, Any] | None = None
        self._warned = self._constructed = False
        super().__init__(self._route(params), {})
        self._replicas.update(replicas_by_name(replicas, list(self._routes)))
        self._constructed = True
        self.defaults = {
            k: v
            for k, v in self._values(self.rule, {}).items()
            if k not in ("rule", "preset")
        }

    # First use.

    @property  # type: ignore[override]
    def state(self) -> dict[Any, Any]:
        """States by parameter; they exist from the first use on."""
        return self._state

    @state.setter
    def state(self, value: dict[Any, Any]) -> None:
        self._state = value

    @torch.inference_mode(False)
    @torch.no_grad()
    def _built(self) -> Run:
        self._require_open()
        if self._run is None:
            if not self._parameters():
                raise UsageError(
                    "there is no plan: no parameter has required a gradient yet"
                )
            kept, self._state = self._state, defaultdict(dict)
            try:
                self._run = self._build()
                self._bound = self._parameters()
                _checkpoint.expose(self, self._run, kept)
            except BaseException:
                self._run, self._state = None, kept
                raise
            self._planned = tuple(self._run.layout.ranks)
            self._tell()
        return self._run

    def _require_open(self) -> None:
        if self._closed:
            raise UsageError("this optimizer was closed; make a new one")

    @contextlib.contextmanager
    def _restored_on_error(self) -> Iterator[None]:
        old = self._run
        with super()._restored_on_error():
            yield
        if old not in (None, self._run):
            old.close()

    @contextlib.contextmanager
    def _together(self, plans: bool = False) -> Iterator[None]:
        """Raises on every rank what the block raises on one.

        `plans`: the call makes a plan if there is none, and other ranks hear of
        an error where they read layouts. Otherwise no other rank waits."""
        if self._run is not None:
            with together(self._run.everyone, self._run.layout.ranks):
                yield
            return
        try:
            yield
        except Exception as error:
            if plans and self._is_tied():
                agree(error, {}, within=self._world())
            raise

    def _is_tied(self) -> bool:
        """True if parameters may be tied to other ranks'."""
        return spread() and bool(
            self._replicated
            or self._replicas
            or self._is_spread
            or any(is_dtensor(p) for p in self._parameters())
        )

    def _build(self) -> Run:
        parameters = self._parameters()
        names = self._names()
        kinds = {local(p).device.type for p in parameters[:1]} & {"cpu", "cuda"}
        if kinds and self._is_tied():  # other kinds are refused on all ranks
            require_backend(self._group, kinds.pop())
        with self._together(plans=True):
            described = [
                describe(
                    n,
                    p,
                    self._replicas.get(n) or self._replicated,
                    self._stored(n, p),
                )
                for n, p in zip(names, parameters)
            ]
            device = device_of(names, parameters)
            groups = self._rule_groups(device.type)
            about = self._common(names, groups)
        repeated = [
            self._routes[n].rule == ELEMENTS
            and not self._config["share_states"]
            for n in names
        ]
        if self._group is None and not takes_part(described):
            self._watch = announce(
                identity_of((d.name, d.shape) for d in described)
            )
        layout = agree(described, about, repeated, self._world())
        self._check_layout(layout)
        plan = StoragePlan(
            make_request(
                layout,
                self._routes,
                groups,
                self._group_numbers(),
                self._config,
            )
        )
        return Run(
            Setup(
                layout,
                plan,
                names,
                device,
                self._config["wire"],
                self._config.get("master", "fp32"),  # pickles may be older
                self._config["nonfinite"],
                self._config["clip_norm"],
                self._config["threads"] or torch.get_num_threads(),
                [g["options"] for g in groups],
                [
                    self._routes[names[t.parameter]].splits
                    for t in layout.tensors
                ],
                {
                    d.name
                    for d in described
                    if len(self._routes[d.name].shape) != len(d.shape)
                },
                self._plan_groups(),
                self._groups,
            ),
            parameters,
        )

    def _rule_groups(self, kind: str) -> list[dict[str, Any]]:
        """Rules and options of the groups, as the library reads them."""
        return [
            {
                "rule": self.param_groups[i]["rule"],
                "options": self._options_of(i, heads, kind),
            }
            for i, heads in self._plan_groups()
        ]

    def _options_of(self, group: int, heads: int, kind: str) -> dict[str, str]:
        options = rule_options(self.param_groups[group], kind, self._config)
        if heads > 1:
            options["column_heads"] = str(heads)
        return options

    def _common(
        self, names: Sequence[str], groups: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """What all ranks of a plan must have alike beside their parameters."""
        return {
            **_options.in_common(self._config, self.param_groups),
            "groups": groups,
            "version": load("cpu").version(),
            "splits": [self._routes[n].splits for n in names],
            "in_group": self._group_numbers(),
        }

    def _world(self) -> Among | None:
        """Who plans: the ranks of the last plan, if there was one, or those of
        group=; None: all that there are."""
        group, alone = self._group, self._group is not None
        if self._planned is not None:
            group = self._groups.get(self._planned)
            return Among(self._planned, group, alone)
        if not alone:
            return None
        return Among(tuple(dist.get_process_group_ranks(group)), group, True)

    def _check_layout(self, layout: Layout) -> None:
        alone = [
            d.name for d in layout.described if not d.mesh and not d.replicas
        ]
        if layout.unclear and self._config["clip_norm"] is not None:
            raise UsageError(
                f"clip_norm: several ranks have parameter {layout.unclear}, "
                "and it is not known whether as one tensor, whose norm counts "
                "once; name the ranks that have it alike (replicas=group), or "
                "each rank itself if the tensor is its own (replicas=[rank])"
            )
        matrices = [n for n in alone if self._routes[n].rule != ELEMENTS]
        if spread() and matrices and not self._warned:
            self._warned = True
            warn(
                f"{len(matrices)} matrices ({matrices[0]}, …) are plain "
                "tensors: every rank updates its own, and repeats the work "
                "where they are equal; to share it, pass the DDP module, or "
                "replicas=group"
            )

    def _tell(self) -> None:
        run = self._run
        if run is None or run.layout.ranks[run.layout.rank] != 0:
            return
        rules = [self._routes[n].rule for n in run.names]
        predicted = run.plan.json["predicted"]
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
            predicted["makespan_ticks"] / max(1, predicted["bound_ticks"]),
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
        run = None if is_capturing() and captured(self) else self._begun()
        if run is None:
            return loss
        if self._watch is not None:
            self._watch.check()
        self._gathered = None
        try:
            self._update(run)
        except (Swapped, Woken) as found:  # on all ranks; nothing was done yet
            with self._restored_on_error():
                if isinstance(found, Woken):
                    self._join(found.names)
                self._planned_anew()
            self._update(self._built())
        return loss

    def _begun(self) -> Run | None:
        """The run, which the first step makes; None if nothing is left to do."""
        if self._run is None:
            with self._restored_on_error():
                with self._together(plans=True):
                    if not self._state:
                        self._join(self._woken())
                    self._check_replaced()
                self._require_open()
                if not self._parameters():
                    return None
                if _checkpoint.makes_states_alone(self, self._built()):
                    return None
        return self._run

    def _check_replaced(self) -> None:
        """Looks whether other tensors have the gradients, where a step finds
        none and at the first one that finds some."""
        is_fed = any(p.grad is not None for _, p in self._members())
        if not (is_fed and self._fed):
            refuse_replaced(self._homes, self._members())
        self._fed = is_fed

    def _update(self, run: Run) -> None:
        parameters = self._parameters()
        rates: Sequence[float] = ()
        trouble: Exception | None = None
        try:
            self._check_replaced()
            self._check_swapped(run, parameters)
            absorb(self, run)
            self._tell_options(run)
            rates = _options.rates(self.param_groups)
            rates += [rates[g] for g, _ in run.setup.plan_groups[len(rates) :]]
            if names := self._woken() if self._asleep else []:
                trouble = Woken(names)
        except Exception as error:
            trouble = error
        run.step(parameters, rates, trouble)

    def _check_swapped(
        self, run: Run, parameters: Sequence[torch.Tensor]
    ) -> None:
        alike = all(map(is_, parameters, self._bound))
        if alike and len(parameters) == len(run.names):
            return
        if any(run.counts):
            raise UsageError(
                "the optimizer's parameters were swapped after its first step; "
                "make it anew and load the old one's state_dict()"
            )
        raise Swapped()

    def _settle(self) -> None:
        """Makes the plan of a copy before it has other parameters than the
        optimizer that it was copied from: its states lie by that plan."""
        if self._run is None and self._state:
            self._built()

    @torch.no_grad()
    def _planned_anew(self) -> None:
        old = self._run
        if old is None:
            return
        old.captured.refuse("new parameters")
        if any(old.counts):
            with self._together():
                old.check_kinds(self._bound)
        states: dict[int, Any] = {}
        self._gathered = None
        if old.loaded or any(old.counts):
            if self._config["share_states"] and old.world > 1:
                _checkpoint.consolidate(self, None)
            states = _checkpoint.states_of(self, old)
        # Without what other ranks alone have, which comes last.
        by_name = {
            name: states[i] for i, name in enumerate(old.names) if i in states
        }
        for name, p in zip(self._names(), self._parameters()):
            if name not in old.names and self._state.get(p):
                by_name[name] = dict(self._state[p])  # a script gave it some
        watch, self._watch = self._watch, None
        self._run = self._gathered = None
        self._state = defaultdict(dict)
        run = self._built()
        if watch is not None:
            watch.withdraw()
        if by_name:
            _load.load_states(self, by_name)
        run.skipped = old.skipped

    def _kept(self) -> dict[str, Any]:
        names = ("_run", "_state", "_watch", "_gathered", "_bound")
        return {**super()._kept(), **{k: self.__dict__.get(k) for k in names}}

    def _tell_options(self, run: Run) -> None:
        check_capturable(self.param_groups, run)
        for number, group in run.groups_seen.changed(self.param_groups):
            _options.refuse_switches(group, f"group {number}")
            for name in group["param_names"][:1]:
                if group.get("rule") != (rule := _load.rule_of(self, name)):
                    raise UsageError(
                        f"group {number}: rule={group.get('rule')!r}; "
                        f"parameter {name} goes to {rule} since this optimizer was made: "
                        "make another one, with rules="
                    )
            for i, (of, heads) in enumerate(run.setup.plan_groups):
                if of != number:
                    continue
                options = self._options_of(of, heads, run.device.type)
                if options != run.options[i]:
                    run.set_options(i, options)

    def close(self) -> None:
        """Frees memory and process groups; for all ranks to call. Only processes
        that make many optimizers need it, since their end does the same."""
        if self._run is not None:
            self._run.close()
        if self._watch is not None:
            self._watch.withdraw()
        self._run, self._watch, self._state = None, None, defaultdict(dict)
        for group in self._groups.values():
            # A script may have destroyed all groups before.
            with contextlib.suppress(ValueError):
                dist.destroy_process_group(group)
        self._groups.clear()
        self._closed = True

    # Looking.

    @property
    def plan(self) -> StoragePlan:
        """Who computes what, and when: .explain(rank), .html(), .json."""
        return self._built().plan

    @property
    def routing(self) -> str:
        """Every parameter with its rule and the reason, as lines."""
        return _routing.table(list(self._routes.values()))

    @property
    def skipped_steps(self) -> int:
        """Steps left out because of gradients that were not finite."""
        if self._run is None:
            return 0
        self._run.synchronize()
        return self._run.skipped

    @property
    def grad_norm(self) -> float:
        """The norm of the last step's gradients, before they were clipped, if
        clip_norm is given; otherwise nan. Infinite if one was not finite."""
        return float("nan") if self._run is None else self._run.norm

    # State dicts.

    @torch.no_grad()
    def state_dict(self) -> dict[str, Any]:
        """States by number of the parameter, and the groups with names. With
        SOAP and Shampoo on several ranks a collective; consolidate() brings
        whole tensors to one rank."""
        for before in self._optimizer_state_dict_pre_hooks.values():
            before(self)
        result = _checkpoint.save(self)
        for after in self._optimizer_state_dict_post_hooks.values():
            changed = after(self, result)
            result = result if changed is None else changed
        return result

    @torch._disable_dynamo
    @torch.no_grad()
    def load_state_dict(
        self, state_dict: dict[str, Any], missing: str = "error"
    ) -> None:
        """Loads a state dict of this class, saved on any layout, or one of
        torch.optim.Muon or AdamW: by the parameters' names if both sides have
        them, otherwise by position. All ranks load the same; UsageError if it
        does not fit, before anything changes. With `missing` "init" states that
        were not saved begin anew; their groups take over rates alone."""
        with self._restored_on_error():
            _load.load(self, state_dict, missing)
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)

    @torch.no_grad()
    def consolidate(self, to: int | None = 0) -> None:
        """Brings all states to rank `to`; None means every rank. A collective.
        Until the next step state_dict() has whole tensors there."""
        self._built()
        _checkpoint.consolidate(self, to)

    def __getstate__(self) -> dict[str, Any]:
        if self._layout is not None or self._group is not None:
            raise UsageError(
                "an optimizer with layout= or group= cannot be copied; make "
                "another one and load this one's state_dict()"
            )
        state = {k: self.__dict__[k] for k in _COPIED}
        state["_saved"] = _checkpoint.keep(self)
        with contextlib.suppress(UsageError):  # a copy has no model to look in
            state["_heads"] = self._found_heads()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        saved = state.pop("_saved", None)
        self._run, self._groups, self._gathered = None, {}, None
        self._closed, self._watch, self._constructed = False, None, True
        self._layout, self._group, self._is_spread = None, None, False
        self._planned = None
        self._state = defaultdict(dict)
        super().__setstate__(state)
        self.defaults.pop("differentiable", None)
        if saved:
            self._state.update(saved)
