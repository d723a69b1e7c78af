"""Trials of the rows of docs/reliability.md, and what runs them: as many at a
time as the machine has cores for their ranks."""

import os
import random
import sys
import threading
import time

from started import Failure

# mpirun may kill what watches a rank before it has told how the rank ended.
UNTOLD = "ended before its end was told"
# torchrun finds a free port for itself, and the next one is ours: another
# program may have it.
LUCKLESS = ("Address already in use", UNTOLD)


def usable_cores():
    return len(os.sched_getaffinity(0))


class Trial:
    def __init__(self, row, what, function, ranks, bar):
        self.row = row
        self.what = what
        self.function = function  # returns what is timed, in seconds, or None
        self.ranks = ranks  # processes that compute
        self.bar = bar  # in seconds, or None

    def name(self):
        return f"{self.row.name}: {self.what}"


def outcome(trial):
    """Runs a trial; returns what it timed and, if it failed, why."""
    try:
        return trial.function(), None
    except Failure as error:
        return None, str(error)
    except Exception as error:  # a fault of the rows: told as such
        return None, f"{type(error).__name__}: {error}"


class Row:
    """The outcome of one row."""

    def __init__(self, name, timed):
        self.name = name
        self.timed = timed  # what `slowest` is of
        self.plan = []
        self.trials = 0
        self.passed = 0
        self.late = 0  # ended as they should, but not within their bar
        self.slowest = None
        self.detected = 0.0  # until the first word of a survivor
        self.notes = []

    def add(self, what, function, ranks=4, bar=None):
        self.plan.append(Trial(self, what, function, ranks, bar))

    def line(self):
        slowest = "-" if self.slowest is None else f"{self.slowest:.2f} s"
        words = [self.timed] + self.notes
        if self.detected > 0:
            words.append("the first survivor spoke within "
                         f"{self.detected:.2f} s")
        if self.late > 0:
            words.append(f"{self.late} later than the bar")
        return (f"| {self.name} | {self.trials} | {self.passed} | {slowest} | "
                f"{'; '.join(words)} |")


class Runner:
    """`capacity`: ranks that may compute at a time. A trial with more runs
    alone. With `bars`, those that took longer than their bar have failed."""

    def __init__(self, capacity, bars):
        self.capacity = capacity
        self.bars = bars
        self.failures = []
        self.changed = threading.Condition()
        self.busy = 0
        self.running = []
        self.done = 0
        self.begun = time.monotonic()

    def run(self, rows):
        """Those that come first begin first."""
        waiting = [trial for row in rows for trial in row.plan]
        count = len(waiting)
        told = time.monotonic()
        with self.changed:
            while waiting or self.running:
                for trial in [one for one in waiting if self._fits(one)][:1]:
                    waiting.remove(trial)
                    self._start(trial)
                    break
                else:
                    self.changed.wait(1)
                if time.monotonic() > told + 10:
                    told = time.monotonic()
                    self._tell(count)

    def _fits(self, trial):
        return self.busy == 0 or self.busy + trial.ranks <= self.capacity

    def _start(self, trial):
        self.busy += trial.ranks
        self.running.append(trial)
        threading.Thread(target=self._run, args=[trial], daemon=True).start()

    def _run(self, trial):
        for _ in range(3):
            seconds, failure = outcome(trial)
            if not any(words in (failure or "") for words in LUCKLESS):
                break
        with self.changed:
            self._count(trial, seconds, failure)
            self.busy -= trial.ranks
            self.running.remove(trial)
            self.done += 1
            self.changed.notify()

    def _count(self, trial, seconds, failure):
        row = trial.row
        row.trials += 1
        if seconds is not None:
            row.slowest = max(row.slowest or 0.0, seconds)
            if trial.bar is not None and seconds > trial.bar:
                row.late += 1
                if self.bars:
                    failure = f"took {seconds:.2f} s, bar {trial.bar:g} s"
        if failure is None:
            row.passed += 1
            return
        self.failures.append(f"{trial.name()}: {failure}")
        print(self.failures[-1], file=sys.stderr, flush=True)

    def _tell(self, count):
        names = sorted({trial.row.name for trial in self.running})
        print(f"{time.monotonic() - self.begun:.0f} s: {self.done} of {count} "
              f"trials, {len(self.failures)} failed; now {', '.join(names)}",
              file=sys.stderr, flush=True)


def chance_of(seed, *what):
    """Random numbers of one trial: the same whenever it runs."""
    return random.Random(" ".join(str(word) for word in (seed,) + what))
