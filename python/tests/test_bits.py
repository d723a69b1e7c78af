"""One hash of parameters and states over all layouts, per rule and wire, which
is that of a program in C++ as well."""

import functools
import hashlib
import json
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
import torch

import layouts
from canzona import _library
from conftest import spawn

TREE = Path(__file__).resolve().parents[2]

RUNS = {
    f"{rule} {wire} {str(dtype)[6:]}": (rule, {"wire": wire}, dtype)
    for rule in ("muon", "soap", "shampoo", "adamw")
    for wire in ("fp32", "bf16")
    for dtype in (torch.float32, torch.bfloat16)
    if dtype == torch.float32 or rule == "muon"
}
# Muon with what an owner needs of whole matrices.
LINKS = {
    "nanochat": dict(preset="nanochat"),
    "normuon": dict(preset="normuon"),
    "adamuon, constrained": dict(
        second_moment="adamuon", renorm=True, constraint="hyperball"
    ),
    "namo": dict(preset="nvidia-namo", equilibrate="rows"),
    "muonh": dict(preset="muonh", cautious_decay=True, weight_decay=0.1),
    "heads of columns": dict(
        preset="nvidia-normuon", heads={"down.weight": ("columns", 4)}
    ),
}
RUNS.update(
    {
        f"{name} {wire}": (
            "muon",
            {"wire": wire, **options},
            torch.bfloat16 if wire == "bf16" else torch.float32,
        )
        for name, options in LINKS.items()
        for wire in ("fp32", "bf16")
    }
)


@functools.cache
def alone():
    return layouts.train_all("one", RUNS)


@pytest.mark.parametrize("layout", [n for n in layouts.LAYOUTS if n != "one"])
def test_layouts_do_not_change_a_bit(layout):
    expected = alone()
    for rank, got in enumerate(
        spawn(layouts.LAYOUTS[layout], layouts.train_all, layout, RUNS)
    ):
        for name in RUNS:
            unlike = [
                k
                for k in expected[name][1]
                if got[name][1].get(k) != expected[name][1][k]
            ]
            assert not unlike, (rank, name, unlike)
            assert got[name][0] == expected[name][0], (rank, name)


@functools.cache
def program(folder):
    """alone.cc, compiled against the library that the package has loaded."""
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    library = _library.load("cpu").path.resolve()
    made = folder / "alone"
    result = subprocess.run(
        [
            compiler,
            "-std=c++20",
            f"-I{TREE}",
            str(TREE / "tests" / "c" / "alone.cc"),
            str(library),
            f"-Wl,-rpath,{library.parent}",
            "-o",
            str(made),
        ],
        capture_output=True,
        text=True,
    )
    if "nlohmann/json.hpp" in result.stderr:
        pytest.skip("there is no nlohmann/json.hpp")
    assert result.returncode == 0, result.stderr
    return made


def values_of(output):
    """By name of a tensor and of what of it: bytes."""
    found = {}
    while output:
        head, _, output = output.partition(b"\n")
        about = json.loads(head)
        value, output = output[: about["bytes"]], output[about["bytes"] :]
        key = (about["tensor"], about["what"], tuple(about.get("matrix", ())))
        assert key not in found
        found[key] = value
    return found


def hash_of(values, count):
    """As layouts.digest() has it: under the names of torch's state dicts."""
    named = {}
    matrices = {}
    for tensor, what, matrix in sorted(values):
        key = {"momentum": "momentum_buffer"}.get(what, what)
        if matrix:
            matrices.setdefault((tensor, what), []).append(matrix)
        named[(tensor, key, matrix)] = values[(tensor, what, matrix)]
    parts = {}
    for (tensor, key, matrix), value in named.items():
        of = matrices.get((tensor, key), [])
        suffix = f".{of.index(matrix)}" if len(of) > 1 else ""
        parts[f"{tensor} {key}{suffix}" if key else tensor] = value
        parts[f"{tensor} step"] = struct.pack("<f", count)
    total = hashlib.sha256()
    for name in sorted(parts):
        text = hashlib.sha256(parts[name]).hexdigest()
        total.update(f"{name} {text}\n".encode())
    return total.hexdigest()


@pytest.mark.parametrize("name", RUNS)
def test_a_rank_alone_has_the_bits_of_a_program_in_cpp(
    name, tmp_path, tmp_path_factory
):
    rule, options, dtype = RUNS[name]
    model, told = layouts.build("one", dtype)
    optimizer = layouts.optimizer_of(model, told, rule, **options)
    request = tmp_path / "request.json"
    request.write_bytes(optimizer.plan.request)
    result = subprocess.run(
        [program(tmp_path_factory.getbasetemp()), request, "0.02", "20"],
        capture_output=True,
    )
    assert result.returncode == 0, result.stderr
    assert hash_of(values_of(result.stdout), 20) == alone()[name][0]
