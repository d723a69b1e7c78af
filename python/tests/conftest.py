"""Ranks as processes that stay: `spawn(world, function, *arguments)` runs a
function of a test module on gloo ranks and returns what each of them returned.
Every call gets a process group of its own."""

from __future__ import annotations

import os
import pickle
import select
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

_CHILD = """
import gc, importlib, os, pickle, struct, sys, traceback
answers = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # what tests print does not disturb the answers
sys.path.insert(0, sys.argv[1])
import torch, torch.distributed as dist
torch.set_num_threads(1)
while True:
    head = sys.stdin.buffer.read(8)
    if len(head) < 8: os._exit(0)
    job = pickle.loads(sys.stdin.buffer.read(struct.unpack("<q", head)[0]))
    saved = dict(os.environ)
    os.environ.update(job["env"])
    try:
        if job["store"]:
            dist.init_process_group(
                job["backend"], rank=job["rank"], world_size=job["world"],
                store=dist.FileStore(job["store"], job["world"]))
        module = importlib.import_module(job["module"])
        answer = ("ok", getattr(module, job["name"])(*job["arguments"]))
    except BaseException as e:
        answer = ("error", type(e).__name__, str(e), traceback.format_exc())
    text = pickle.dumps(answer)
    answers.write(struct.pack("<q", len(text)) + text)
    answers.flush()
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
    os.environ.clear(); os.environ.update(saved)
    gc.collect()
"""


class RankError(AssertionError):
    """A rank's exception: `kind` and `text` are its class and message."""

    def __init__(self, rank, kind, text, trace):
        super().__init__(f"rank {rank}: {kind}: {text}\n{trace}")
        self.rank, self.kind, self.text = rank, kind, text


class _Worker:
    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(HERE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo"),
        )

    def send(self, job):
        text = pickle.dumps(job)
        self.process.stdin.write(struct.pack("<q", len(text)) + text)
        self.process.stdin.flush()

    def _read(self, count, deadline):
        data = b""
        fd = self.process.stdout.fileno()
        while len(data) < count:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([fd], [], [], left)[0]:
                raise TimeoutError
            more = os.read(fd, count - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def answer(self, deadline):
        try:
            (length,) = struct.unpack("<q", self._read(8, deadline))
            return pickle.loads(self._read(length, deadline))
        except EOFError:
            return ("error", "Died", f"exit {self.process.wait()}", "")
        except TimeoutError:
            return ("error", "Hang", "no answer in time", "")

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


_WORKERS: list[_Worker] = []


def run_ranks(
    world,
    function,
    *arguments,
    timeout=600,
    env=None,
    group=True,
    backend="gloo",
):
    """What every rank returned, or ("error", class, text, trace).

    `env`: variables of the ranks; "{rank}" in a value is the rank's number."""
    given = env or {}
    while len(_WORKERS) < world:
        _WORKERS.append(_Worker())
    with tempfile.TemporaryDirectory(
        ignore_cleanup_errors=True  # a rank may still be closing its store
    ) as folder:
        for r in range(world):
            _WORKERS[r].send(
                dict(
                    rank=r,
                    world=world,
                    module=function.__module__,
                    name=function.__qualname__,
                    arguments=arguments,
                    backend=backend,
                    store=f"{folder}/store" if group else "",
                    env=dict(
                        {k: v.format(rank=r) for k, v in given.items()},
                        RANK=str(r),
                        WORLD_SIZE=str(world),
                        LOCAL_RANK=str(r),
                    ),
                )
            )
        deadline = time.monotonic() + timeout
        answers = [_WORKERS[r].answer(deadline) for r in range(world)]
    if any(a[0] == "error" and a[1] in ("Died", "Hang") for a in answers):
        stop_ranks()
    return answers


def stop_ranks():
    while _WORKERS:
        _WORKERS.pop().stop()


def spawn(world, function, *arguments, **options):
    values = []
    for r, answer in enumerate(
        run_ranks(world, function, *arguments, **options)
    ):
        if answer[0] == "error":
            raise RankError(r, *answer[1:])
        values.append(answer[1])
    return values


def errors(world, function, *arguments, **options):
    """Each rank's (class, text); every rank must have failed."""
    answers = run_ranks(world, function, *arguments, **options)
    assert all(a[0] == "error" for a in answers), answers
    return [(a[1], a[2]) for a in answers]


# By file, a word in the names of the tests that --quick runs; "": all of them.
_QUICK = {
    "test_bits.py": ("ddp2", "fsdp2", "cpp"),
    "test_distributed.py": ("groups_have_our_names", "process_group_first"),
    "test_life.py": ("quick",),
    "test_megatron.py": ("tp1", "tp2", "table", "refused", "version"),
    "test_routing.py": ("",),
    "test_script_states.py": ("",),
    "test_scripts.py": ("",),
    "test_selftest.py": ("passes[1]", "first_difference", "scrubbed"),
    "test_stored.py": ("that_are_refused",),
    "test_state_dicts.py": ("",),
    "test_together.py": ("",),
}


def pytest_addoption(parser):
    parser.addoption(
        "--quick", action="store_true", help="what takes minutes on two cores"
    )
    parser.addoption(
        "--life", type=int, help="sequences of each family in test_life.py"
    )
    parser.addoption(
        "--life-one", help="one sequence of test_life.py: FAMILY:SEED[:ACTIONS]"
    )


def pytest_collection_modifyitems(config, items):
    if config.getoption("--quick"):
        items[:] = [
            item
            for item in items
            if any(w in item.name for w in _QUICK.get(item.path.name, ()))
        ]


def pytest_sessionfinish(session):
    stop_ranks()


@pytest.fixture(autouse=True)
def _one_thread():
    import torch

    torch.set_num_threads(1)
