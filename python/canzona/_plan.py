"""canzona.plan(): plans of models on meshes, without torch.

    plan = canzona.plan("qwen3-8b", mesh="dp=16,tp=8")
    plan.json["makespan"], plan.explain(rank=17)
    plan.save("plan.json")
    canzona.plan("qwen3-8b", mesh="dp=16,tp=8", layout="fsdp2")

The program makes them; a Plan holds what it printed.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ._errors import UsageError
from ._program import run
from ._view import frame


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _arguments(options: Mapping[str, Any]) -> list[str]:
    """Options of `canzona plan` from keywords: rule="soap", fused=True,
    adamw=["*.k_proj.*"], rule_option={"preset": "moonlight"}."""
    arguments: list[str] = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        if value is True:
            arguments.append(_flag(name))
        elif isinstance(value, Mapping):
            for key, item in value.items():
                arguments += [_flag(name), f"{key}={item}"]
        elif isinstance(value, (list, tuple)):
            for item in value:
                arguments += [_flag(name), str(item)]
        else:
            arguments += [_flag(name), str(value)]
    return arguments


# Options that say where output goes.
_OUTPUTS = ("output", "html", "json", "quiet", "color", "help", "version")


class Plan:
    """A plan of `canzona plan`; shows itself in notebooks."""

    def __init__(self, arguments: Sequence[str], view: str, text: str):
        self._arguments = list(arguments)
        self._view = view
        self.text = text  # of plan.json

    @cached_property
    def json(self) -> dict[str, Any]:
        """What `canzona plan --json` prints: loads, bytes, memory, times."""
        return json.loads(self._view)

    @cached_property
    def decisions(self) -> dict[str, Any]:
        """plan.json (docs/plan.md)."""
        return json.loads(self.text)

    @property
    def digest(self) -> str:
        return self.json["digest"]

    def _given(self, flag: str) -> str:
        return self._arguments[self._arguments.index(flag) + 1]

    def save(self, path: str | Path) -> None:
        """Writes plan.json, for `canzona explain`, `validate` and `train`."""
        Path(path).write_text(self.text, encoding="utf-8")

    def _ask(self, verb: str, *arguments: str) -> str:
        with tempfile.TemporaryDirectory(prefix="canzona-") as folder:
            path = Path(folder) / "plan.json"
            self.save(path)
            return run([verb, str(path), *arguments])

    def explain(
        self, rank: int | None = None, matrix: str | None = None
    ) -> str:
        """What a rank owns, keeps and sends, or why a matrix has its owner."""
        arguments: list[str] = []
        if rank is not None:
            arguments += ["--rank", str(rank)]
        if matrix is not None:
            arguments += ["--matrix", matrix]
        return self._ask("explain", *arguments)

    @cached_property
    def audit(self) -> list[dict[str, Any]]:
        """All matrices, and AdamW's tensors: rule, owners, bytes, cost."""
        found = json.loads(self._ask("explain", "--audit", "--json"))
        return found if isinstance(found, list) else found["audit"]

    def html(self) -> str:
        """A page that opens in a browser and needs nothing else."""
        with tempfile.TemporaryDirectory(prefix="canzona-") as folder:
            path = Path(folder) / "plan.html"
            run([*self._arguments, "--quiet", "--html", str(path)])
            return path.read_text(encoding="utf-8")

    def _repr_html_(self) -> str:
        return frame(self.html())

    def __repr__(self) -> str:
        view = self.json
        if "mesh" not in view:  # with layout=
            words = map(self._given, ("--model", "--layout", "--mesh"))
            return f"<canzona.Plan {' '.join(words)} {self.digest[:12]}>"
        axes = ",".join(
            f"{axis}={n}" for axis, n in view["mesh"].items() if n > 1
        )
        axes = axes or "dp=1"
        return f"<canzona.Plan {view['model']} {axes} {self.digest[:12]}>"


def plan(
    model: str | Path, mesh: str | Mapping[str, int] = "dp=1", **options: Any
) -> Plan:
    """Plans a model on a mesh of ranks, like `canzona plan`.

    `model`: a preset ("qwen3-8b"), an HF config.json, a safetensors file or
    index, or a JSON list of shapes. `mesh`: "dp=16,tp=8", or a mapping. Every
    option of `canzona plan --help` is a keyword, with _ for -: rule="soap",
    fused=True, adamw=["*.k_proj.*"], rule_option={"preset": "moonlight"}.
    With layout="fsdp2" it is the plan of canzona.Muon under that layout.
    UsageError says what is wrong with one.
    """
    for name in _OUTPUTS:
        if name in options:
            raise UsageError(
                f"plan(): {name} is an option of the program alone; "
                "the plan has .json, .html() and .save()"
            )
    if isinstance(mesh, Mapping):
        mesh = ",".join(f"{axis}={size}" for axis, size in mesh.items())
    arguments = ["plan", "--model", str(model), "--mesh", mesh]
    arguments += _arguments(options)
    with tempfile.TemporaryDirectory(prefix="canzona-") as folder:
        path = Path(folder) / "plan.json"
        view = run([*arguments, "--json", "--output", str(path)])
        return Plan(arguments, view, path.read_text(encoding="utf-8"))
