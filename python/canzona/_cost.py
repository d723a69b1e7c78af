"""Tables of measured costs, as `canzona calibrate` writes them.

    cost = read_cost("calibration.json")
    request["cost_table"] = cost.table

docs/cost_table.md describes the file. Needs no torch.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._errors import UsageError
from ._storage_plan import StoragePlan


@dataclass(frozen=True)
class Cost:
    """A table that the library has accepted."""

    table: dict[str, Any]

    @property
    def identity(self) -> str:
        """What ranks compare: equal for equal tables alone."""
        text = json.dumps(self.table, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        return f"{self.table['device']}, {self.table['date']}, sha256 {digest}"


def read_cost(given: Any) -> Cost | None:
    """Reads the argument `cost`, a path or the table itself; UsageError names
    the file and what is wrong with it."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        table, source = dict(given), "the table"
    elif isinstance(given, (str, os.PathLike)):
        table, source = _read_file(Path(given)), repr(os.fspath(given))
    else:
        raise UsageError(
            f"cost={given!r}: expected the path of a table that `canzona "
            "calibrate` wrote, or its contents as a dict"
        )
    try:
        _check(table)
    except (TypeError, ValueError) as error:  # UsageError is a ValueError
        text = str(error).removeprefix("request: ").removeprefix("cost_table: ")
        raise UsageError(f"cost: {source}: {text}") from None
    return Cost(table)


def _read_file(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cost: '{path}': {error.strerror}") from None
    except ValueError as error:  # not JSON, or not UTF-8
        raise UsageError(
            f"cost: '{path}': is not JSON: {error}; expected a table that "
            "`canzona calibrate` wrote"
        ) from None


def _check(table: Any) -> None:
    """Has the library plan something small with the table."""
    StoragePlan(
        {
            "canzona_storage": 1,
            "world": 1,
            "groups": [{"rule": "adamw"}],
            "tensors": [{"name": "w", "shape": [1], "stored": [[[[0], [1]]]]}],
            "cost_table": table,
        }
    )
