"""Named parameters of whatever an optimizer is made from.

named, groups, known, replicas = collect(model)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ._errors import UsageError
from ._modules import Known, know
from ._routing import clean

_MODULES = '. Several modules are groups: [{"params": module}, …]'


def collect(params: Any, may_be_empty: bool = False) -> tuple[
    list[tuple[str, torch.Tensor, int]],
    list[dict[str, Any]],
    dict[int, Known],
    dict[int, tuple[int, ...]],
]:
    """(name, parameter, group), the groups' own options, what modules tell, and
    the global ranks of DDP's replicas by id of the parameter.

    `params`: a module, named parameters, parameters, or groups: dicts with
    `params` of any of these kinds.
    """
    known: dict[int, Known] = {}
    replicas: dict[int, tuple[int, ...]] = {}
    if isinstance(params, (nn.Module, set)):
        params = [{"params": params}]
    entries = _entries(params, may_be_empty)
    if not any(isinstance(e, dict) for e in entries):
        entries = [{"params": entries}]
    named: list[tuple[str, torch.Tensor, int]] = []
    groups = []
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or "params" not in entry:
            raise UsageError(
                f"group {number}: is {type(entry).__name__}; "
                "expected a dict with 'params'"
            )
        options = {
            k: v for k, v in entry.items() if k not in ("params", "param_names")
        }
        groups.append(options)
        named += _of_group(entry, number, len(named), known, replicas)
    _check_unlike(named)
    return named, groups, known, replicas


def _entries(params: Any, may_be_empty: bool) -> list[Any]:
    """The items of a list of parameters or groups; UsageError for others."""
    expected = "expected a module, named parameters, or a list of parameters"
    what = f"params is {type(params).__name__}"
    if isinstance(params, Mapping):
        raise UsageError(
            f"{what}; {expected}. Groups go into a list: "
            '[{"params": …, "lr": …}]'
        )
    if callable(params):
        raise UsageError(f"{what}; {expected}. Call it: model.parameters()")
    if isinstance(params, (torch.Tensor, str)) or not isinstance(
        params, Iterable
    ):
        raise UsageError(f"{what}; {expected}")
    entries = list(params)
    if not entries and not may_be_empty:
        raise UsageError(
            "params is empty; expected a module or parameters (a generator "
            "gives them only once)"
        )
    return entries


def _of_module(
    module: nn.Module,
    group: int,
    known: dict[int, Known],
    replicas: dict[int, tuple[int, ...]],
) -> list[tuple[str, torch.Tensor, int]]:
    known.update(know(module))
    _refuse_fsdp1(module)
    _find_replicas(module, replicas)
    named = list(module.named_parameters())
    cleaned = [clean(n) for n, _ in named]
    if len(set(cleaned)) < len(named):  # a model's own word, not a wrapper's
        cleaned = [n for n, _ in named]
    return [(n, p, group) for n, (_, p) in zip(cleaned, named)]


def _of_group(
    entry: dict[str, Any],
    number: int,
    before: int,
    known: dict[int, Known],
    replicas: dict[int, tuple[int, ...]],
) -> list[tuple[str, torch.Tensor, int]]:
    of = entry["params"]
    if isinstance(of, nn.Module):
        return _of_module(of, number, known, replicas)
    if isinstance(of, torch.Tensor):
        of = [of]
    if isinstance(of, set):
        raise UsageError(
            f"group {number}: params is a set, whose order is "
            "another on every rank; expected a list"
        )
    found = []
    of, names = list(of), entry.get("param_names")
    if names and len(names) != len(of):
        raise UsageError(
            f"group {number}: has {len(names)} param_names for {len(of)} params"
        )
    for i, item in enumerate(of):
        if isinstance(item, tuple):
            name, parameter = item
        else:
            name = names[i] if names else f"parameter{before + i}"
            parameter = item
        if not isinstance(parameter, torch.Tensor):
            raise UsageError(
                f"group {number}: {name} is "
                f"{type(parameter).__name__}; expected a tensor"
                + _MODULES * isinstance(parameter, nn.Module)
            )
        found.append((clean(name), parameter, number))
    return found


def _check_unlike(named: Sequence[tuple[str, torch.Tensor, int]]) -> None:
    names: dict[str, int] = {}
    seen: dict[int, str] = {}
    for name, parameter, _ in named:
        if id(parameter) in seen:
            other = seen[id(parameter)]
            also = "" if other == name else f" (also as {other})"
            raise UsageError(f"parameter {name}: is given twice{also}")
        if name in names:
            raise UsageError(f"parameter {name}: two parameters have this name")
        if is_lazy(parameter):
            raise UsageError(
                f"parameter {name}: has no shape yet, since its module is "
                "lazy; run the model once before making the optimizer"
            )
        seen[id(parameter)] = name
        names[name] = 1


def _refuse_fsdp1(module: nn.Module) -> None:
    for name, m in module.named_modules():
        if type(m).__name__ == "FullyShardedDataParallel":
            raise UsageError(
                f"module {name or type(m).__name__}: is FSDP1 "
                "(FullyShardedDataParallel), whose flat parameters have no "
                "matrices; use FSDP2: torch.distributed.fsdp.fully_shard"
            )


def _find_replicas(
    module: nn.Module, replicas: dict[int, tuple[int, ...]]
) -> None:
    from torch.nn.parallel import DistributedDataParallel

    for m in module.modules():
        if isinstance(m, DistributedDataParallel):
            import torch.distributed as dist

            ranks = tuple(dist.get_process_group_ranks(m.process_group))
            # Those that DDP was told to ignore are each rank's own.
            ignored = getattr(m, "parameters_to_ignore", ())
            for name, p in m.module.named_parameters():
                if name not in ignored:
                    replicas[id(p)] = ranks
