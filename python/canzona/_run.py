"""One rank's step on torch's tensors, once layout and plan are known.

    run = Run(setup, parameters)
    run.step(parameters, rates)

The library computes on addresses of torch's tensors (_run_memory.py); what
moves between ranks is moved by torch.distributed, on one tensor that holds all
slots (_run_exchange.py). Whatever is wrong on one rank is raised on all.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Callable, Sequence

import torch
import torch.distributed as dist

from ._asleep import Woken, unlike_woken
from ._errors import Error, NumericalError, UsageError
from ._gradients import Found, Gradients, unlike
from ._run_exchange import RunExchange
from ._run_memory import Setup
from ._step import NUMBERS

# Places of the step's numbers: what look() found, reduced by MAX (the last one
# is ours: a rank's gradients are of the wrong kind), and the sums of squares.
_LOOK = slice(0, 4)
_FAULT = 3
_SUMS = slice(4, 12)
# Reduced by MAX when a step ends: 1 + a rank that could not carry it out.
_END = slice(12, 13)
_NONE = -(2**63)
_HUGE = 2**62
# Bits of infinity; what is above is the code of a tensor with such a number.
_INFINITY = 0x7F800000


def _told(error: Exception) -> tuple[str, str]:
    """An error as other ranks hear of it."""
    return type(error).__name__, str(error)


def _error_of(kind: str, text: str) -> Exception:
    """An error that another rank has told of."""
    known = {e.__name__: e for e in (UsageError, NumericalError, MemoryError)}
    return known.get(kind, Error)(text)


class Run(RunExchange):
    """Steps of one rank. Used by one thread at a time."""

    def __init__(self, setup: Setup, parameters: Sequence[torch.Tensor]):
        super().__init__(setup, parameters)
        self.skipped = 0  # steps that were left out
        self._pid = os.getpid()
        self._failure: tuple[str, Exception] | None = None  # of this step
        self._gradients = Gradients(self.names, self.layout, self.device)
        self._gradients.expect(parameters)
        self.keys: dict[int, str] = {}  # of states, by number
        self.owned: list[Any] = []  # states that owners have, of all ranks
        self.shared: dict[int, list[str]] = {}  # keys of states in parts
        self.mesh: Any = None  # of all ranks, for states that are handed out
        self._told: Any = None  # pinned numbers and an event, on a GPU
        self._pending: Any = None  # the last step's numbers, on a GPU
        self._ended: Any = None  # pinned number and an event, on a GPU

    def step(
        self,
        parameters: Sequence[torch.Tensor],
        rates: Sequence[float],
        woken: Woken | None = None,
    ) -> None:
        """`woken`: raised on all ranks, before anything changes, if all have
        it; UsageError if only some do."""
        self._check_usable()
        self._tell_of_last()
        self._failure = None
        with self._on_stream():
            found = woken or self._begun(self._prepared(parameters), rates)
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

    def _prepared(
        self,
        parameters: Sequence[torch.Tensor],
    ) -> Found | Exception:
        """This rank's gradients, once weights are bound; or what is wrong."""
        try:
            if self.bind(parameters):
                self._gradients.expect(parameters)
            self.refresh_masters(parameters)
        except Exception as error:
            return error
        return self._gradients.collect(parameters)

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
        if (
            self._stream is not None
            and torch.cuda.is_current_stream_capturing()
        ):
            raise UsageError(
                "step(): the current stream is being captured; "
                "a step cannot be part of a CUDA graph"
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
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            yield
        current.wait_stream(self._stream)

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
        except Exception as error:
            self._step.abandon()
            return error
        return found

    def _start(self, found: Found | Exception) -> bool:
        """Looks at all gradients; False if the step is left out."""
        step = self._step
        self._reduce(_LOOK, dist.ReduceOp.MAX, "look at gradients")
        if self._stream is None:
            self._check_alike(found)
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

    def _remember(self, found: Any) -> None:
        """Sends the reduced numbers to the host, which reads them later."""
        if self._told is None:
            self._told = (
                torch.empty(NUMBERS, dtype=torch.int64, pin_memory=True),
                torch.cuda.Event(),
            )
        numbers, seen = self._told
        numbers.copy_(self._numbers, non_blocking=True)
        seen.record()
        # Not the gradients themselves, whose memory is the caller's.
        there = [g is not None for g in found]
        self._pending = (numbers, seen, there)

    def _refuse(self, error: Exception) -> None:
        """Tells the other ranks of an error of this one's gradients."""
        if self.world == 1:
            raise error
        if self._stream is not None:
            self._take_part_and_raise(error)
        self._numbers[_LOOK] = _NONE
        self._numbers[_FAULT] = 1

    def _take_part_and_raise(self, error: Exception) -> None:
        """Other ranks of GPUs do not wait to hear of this one's error: they
        are told to change nothing, and find it in their collectives."""
        self._numbers[_LOOK] = _HUGE  # unlike anybody's
        self._reduce(_LOOK, dist.ReduceOp.MAX, "look at gradients")
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
        told: list[Any] = [None] * self.world
        mine = _told(found) if isinstance(found, Exception) else None
        dist.all_gather_object(told, mine, group=self.everyone)
        self._step.abandon()
        if any(t and t[0] == Woken.__name__ for t in told):
            raise unlike_woken(told, self.layout.ranks) or found
        if isinstance(found, Exception):
            raise found
        rank, of = next((r, t) for r, t in enumerate(told) if t)
        raise _error_of(of[0], f"rank {self.layout.ranks[rank]}: {of[1]}")

    def _raise_unlike(self, found: Any) -> None:
        mine = [g is not None for g in found]
        there: list[Any] = [None] * self.world
        dist.all_gather_object(there, mine, group=self.everyone)
        self._step.abandon()
        raise unlike(self.names, self.layout.ranks, there)

    def _skips(self) -> bool:
        """True if all ranks leave this step out; this one may have failed."""
        if self.setup.nonfinite == "propagate":
            return False
        if self._failure is None:
            return bool(self._step.outcome().skipped)
        return int(self._numbers[0]) >= _INFINITY

    def _tell_skipped(self) -> None:
        tensor = self._step.outcome().nonfinite_tensor
        self._step.abandon()
        self.skipped += 1
        if self.setup.nonfinite == "raise":
            self._raise_nonfinite(tensor)

    def _raise_nonfinite(self, tensor: int) -> None:
        name = (
            self.layout.tensors[tensor].name if tensor >= 0 else "a parameter"
        )
        raise NumericalError(
            f"gradient of {name}: is not finite; nothing was " "changed"
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
        """After an error nothing is computed any more; but this rank still
        sends and receives, since others wait, and tells them at the end."""
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
        mine = None if failure is None else (failure[0], *_told(failure[1]))
        told: list[Any] = [None] * self.world
        dist.all_gather_object(told, mine, group=self.everyone)
        rank, (label, kind, text) = next(
            (r, t) for r, t in enumerate(told) if t is not None
        )
        self._broken = label
        if failure is not None:
            raise failure[1]
        raise _error_of(
            kind,
            f"rank {self.layout.ranks[rank]} failed in the middle of this "
            f"step, {label}: {text}",
        )

    def _remember_end(self) -> None:
        """Sends the number that ends a step to the host, which reads it when
        it ends the next one, if it has not before."""
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
                f"rank {rank} failed in the middle of the last step, and has "
                "told why; ranks may differ now: start again from a checkpoint"
            )

    def _finish(
        self,
        parameters: Sequence[torch.Tensor],
        found: Found,
    ) -> None:
        if any(g is None for g in found):
            there = [g is not None for g in found]
            parameters = [p for p, had in zip(parameters, there) if had]
            self.counts = [n + had for n, had in zip(self.counts, there)]
            self.counted.copy_(torch.tensor(self.counts, dtype=torch.float32))
        else:
            self.counts = [n + 1 for n in self.counts]
            self.counted += 1
        torch.autograd.graph.increment_version(parameters)
        self._remember_versions()

    def _tell_of_last(self) -> None:
        """On a GPU: what became of the last step.

        Waits for that step's look at gradients alone, long since over."""
        self._look_at_end(wait=False)
        if self._pending is None:
            return
        (numbers, seen, there), self._pending = self._pending, None
        seen.synchronize()
        largest, hashed, negative, fault = numbers[_LOOK].tolist()
        if largest < _INFINITY and hashed == -negative and not fault > 0:
            return
        outcome = self._step.outcome()
        if outcome.skipped:
            self.skipped += 1
            self.counts = [n - had for n, had in zip(self.counts, there)]
            self.counted.copy_(torch.tensor(self.counts, dtype=torch.float32))
        if fault > 0 or outcome.unlike:
            self._raise_unlike_later(there, fault > 0)
        if self.setup.nonfinite == "raise":
            self._raise_nonfinite(outcome.nonfinite_tensor)

    def _raise_unlike_later(self, there: list[bool], fault: bool) -> None:
        if fault:
            raise UsageError(
                "in the last step a gradient on another rank was "
                "of the wrong kind, which that rank has told; "
                "nothing was changed"
            )
        missing = [n for n, had in zip(self.names, there) if not had]
        raise UsageError(
            "in the last step ranks had gradients of different parameters; "
            f"this rank had none of {missing[:3] or 'no parameter'}; nothing "
            "was changed"
        )

    def synchronize(self) -> None:
        """Raises what the last step has to tell, waiting for the device."""
        self._look_at_end(wait=True)
        self._tell_of_last()

    @property
    def norm(self) -> float:
        """Of the last step's gradients, if clip_norm is set."""
        return self._step.outcome().norm

    def set_options(self, group: int, options: dict[str, str]) -> None:
        self._step.set_options(group, options)
