"""Parameter groups of an optimizer: rules and options of every parameter.

For _optimizer.py, whose MatrixOptimizer is one of these.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import count
from typing import Any

import torch
from torch import nn

from . import _options, _routing
from ._capture import check_rules
from ._collect import collect
from ._errors import UsageError
from ._heads import (
    HeadRows,
    find_heads,
    find_outputs,
    put_found,
    put_given,
    put_outputs,
)
from ._layout import check_kind, is_dtensor
from ._modules import Home, homes_of
from ._request import check_ranges
from ._routing import ELEMENTS, FROZEN, Route
from ._stored import Stored, places
from ._together import Pause

_log = logging.getLogger("canzona")

_LISTS = ("params", "param_names")

# Stands in for a parameter that may be swapped.
_NOWHERE = torch.empty(0)


class Woken(Pause):
    """Parameters that were frozen have gradients now, and join the plan.

    At construction they get neither states nor a part in the plan, to save
    memory where a small part of a large model is tuned. Since torch's optimizers
    train whatever has a gradient, all ranks then make a new plan."""

    unlike = (
        "parameter {}: required no gradient at first, and has one now on ranks "
        "{}, but not on ranks {}; unfreeze it on all ranks"
    )


class GroupedOptimizer(torch.optim.Optimizer):
    """An optimizer whose groups have a rule each."""

    rule = ""

    _config: dict[str, Any]
    _given: dict[str, Any]
    _replicas: dict[str, tuple[int, ...]]
    _routes: dict[str, Route]
    _asleep: set[str]  # members of groups that were frozen at construction
    _joined: set[str]  # those that have had a gradient since
    _constructed: bool
    _homes: Mapping[str, Home] = {}  # where the model has its parameters
    _model: weakref.ref[nn.Module] | None = None  # if it was given
    _heads: Mapping[str, HeadRows] | None = None  # once they were looked for
    _layout: Callable[[str, torch.Tensor], Stored | None] | None
    _group: Any  # the process group that plans by itself; None: all ranks
    _is_spread: bool  # layout= has named other ranks

    @torch._disable_dynamo
    def zero_grad(self, set_to_none: bool = True) -> None:
        """As torch's; gradients that are kept become zeros in one call."""
        kept = self.defaults
        self.defaults = {**kept, "foreach": True}
        try:
            super().zero_grad(set_to_none)
        finally:
            self.defaults = kept

    def _together(self) -> contextlib.AbstractContextManager[None]:
        """Raises on every rank what fails on one (_together.py)."""
        raise NotImplementedError

    def _settle(self) -> None:
        """Makes the plan that states lie by, if there are some. A collective."""
        raise NotImplementedError

    def _planned_anew(self) -> None:
        """Makes a plan for the groups as they are now, if there was one for
        fewer parameters; states stay. A collective."""
        raise NotImplementedError

    def _check_options(self) -> None:
        own, elements = self._given["options"], self._given["adamw"]
        if self.rule == ELEMENTS and elements:
            raise UsageError("adamw=: AdamW has its options as arguments")
        _options.check_names(own, (self.rule,), type(self).__name__)
        if own.get("capturable"):
            check_rules([self.rule], self._config["nonfinite"])
        _options.check_names(elements, (ELEMENTS,), "adamw=")
        for pattern, given in self._given["groups"].items():
            if not isinstance(given, Mapping):
                raise UsageError(
                    f"groups['{pattern}']: {given!r}; expected a dict of "
                    "options"
                )
            _options.check_names(
                given, (self.rule, ELEMENTS), f"groups['{pattern}']"
            )

    def _values(self, rule: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a parameter group of a rule's."""
        own = dict(self._given["options"])
        preset = given.get("preset", self._given["preset"])
        if rule == self.rule:
            return _options.make_group(rule, preset, {**own, **given})
        # AdamW beside a matrix rule: its rate and decay, if they are given.
        shared = {k: own[k] for k in ("lr", "weight_decay") if k in own}
        if "lr" not in shared:
            of = (
                preset
                if _options.has_preset(self.rule, preset)
                else self._given["preset"]
            )
            values = _options.preset_values(self.rule, of)
            shared["lr"] = float(values["learning_rate"])
        if preset is not None and not any(
            _options.has_preset(r, preset) for r in (self.rule, rule)
        ):
            _options.preset_values(self.rule, preset)  # which refuses it
        elements = dict(self._given["adamw"])
        its_preset = elements.pop(
            "preset", preset if _options.has_preset(rule, preset) else None
        )
        return _options.make_group(
            rule, its_preset, {**shared, **elements, **given}
        )

    def _route(
        self, params: Any, former: Mapping[str, Route] | None = None
    ) -> list[dict[str, Any]]:
        """Parameter groups: of each of the caller's one per rule. `former`:
        where frozen parameters of a group that is added would have gone."""
        first = former is None
        named, given, known, replicas = collect(
            params, may_be_empty=self._group is not None
        )
        for number, options in enumerate(given):
            _options.check_names(
                options, (self.rule, ELEMENTS), f"group {number}"
            )
        patterns = self._given["groups"] if first else {}
        rules = {
            pattern: str(options["rule"])
            for pattern, options in patterns.items()
            if "rule" in options
        }
        if first:
            rules.update(self._config["rules"])
        for name, _, group in named:
            if "rule" in given[group]:
                rules.setdefault(name, str(given[group]["rule"]))
        before = 1 + max((r.group for r in self._routes.values()), default=-1)
        named = [(name, p, before + group) for name, p, group in named]
        given = [{}] * before + given
        routes = _routing.route(
            named,
            known,
            self.rule,
            rules,
            self._config["splits"] if first else {},
            self._config["flatten"],
            self._whole_shapes(named),
        )
        for i, r in enumerate(routes):
            was = (former or {}).get(r.name)
            if was and given[r.group].get("rule") in (None, was.rule):
                was = replace(was, parameter=r.parameter, group=r.group)
                routes[i] = _routing.asleep(was) if r.awake else was
        if first:
            if isinstance(params, nn.Module):
                self._model = weakref.ref(params)
            self._put_heads(routes)
        if first and (routes or self._group is None):
            _routing.require_matrices(routes, self.rule)
        for r in routes:
            if id(r.parameter) in replicas:
                self._replicas[r.name] = replicas[id(r.parameter)]
        homes = homes_of(((r.name, r.parameter) for r in routes), known)
        self._homes = {**self._homes, **homes}
        made = self._group_routes(routes, given, patterns, before)
        check_ranges(made, routes[0].parameter.device.type if routes else "cpu")
        for r in routes:  # parameters may be swapped: names remain
            awake = r.awake and replace(r.awake, parameter=_NOWHERE)
            self._routes[r.name] = replace(r, parameter=_NOWHERE, awake=awake)
            if awake:
                self._asleep.add(r.name)
        return made

    def _found_heads(self) -> Mapping[str, HeadRows]:
        if self._heads is None:
            model = self._model() if self._model else None
            if model is None:
                raise UsageError(
                    "heads are found in the model: make the optimizer of it "
                    f"(canzona.{type(self).__name__}(model)), not of its "
                    "parameters"
                )
            self._heads = find_heads(model)
        return self._heads

    def _put_heads(self, routes: Sequence[Route]) -> None:
        heads = self._config["heads"]
        if heads in ("auto", "all"):
            put_found(routes, self._found_heads())
            if heads == "all" and self._model:
                put_outputs(routes, find_outputs(self._model()))
        elif heads:
            put_given(routes, heads)

    def _stored(self, name: str, parameter: torch.Tensor) -> Stored | None:
        """How layout= says that a parameter lies; None if it does not."""
        stored = self._layout(name, parameter) if self._layout else None
        if stored is not None and not isinstance(stored, Stored):
            raise UsageError(
                f"layout= of parameter {name}: returned {stored!r}; expected "
                "canzona.Stored, or None"
            )
        return stored

    def _whole_shapes(
        self, named: Sequence[tuple[str, torch.Tensor, int]]
    ) -> dict[str, Sequence[int]]:
        """Of the parameters that layout= says to be pieces."""
        shapes: dict[str, Sequence[int]] = {}
        for name, p, _ in named:
            stored = self._stored(name, p)
            if stored is not None:
                shapes[name] = stored.shape
                ranks = places(name, stored, is_dtensor(p))[1]
                self._is_spread = self._is_spread or len(ranks) > 1
        return shapes

    def _group_routes(
        self,
        routes: Sequence[Route],
        given: Sequence[Mapping[str, Any]],
        patterns: Mapping[str, Mapping[str, Any]],
        first: int,
    ) -> list[dict[str, Any]]:
        """`given`: the caller's groups, of which those from `first` on are
        new."""
        names = [r.name for r in routes]
        chosen: dict[str, str] = {}
        for each in patterns:
            for name in _routing.fitting(each, names, "groups"):
                chosen[name] = each
        made: dict[Any, dict[str, Any]] = {}
        for r in routes:
            rule = (r.awake or r).rule
            if rule == FROZEN:
                continue
            pattern = chosen.get(r.name)
            key = (r.group, pattern, rule)
            if key not in made:
                values = {**given[r.group], **patterns.get(pattern or "", {})}
                group = self._values(rule, values)
                if isinstance(group["lr"], torch.Tensor):
                    group["lr"] = group["lr"].clone()  # each has its own
                made[key] = dict(params=[], param_names=[], **group)
            made[key]["params"].append(r.parameter)
            made[key]["param_names"].append(r.name)
        for number in range(first, len(given)):  # as empty as in torch
            if all(key[0] != number for key in made):
                rule = str(given[number].get("rule", self.rule))
                if rule != FROZEN:
                    group = self._values(rule, given[number])
                    made[number, None, rule] = dict(
                        params=[], param_names=[], **group
                    )
        order: dict[str | None, int] = {None: -1}
        order.update((p, i) for i, p in enumerate(patterns))
        keys = sorted(made, key=lambda k: (k[0], order[k[1]], k[2] == ELEMENTS))
        return [made[k] for k in keys]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group of parameters (a module, named ones or a list) with
        options of its own, on all ranks. A frozen parameter leaves its group
        for it."""
        if not self._constructed:  # torch adds the groups of the constructor
            super().add_param_group(param_group)
            return
        with self._restored_on_error():
            self._settle()
            with self._together():
                entry, former = self._named_group(param_group)
                for group in self._route([entry], former):
                    own = set(group)
                    super().add_param_group(group)
                    for name in group.keys() - own:  # torch adds all defaults
                        del group[name]
            self._planned_anew()

    def _woken(self) -> list[str]:
        """Names of those that were frozen and have a gradient now."""
        return [
            name
            for name, p in self._members()
            if p.grad is not None and name in self._asleep
        ]

    def _join(self, names: Sequence[str]) -> None:
        """From now on these have a part in the plan."""
        for name in names:
            route = self._routes[name].awake
            assert route is not None
            self._asleep.remove(name)
            self._joined.add(name)
            self._routes[name] = route
            _log.info("parameter %s has a gradient now: %s", name, route.rule)

    def _kept(self) -> dict[str, Any]:
        """What _restored_on_error() brings back."""
        return dict(
            _routes=dict(self._routes),
            _asleep=set(self._asleep),
            _replicas=dict(self._replicas),
            _joined=set(self._joined),
        )

    @contextlib.contextmanager
    def _restored_on_error(self) -> Iterator[None]:
        """Leaves groups and everything about them as they were if the block
        raises."""
        kept = self._kept()
        groups = list(self.param_groups)
        contents = [
            {k: list(v) if k in _LISTS else v for k, v in g.items()}
            for g in groups
        ]
        try:
            yield
        except BaseException:
            self.__dict__.update(kept)
            self.param_groups[:] = groups
            for group, content in zip(groups, contents):
                group.clear()
                group.update(content)
            raise

    def _named_group(
        self, group: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Route]]:
        """A group whose parameters have names that nobody else has; UsageError
        before anything changes. A frozen parameter leaves its group for it, and
        its route is returned."""
        known = set(self._routes)
        free = (n for n in map("parameter{}".format, count()) if n not in known)
        of = group.get("params")
        if of is None or isinstance(of, (set, frozenset)):
            raise UsageError(
                "add_param_group(): params is "
                f"{'missing' if of is None else 'a set'}; expected a module, "
                "parameters or a list of them"
            )
        frozen = {id(p): n for n, p in self._members() if n in self._asleep}
        if isinstance(of, nn.Module):
            named = [(_routing.clean(n), p) for n, p in of.named_parameters()]
        else:
            named = [
                (
                    p
                    if isinstance(p, tuple)
                    else (frozen.get(id(p)) or next(free), p)
                )
                for p in ([of] if isinstance(of, torch.Tensor) else of)
            ]
        here = {id(p) for p in self._parameters()}
        for name, p in named:
            if id(p) in here:
                raise UsageError(
                    f"parameter {name}: is in this optimizer already"
                )
            if name in known and frozen.get(id(p)) != name:
                raise UsageError(
                    f"parameter {name}: another one has this name "
                    "already; give others as (name, parameter)"
                )
            if isinstance(p, torch.Tensor):
                check_kind(name, p)
        former = self._leave({id(p) for _, p in named} & frozen.keys())
        params = of if isinstance(of, nn.Module) else named
        return {**group, "params": params}, former

    def _leave(self, frozen: Set[int]) -> dict[str, Route]:
        """Takes frozen parameters, by identity, out of their groups. Returns
        where they would have gone."""
        former: dict[str, Route] = {}
        for group in self.param_groups:
            stay = [
                (n, p)
                for n, p in zip(group["param_names"], group["params"])
                if id(p) not in frozen
            ]
            if len(stay) < len(group["params"]):
                gone = {*group["param_names"]} - {n for n, _ in stay}
                self._asleep -= gone
                for name in gone:
                    route = self._routes.pop(name)
                    former[name] = route.awake or route
                group["param_names"] = [n for n, _ in stay]
                group["params"] = [p for _, p in stay]
        return former

    def _members(self) -> Iterator[tuple[str, torch.Tensor]]:
        """All parameters of the groups, frozen ones included."""
        for group in self.param_groups:
            yield from zip(group["param_names"], group["params"])

    def _parameters(self) -> list[torch.Tensor]:
        """Those of the plan, in its order."""
        if self._asleep:
            return [p for n, p in self._members() if n not in self._asleep]
        return [p for g in self.param_groups for p in g["params"]]

    def _names(self) -> list[str]:
        """The names of _parameters()."""
        return [n for n, _ in self._members() if n not in self._asleep]

    def _plan_groups(self) -> list[tuple[int, int]]:
        """The groups of a plan: all parameter groups as they are, then again
        those with members whose columns are heads, and how many."""
        whole = [(i, 1) for i in range(len(self.param_groups))]
        return whole + sorted({*self._in_plan_group()} - {*whole})

    def _in_plan_group(self) -> list[tuple[int, int]]:
        """The groups of _parameters()."""
        return [
            (i, self._routes[name].column_heads)
            for i, group in enumerate(self.param_groups)
            for name in group["param_names"]
            if name not in self._asleep
        ]

    def _group_numbers(self) -> list[int]:
        """The same as numbers."""
        number = {of: i for i, of in enumerate(self._plan_groups())}
        return [number[of] for of in self._in_plan_group()]

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
