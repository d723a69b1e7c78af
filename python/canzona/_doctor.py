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

_FAILURES = (Error, UsageError, OSError)
_COLUMN = 14  # as the program has it


@dataclass
class Report:
    """What doctor() found: print it, or read `json` and `problems`."""

    lines: list[str] = field(default_factory=list)
    json: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, name: str, value: Any, shown: str = "") -> None:
        self.json[name] = value
        self.lines.append(f"{name:<{_COLUMN}}{shown or value}")

    def blame(self, name: str, problem: str) -> None:
        self.add(name, None)
        self.problems.append(f"{name}: {problem}")

    def __str__(self) -> str:
        found = [f"problem: {text}" for text in self.problems]
        return "\n".join(self.lines + (found or ["no problems found"]))

    def __repr__(self) -> str:
        return str(self)


def _look_at_libraries(report: Report) -> None:
    try:
        library = load("cpu")
        version, kernels = library.version(), library.describe("cpu")
        report.json.update(version=version, cpu=kernels)
        shown = f"{version} in {library.path}: {kernels}"
        report.add("library", str(library.path), shown)
    except _FAILURES as error:
        report.blame("library", str(error))
    try:
        report.add("with CUDA", load("cuda").describe("cuda"))
    except _FAILURES as error:
        # Not a problem: most machines have no GPU.
        report.add("with CUDA", None, f"none: {error}")
    report.json["cuda"] = report.json.pop("with CUDA")
    try:
        report.add("program", str(program()))
    except UsageError as error:
        report.blame("program", str(error))


def _look_at_torch(report: Report) -> None:
    if importlib.util.find_spec("torch") is None:
        report.add("torch", None, "none; planning needs none, optimizers do")
        return
    try:
        import torch
        import torch.distributed as dist
    except (ImportError, OSError) as error:
        report.blame("torch", f"cannot be imported: {error}")
        return
    backends = [
        name
        for name in ("gloo", "nccl", "mpi")
        if dist.is_available() and getattr(dist, f"is_{name}_available")()
    ]
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    gpus = [torch.cuda.get_device_name(i) for i in range(count)]
    report.add(
        "torch",
        dict(
            version=torch.__version__,
            cuda=torch.version.cuda,
            backends=backends,
            gpus=gpus,
        ),
        f"{torch.__version__}, {' '.join(backends) or 'no backends'}, "
        + (f"{count} GPUs ({gpus[0]})" if gpus else "no GPU"),
    )


def _look_at_machine(report: Report) -> None:
    try:
        found = json.loads(run(["doctor", "--json"], statuses=(0, 1)))
    except UsageError as error:  # no program, or one that plans only
        report.add("machine", None, f"not measured: {error}")
        return
    except Error as error:
        report.blame("machine", str(error))
        return
    problems = found["problems"]
    report.problems += problems
    ends = {"no problems found", *(f"problem: {p}" for p in problems)}
    lines = found.pop("text").splitlines()
    report.json["machine"] = found
    report.lines += ["", *(line for line in lines if line not in ends)]


def doctor(machine: bool = True) -> Report:
    """Reports what computes here: Python, the library, torch with its backends
    and GPUs, and what `canzona doctor` measures of the machine.

    The latter takes seconds and writes 64 MiB into the working folder, which it
    removes; `machine=False` leaves it out. print() the result; `.problems` is
    empty if all is well. `python -m canzona doctor` prints it, too.
    """
    report = Report()
    version = platform.python_version()
    report.add("python", version, f"{version} on {platform.machine()}")
    _look_at_libraries(report)
    _look_at_torch(report)
    if machine:
        _look_at_machine(report)
    return report
