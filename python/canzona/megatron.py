"""Muon inside Megatron-Core: whole matrices under tensor parallelism.

    torchrun … -m canzona.megatron pretrain_gpt.py --optimizer muon …

registers and runs a script as it is; docs/megatron.md tells more.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import os
import runpy
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from ._errors import UsageError
from ._storage_plan import StoragePlan

SUPPORTED = "0.19"
_TABLE = "megatron.core.optimizer.emerging_optimizers"
# What an entry of the table has in the supported version.
_FIELDS = {"optimizer_cls", "init_state_fn", "config_to_kwargs"}
_FIELDS |= {"default_param_overrides"}

_replaced: Any = None  # Megatron's own entry, while ours is in its place


def register(**ours: Any) -> None:
    """Puts canzona's Muon in the place of Megatron's. Optimizers that Megatron
    has made before stay as they are. `wire="bf16"` halves what is sent,
    `teams="auto"` lets ranks share large matrices, `heads=True` makes each head
    of q, k and v a matrix of its own; other arguments are canzona.Muon's."""
    global _replaced
    from .megatron_muon import Muon

    Muon([torch.zeros(2, 2)], ours=ours)  # refuses what it does not know
    table = _table()
    entry = _replaced or table["muon"]
    known = _check_version(entry, Muon)

    def to_kwargs(config: Any, chunks: Any, pg_collection: Any) -> Any:
        if getattr(config, "optimizer_cuda_graph", False):
            raise UsageError(
                "--optimizer-cuda-graph: is not supported by canzona.megatron; "
                "leave it out"
            )
        given = entry.config_to_kwargs(config, chunks, pg_collection)
        for name in sorted(given.keys() - known):
            raise UsageError(
                f"megatron-core {_version()}: its Muon has an option '{name}', "
                f"which canzona.megatron does not know; it supports {SUPPORTED}"
            )
        return {**given, "model_chunks": chunks, "ours": ours}

    _replaced = entry
    table["muon"] = dataclasses.replace(
        entry,
        optimizer_cls=Muon,
        init_state_fn=lambda optimizer, config=None: optimizer.init_states(),
        config_to_kwargs=to_kwargs,
    )


def unregister() -> None:
    """Puts Megatron's own Muon back."""
    global _replaced
    if _replaced is not None:
        _table()["muon"], _replaced = _replaced, None


def plan(optimizer: Any) -> list[StoragePlan]:
    """The plans inside an optimizer of Megatron's: one for each TP group that
    has matrices of this rank. Before the first step this makes them, on all
    ranks."""
    found = list(_ours(optimizer))
    if not found:
        raise UsageError(
            f"plan(): there is no Muon of canzona's in this "
            f"{type(optimizer).__name__}; call canzona.megatron.register() "
            "before Megatron makes the optimizer, and use --optimizer muon"
        )
    return [each for one in found for each in one.plans()]


def _ours(optimizer: Any) -> Iterator[Any]:
    from .megatron_muon import Muon

    if isinstance(optimizer, Muon):
        yield optimizer
    elif hasattr(optimizer, "chained_optimizers"):
        for one in optimizer.chained_optimizers:
            yield from _ours(one)
    elif hasattr(optimizer, "optimizer"):
        yield from _ours(optimizer.optimizer)


def _table() -> dict[str, Any]:
    try:
        table = vars(importlib.import_module(_TABLE))["_EMERGING_OPTIMIZERS"]
        table["muon"]  # which is there if emerging-optimizers is
    except (ModuleNotFoundError, KeyError) as error:
        raise UsageError(
            f"{_TABLE}: has no Muon ({error!r}); canzona.megatron supports "
            f"megatron-core {SUPPORTED}: pip install 'canzona[megatron]'"
        ) from error
    return table


def _version() -> str:
    core = importlib.import_module("megatron.core")
    return str(getattr(core, "__version__", "of no version"))


def _check_version(entry: Any, ours: Any) -> set[str]:
    """The options that both sides know. A warning for another version, with
    what has moved; UsageError if the entry lacks a field."""
    version = _version()
    fields = {f.name for f in dataclasses.fields(entry)}
    theirs = {*inspect.signature(entry.optimizer_cls).parameters}
    parameters = inspect.signature(ours).parameters.values()
    known = {p.name for p in parameters if p.kind != p.KEYWORD_ONLY}
    both = (("field", fields, _FIELDS), ("option", theirs, known))
    moved = [
        f"{what} {name} is {'new' if name in now else 'gone'}"
        for what, now, then in both
        for name in sorted(now ^ then)
    ]
    text = (
        f"megatron-core {version}: canzona.megatron supports {SUPPORTED}; of "
        f"the table's entry 'muon' {'; '.join(moved) or 'nothing has moved'}"
    )
    if not _FIELDS <= fields:
        raise UsageError(text)
    if version.split(".")[:2] != SUPPORTED.split(".") or moved:
        warnings.warn(text, stacklevel=3)
    return known


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m canzona.megatron",
        description="Registers canzona's Muon and runs a script of Megatron's.",
    )
    parser.add_argument("--wire", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--teams", choices=("off", "auto"), default="off")
    parser.add_argument("--heads", action="store_true")
    parser.add_argument("script")
    parser.add_argument("args", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    register(wire=given.wire, teams=given.teams, heads=given.heads)
    sys.argv = [given.script, *given.args]
    sys.path.insert(0, os.path.dirname(os.path.abspath(given.script)))
    runpy.run_path(given.script, run_name="__main__")


if __name__ == "__main__":
    # This file has a second name here, whose register() nobody else would see.
    importlib.import_module("canzona.megatron").main()
