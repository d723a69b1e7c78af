"""Ranks meet before they agree, so that nobody waits for one that never comes.

    watch = announce(identity)     # a rank whose parameters are its own alone
    watch.check()                  # UsageError: others waited for this rank
    meet(identity)                 # ranks whose parameters are tied to others'

An optimizer of plain tensors alone is its rank's matter and never waits for
another rank, so it may be the only one that steps. It leaves a note in the
store of the process group instead, under its *identity*: a digest of the names
and shapes of its parameters. Ranks for which the same parameters are tied to
others' find the note of a rank that does not come; they raise, and tell it.
Notes are no proof at once: a rank may update a copy of its model for itself
first, and come later. So it has `PATIENCE` seconds to do so.
"""

from __future__ import annotations

import hashlib
import logging
import time
from typing import Any, Iterable, Sequence

import torch.distributed as dist

from ._errors import UsageError

_log = logging.getLogger("canzona")

# Seconds that others wait for a rank whose parameters seem to be its own.
PATIENCE = 20.0
# Seconds between two looks: at most, of ranks that wait, and at least, of a
# rank that steps for itself.
_LONGEST_PAUSE = 0.1
_CHECK_EVERY = 1.0


def spread() -> bool:
    """True if there are other ranks."""
    return (
        dist.is_available()
        and dist.is_initialized()
        and dist.get_world_size() > 1
    )


def identity_of(parameters: Iterable[tuple[str, Sequence[int]]]) -> str:
    """Of an optimizer, from names and whole shapes."""
    text = repr([(name, list(shape)) for name, shape in parameters])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _store() -> Any:
    """None if this process group has none."""
    try:
        store = dist.distributed_c10d._get_default_store()
    except (AttributeError, KeyError, ValueError):
        return None
    return None if store is None else dist.PrefixStore("canzona", store)


def _noted(identity: str, rank: int) -> str:
    return f"plain/{identity}/{rank}"


def _refused(identity: str, rank: int, number: int) -> str:
    return f"refused/{identity}/{rank}/{number}"


class Watch:
    """A rank's note, and whether others have answered it."""

    def __init__(self, store: Any, identity: str):
        self._store = store
        rank = dist.get_rank()
        number = store.add(_noted(identity, rank), 1)
        self._answer = _refused(identity, rank, number)
        self._next = time.monotonic() + _CHECK_EVERY
        self._text = ""

    def check(self) -> None:
        """UsageError if other ranks have given up waiting for this one; asks
        the store once a second at most."""
        if not self._text and time.monotonic() >= self._next:
            self._next = time.monotonic() + _CHECK_EVERY
            self._text = self._ask()
        if self._text:
            raise UsageError(self._text)

    def _ask(self) -> str:
        try:
            if not self._store.check([self._answer]):
                return ""
            # Others have met without this rank: their next time is its next.
            self._store.add(f"arrivals/{dist.get_rank()}", 1)
            return self._store.get(self._answer).decode()
        except RuntimeError:  # the process that keeps the store has ended
            self._next = float("inf")
            return ""


def announce(identity: str) -> Watch | None:
    """Notes that this rank's parameters are its own; returns at once."""
    store = _store() if spread() else None
    return None if store is None else Watch(store, identity)


def meet(identity: str, example: str) -> None:
    """Returns when all ranks are here; UsageError, on all that are, if one
    updates the same parameters for itself. `example` is one of their names."""
    store = _store()
    if store is None:
        return
    rank, world = dist.get_rank(), dist.get_world_size()
    number = store.add(f"arrivals/{rank}", 1)
    store.set(f"here/{number}/{rank}", "")
    if store.add(f"count/{number}", 1) == world:
        _decide(store, number, "")
    _Waiting(store, number, identity, example).wait()
    text = store.get(f"end/{number}").decode()
    if text:
        raise UsageError(text)


def _decide(store: Any, number: int, text: str) -> bool:
    """Ends a meeting; one rank does, for all."""
    first = store.add(f"decided/{number}", 1) == 1
    if first:
        store.set(f"end/{number}", text)
    return first


def _timeout() -> float:
    """Seconds that the process group waits for anything."""
    everyone: Any = dist.group.WORLD
    try:
        backend = everyone._get_backend(everyone._device_types[0])
        return backend.options._timeout.total_seconds()
    except (AttributeError, IndexError, RuntimeError):
        return dist.distributed_c10d.default_pg_timeout.total_seconds()


class _Waiting:
    def __init__(self, store: Any, number: int, identity: str, example: str):
        self._store = store
        self._number = number
        self._identity = identity
        self._example = example
        self._seen: dict[int, float] = {}  # notes of ranks that are not here
        self._told = False

    def wait(self) -> None:
        began = time.monotonic()
        limit = _timeout()
        pause = 0.001
        while not self._store.check([f"end/{self._number}"]):
            waited = time.monotonic() - began
            if waited > PATIENCE:
                self._look_for_notes()
            if waited > limit:
                raise UsageError(
                    f"ranks {self._missing()} did not come to read layouts "
                    f"within {limit:.0f} s; the first use of an optimizer "
                    "whose parameters are tied to other ranks' is for all "
                    "ranks"
                )
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE, 2 * pause)

    def _missing(self) -> list[int]:
        return [
            r
            for r in range(dist.get_world_size())
            if not self._store.check([f"here/{self._number}/{r}"])
        ]

    def _look_for_notes(self) -> None:
        now = time.monotonic()
        missing = self._missing()
        for rank in missing:
            if not self._store.check([_noted(self._identity, rank)]):
                continue
            # One that has just begun gets its time, too.
            if now - self._seen.setdefault(rank, now) >= PATIENCE / 2:
                self._refuse(rank)
                return
        if missing and not self._told:
            self._told = True
            _log.warning(
                "rank %d waits for ranks %s to read layouts; an optimizer's "
                "first use is for all ranks. A rank whose parameters are its "
                "own takes part if it is given replicas=[its number].",
                dist.get_rank(),
                missing[:8],
            )

    def _refuse(self, rank: int) -> None:
        text = (
            f"parameter {self._example}: is a plain tensor on rank {rank}, "
            f"which updates it for itself, but tied to other ranks on rank "
            f"{dist.get_rank()} (a DTensor, or replicas=); lay the model out "
            "alike on every rank"
        )
        if _decide(self._store, self._number, text):
            number = self._store.add(_noted(self._identity, rank), 0)
            self._store.set(_refused(self._identity, rank, number), text)
