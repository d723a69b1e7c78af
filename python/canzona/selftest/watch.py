"""Notices ranks that end or hang, whatever this rank waits for meanwhile.

    watch = Watch(rank, world, seconds, report)
    watch.at("layout ddp, muon")         # what this rank does now
    watch.fail("…")                      # this rank cannot go on; ends it
    watch.finish()

A thread writes to torchrun's store that this rank lives and where it is. If the
process is told to end (torchrun does so when a rank has died), if a rank
reports a failure or if time is up, the ranks that still live find out who does
not; the first of them calls `report` with a sentence, and all exit with 1.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

_BEAT = 0.25  # seconds
_SILENCE = 2.0  # seconds after which a rank without a beat is gone
# Ranks that have not seen a failure yet finish what they do before.
_GRACE = 1.0


def _client(world: int) -> Any:
    """A connection of its own: one that waits does nothing else."""
    import torch.distributed as dist

    store = dist.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        world,
        is_master=False,
        timeout=timedelta(seconds=60),
    )
    # Attempts of a restarted job do not see each other.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"canzona selftest {attempt}", store)


class Watch:
    def __init__(
        self,
        rank: int,
        world: int,
        seconds: float,
        report: Callable[[str], None],
    ):
        self._rank, self._world = rank, world
        self._end = time.monotonic() + seconds
        self._seconds = seconds
        self._report = report
        self._label = "the start"
        self._beats = 0
        self._over = False
        self._store: Any = None
        self._lock = threading.Lock()
        self._told, self._tells = socket.socketpair()
        self._tells.setblocking(False)
        # The handler does nothing; its signal is read from the socket, though
        # this thread may wait in a library.
        self._former = {
            s: signal.signal(s, lambda *_: None)
            for s in (signal.SIGTERM, signal.SIGINT)
        }
        signal.set_wakeup_fd(self._tells.fileno())
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def at(self, label: str) -> None:
        self._label = label
        self._beat()  # what ends this rank at once must not hide where it was

    def meet(self) -> None:
        """Begins to watch the others; every rank has come this far."""
        if self._world > 1:
            self._store = _client(self._world)

    def finish(self) -> None:
        self._over = True
        self._thread.join()
        signal.set_wakeup_fd(-1)
        for number, handler in self._former.items():
            signal.signal(number, handler)
        self._told.close()
        self._tells.close()

    def fail(self, text: str) -> None:
        """Reports that this rank cannot go on, and ends it."""
        self._over = True
        self._thread.join()
        self._alarm(text)

    def _run(self) -> None:
        while not self._over:
            ready = select.select([self._told], [], [], _BEAT)[0]
            if ready:
                self._told.recv(64)
                self._alarm("")
            if time.monotonic() > self._end:
                self._alarm(f"not ended after {self._seconds:.0f} s")
            if self._beat() and not self._over:
                time.sleep(_GRACE)
                if not self._over:
                    self._alarm("")

    def _beat(self) -> bool:
        """Returns true if another rank has reported a failure."""
        if self._store is None:
            return False
        with self._lock:
            self._beats += 1
            text = f"{self._beats} {self._label}"
            try:
                self._store.set(f"beat {self._rank}", text)
                return self._store.add("failures", 0) > 0
            except Exception:  # the store's process has ended
                return False

    def _heard(self) -> list[str]:
        beats = []
        for rank in range(self._world):
            text = ""
            with contextlib.suppress(Exception):
                if self._store.check([f"beat {rank}"]):
                    text = self._store.get(f"beat {rank}").decode()
            beats.append(text)
        return beats

    def _alarm(self, text: str) -> None:
        """Finds out who lives, reports once, and ends this process."""
        text = text and f"{text} (rank {self._rank}, {self._label})"
        if self._store is None:
            self._report(text or f"told to end during {self._label}")
            os._exit(1)
        with contextlib.suppress(Exception):
            if text:
                self._store.set(f"failure {self._rank}", text)
            self._store.add("failures", 1)
        before = self._heard()
        until = time.monotonic() + _SILENCE
        while time.monotonic() < until:
            time.sleep(_BEAT)
            self._beat()
        after = self._heard()
        gone = [
            f"rank {r} ended during {b.partition(' ')[2]}"
            for r, (a, b) in enumerate(zip(before, after))
            if a == b and r != self._rank
        ]
        living = [
            r for r, (a, b) in enumerate(zip(before, after)) if a != b
        ] or [self._rank]
        if self._rank == min(living):
            self._report("; ".join(gone) or self._failures() or "told to end")
        else:
            time.sleep(_GRACE)  # torchrun ends all once one has
        os._exit(1)

    def _failures(self) -> str:
        found = []
        with contextlib.suppress(Exception):
            for rank in range(self._world):
                if self._store.check([f"failure {rank}"]):
                    found.append(self._store.get(f"failure {rank}").decode())
        return "; ".join(found[:2])
