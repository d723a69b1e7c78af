"""canzona.doctor(): what this installation computes with, and what is wrong."""

from __future__ import annotations

import importlib.util
import json
import platform
from dataclasses import dataclass, field
from typing import Any

from ._errors import Error, UsageError
from ._library import load
from ._program import program, run


@dataclass
class Report:
    """What doctor() found: lines to read, and the same as values."""

    lines: list[str] = field(default_factory=list)
    json: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, name: str, value: Any, shown: str | None = None) -> None:
        self.json[name] = value
        self.lines.append(f"{name:<10}{value if shown is None else shown}")

    def blame(self, name: str, problem: str) -> None:
        self.json[name] = None
        self.problems.append(f"{name}: {problem}")
        self.lines.append(f"{name:<10}{problem}")

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def __repr__(self) -> str:
        return str(self)


def _look_at_libraries(report: Report) -> None:
    try:
        library = load("cpu")
        report.add("library", str(library.path))
        report.add("version", library.version())
        report.add("cpu", library.describe("cpu"))
    except (Error, UsageError, OSError) as error:
        report.blame("library", str(error))
    try:
        report.add("cuda", load("cuda").describe("cuda"))
    except (Error, UsageError, OSError) as error:
        # Not a fault: most machines have no GPU.
        report.add("cuda", None, f"none: {error}")


def _look_at_torch(report: Report) -> None:
    if importlib.util.find_spec("torch") is None:
        report.add("torch", None, "none; planning needs none, optimizers do")
        return
    import torch
    import torch.distributed as dist

    backends = [
        name
        for name in ("gloo", "nccl", "mpi")
        if dist.is_available() and getattr(dist, f"is_{name}_available")()
    ]
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    report.add(
        "torch",
        {"version": torch.__version__, "backends": backends, "gpus": gpus},
        f"{torch.__version__}, {' '.join(backends) or 'no backends'}, "
        f"{gpus} GPUs",
    )


def _look_at_machine(report: Report) -> None:
    found = json.loads(run(["doctor", "--json"], statuses=(0, 1)))
    report.json["machine"] = found
    report.lines += ["", run(["doctor"], statuses=(0, 1)).rstrip()]


def doctor(machine: bool = False) -> Report:
    """Tells what computes here: library, CPU and GPU, torch and its backends.

    `machine`: with what `canzona doctor` measures as well, which takes seconds
    and writes into the working folder. print() it; `.problems` is empty if all
    is well.
    """
    report = Report()
    version = platform.python_version()
    report.add("python", version, f"{version} on {platform.machine()}")
    _look_at_libraries(report)
    try:
        report.add("program", str(program()))
    except UsageError as error:
        report.blame("program", str(error))
    _look_at_torch(report)
    if machine:
        _look_at_machine(report)
    return report
