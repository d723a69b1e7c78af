"""Every example of examples/pytorch learns, started as its text says."""

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pytorch"

# Ranks, and what an example needs besides torch.
RANKS = {
    "ddp": (2, None),
    "fsdp2": (2, None),
    "tp_fsdp2": (4, None),
    "hsdp_resume": (4, None),
    "qk_clip": (2, None),
    "hf_trainer": (2, "transformers"),
    "lightning_module": (2, "lightning"),
    "torchtitan_container": (2, "torchtitan"),
    "trl_sft": (2, "trl"),
    "accelerate_loop": (2, "accelerate"),
    "axolotl_plugin": (2, None),
    "verl_worker": (2, None),
}


def run(name, ranks, *arguments):
    import canzona

    package = str(Path(canzona.__file__).parent.parent)
    path = os.pathsep.join(
        p for p in (package, os.environ.get("PYTHONPATH")) if p
    )
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            str(ranks),
            str(EXAMPLES / f"{name}.py"),
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=900,
        env=dict(
            os.environ, PYTHONPATH=path, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1"
        ),
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("name", list(RANKS))
def test_example_learns(name, tmp_path):
    ranks, needs = RANKS[name]
    if needs and importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    argument = tmp_path / ("plan.html" if name == "fsdp2" else "folder")
    text = run(name, ranks, str(argument))
    losses = [
        float(x) for x in re.findall(r"(?:loss|then)\s+([0-9.]+\d)", text)
    ]
    assert len(losses) >= 2 and losses[-1] < 0.7 * losses[0], text
    if name == "fsdp2":
        assert "<html" in argument.read_text()


# The program, where it is built beside the package.
CANZONA = EXAMPLES.parents[1] / "build" / "canzona"


@pytest.mark.skipif(not CANZONA.exists(), reason="there is no build/canzona")
@pytest.mark.parametrize(
    "fixed",
    ["", "tp=2", "tp=2,zero=zero1", "zero=hier:2,recompute=on", "zero=zero2"],
)
def test_the_command_that_mesh_auto_prints(fixed):
    answer = subprocess.run(
        [CANZONA, "plan", "--model", "qwen3-0.6b", "--ranks", "4"]
        + ["--mesh", "auto", "--forbid", "pp", "--layers", "2"]
        + ["--memory-cap", "40GiB", "--global-batch", "64K", "--json"]
        + (["--fix", fixed] if fixed else []),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    commands = {one["runs"]: one for one in json.loads(answer)["commands"]}
    words = shlex.split(commands["PyTorch"]["command"])
    assert words[:4] == ["torchrun", "--standalone", "--nproc-per-node", "4"]
    assert words[4] == "examples/pytorch/layout.py"
    text = run("layout", 4, *words[5:], "--steps", "12")
    losses = [float(x) for x in re.findall(r"loss\s+([0-9.]+\d)", text)]
    assert len(losses) >= 2 and losses[-1] < losses[0], text


def test_every_example_is_run():
    # scripts/test_megatron.py runs the one that needs a GPU.
    programs = {p.stem for p in EXAMPLES.glob("*.py")}
    programs -= {"tiny", "megatron_gpt", "layout"}
    assert programs == set(RANKS)
