"""python -m canzona.selftest passes here, and names what was made wrong."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import canzona
from canzona import _layout
from canzona._library import load
from canzona.selftest import checks, layouts, machine, report, speed
from conftest import spawn

PACKAGE = Path(canzona.__file__).parent.parent


def run(ranks, folder, *words, program=("-m", "canzona.selftest"), **env):
    """Exit status, what was printed, and the file."""
    path = os.pathsep.join(
        p for p in (str(PACKAGE), os.environ.get("PYTHONPATH")) if p
    )
    command = [sys.executable]
    if ranks > 1:
        command += ["-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", str(ranks)]
    result = subprocess.run(
        [*command, *program, "--device", "cpu", *words],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=folder,
        env=dict(
            os.environ,
            PYTHONPATH=path,
            OMP_NUM_THREADS="1",
            GLOO_SOCKET_IFNAME="lo",
            **env,
        ),
    )
    file = folder / "selftest.json"
    found = json.loads(file.read_text()) if file.exists() else None
    return result.returncode, result.stdout + result.stderr, found


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_passes(ranks, tmp_path):
    status, text, found = run(ranks, tmp_path, "--model", "tiny")
    assert status == 0, text
    assert "PASSED" in text and found["verdict"] == "passed"
    assert found["ranks"] == ranks and set(found["hashes"]) == {
        "muon",
        "soap",
        "shampoo",
        "adamw",
    }
    assert found.get("layouts", []) == layouts.layouts_of(ranks)
    assert found["step"]["contenders"]["canzona.Muon"]["ms"] > 0
    written = json.dumps(found)
    for secret in (str(PACKAGE), str(tmp_path), "/home", "/root"):
        assert secret not in written


def test_scrubbed():
    import getpass
    import socket

    user, host = getpass.getuser(), socket.gethostname()
    text = report.scrubbed(
        f"/home/{user}/env/lib/libcanzona.so on {host}: 3 GB/s, 1/2, by {user}"
    )
    assert text.startswith("…/libcanzona.so on <host>: 3 GB/s, 1/2, by")
    assert len(user) < 2 or user not in text


def test_the_first_difference_is_named():
    want = {"a": torch.zeros(2, 3), "b": torch.zeros(4)}
    got = {k: v.clone() for k, v in want.items()}
    assert layouts.first_difference(got, want) == ""
    got["b"][2] = 0.5
    got["a"][1, 2] = -0.0  # equal, but other bits
    said = layouts.first_difference(got, want)
    assert said == "a differs first at [1, 2]: -0 instead of 0"
    del got["b"]
    got["a"] = want["a"]
    assert "b is missing" in layouts.first_difference(got, want)
    got.update(want, c=want["a"])
    assert "c should not" in layouts.first_difference(got, want)


def test_unlike_ranks_are_named():
    a = {"library": "x", "driver": "580.1"}
    assert machine.first_unlike([a, dict(a)]) == ""
    said = machine.first_unlike([a, dict(a, driver="570.2")])
    assert said == "driver is 570.2 on rank 1, 580.1 on rank 0"


def test_another_result_than_torchs_is_named(monkeypatch):
    faults, far = checks.against_torch("cpu")
    assert not faults and set(far) >= {"adamw"}
    step = torch.optim.AdamW.step

    def wrong(self):
        step(self)
        self.param_groups[0]["params"][0].data[0] += 0.01

    monkeypatch.setattr(torch.optim.AdamW, "step", wrong)
    faults, _ = checks.against_torch("cpu")
    assert len(faults) == 1 and "against torch, adamw" in faults[0]


def test_a_step_that_breaks_weights_is_named(monkeypatch):
    def broken(self):
        self.param_groups[0]["params"][0].data[0, 0] = float("nan")

    monkeypatch.setattr(torch.optim.Muon, "step", broken)
    with pytest.raises(RuntimeError, match="linear_0.weight is not finite"):
        speed.steps("tiny", 1, "cpu", False, lambda _: None)


# On the ranks of a test.


def values_alone(rule):
    return {r: checks.run("alone", r, "cpu") for r in (rule,)}


def changed_by_hand(layout, rule, monkey):
    """Rank 1 has another weight than the others at the end."""
    torch.manual_seed(0)
    expected = values_alone(rule)
    real = layouts.train

    def train(model, optimizer, steps):
        real(model, optimizer, steps)
        if dist.get_rank() == 1 and monkey:
            p = dict(layouts.named(model))["up.weight"]
            with torch.no_grad():
                _layout.local(p).view(-1)[3] += 1e-3

    layouts.train, rules = train, layouts.RULES
    known = layouts.layouts_of
    layouts.RULES, layouts.layouts_of = (rule,), lambda _: [layout]
    try:
        faults, _ = checks.same_on_layouts(expected, "cpu", lambda _: None)
    finally:
        layouts.train, layouts.RULES = real, rules
        layouts.layouts_of = known
    return faults


@pytest.mark.parametrize("layout", ["ddp", "fsdp2"])
def test_a_weight_changed_by_hand_is_named(layout):
    for faults in spawn(2, changed_by_hand, layout, "muon", False):
        assert faults == []
    for faults in spawn(2, changed_by_hand, layout, "muon", True):
        assert len(faults) == 1
        assert f"layout {layout}, muon, rank" in faults[0]
        assert "up.weight differs first at [" in faults[0]


def unlike_alone():
    values = values_alone("adamw")
    if dist.get_rank() == 1:
        values["adamw"]["up.weight"][0, 0] += 1
    return checks.same_alone(values)[0]


def test_a_device_of_other_bits_is_named():
    for faults in spawn(2, unlike_alone):
        assert len(faults) == 1 and "rank 1 alone gets" in faults[0]


def bad_link(monkey):
    real = dist.batch_isend_irecv

    def send(operations):
        works = real(operations)
        for work in works:
            work.wait()
        if operations[0].op is dist.irecv:
            operations[0].tensor[77] += 1
        return []

    if monkey:
        dist.batch_isend_irecv = send
    try:
        return machine.links("cpu")
    except RuntimeError as error:
        return str(error)
    finally:
        dist.batch_isend_irecv = real


def test_a_link_that_changes_numbers_is_named():
    for found in spawn(2, bad_link, False):
        assert found["pairs_gb_s"]["0-1"] > 0
    assert spawn(2, bad_link, True)[1] == "numbers from rank 0 arrived changed"


def bad_checkpoint(monkey):
    import torch.distributed.checkpoint as dcp

    expected = {r: checks.run("alone", r, "cpu") for r in ("muon", "soap")}
    real = dcp.load

    def load_wrong(saved, **words):
        real(saved, **words)
        weight = saved["model"]["down.weight"]
        with torch.no_grad():
            _layout.local(weight).view(-1)[0] += 1

    if monkey:
        dcp.load = load_wrong
    try:
        return checks.checkpoint(expected, "cpu", lambda _: None)[0]
    finally:
        dcp.load = real


def test_a_checkpoint_that_loads_wrong_is_named():
    assert spawn(2, bad_checkpoint, False) == [[], []]
    for faults in spawn(2, bad_checkpoint, True):
        assert len(faults) == 2
        assert "checkpoint, fsdp2 to tp, muon, rank" in faults[0]
        assert "down.weight" in faults[0]


# Whole programs.

_KILLED = """
import os, signal, sys
import torch.distributed as dist
from canzona.selftest import checks, layouts
from canzona.selftest.program import main
real = layouts.train
def train(model, optimizer, steps):
    if dist.is_initialized() and dist.get_rank() == {rank}:
        {act}
    real(model, optimizer, steps)
