"""Errors of calls that several ranks take part in.

    with together(group, ranks):
        ...     # local checks; nothing that other ranks wait for

Leaving the block is a collective of the group's ranks: if the block fails on one
of them, every rank raises, so that none waits for a rank that has given up.
Every public call of an optimizer that other ranks take part in passes through
here before it changes anything; a step, whose ranks exchange numbers anyway,
sends its error along with them (_run.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch.distributed as dist

from ._errors import Error, NumericalError, UsageError


class Pause(Exception):
    """A rank cannot begin a step before all ranks have done something else
    together. Not an error, unless other ranks do not pause for the same."""

    unlike = "{}: is met on ranks {}, but not on ranks {}"

    def __init__(self, names: Sequence[str] = ()):
        super().__init__(", ".join(names))
        self.names = list(names)

    @classmethod
    def check_alike(cls, reports: Sequence[Any], ranks: Sequence[int]) -> None:
        """UsageError if ranks pause for different reasons; `reports` by rank:
        kind and names, or None."""
        kind = next(report[0] for report in reports if report)
        if kind != cls.__name__:
            others = [c for c in Pause.__subclasses__() if c.__name__ == kind]
            return others[0].check_alike(reports, ranks)
        names = {
            rank: set(report[1]) if report and report[0] == kind else None
            for rank, report in zip(ranks, reports)
        }
        for name in sorted(set().union(*(of or () for of in names.values()))):
            have = [r for r in ranks if name in (names[r] or ())]
            if len(have) < len(ranks):
                lack = [r for r in ranks if r not in have]
                raise UsageError(cls.unlike.format(name, have, lack))
        lack = [r for r in ranks if names[r] is None]
        if lack:
            have = [r for r in ranks if r not in lack]
            raise UsageError(cls.unlike.format("parameters", have, lack))


def told(error: BaseException) -> tuple[str, str]:
    """An error as it is sent to other ranks."""
    return type(error).__name__, str(error)


def rebuilt(kind: str, text: str) -> Exception:
    """Rebuilds an exception reported by another rank."""
    known = {e.__name__: e for e in (UsageError, NumericalError, MemoryError)}
    return known.get(kind, Error)(text)


def raise_on_all(
    error: Exception | None, group: Any, ranks: Sequence[int]
) -> None:
    """Raises this rank's error, or one of the same kind that names the first
    rank that has one. `ranks`: global numbers of the group's ranks; a group of
    None has this rank alone."""
    reports: list[Any] = [None if error is None else told(error)]
    if group is not None:
        mine, reports = reports[0], [None] * len(ranks)
        dist.all_gather_object(reports, mine, group=group)
    if error is not None:
        raise error
    for rank, report in zip(ranks, reports):
        if report is not None:
            kind, text = report
            raise rebuilt(kind, f"rank {rank}: {text}")


@contextlib.contextmanager
def together(group: Any, ranks: Sequence[int]) -> Iterator[None]:
    error: Exception | None = None
    try:
        yield
    except Exception as raised:
        error = raised
    raise_on_all(error, group, ranks)
