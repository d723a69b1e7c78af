"""Rendezvous before the first collective, so that a missing rank raises an
error instead of hanging the others.

    watch = announce(identity)     # a rank whose parameters are its own alone
    watch.check()                  # UsageError: others waited for this rank
    meet(identity, name)           # ranks whose parameters are tied to others'

An optimizer with plain tensors only never waits for another rank, so it may be
the only one that steps. Instead it leaves a note in the store of the process
group, under its *identity*: a digest of the names and shapes of its parameters.
Ranks whose same parameters are tied to others' find the note of a rank that
does not come; they raise an error and send it to that rank. A note alone is no
proof: the rank may be updating a copy of its model, and come later. So it has
`PATIENCE` seconds to come.

A meeting costs a rank at most four requests to the store: it counts itself
twice, waits for one key, which the last rank sets, and reads it. If somebody is
late, the rank that came first looks for the missing ones; no other does, unless
its parameters are others.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
from datetime import timedelta
from typing import Any, Iterable, Sequence

import torch
import torch.distributed as dist

from ._errors import UsageError

_log = logging.getLogger("canzona")

# Seconds that others wait for a rank whose parameters seem to be its own.
PATIENCE = 20.0
# The longest wait in one request: a client of a TCPStore does nothing else
# meanwhile, though other threads may need it.
_LONGEST_WAIT = 30.0
# Seconds between two looks of a rank that steps for itself.
_CHECK_EVERY = 1.0
# Seconds by which clocks may differ.
_INSTANT = 0.05
# Seconds that a rank which came too late waits for others who may begin anew.
_MOMENT = 1.0
# Added to the number of arrivals when a meeting ends without some rank.
_REFUSED = 1 << 40


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


def require_backend(group: Any, device: str) -> None:
    """UsageError if a process group (None: the default one) cannot send
    tensors of a kind of device."""
    group = group or dist.group.WORLD
    types = {str(t).partition(":")[0] for t in group._device_types}
    if device not in types:
        raise UsageError(
            f"parameters are on {device}, but the process group has "
            f"backends for {', '.join(sorted(types))} alone "
            f"({dist.get_backend(group)}); begin with init_process_group("
            '"cpu:gloo,cuda:nccl")'
        )


def default_timeout(device: str | None = None) -> timedelta:
    """How long the default process group waits for anything, by its backend
    for tensors of `device` (None: the first one that it has)."""
    everyone: Any = dist.group.WORLD
    try:
        kind = everyone._device_types[0] if device is None else device
        return everyone._get_backend(torch.device(kind)).options._timeout
    except (AttributeError, IndexError, RuntimeError):
        return dist.distributed_c10d.default_pg_timeout


def _noted(identity: str, rank: int) -> str:
    return f"plain/{identity}/{rank}"


def _withdrawn(identity: str, rank: int) -> str:
    return f"withdrawn/{identity}/{rank}"


def _arrivals(rank: int) -> str:
    return f"arrivals/{rank}"


def _refused(identity: str, rank: int, number: int) -> str:
    return f"refused/{identity}/{rank}/{number}"


class Watch:
    """A rank's note, and whether others have answered it."""

    def __init__(self, store: Any, identity: str):
        self._store = store
        rank = dist.get_rank()
        number = store.add(_noted(identity, rank), 1)
        self._withdrawn = _withdrawn(identity, rank)
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

    def withdraw(self) -> None:
        """Takes the note back, since its optimizer steps no more."""
        with contextlib.suppress(RuntimeError):  # the store may have ended
            self._store.add(self._withdrawn, 1)

    def _ask(self) -> str:
        try:
            if not self._store.check([self._answer]):
                return ""
            # Others have met without this rank: their next time is its next.
            self._store.add(_arrivals(dist.get_rank()), 1)
            return self._store.get(self._answer).decode()
        except RuntimeError:  # the process that keeps the store has ended
            self._next = float("inf")
            return ""


def announce(identity: str) -> Watch | None:
    """Notes that this rank's parameters are its own; returns at once."""
    store = _store() if spread() else None
    return None if store is None else Watch(store, identity)


def meet(
    identity: str, example: str, ranks: Sequence[int] | None = None
) -> None:
    """Returns when all of `ranks` are here (None: all that there are).

    UsageError, on all that are, if one does not come within the timeout of the
    process group, or updates the same parameters for itself. `example` is the
    name of one of these parameters."""
    store = _store()
    if store is None:
        return
    limit = default_timeout().total_seconds()
    everyone = range(dist.get_world_size())
    among = everyone if ranks is None else ranks
    if list(among) != list(everyone):  # they meet as often as they do
        text = ",".join(map(str, among))
        name = hashlib.sha256(text.encode()).hexdigest()[:32]
        store = dist.PrefixStore(f"among/{name}", store)
    meeting = Meeting(store, dist.get_rank(), among, limit)
    text = meeting.come(identity, example)
    if text:
        raise UsageError(text)