layouts.train = train
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_killed_is_named(rank, tmp_path):
    program = tmp_path / "killed.py"
    act = "os.kill(os.getpid(), signal.SIGKILL)"
    program.write_text(_KILLED.format(rank=rank, act=act))
    status, text, found = run(
        2, tmp_path, "--model", "none", program=(str(program),)
    )
    assert status != 0, text
    said = f"FAILED: rank {rank} ended during layout ddp, muon"
    assert said in text and found["verdict"] == "failed", text


def test_a_rank_that_hangs_is_named(tmp_path):
    program = tmp_path / "hangs.py"
    act = "import time; time.sleep(1000)"
    program.write_text(_KILLED.format(rank=1, act=act))
    status, text, found = run(
        2,
        tmp_path,
        "--model",
        "none",
        "--seconds",
        "30",
        program=(str(program),),
    )
    assert status != 0 and "FAILED: not ended after 30 s" in text, text
    assert "layout ddp, muon" in found["faults"][0]


def test_a_rank_that_raises_is_named(tmp_path):
    program = tmp_path / "raises.py"
    act = "raise RuntimeError('as asked for')"
    program.write_text(_KILLED.format(rank=1, act=act))
    status, text, found = run(
        2, tmp_path, "--model", "none", program=(str(program),)
    )
    assert status != 0 and "RuntimeError: as asked for (rank 1" in text, text


def test_a_wrong_library_is_named(tmp_path):
    """One of another release, and ranks that load different ones."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source = tmp_path / "other.c"
    source.write_text("int canzona_abi(void) { return 99; }\n")
    other = tmp_path / "libcanzona.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", other, source], check=True
    )
    status, text, found = run(
        1, tmp_path, "--model", "none", CANZONA_LIBRARY=str(other)
    )
    assert status == 1 and "FAILED" in text, text
    assert "has version 99 of the C interface" in found["faults"][0]
    assert str(tmp_path) not in json.dumps(found)


def test_ranks_with_different_libraries_are_named(tmp_path):
    copy = tmp_path / "copy" / "libcanzona.so"
    copy.parent.mkdir()
    shutil.copy(load("cpu").path, copy)
    with open(copy, "ab") as file:
        file.write(b"another build")
    program = tmp_path / "different.py"
    program.write_text(
        "import os, sys\n"
        "if os.environ['RANK'] == '1':\n"
        f"    os.environ['CANZONA_LIBRARY'] = {str(copy)!r}\n"
        "from canzona.selftest.program import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    status, text, found = run(
        2, tmp_path, "--model", "none", program=(str(program),)
    )
    assert status != 0, text
    assert found["faults"][0].startswith("installation: library is"), text
