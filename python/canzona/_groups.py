"""Parameter groups of an optimizer: rules and options of every parameter.

For _optimizer.py, whose MatrixOptimizer is one of these.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import torch
from torch import nn

from . import _options, _routing
from ._asleep import Asleep, asleep_of
from ._collect import collect
from ._errors import UsageError
from ._layout import check_kind
from ._routing import ELEMENTS, FROZEN, Route

_log = logging.getLogger("canzona")

_PARAMS = ("params", "param_names")

# In the place of a parameter that may be swapped.
_NOWHERE = torch.empty(0)


class GroupedOptimizer(torch.optim.Optimizer):
    """An optimizer whose groups have a rule each."""

    rule = ""

    _config: dict[str, Any]
    _given: dict[str, Any]
    _replicas: dict[str, tuple[int, ...]]
    _routes: dict[str, Route]
    _asleep: dict[str, Asleep]

    def _kept_states(self) -> dict[str, Any] | None:
        """States for a plan of other parameters; a collective."""
        raise NotImplementedError

    def _begin_anew(self, before: dict[str, Any] | None) -> None:
        """Plans once more, since there are more parameters now."""
        raise NotImplementedError

    def _check_options(self) -> None:
        own, elements = self._given["options"], self._given["adamw"]
        if self.rule == ELEMENTS and elements:
            raise UsageError("adamw=: AdamW has its options as arguments")
        _options.check_names(own, (self.rule,), type(self).__name__)
        _options.check_names(elements, (ELEMENTS,), "adamw=")
        for pattern, given in self._given["groups"].items():
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

    def _route(self, params: Any, first: bool = True) -> list[dict[str, Any]]:
        """Parameter groups: of each of the caller's one per rule."""
        named, given, known, replicas = collect(params)
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
        routes = _routing.route(
            named,
            known,
            self.rule,
            rules,
            self._config["splits"] if first else {},
            self._config["flatten"],
        )
        if first:
            _routing.require_matrices(routes, self.rule)
        for r in routes:
            if id(r.parameter) in replicas:
                self._replicas[r.name] = replicas[id(r.parameter)]
        made = self._group_routes(routes, given, patterns, known)
        for r in routes:  # parameters may be swapped: names remain
            self._routes[r.name] = replace(r, parameter=_NOWHERE)
        return made

    def _group_routes(
        self,
        routes: Sequence[Route],
        given: Sequence[Mapping[str, Any]],
        patterns: Mapping[str, Mapping[str, Any]],
        known: Mapping[int, _routing.Known],
    ) -> list[dict[str, Any]]:
        names = [r.name for r in routes]
        chosen: dict[str, str] = {}
        for each in patterns:
            for name in _routing.fitting(each, names, "groups"):
                chosen[name] = each
        made: dict[Any, dict[str, Any]] = {}

        def group_of(r: Route, rule: str) -> tuple[Any, dict[str, Any]]:
            pattern = chosen.get(r.name)
            key = (r.group, pattern, rule)
            if key in made:
                return key, made[key]
            values = {**given[r.group], **patterns.get(pattern or "", {})}
            group = self._values(rule, values)
            return key, dict(params=[], param_names=[], **group)

        for r in routes:
            if r.rule == FROZEN:
                continue
            key, group = group_of(r, r.rule)
            made[key] = group
            group["params"].append(r.parameter)
            group["param_names"].append(r.name)
        for r in routes:
            if r.awake is not None:
                _, group = group_of(r, r.awake.rule)
                beside = next(iter(group["param_names"]), "")
                values = {k: v for k, v in group.items() if k not in _PARAMS}
                self._asleep[r.name] = asleep_of(
                    r, known, values, beside, _NOWHERE
                )
        order: dict[str | None, int] = {None: -1}
        order.update((p, i) for i, p in enumerate(patterns))
        return [
            made[k]
            for k in sorted(
                made, key=lambda k: (k[0], order[k[1]], k[2] == ELEMENTS)
            )
        ]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if (
            "rule" in param_group
            and "param_names" in param_group
            and "lr" in param_group
        ):
            super().add_param_group(param_group)
            return
        entry = self._named_group(param_group)
        before = self._kept_states()
        for group in self._route([entry], first=False):
            super().add_param_group(group)
        here = {id(p) for p in self._parameters()}
        for name, of in list(self._asleep.items()):
            if id(of.find()) in here:  # by whichever name
                del self._asleep[name]
        self._begin_anew(before)

    def _wake(self, names: Sequence[str]) -> None:
        """Parameters that required no gradient at first join the others."""
        before = self._kept_states()
        for name in names:
            of = self._asleep.pop(name)
            p = of.find()
            assert p is not None
            self._routes[name] = of.route
            group = next(
                (g for g in self.param_groups if of.beside in g["param_names"]),
                None,
            )
            if group is None:
                super().add_param_group(
                    dict(params=[p], param_names=[name], **of.values)
                )
                for other in self._asleep.values():
                    if not other.beside and other.values == of.values:
                        other.beside = name
            else:
                group["params"].append(p)
                group["param_names"].append(name)
            _log.info(
                "parameter %s has a gradient now: %s", name, of.route.rule
            )
        self._begin_anew(before)

    def _named_group(self, group: Mapping[str, Any]) -> dict[str, Any]:
        """A group whose parameters have names that nobody else has; UsageError
        before anything changes."""
        known = set(self._routes)
        free = (n for n in map("parameter{}".format, count()) if n not in known)
        of = group["params"]
        if isinstance(of, nn.Module):
            named = [(_routing.clean(n), p) for n, p in of.named_parameters()]
        else:
            of = [of] if isinstance(of, torch.Tensor) else list(of)
            named = [p if isinstance(p, tuple) else (next(free), p) for p in of]
        here = {id(p) for p in self._parameters()}
        for name, p in named:
            if id(p) in here:
                raise UsageError(
                    f"parameter {name}: is in this optimizer " "already"
                )
            of = self._asleep.get(name)
            if name in known and (of is None or of.find() is not p):
                raise UsageError(
                    f"parameter {name}: another one has this name "
                    "already; give others as (name, parameter)"
                )
            if isinstance(p, torch.Tensor):
                check_kind(name, p)
        return {**group, "params": of if isinstance(of, nn.Module) else named}

    def _parameters(self) -> list[torch.Tensor]:
        return [p for g in self.param_groups for p in g["params"]]

    def _names(self) -> list[str]:
        return [n for g in self.param_groups for n in g["param_names"]]
