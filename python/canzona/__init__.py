"""Matrix-based optimizers (Muon, SOAP, Shampoo) for PyTorch, under any layout.

    import canzona
    optimizer = canzona.Muon(model, lr=2e-3)          # needs torch
    plan = canzona.plan("qwen3-8b", mesh="dp=16,tp=8")   # needs none

`import canzona` needs no torch; the optimizers import it when they are first
used. docs/pytorch.md and docs/c_interface.md tell more.
"""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

from ._doctor import doctor
from ._errors import Error, NumericalError, UsageError
from ._library import load
from ._plan import Plan, plan
from ._storage_plan import StoragePlan

if TYPE_CHECKING:
    from .optim import SOAP, AdamW, Muon, Shampoo, Stored

__version__: str

# Names that need torch, and where they are.
_LAZY = {
    "AdamW": "canzona.optim",
    "Muon": "canzona.optim",
    "SOAP": "canzona.optim",
    "Shampoo": "canzona.optim",
    "Stored": "canzona.optim",
}

__all__ = [
    "AdamW",
    "Error",
    "Muon",
    "NumericalError",
    "StoragePlan",
    "Plan",
    "SOAP",
    "Shampoo",
    "Stored",
    "UsageError",
    "doctor",
    "plan",
    "rules",
]


def rules() -> dict[str, Any]:
    """The rules by name, with their options, presets and states."""
    return {rule["name"]: rule for rule in json.loads(load().rules())["rules"]}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return load().version()
    if name not in _LAZY:
        raise AttributeError(f"module 'canzona' has no attribute '{name}'")
    try:
        value = getattr(importlib.import_module(_LAZY[name]), name)
    except ModuleNotFoundError as error:
        if error.name == "torch":
            raise ModuleNotFoundError(
                f"canzona.{name} needs torch 2.9 or newer; install it first",
                name="torch",
            ) from error
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
