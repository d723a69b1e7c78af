"""A step inside a CUDA graph that a script captures (capturable=True).

    if is_capturing():
        captured(optimizer)  # instead of a step

Each replay of the graph is a step of its own: it counts the updates in
`optimizer.state`, reads rates that are tensors on the GPU, and leaves all as it
was if a gradient is not finite. The host learns of replays when it next asks
(`settle`). A capture cannot wait for the GPU, so whatever would have to is
refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ._errors import Error, UsageError
from ._layout import local
from ._state_edits import is_changed

if TYPE_CHECKING:
    from ._optimizer import MatrixOptimizer
    from ._run import Run

_SWITCH = "capturable=True"
_NOT_WARM = (
    "step(): the current stream is being captured; take one step outside of the "
    "capture first, on the weights and states that it is to go on with, and "
    "wait for it (torch.cuda.synchronize())"
)
# Their refreshes ask the host which decompositions have converged.
_ASKS_THE_HOST = ("soap", "shampoo")


def is_capturing() -> bool:
    """True if the current stream is being captured."""
    return (
        torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
    )


def check_rules(rules: Iterable[str], nonfinite: str) -> None:
    """UsageError if steps of these cannot be part of a CUDA graph."""
    for rule in rules:
        if rule in _ASKS_THE_HOST:
            raise UsageError(
                f"{_SWITCH}: is not supported with {rule}, whose refreshes ask "
                "the host; capture forward and backward, and step outside of "
                "the graph"
            )
    if nonfinite == "raise":
        raise UsageError(
            f'{_SWITCH}: a replay cannot raise, so nonfinite="raise" is not '
            'supported with it; expected "skip" or "propagate"'
        )


def check_capturable(groups: Sequence[Mapping[str, Any]], run: Run) -> bool:
    """True if steps may be captured; UsageError if that is asked for but not
    possible."""
    if not any(group.get("capturable") for group in groups):
        return False
    check_rules((group["rule"] for group in groups), run.setup.nonfinite)
    if run.world > 1:
        raise UsageError(
            f"{_SWITCH}: this step is shared by {run.world} ranks, and only "
            "that of one rank can be part of a CUDA graph; capture forward and "
            "backward, and step outside of the graph"
        )
    if run.device.type != "cuda":
        raise UsageError(
            f"{_SWITCH}: the parameters are on the {run.device}; expected a GPU"
        )
    return True


def captured(optimizer: MatrixOptimizer) -> bool:
    """Makes a step part of the graph that is being captured; False if the
    parameters are not on a GPU."""
    parameters = optimizer._parameters()
    if not any(local(p).is_cuda for p in parameters):
        return False
    optimizer._require_open()
    run = optimizer._run
    if run is None:
        raise UsageError(_NOT_WARM)
    if not check_capturable(optimizer.param_groups, run):
        raise UsageError(
            "step(): the current stream is being captured; give the optimizer "
            f"{_SWITCH}, or call step() after the graph"
        )
    optimizer._check_swapped(run, parameters)
    optimizer._tell_options(run)
    is_new = bool(optimizer._asleep and optimizer._woken())
    if is_new or is_changed(optimizer, run) or not run.is_warm():
        raise UsageError(_NOT_WARM)
    run.captured.add(run, parameters, optimizer.param_groups)
    return True


class Captured:
    """Steps of a run that are part of graphs. They use its memory, so it must
    not be freed or planned anew."""

    def __init__(self) -> None:
        # Replays read these; the counts say how many have changed nothing.
        self._kept: list[Any] = []
        self._told = torch.zeros(2, dtype=torch.int64)
        self._known = [0, 0]

    def __bool__(self) -> bool:
        return bool(self._kept)

    def add(
        self,
        run: Run,
        parameters: Sequence[torch.Tensor],
        groups: Sequence[Mapping[str, Any]],
    ) -> None:
        """Makes a step part of the graph that is being captured."""
        lrs = [group["lr"] for group in groups]
        rates = [
            _rate(i, lrs[i], run.device) for i, _ in run.setup.plan_groups
        ]
        with run._on_stream():
            run.capture(parameters, rates, self._told.data_ptr())
        self._kept.append(lrs)

    def settle(self, run: Run) -> None:
        """Waits for replays, and learns what became of them."""
        torch.cuda.synchronize(run.device)
        skipped, refused = self._told.tolist()
        run.skipped += skipped - self._known[0]
        had, self._known = self._known[1], [skipped, refused]
        before = run.counts
        run.take_counts()
        if run.counts is not before:
            run.has_moved = True
            run.clipped.clear()
        if refused > had:
            raise Error(
                f"{refused - had} replays of a CUDA graph changed nothing: "
                "options are others than when the step was captured, or a "
                "learning rate is no number of at least 0; capture it anew"
            )

    def refuse(self, what: str) -> None:
        """UsageError if there are steps that `what` would leave without their
        memory."""
        if self:
            raise UsageError(
                f"{what}: steps of this optimizer are part of a CUDA graph, "
                "which goes on with the parameters that it was captured with; "
                "make a new optimizer, load the old one's state_dict(), and "
                "capture it anew"
            )


def _rate(group: int, lr: Any, device: torch.device) -> tuple[float, int, bool]:
    """A number; or where on the GPU it is, and whether as a float64."""
    if not isinstance(lr, torch.Tensor):
        return float(lr), 0, False
    if (
        lr.device != device
        or lr.numel() != 1
        or lr.dtype not in (torch.float32, torch.float64)
    ):
        raise UsageError(
            f"group {group}: lr is a tensor of {lr.numel()} elements of "
            f"{lr.dtype} on {lr.device}; a captured step reads one of float32 "
            f"or float64 on {device}"
        )
    return 0.0, lr.data_ptr(), lr.dtype == torch.float64