class Meeting:
    """One meeting of `ranks`, each of which makes its own object of it."""

    def __init__(
        self, store: Any, rank: int, ranks: Sequence[int], limit: float
    ):
        self._store = store
        self._rank = rank
        self._ranks = ranks
        self._limit = limit  # seconds
        self._seen: set[int] = set()  # notes of ranks that are not here
        self._told = False
        self._take_next_number()

    def _take_next_number(self) -> None:
        self._number = self._store.add(_arrivals(self._rank), 1)
        self._end = f"end/{self._number}"

    def come(self, identity: str, example: str) -> str:
        """Waits for the others; returns why they cannot go on, or ""."""
        self._identity, self._example = identity, example
        arrived = self._store.add(f"count/{self._number}", 1)
        while arrived > _REFUSED and self._are_others_further():
            self._take_next_number()
            arrived = self._store.add(f"count/{self._number}", 1)
        if arrived == len(self._ranks):
            self._store.set(self._end, "")
            return ""
        self._wait(is_first=arrived == 1)
        return self._store.get(self._end).decode()

    def _are_others_further(self) -> bool:
        """Looks whether the others, who met without this rank, are already at
        the next meeting; waits a moment for them."""
        began = time.monotonic()
        while self._store.add(f"count/{self._number + 1}", 0) == 0:
            if time.monotonic() - began > _MOMENT:
                return False
            time.sleep(_INSTANT)
        return True

    def _wait(self, is_first: bool) -> None:
        began = time.monotonic()
        patience = min(PATIENCE, self._limit)
        limit = self._limit if is_first else self._limit + PATIENCE
        pause = patience / 2 if is_first else _LONGEST_WAIT
        waited, looks = 0.0, None
        while not self._ended(min(pause, limit - waited)):
            waited = time.monotonic() - began
            late = waited > limit - _INSTANT
            if looks is None:  # notes are of one identity
                key = f"looks/{self._number}/{self._identity}"
                looks = self._store.add(key, 1) == 1
                pause = patience / 2 if looks else _LONGEST_WAIT
            if looks:
                self._look(waited > patience - _INSTANT, late)
            elif late:
                self._decide(
                    "not all ranks came to read layouts within "
                    f"{limit:.0f} s; the first use of an optimizer is for all "
                    "ranks"
                )

    def _ended(self, seconds: float) -> bool:
        """Waits for the end of the meeting; False if it takes longer."""
        began = time.monotonic()
        seconds = max(seconds, _INSTANT)
        try:
            self._store.wait([self._end], timedelta(seconds=seconds))
        except RuntimeError:
            if time.monotonic() - began < seconds / 2:
                raise  # the process that keeps the store has ended
            return False
        return True

    def _look(self, impatient: bool, late: bool) -> None:
        """Ends the meeting if it is time to. A rank whose note is seen for the
        first time has until the next look to come."""
        missing = self._missing()
        noted = [r for r in missing if self._has_note(r)]
        known, self._seen = self._seen, {*self._seen, *noted}
        if noted and (late or impatient and not known.isdisjoint(noted)):
            self._refuse(missing if late else noted, self._unlike(noted[0]))
        elif missing and late:
            self._refuse(
                missing,
                f"ranks {missing[:8]} did not come to read layouts within "
                f"{self._limit:.0f} s; the first use of an optimizer whose "
                "parameters are tied to other ranks' is for all ranks",
            )
        elif missing and impatient and not self._told:
            self._told = True
            _log.warning(
                "rank %d waits for ranks %s to read layouts; an optimizer's "
                "first use is for all ranks. A rank whose parameters are its "
                "own takes part if it is given replicas=[its number].",
                self._rank,
                missing[:8],
            )

    def _has_note(self, rank: int) -> bool:
        noted = self._store.add(_noted(self._identity, rank), 0)
        withdrawn = _withdrawn(self._identity, rank)
        return noted > 0 and noted > self._store.add(withdrawn, 0)

    def _missing(self) -> list[int]:
        """The ranks that are not here. It takes a request for each of them, so
        one rank alone asks."""
        return [
            r
            for r in self._ranks
            if self._store.add(_arrivals(r), 0) < self._number
        ]

    def _unlike(self, rank: int) -> str:
        return (
            f"parameter {self._example}: is a plain tensor on rank {rank}, "
            f"which updates it for itself, but tied to other ranks on rank "
            f"{self._rank} (a DTensor, or replicas=); lay the model out "
            "alike on every rank"
        )

    def _refuse(self, missing: Sequence[int], text: str) -> None:
        """Ends the meeting, and sends the error to the ranks that step for
        themselves, or will begin to."""
        if self._decide(text):
            for rank in missing:
                number = self._store.add(_noted(self._identity, rank), 0)
                key = _refused(self._identity, rank, max(1, number))
                self._store.set(key, text)

    def _decide(self, text: str) -> bool:
        """Ends the meeting with an error unless the last rank has come."""
        count = self._store.add(f"count/{self._number}", _REFUSED)
        if count - _REFUSED >= len(self._ranks):
            return False
        self._store.set(self._end, text)
        return True
