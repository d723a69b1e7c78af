"""Every example of examples/pytorch learns, started as its text says."""

import importlib.util
import os
import re
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


def test_every_example_is_run():
    # scripts/test_megatron.py runs the one that needs a GPU.
    programs = {p.stem for p in EXAMPLES.glob("*.py")}
    programs -= {"tiny", "megatron_gpt"}
    assert programs == set(RANKS)
