"""Warnings that point at the caller's line, printed by rank 0 alone."""

from __future__ import annotations

import logging
import os
import sys
import warnings

import torch.distributed as dist

# Packages whose frames lie between the caller and a warning: step() is wrapped
# by torch, whose decorators use the other two.
_BETWEEN = ("canzona", "torch", "contextlib", "functools")

_log = logging.getLogger("canzona")


def warn(text: str) -> None:
    """Issues a UserWarning at the first frame outside of this package and
    torch. Other ranks than 0 log it at level INFO instead."""
    if not _is_first_rank():
        _log.info(text)
        return
    warnings.warn(f"canzona: {text}", stacklevel=_caller_level())


def _is_first_rank() -> bool:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank() == 0
    return os.environ.get("RANK", "") in ("", "0")  # as torchrun sets it


def _caller_level() -> int:
    """The stacklevel, as seen from warn(), of the caller's frame."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _is_between(frame.f_globals):
        level, frame = level + 1, frame.f_back
    return level


def _is_between(names: dict[str, object]) -> bool:
    return str(names.get("__name__", "")).partition(".")[0] in _BETWEEN
