"""One rank's step on torch's tensors, once layout and plan are known.

    run = Run(setup, parameters)
    run.step(parameters, rates)

The library computes on addresses of torch's tensors (_run_memory.py); what
moves between ranks is moved by torch.distributed, on one tensor that holds all
slots (_run_exchange.py). Whatever is wrong on one rank is raised on all.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
from typing import Any, Callable, Sequence

import torch
import torch.distributed as dist

from ._capture import Captured
from ._errors import Error, NumericalError, UsageError
from ._gradients import Found, Gradients, Redistributed, unlike, unlike_options
from ._options import GroupsSeen
from ._run_masters import RunMasters
from ._run_memory import Setup
from ._step import NUMBERS
from ._together import Pause, rebuilt, told
from ._warn import warn

# Places of the step's numbers: what look() found, reduced by MAX (the last one
# is ours: a rank's gradients are of the wrong kind), and the sums of squares.
_LOOK = slice(0, 4)
_FAULT = 3
_SUMS = slice(4, 12)
# Reduced by MAX when a step ends: 1 + a rank that could not carry it out.
_END = slice(12, 13)
_NONE = -(2**63)
_UNSEEN = -1  # in the host's copy of the numbers: it is still on its way
_HUGE = 2**62
# Bits of infinity; what is above is the code of a tensor with such a number.
_INFINITY = 0x7F800000


class Swapped(Pause):
    """Frameworks have put other parameters into the groups before the first
    step; layouts are read again."""

    unlike = (
        "{}: were swapped before the first step on ranks {}, but not on ranks "
        "{}; do it on all ranks"
    )


class Run(RunMasters):
    """Steps of one rank. Used by one thread at a time."""

    def __init__(self, setup: Setup, parameters: Sequence[torch.Tensor]):
        super().__init__(setup, parameters)
        self.skipped = 0  # steps that were left out
        # True if the last step was carried out and nothing was loaded since,
        # and the layers that were clipped since then (_qk_clip.py).
        self.has_moved = False
        self.clipped: set[str] = set()
        # On a GPU: before and after the work of a step.
        self._edges = [
            torch.cuda.Event() for _ in range(2 if self._stream else 0)
        ]
        self.groups_seen = GroupsSeen()
        self._pid = os.getpid()
        self._failure: tuple[str, Exception] | None = None  # of this step
        self._rates: Sequence[float] = ()  # of this step
        self.options = list(setup.options)  # by group
        # Options of the last step on which ranks agreed, where they are others
        # now.
        self._former: dict[int, dict[str, str]] = {}
        self._gradients = Gradients(self.names, self.layout, self.device)
        self._gradients.expect(parameters)
        self._everywhere = [True] * len(parameters)
        self.keys: dict[int, str] = {}  # of states, by number
        self.owned: list[Any] = []  # states that owners have, of all ranks
        self.shared: dict[int, list[str]] = {}  # keys of states in parts
        self.mesh: Any = None  # of all ranks, for states that are handed out
        self._told: Any = None  # pinned numbers and an event, on a GPU
        self._seen: Any = None  # these numbers, as the host reads them
        self.captured = Captured()  # steps in graphs of scripts
        self._pending: Any = None  # the last step's numbers, on a GPU
        self._ended: Any = None  # pinned number and an event, on a GPU

    def step(
        self,
        parameters: Sequence[torch.Tensor],
        rates: Sequence[float],
        trouble: Exception | None = None,
    ) -> None:
        """`trouble`: what keeps this rank from a step. It is raised on all
        ranks before anything changes; a Pause that all ranks have, as it is."""
        self._check_usable()
        self._tell_of_last()
        self._failure = None
        self._rates = rates
        with self._on_stream():
            found = self._found(parameters, rates, trouble)
            if isinstance(found, Redistributed):
                self._pause(found)
                self._gradients.agree_on(found, parameters)
                found = self._found(parameters, rates)
            if isinstance(found, Pause):
                self._pause(found)
                raise found
            if isinstance(found, Exception):
                self._refuse(found)
            goes_on = self._start(found)
            if goes_on:
                self._carry_out()
            self._end_alike()
            if not goes_on:
                self._tell_skipped()
            elif not isinstance(found, Exception):
                self._finish(parameters, found)

    def _found(
        self,
        parameters: Sequence[torch.Tensor],
        rates: Sequence[float],
        trouble: Exception | None = None,
    ) -> Found | Exception:
        """This rank's gradients, looked at; or what is wrong. Ranks bring
        gradients into the layout of their parameters together, so a rank that
        has an error takes part."""
        error = trouble
        try:
            if trouble is None and self.bind(parameters):
                self._gradients.expect(parameters)
        except Exception as wrong:
            error = wrong
        self.refresh_masters(parameters, error is None)
        if trouble is not None:
            self._gradients.take_part()
            return trouble
        found = self._gradients.collect(parameters)
        return self._begun(error or found, rates)

    def _check_usable(self) -> None:
        if self._broken:
            raise Error(
                "this optimizer stopped at an error in the middle of a "
                f"step ({self._broken}); ranks may differ now: start "
                "again from a checkpoint"
            )
        if os.getpid() != self._pid:
            raise Error(
                "this optimizer belongs to the process that made it, "
                f"{self._pid}; a forked child cannot step"
            )

    @contextlib.contextmanager
    def _on_stream(self) -> Any:
        """The library issues to one stream, whichever is current now."""
        if self._stream is None:
            yield
            return
        current = torch.cuda.current_stream(self.device)
        if current == self._stream:
            yield
            return
        before, after = self._edges
        before.record(current)
        self._stream.wait_event(before)
        try:
            with torch.cuda.stream(self._stream):
                yield
        finally:
            after.record(self._stream)
            current.wait_event(after)

    def _begun(
        self, found: Found | Exception, rates: Sequence[float]
    ) -> Found | Exception:
        """Begins a step and looks at this rank's gradients; nothing changes."""
        if isinstance(found, Exception):
            return found
        try:
            self._step.begin(
                *self._gradients.arguments(
                    found, self.counts, rates, self._numbers.data_ptr()
                )
            )
            self._step.look()
            self._likeness.put(
                found, self._told_numbers, (list(rates), list(self.options))
            )
        except Exception as error:
            self._step.abandon()
            return error
        return found

    def _start(self, found: Found | Exception) -> bool:
        """Looks at all gradients; False if the step is left out."""
        step = self._step
        self._reduce(_LOOK, dist.ReduceOp.MAX, "look at gradients")
        self._likeness.judge(self._told_numbers)
        if self._stream is None:
            self._check_alike(found)
        self._agree_on_options()
        clip = self.setup.clip_norm
        if clip is not None:
            self._compute("norm of gradients", step.squares)
            self._reduce(_SUMS, dist.ReduceOp.SUM, "norm of gradients")
            self._compute("clip gradients", lambda: step.clip(clip))
        skip = self.setup.nonfinite != "propagate"
        self._compute("look at gradients", lambda: step.judge(skip))
        if self._stream is None:
            return not self._skips()
        self._remember(found)
        return True

    def _agree_on_options(self) -> None:
        """On a GPU ranks do not wait to hear whether their options are alike,
        and options decide in which steps a team exchanges factors. A rank with
        new options does wait, in this one step; if another rank has others, or
        an error, it takes part under the former ones, as that rank does."""
        if self._former and self._stream is not None:
            numbers = self._numbers[_LOOK].tolist()
            if numbers[_FAULT] > 0 or numbers[1] != -numbers[2]:
                self._take_back_options()
        self._former = {}

    def _take_back_options(self) -> None:
        for group, options in self._former.items():
            self._step.set_options(group, options)
            self.options[group] = options
        self.groups_seen.forget()

    def _remember(self, found: Any) -> None:
        """Sends the reduced numbers to the host, which reads them later."""
        if self._told is None:
            told = torch.empty(NUMBERS, dtype=torch.int64, pin_memory=True)
            self._told = told, torch.cuda.Event()
            self._seen = (ctypes.c_int64 * NUMBERS).from_address(
                told.data_ptr()
            )
        numbers, seen = self._told
        self._seen[0] = _UNSEEN
        numbers.copy_(self._numbers, non_blocking=True)
        seen.record()
        # Not the gradients themselves, whose memory is the caller's.
        self._pending = seen, self._there(found)

    def _there(self, found: Found) -> list[bool]:
        """Which parameters have a gradient."""
        if self._gradients.are_usual:
            return self._everywhere
        return [g is not None for g in found]

    def is_warm(self) -> bool:
        """True if a step has been carried out, and its numbers are known."""
        if self._told is None:
            return False
        return self._pending is None or self._seen[0] != _UNSEEN

    def capture(
        self,
        parameters: Sequence[torch.Tensor],
        rates: Sequence[tuple[float, int, bool]],
        told: int,
    ) -> None:
        """Makes a step part of the CUDA graph that is being captured
        (_capture.py)."""
        if self.setup.master == "remainder":
            raise UsageError(
                "master='remainder': is not supported inside a CUDA graph of "
                "a script; use master='fp32'"
            )
        self._check_usable()
        self._tell_of_last(wait=False)
        if self.bind(parameters):
            self._gradients.expect(parameters)
        self.refresh_masters(parameters)
        found = self._gradients.collect(parameters)
        if isinstance(found, Exception):
            raise found
        addresses, _, _, dtypes = self._gradients.arguments(
            found, self.counts, (), self._numbers.data_ptr()
        )
        first = self.counted.data_ptr()
        size = self.counted.element_size()
        self._step.capture(
            addresses,
            dtypes,
            [first + size * self.parameter_of(t) for t in range(len(dtypes))],
            rates,
            told,
            self.setup.clip_norm or 0.0,
            self.setup.nonfinite != "propagate",
        )

    def _refuse(self, error: Exception) -> None:
        """Tells the other ranks of an error of this one's."""
        if self.world == 1:
            raise error
        if self._stream is not None:
            self._numbers[_LOOK] = _HUGE  # no other rank has such numbers
            self._reduce(_LOOK, dist.ReduceOp.MAX, "look at gradients")
            self._take_part_and_raise(error)
        self._numbers[_LOOK] = _NONE
        self._numbers[_FAULT] = 1

    def _pause(self, pause: Pause) -> None:
        """Returns on all ranks if all of them pause for the same; otherwise
        every rank raises."""
        if self.world == 1:
            return
        self._numbers[_LOOK] = _HUGE  # only ranks that pause have these
        self._numbers[0] = _NONE
        self._numbers[_FAULT] = 1
        self._reduce(_LOOK, dist.ReduceOp.MAX, "look at gradients")
        # On a GPU the others do not wait for this rank's error: they go on, and
        # change nothing.
        if self._stream is not None and int(self._numbers[0]) != _NONE:
            names = ", ".join(pause.names[:3])
            self._take_part_and_raise(
                UsageError(
                    f"{type(pause).__name__.lower()}: {names or 'parameters'} "
                    "on this rank, but not on all; do it on all ranks"
                )
            )
        self._raise_fault(pause)

    def _take_part_and_raise(self, error: Exception) -> None:
        """Raises after taking part in the rest of the step: on GPUs other ranks
        do not wait for this error. The numbers have told them to change
        nothing, and they run their collectives."""
        self._take_back_options()
        self._former = {}
        self._numbers[_SUMS] = 0
        if self.setup.clip_norm is not None:
            self._reduce(_SUMS, dist.ReduceOp.SUM, "norm of gradients")
        self._communicate_all()
        self._numbers[_END] = 0
        self._reduce(_END, dist.ReduceOp.MAX, "end of the step")
        raise error

    def _check_alike(self, found: Found | Exception) -> None:
        if self.world == 1:
            return
        numbers = self._numbers[_LOOK].tolist()
        if numbers[_FAULT] > 0:
            self._raise_fault(found)
        if numbers[1] != -numbers[2]:
            self._raise_unlike(found)

    def _raise_fault(self, found: Any) -> None:
        """Raises on all ranks the error that one of them reported; returns only
        if all ranks pause for the same reason."""
        reports: list[Any] = [None] * self.world
        mine: Any = told(found) if isinstance(found, Exception) else None
        if isinstance(found, Pause):
            mine = "", (type(found).__name__, found.names)
        dist.all_gather_object(reports, mine, group=self.everyone)
        self._step.abandon()
        ranks = self.layout.ranks
        if isinstance(found, Exception) and not isinstance(found, Pause):
            raise found
        for rank, report in zip(ranks, reports):
            if report and report[0]:
                raise rebuilt(report[0], f"rank {rank}: {report[1]}")
        Pause.check_alike([t[1] if t else None for t in reports], ranks)

    def _raise_unlike(self, found: Any) -> None:
        mine = ([g is not None for g in found], self._rates, self.options)
        reports: list[Any] = [None] * self.world
        dist.all_gather_object(reports, mine, group=self.everyone)
        self._step.abandon()
        there, rates, options = zip(*reports)
        ranks = self.layout.ranks
        missing = unlike(self.layout, there)
        raise missing or unlike_options(ranks, rates, options)

    def _skips(self) -> bool:
        """True if all ranks skip this step, which may have failed here."""
        if self.setup.nonfinite == "propagate":
            return False
        if self._failure is None:
            return bool(self._step.outcome().skipped)
        return int(self._numbers[0]) >= _INFINITY

    def _tell_skipped(self) -> None:
        tensor = self._step.outcome().nonfinite_tensor
        self._step.abandon()
        self.skipped += 1
        self.has_moved = False
        self._tell_nonfinite(tensor)

    def _tell_nonfinite(self, tensor: int) -> None:
        """Raises, or warns of the first step that was skipped."""
        name = (
            self.layout.tensors[tensor].name if tensor >= 0 else "a parameter"
        )
        text = f"gradient of {name}: is not finite; nothing was changed"
        if self.setup.nonfinite == "raise":
            raise NumericalError(text)
        if self.skipped == 1:
            warn(
                f"{text}, the step was skipped. Further skips are only counted "
                'in optimizer.skipped_steps; nonfinite="raise" makes them '
                "errors"
            )

    def _carry_out(self) -> None:
        works: dict[int, Any] = {}
        profiled = torch.autograd.profiler._is_profiler_enabled
        for kind, label, act in self._actions:
            with (
                torch.profiler.record_function(f"canzona {label}")
                if profiled
                else contextlib.nullcontext()
            ):
                if kind == "compute":
                    self._compute(label, lambda: act(works))
                else:
                    self._communicate(label, lambda: act(works))
        self._compute("end", self._step.end)

    def _compute(self, label: str, act: Callable[[], Any]) -> None:
        """After an error this rank computes nothing more, but it still sends
        and receives, since others wait for it, and reports at the end."""
        if self._failure is not None:
            return
        try:
            act()
        except Exception as error:
            self._step.abandon()
            if self.world == 1:
                raise
            self._failure = (label, error)
        except BaseException:
            self._step.abandon()
            if self.world > 1:
                self._broken = label
            raise

    def _end_alike(self) -> None:
        """Raises on every rank if one of them has failed."""
        if self.world == 1:
            return
        failure = self._failure
        if failure is not None:
            self._broken = failure[0]
            self._numbers[_END] = 1 + self.layout.rank
        self._reduce(_END, dist.ReduceOp.MAX, "end of the step")
        if self._stream is None:
            if int(self._numbers[_END]) > 0:
                self._raise_failure()
        elif failure is not None:
            raise failure[1]
        else:
            self._remember_end()

    def _raise_failure(self) -> None:
        failure = self._failure
        mine = None if failure is None else (failure[0], *told(failure[1]))
        reports: list[Any] = [None] * self.world
        dist.all_gather_object(reports, mine, group=self.everyone)
        rank, (label, kind, text) = next(
            (r, t) for r, t in enumerate(reports) if t is not None
        )
        self._broken = label
        if failure is not None:
            raise failure[1]
        raise rebuilt(
            kind,
            f"rank {self.layout.ranks[rank]} failed in the middle of this "
            f"step, {label}: {text}",
        )

    def _remember_end(self) -> None:
        """Copies the number that ends a step to the host, which reads it at the
        end of the next step at the latest."""
        if self._ended is None:
            self._ended = (
                torch.zeros(1, dtype=torch.int64, pin_memory=True),
                torch.cuda.Event(),
            )
        else:
            self._look_at_end(wait=True)
        number, over = self._ended
        number.copy_(self._numbers[_END], non_blocking=True)
        over.record()

    def _look_at_end(self, wait: bool) -> None:
        """On a GPU: raises if another rank has failed in the last step."""
        if self._ended is None:
            return
        number, over = self._ended
        if wait:
            over.synchronize()
        elif not over.query():
            return
        if int(number) > 0:
            self._broken = "a step that another rank could not carry out"
            rank = self.layout.ranks[int(number) - 1]
            raise Error(
                f"rank {rank} failed during the last step; its own log has the "
                "reason. Ranks may differ now: start again from a checkpoint"
            )

    def _finish(
        self,
        parameters: Sequence[torch.Tensor],
        found: Found,
    ) -> None:
        there = self._there(found)
        stepped = parameters
        if not all(there):
            stepped = [p for p, had in zip(parameters, there) if had]
            self.counts = [n + had for n, had in zip(self.counts, there)]
            self.put_counts()
        else:
            self.counts = [n + 1 for n in self.counts]
            self.count_shown()
        torch.autograd.graph.increment_version(stepped)
        self.remember_versions(parameters)
        self.has_moved = True
        self.clipped.clear()

    def _tell_of_last(self, wait: bool = True) -> None:
        """On a GPU: reports the outcome of the last step.

        Waits only until that step has looked at its gradients, long ago."""
        self._look_at_end(wait=False)
        if self._pending is None:
            return
        (seen, there), self._pending = self._pending, None
        if wait:
            seen.synchronize()
        largest, hashed, negative, fault = self._seen[_LOOK]
        if largest < _INFINITY and hashed == -negative and not fault > 0:
            return
        outcome = self._step.outcome()
        if outcome.skipped:
            self.skipped += 1
            self.has_moved = False
            self.counts = [n - had for n, had in zip(self.counts, there)]
            self.put_counts()
        if fault > 0 or outcome.unlike:
            self._raise_unlike_later(there, fault > 0)
        if self.setup.nonfinite != "propagate":
            self._tell_nonfinite(outcome.nonfinite_tensor)

    def _raise_unlike_later(self, there: list[bool], fault: bool) -> None:
        if fault:
            raise UsageError(
                "another rank could not begin the last step; its own log has "
                "the reason. Nothing was changed"
            )
        missing = [n for n, had in zip(self.names, there) if not had]
        raise UsageError(
            "in the last step ranks had gradients of different parameters, or "
            "other learning rates or options; this rank had no gradient of "
            f"{missing[:3] or 'no parameter'}. Nothing was changed"
        )

    def owned_of(self, parameter: int) -> list[Any]:
        """States of a parameter that its owners store for all ranks."""
        if self.has_alone(parameter):
            return []
        return [o for o in self.owned if o.parameter == parameter]

    def synchronize(self) -> None:
        """Waits for the last step and raises its error, if it had one."""
        self._look_at_end(wait=True)
        self._tell_of_last()
        if self.captured:
            self.captured.settle(self)

    @property
    def norm(self) -> float:
        """Of the last step's gradients, if clip_norm is set; else nan. Infinite
        if one was not finite."""
        outcome = self._step.outcome()
        if self.setup.clip_norm is None:
            return math.inf if outcome.nonfinite_tensor >= 0 else math.nan
        return outcome.norm

    def reset_state(self, parameter: int, key: str) -> None:
        """One state of a parameter, as before the first step."""
        for number, state in enumerate(self.states):
            if (
                self.keys[number] == key
                and self.parameter_of(state.tensor) == parameter
            ):
                state.reset()

    def set_options(self, group: int, options: dict[str, str]) -> None:
        self._step.set_options(group, options)
        self._former.setdefault(group, self.options[group])
        self.options[group] = options
