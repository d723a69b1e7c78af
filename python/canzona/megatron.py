"""Muon inside Megatron-Core: whole matrices under tensor parallelism.

    torchrun … -m canzona.megatron pretrain_gpt.py --optimizer muon …

registers and runs a script as it is. From a program of your own:

    import canzona.megatron
    canzona.megatron.register()          # before Megatron makes its optimizer
    …
    for plan in canzona.megatron.plan(optimizer):
        print(plan.explain())

docs/megatron.md tells more.
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

from ._errors import UsageError
from ._placed import PlacedPlan

SUPPORTED = "0.19"
_TABLE = "megatron.core.optimizer.emerging_optimizers"
_NAME = "muon"

# What the entry of the table and the constructor that it names have in the
# supported version.
FIELDS = (
    "optimizer_cls",
    "init_state_fn",
    "config_to_kwargs",
    "default_param_overrides",
)
ARGUMENTS = (
    "params",
    "lr",
    "momentum",
    "nesterov",
    "weight_decay",
    "use_decoupled_weight_decay",
    "split_qkv",
    "is_qkv_fn",
    "qkv_split_shapes",
    "fp32_matmul_prec",
    "coefficient_type",
    "num_ns_steps",
    "scale_mode",
    "extra_scale_factor",
    "pg_collection",
    "tp_mode",
)

_replaced: Any = None  # Megatron's own entry, while ours is in its place


def register(*, wire: str = "fp32") -> None:
    """Puts canzona's Muon in the place of Megatron's. Optimizers that Megatron
    has made before stay as they are. `wire="bf16"` halves what is sent."""
    global _replaced
    from ._arguments import _WIRES
    from .megatron_muon import Muon

    if wire not in _WIRES:
        raise UsageError(f"wire={wire!r}: expected {' or '.join(_WIRES)}")
    table = _table()
    entry = _replaced or table[_NAME]
    _check_version(entry)

    def to_kwargs(config: Any, chunks: Any, pg_collection: Any) -> Any:
        if getattr(config, "optimizer_cuda_graph", False):
            raise UsageError(
                "--optimizer-cuda-graph: a step of canzona.megatron cannot be "
                "captured, since it communicates by its own schedule; leave "
                "the option out"
            )
        given = entry.config_to_kwargs(config, chunks, pg_collection)
        unknown = sorted(given.keys() - set(ARGUMENTS))
        if unknown:
            raise UsageError(
                f"Megatron's Muon has an option '{unknown[0]}', which "
                f"canzona.megatron does not know; it supports megatron-core "
                f"{SUPPORTED}"
            )
        return {**given, "model_chunks": chunks, "wire": wire}

    _replaced = entry
    table[_NAME] = dataclasses.replace(
        entry,
        optimizer_cls=Muon,
        init_state_fn=lambda optimizer, config=None: optimizer.init_states(),
        config_to_kwargs=to_kwargs,
    )


def unregister() -> None:
    """Puts Megatron's own Muon back."""
    global _replaced
    if _replaced is not None:
        _table()[_NAME], _replaced = _replaced, None


def plan(optimizer: Any) -> list[PlacedPlan]:
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
    elif getattr(optimizer, "optimizer", None) is not None:
        yield from _ours(optimizer.optimizer)


def _table() -> dict[str, Any]:
    try:
        module = importlib.import_module(_TABLE)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("megatron"):
            raise
        raise UsageError(
            "canzona.megatron: megatron-core is not installed, or has no "
            f"{_TABLE}; pip install 'canzona[megatron]' gets the supported one"
        ) from error
    table = getattr(module, "_EMERGING_OPTIMIZERS", {})
    if _NAME not in table:
        raise UsageError(
            f"megatron-core {_version()}: its table of emerging optimizers has "
            f"no '{_NAME}'; canzona.megatron supports {SUPPORTED}"
        )
    return table


def _version() -> str:
    core = importlib.import_module("megatron.core")
    return str(getattr(core, "__version__", "of no version"))


def _check_version(entry: Any) -> None:
    """A warning for another version, with what has moved; UsageError if what
    is missing cannot be done without."""
    version = _version()
    fields = {f.name for f in dataclasses.fields(entry)}
    arguments = {*inspect.signature(entry.optimizer_cls).parameters}
    moved = [
        f"{what} {name} is {'new' if name in now else 'gone'}"
        for what, now, then in (
            ("field", fields, set(FIELDS)),
            ("argument", arguments, set(ARGUMENTS)),
        )
        for name in sorted(now ^ then)
    ]
    if not fields.issuperset(FIELDS):
        raise UsageError(
            f"megatron-core {version}: its entry '{_NAME}' has changed "
            f"({'; '.join(moved)}); canzona.megatron supports {SUPPORTED}"
        )
    if version.split(".")[:2] != SUPPORTED.split(".") or moved:
        warnings.warn(
            f"megatron-core {version}: canzona.megatron was tested with "
            f"{SUPPORTED}; of the table's entry '{_NAME}' "
            f"{'; '.join(moved) or 'no field has moved'}",
            stacklevel=3,
        )


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m canzona.megatron",
        description="Registers canzona's Muon and runs a script of Megatron's.",
    )
    parser.add_argument("--wire", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("script")
    parser.add_argument("args", nargs=argparse.REMAINDER)
    given = parser.parse_args(words)
    register(wire=given.wire)
    sys.argv = [given.script, *given.args]
    sys.path.insert(0, os.path.dirname(os.path.abspath(given.script)))
    runpy.run_path(given.script, run_name="__main__")


if __name__ == "__main__":
    # This file has a second name here, whose register() nobody else would see.
    importlib.import_module("canzona.megatron").main()
