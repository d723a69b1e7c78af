"""Runs the parts in order; every rank runs the same."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from .._errors import Error, UsageError
from . import report

_DESCRIPTION = """\
Checks this installation on all ranks that torchrun has started, or on one, and
measures a step: every layout must have the bits of one rank.
"""


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m canzona.selftest", description=_DESCRIPTION
    )
    add = parser.add_argument
    add(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="auto: the GPU if torch has one",
    )
    add(
        "--model",
        choices=("auto", "none", "tiny", "small", "0.6b", "1.7b", "4b", "8b"),
        default="auto",
        help="matrices of the step that is timed; auto: by memory",
    )
    add("--layers", type=int, default=0, help="fewer layers of that model")
    add(
        "--peers", action="store_true", help="time dion too, if it is installed"
    )
    add("--json", default="selftest.json", help="the file that is written")
    add(
        "--seconds",
        type=float,
        default=300.0,
        help="give up after this (300)",
    )
    return parser.parse_args(words)


# The table says with these what is left out where ranks share a GPU.
_LIGHTER = "ranks share a GPU: links of neighbours alone, a step of tiny"
_LIGHTEST = (
    "more than 4 ranks share a GPU: links of neighbours alone; SOAP, Shampoo "
    "and AdamW on FSDP2 alone; no step is timed"
)


class _Program:
    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.begin = time.monotonic()
        self.rank = int(os.environ.get("RANK", "0"))
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.found: dict[str, Any] = {
            "verdict": "",
            "faults": [],
            "seconds": 0.0,
            "ranks": self.world,
            "parts": {},
        }

    def _timed(self, at: Callable[[str], None]) -> Callable[[str], None]:
        """`at`, which also notes the seconds of each part."""
        begin, label = time.monotonic(), ""

        def noted(next_label: str) -> None:
            nonlocal begin, label
            now = time.monotonic()
            if label:
                self.found["parts"][label] = round(now - begin, 1)
            begin, label = now, next_label
            at(next_label)

        return noted

    def tell(self, *faults: str) -> None:
        """Prints table and verdict and writes the file."""
        found = self.found
        found["faults"] += faults
        found["seconds"] = round(time.monotonic() - self.begin, 1)
        found["verdict"] = "failed" if found["faults"] else "passed"
        report.write(found, self.options.json)
        print(report.table(found))
        print(report.verdict(found), flush=True)

    def run(self) -> int:
        from .watch import Watch

        watch = Watch(self.rank, self.world, self.options.seconds, self.tell)
        try:
            self._run(watch)
        except Exception as error:
            watch.fail(_in_words(error))
        watch.finish()
        if self.rank == 0:
            self.tell()
        return 1 if self.found["faults"] else 0

    def _run(self, watch: Any) -> None:
        at = self._timed(watch.at)
        at("import torch")
        import torch
        import torch.distributed as dist

        from . import checks, machine, speed

        device = self._device(torch)
        found = self.found
        at("look at the installation")
        found.update(machine.surroundings())
        found["installation"] = machine.installation(device)
        values = checks.alone(device, at)
        at("against torch")
        faults, found["against_torch"] = checks.against_torch(device)
        if self.world > 1:
            at("meet the other ranks")
            self._meet(torch, dist, device)
            watch.meet()
            dist.barrier()
            faults += self._unlike(dist, machine)
        more, found["hashes"] = checks.same_alone(values)
        faults += more
        if self.world > 1:
            at("links")
            found["links"] = machine.links(device)
            if machine.ranks_per_gpu(device) > 1:
                found["lighter"] = _LIGHTER
            if machine.is_crowded(device):
                found["lighter"] = _LIGHTEST
            more, found["layouts"] = checks.same_on_layouts(
                values, device, at
            )
            faults += more
        more, found["checkpoint"] = checks.checkpoint(values, device, at)
        faults += more
        if self.options.model != "none" and not machine.is_crowded(device):
            at("step")
            size = speed.chosen(self.options.model, self.options.layers, device)
            found["step"] = speed.steps(
                *size, device, self.options.peers, at
            )
        found["faults"] = self._of_all_ranks(dist, faults)
        if self.world > 1:
            dist.barrier()
            at("the end")
            dist.destroy_process_group()

    def _device(self, torch: Any) -> str:
        device = self.options.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cuda":
            count = torch.cuda.device_count()
            if not count:
                raise UsageError("--device cuda: torch finds no GPU")
            local = int(os.environ.get("LOCAL_RANK", "0"))
            torch.cuda.set_device(local % count)
            # NCCL refuses two ranks of one host on a GPU.
            if int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > count:
                os.environ.setdefault("NCCL_HOSTID", f"rank{self.rank}")
                os.environ.setdefault("NCCL_NET", "Socket")
                os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
        else:
            torch.set_num_threads(
                max(1, torch.get_num_threads() // max(1, self.world))
            )
        return device

    def _meet(self, torch: Any, dist: Any, device: str) -> None:
        self.found["backend"] = "nccl" if device == "cuda" else "gloo"
        dist.init_process_group(
            self.found["backend"],
            timeout=timedelta(seconds=min(120.0, self.options.seconds)),
        )

    def _unlike(self, dist: Any, machine: Any) -> list[str]:
        all_found: list[Any] = [None] * self.world
        dist.all_gather_object(all_found, self.found["installation"])
        unlike = machine.first_unlike(all_found)
        return [f"installation: {unlike}"] if unlike else []

    def _of_all_ranks(self, dist: Any, faults: list[str]) -> list[str]:
        """Faults that single ranks found, without repetitions."""
        if self.world == 1:
            return faults
        every: list[Any] = [None] * self.world
        dist.all_gather_object(every, faults)
        return list(dict.fromkeys(f for some in every for f in some))


def _in_words(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0] or repr(error)
    known = isinstance(error, (Error, UsageError))
    return text if known else f"{type(error).__name__}: {text}"


def main(words: list[str]) -> int:
    options = _arguments(words)
    if options.layers < 0 or options.seconds <= 0:
        print("--layers and --seconds must be above 0", file=sys.stderr)
        return 2
    return _Program(options).run()
