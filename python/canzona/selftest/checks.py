"""The parts that say whether results are right. Each returns sentences, one for
every fault, which name the layout, the parameter and the first difference."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import canzona

from . import layouts
from .machine import is_crowded

_At = Callable[[str], None]
_Values = dict[str, torch.Tensor]

# Of a weight's change over one step, relative to its norm. torch computes
# Newton-Schulz in bf16, ours in bf16 or better; five iterations amplify that.
_MUON_TOLERANCE = 0.05
_ADAMW_TOLERANCE = 1e-5


def _everywhere(mine: str) -> list[str]:
    """What each rank found."""
    if not dist.is_initialized():
        return [mine]
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, mine)
    return found


def _first(what: str, mine: str) -> list[str]:
    """One sentence of the first rank that found something."""
    for rank, text in enumerate(_everywhere(mine)):
        if text:
            return [f"{what}, rank {rank}: {text}"]
    return []


def run(layout: str, rule: str, device: str) -> _Values:
    """Weights and states at the end, whole, on every rank. A collective."""
    model, told = layouts.laid_out(layout, device)
    optimizer = layouts.optimizer_of(rule, model, told)
    layouts.train(model, optimizer, range(1, layouts.STEPS + 1))
    values = layouts.whole_values(model, optimizer)
    layouts.close(optimizer)
    return values


def alone(device: str, at: _At) -> dict[str, _Values]:
    """Every rule on this rank alone, before ranks meet."""
    found = {}
    for rule in layouts.RULES:
        at(f"one rank, {rule}")
        found[rule] = run("alone", rule, device)
    return found


def same_alone(values: dict[str, _Values]) -> tuple[list[str], dict[str, str]]:
    """Whether every rank alone gets the same bits, and their hashes."""
    hashes = {rule: layouts.digest(v) for rule, v in values.items()}
    faults = []
    if dist.is_initialized():
        others: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(others, hashes)
        for rank, other in enumerate(others):
            faults += [
                f"one rank, {rule}: rank {rank} alone gets {other[rule]}, rank 0 "
                f"{others[0][rule]}; their devices or libraries differ"
                for rule in hashes
                if other[rule] != others[0][rule]
            ]
    return faults, hashes


def same_on_layouts(
    expected: dict[str, _Values], device: str, at: _At
) -> tuple[list[str], list[str]]:
    """Faults, and the layouts that were tested: Muon on all of them, other
    rules on FSDP2 alone if ranks crowd a GPU."""
    tested = layouts.layouts_of(dist.get_world_size())
    faults: list[str] = []
    for layout in tested:
        lighter = is_crowded(device) and layout != "fsdp2"
        for rule in layouts.RULES[:1] if lighter else layouts.RULES:
            at(f"layout {layout}, {rule}")
            values = run(layout, rule, device)
            wrong = layouts.first_difference(values, expected[rule])
            faults += _first(f"layout {layout}, {rule}", wrong)
    return faults, tested


def _states(model: nn.Module, optimizer: Any) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import get_state_dict

    weights, states = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": states}


def _shared_folder() -> str:
    folder = [tempfile.mkdtemp()]
    if dist.is_initialized():
        dist.broadcast_object_list(folder)
    return folder[0]


def checkpoint(
    expected: dict[str, _Values], device: str, at: _At
) -> tuple[list[str], str]:
    """Saves on one layout halfway, loads on another and goes on. Faults, and
    what was tested."""
    world = dist.get_world_size() if dist.is_initialized() else 1
    local = int(os.environ.get("LOCAL_WORLD_SIZE", str(world)))
    if local != world:
        return [], "skipped: several machines may share no folder"
    pair = ("fsdp2", "tp") if world > 1 else ("alone", "alone")
    what = f"checkpoint, {pair[0]} to {pair[1]}"
    faults: list[str] = []
    folder = _shared_folder()
    try:
        for rule in ("muon",) if is_crowded(device) else ("muon", "soap"):
            at(f"{what}, {rule}")
            values = _resumed(pair, rule, device, os.path.join(folder, rule))
            wrong = layouts.first_difference(values, expected[rule])
            faults += _first(f"{what}, {rule}", wrong)
        if dist.is_initialized():
            dist.barrier()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return faults, " to ".join(pair)


def _resumed(
    pair: tuple[str, str], rule: str, device: str, folder: str
) -> _Values:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import set_state_dict

    half = layouts.STEPS // 2
    model, told = layouts.laid_out(pair[0], device)
    optimizer = layouts.optimizer_of(rule, model, told)
    layouts.train(model, optimizer, range(1, half + 1))
    # It warns that one process has no process group.
    warnings.filterwarnings("ignore", "torch.distributed is disabled")
    dcp.save(_states(model, optimizer), checkpoint_id=folder)
    layouts.close(optimizer)
    model, told = layouts.laid_out(pair[1], device)
    optimizer = layouts.optimizer_of(rule, model, told)
    saved = _states(model, optimizer)
    dcp.load(saved, checkpoint_id=folder)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=saved["model"],
        optim_state_dict=saved["optimizer"],
    )
    layouts.train(model, optimizer, range(half + 1, layouts.STEPS + 1))
    values = layouts.whole_values(model, optimizer)
    layouts.close(optimizer)
    return values


def _change(make: Callable[[Any], Any], device: str) -> torch.Tensor:
    """How a matrix changes in three steps."""
    model = nn.Linear(96, 64, bias=False, device=device)
    with torch.no_grad():
        model.weight.copy_(layouts.numbers("reference", 0, (64, 96)) * 0.1)
    before = model.weight.detach().clone()
    optimizer = make(model)
    for step in (1, 2, 3):
        value = layouts.numbers("reference", step, (64, 96), device)
        model.weight.grad = value
        optimizer.step()
    return model.weight.detach() - before


def against_torch(device: str) -> tuple[list[str], dict[str, float]]:
    """Whether one rank's weights are those of torch's own optimizers, and how
    far they are from them."""
    values: dict[str, Any] = {"lr": 0.02, "weight_decay": 0.1}
    pairs: list[tuple[str, float, Any, Any]] = [
        (
            "adamw",
            _ADAMW_TOLERANCE,
            lambda m: canzona.AdamW(m, **values),
            lambda m: torch.optim.AdamW(m.parameters(), **values),
        )
    ]
    if hasattr(torch.optim, "Muon"):
        pairs.append(
            (
                "muon",
                _MUON_TOLERANCE,
                lambda m: canzona.Muon(m, **values),
                lambda m: torch.optim.Muon(
                    m.parameters(), adjust_lr_fn="match_rms_adamw", **values
                ),
            )
        )
    faults, found = [], {}
    for rule, tolerance, ours, theirs in pairs:
        a, b = _change(ours, device), _change(theirs, device)
        far = float((a - b).norm() / b.norm())
        found[rule] = float(f"{far:.2g}")
        if not far <= tolerance:
            faults.append(
                f"against torch, {rule}: the change of a matrix is {far:.2g} of "
                f"its norm from torch's; expected at most {tolerance:.2g}"
            )
    return faults, found
