"""Signatures of the optimizers, and their documentation.

    @documented
    class Muon(MatrixOptimizer):
        @keywords
        def __init__(self, params, lr=1e-3, **shared: Unpack[Shared]): ...

A preset changes defaults, so an argument that is given has to be told from one
that is not: @keywords binds arguments to the declared signature and passes on
those that are given. @documented lists them all in the class's docstring; what
an option of a rule means, the rule itself says (canzona.rules()).
"""

from __future__ import annotations

import functools
import inspect
import os
import textwrap
from collections.abc import Mapping, Sequence
from typing import (
    Any,
    Callable,
    Literal,
    TypedDict,
    TypeVar,
    get_type_hints,
)

import torch

from . import _hints, _options
from ._errors import Error, UsageError
from ._optimizer import MatrixOptimizer

_Init = TypeVar("_Init", bound=Callable[..., None])
_Class = TypeVar("_Class", bound=type[MatrixOptimizer])


class Shared(TypedDict, total=False):
    """Arguments that all optimizers take. Their defaults are in the signature
    of MatrixOptimizer.__init__, those of switches in _SWITCHES."""

    preset: str | None
    adamw: Mapping[str, Any] | None
    groups: Mapping[str, Mapping[str, Any]] | None
    rules: Mapping[str, str] | None
    splits: Mapping[str, Sequence[int]] | None
    heads: Mapping[str, Any] | Literal["auto", "all"] | None
    flatten: Literal["none", "first_dim"]
    replicas: Any
    layout: Callable[[str, torch.Tensor], Any] | None
    group: Any
    wire: Literal["fp32", "bf16"]
    master: Literal["fp32", "remainder"]
    share_states: bool
    teams: Literal["off", "auto", 2, 4, 8]
    clip_norm: float | None
    nonfinite: Literal["skip", "raise", "propagate"]
    capacity_bytes: int | None
    ranks_per_node: int | None
    links: str | None
    cost: str | os.PathLike[str] | Mapping[str, Any] | None
    threads: int | None
    maximize: bool
    foreach: bool | None
    capturable: bool
    differentiable: bool
    fused: bool | None


# Switches of torch's optimizers, which scripts pass to whichever they use.
_SWITCHES = dict(
    maximize=False,
    foreach=None,
    capturable=False,
    differentiable=False,
    fused=None,
)

_ABOUT = {
    "params": "a module (best, since routing looks at modules), "
    "named_parameters(), parameters, or groups of these with options of "
    "their own",
    "lr": "learning rate, of AdamW's parameters too; a number or a tensor",
    "betas": "decay rates of the first and the second moment",
    "ns_coefficients": "Newton-Schulz coefficients: a triple for all steps, a "
    "triple for each, or the name of a set (`canzona rules muon`)",
    "adjust_lr_fn": 'scale of updates: "match_rms_adamw", "original" (None is '
    'the same), "sqrt_max", "unit_rms" or "none"',
    "preset": "defaults of a public implementation, by name: {presets}",
    "adamw": 'options of the parameters that are not matrices: {{"betas": (0.9,'
    " 0.95)}}; AdamW itself takes them as arguments",
    "groups": 'options by pattern of names: {{"*.norm.*": {{"weight_decay": 0}}'
    "}}",
    "rules": 'rules by pattern of names: {{"*.gate.weight": "{rule}"}}; or '
    '"adamw", or "frozen"',
    "splits": "row counts of matrices that are fused into one tensor: "
    '{{"*.qkv.weight": [q, k, v]}}',
    "heads": "heads of projections, each a matrix of its own: "
    '{{"*.q_proj.weight": 32}}; "auto" finds them by the model\'s config or its '
    'modules, "all" those of output projections, which are columns, too',
    "flatten": '"first_dim" sends convolutions to the matrix rule, each as one '
    "matrix",
    "replicas": "ranks that hold the same plain tensors: a process group, a "
    "mesh or a list of ranks; a DDP module needs none",
    "layout": "a function of name and tensor that says how a plain tensor lies: "
    "canzona.Stored, or None",
    "group": "the process group that plans and exchanges by itself; by default "
    "all ranks meet at the first use",
    "wire": '"bf16" rounds numbers to bf16 before they are sent, which halves '
    "the bytes",
    "master": "how the fp32 masters of bf16 parameters are kept: in fp32, or "
    'as the "remainder" of 16 bits that restores them; the same bits',
    "share_states": "replicas store states at owners only",
    "teams": "up to this many ranks of a machine share a large matrix where "
    'that shortens the step: "off", "auto", 2, 4 or 8',
    "clip_norm": "gradients are scaled so that their norm over all ranks is at "
    "most this",
    "nonfinite": 'what gradients that are not finite do: "skip" the step, '
    '"raise" NumericalError, or "propagate"',
    "capacity_bytes": "the most bytes of a round's messages on a rank",
    "ranks_per_node": "ranks of one machine, for the plan; 8 by default",
    "links": "of the cluster, for the plan and its predicted times: "
    '"intra=400GB/s,inter=50GB/s,latency=10us"',
    "cost": "table of measured costs (`canzona calibrate`) by which matrices "
    "are balanced: its path, or its contents",
    "threads": "of the CPU; by default torch.get_num_threads()",
    "amsgrad": "not supported; True is refused",
    "maximize": "not supported; True is refused",
    "foreach": "ignored: there is one implementation",
    "capturable": "True: a step may be part of a CUDA graph (Muon and AdamW, "
    "one rank)",
    "differentiable": "not supported; True is refused",
    "fused": "ignored: every step is fused",
}

_DEFAULTS = "Defaults in the signature are those without a preset."


def _signature(init: Callable[..., None]) -> inspect.Signature:
    """The declared one, with the shared arguments one by one."""
    declared = inspect.signature(init)
    base = inspect.signature(MatrixOptimizer.__init__).parameters
    types = get_type_hints(init)
    own = [
        p.replace(annotation=types.get(name, p.annotation))
        for name, p in declared.parameters.items()
        if p.kind != p.VAR_KEYWORD
    ]
    shared = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=base[name].default if name in base else _SWITCHES[name],
            annotation=annotation,
        )
        for name, annotation in get_type_hints(Shared).items()
    ]
    return declared.replace(parameters=own + shared, return_annotation=None)


def keywords(init: _Init) -> _Init:
    """Passes arguments that are given on to MatrixOptimizer."""
    signature = _signature(init)
    defaults = {n: p.default for n, p in signature.parameters.items()}

    @functools.wraps(init)
    def made(self: MatrixOptimizer, *args: Any, **given: Any) -> None:
        for name in given:
            if name not in defaults:
                raise _hints.unknown(
                    name, [*defaults][1:], (self.rule,), type(self).__name__
                )
        bound = {
            name: value
            for name, value in signature.bind(
                self, *args, **given
            ).arguments.items()
            if value is not None or defaults[name] is not None
        }
        _refuse_twice(bound, self.rule)
        MatrixOptimizer.__init__(**bound)

    made.__signature__ = signature  # type: ignore[attr-defined]
    return made  # type: ignore[return-value]


def _refuse_twice(given: Mapping[str, Any], rule: str) -> None:
    for own, name in _options.torch_names(rule).items():
        other = name.partition("[")[0]
        if own in given and other in given:
            raise UsageError(
                f"{own}={given[own]!r}: is the same option as {other}="
                f"{given[other]!r}; give one of them"
            )


def documented(optimizer: _Class) -> _Class:
    """Adds a section of all arguments to the docstring."""
    try:
        facts = _options.facts()[optimizer.rule]
    except (Error, UsageError, OSError):  # which the first use reports
        return optimizer
    names = [*inspect.signature(optimizer).parameters]
    lines = [_line(name, optimizer.rule, facts) for name in names]
    doc = inspect.cleandoc(optimizer.__doc__ or "")
    optimizer.__doc__ = "\n".join([doc, "", _DEFAULTS, "", "Args:", *lines])
    return optimizer


def _line(name: str, rule: str, facts: Mapping[str, Any]) -> str:
    presets = ", ".join(p["name"] for p in facts["presets"])
    about = _ABOUT.get(name, "").format(rule=rule, presets=presets)
    alias = _options.torch_names(rule).get(name)
    if alias is not None:
        about = f"the rule's own name for {alias}"
    if not about:
        own = _options.own_name(rule, name)
        option = next(o for o in facts["options"] if o["name"] == own)
        about = option["meaning"]
        if set(option["allowed"].split("|")) != {"on", "off"}:
            about += f" ({option['allowed']})"
    return textwrap.fill(
        f"{name}: {about}",
        80,
        initial_indent=" " * 4,
        subsequent_indent=" " * 8,
        break_on_hyphens=False,
    )
