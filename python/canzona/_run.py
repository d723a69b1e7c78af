"""One rank's step on torch's tensors, once layout and plan are known.

    run = Run(setup, groups)
    run.step(parameters, rates)

The library computes on addresses of torch's tensors; what moves between ranks
is moved by torch.distributed, on one tensor that holds all slots. Groups of
ranks are made once.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Callable, Sequence

import torch
import torch.distributed as dist

from ._asleep import Woken, unlike_woken
from ._errors import Error, NumericalError, UsageError
from ._gradients import Found, Gradients, unlike
from ._layout import Layout, is_dtensor, local
from ._placed import PlacedPlan
from ._step import NUMBERS, Step

_WIRES = {"fp32": torch.float32, "bf16": torch.bfloat16}

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


_naming = threading.Lock()


@contextlib.contextmanager
def _named_group(name: str) -> Iterator[None]:
    """Gives a name to the process group that is made meanwhile.

    torch names a group of some ranks after the number of groups that the
    process is in; ranks for which that differs would wait for each other."""
    c10d: Any = dist.distributed_c10d
    with _naming:
        usual = c10d._process_group_name
        c10d._process_group_name = lambda *_, **__: name
        try:
            yield
        finally:
            c10d._process_group_name = usual


def _kind(tensor: torch.Tensor) -> str:
    """All that the library relies on but the address, in words."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    dense = "" if tensor.is_contiguous() else ", not contiguous"
    return f"{list(tensor.shape)} {dtype} on {tensor.device}{dense}"


def _version(parameter: torch.Tensor) -> int:
    """Grows whenever torch writes to a parameter, or to this rank's part."""
    part = local(parameter)
    return parameter._version + (0 if part is parameter else part._version)


def _told(error: Exception) -> tuple[str, str]:
    """An error as other ranks hear of it."""
    return type(error).__name__, str(error)


def _error_of(kind: str, text: str) -> Exception:
    """An error that another rank has told of."""
    known = {e.__name__: e for e in (UsageError, NumericalError, MemoryError)}
    return known.get(kind, Error)(text)


@dataclass
class State:
    """A state of a tensor on this rank, in the library's memory."""

    name: str
    tensor: int  # of the request
    matrix: int  # number of the tensor's matrix; -1: lies like the weights
    value: torch.Tensor  # a view of the memory
    initially: str  # what it begins with
    kept: list[tuple[int, int]] = field(default_factory=list)  # first, count

    def reset(self) -> None:
        """As before the first step."""
        if self.initially == "identity":
            self.value.copy_(
                torch.eye(
                    *self.value.shape[-2:], device=self.value.device
                ).expand(self.value.shape)
            )
        else:
            self.value.fill_(0 if self.initially == "zero" else 1)


@dataclass
class Setup:
    """What a run is made from."""

    layout: Layout
    plan: PlacedPlan
    names: list[str]
    device: torch.device
    wire: str
    nonfinite: str
    clip_norm: float | None
    threads: int
    splits: list[list[int]]  # rows, by tensor
    flattened: set[str]  # parameters that are seen as one matrix
    groups: dict[tuple[int, ...], Any] = field(default_factory=dict)


class Run:
    """A step handle with its memory. Used by one thread at a time."""

    def __init__(self, setup: Setup, parameters: Sequence[torch.Tensor]):
        self.setup = setup
        self.layout = setup.layout
        self.plan = setup.plan
        self.names = setup.names
        self.world = setup.layout.world
        self.device = setup.device
        self.skipped = 0  # steps that were left out
        self._pid = os.getpid()
        self._broken = ""
        self._failure: tuple[str, Exception] | None = None  # of this step
        self._tensors = setup.layout.mine  # by parameter
        self._gradients = Gradients(self.names, self.layout, self.device)
        # The default stream has no handle that the library could issue to.
        self._stream = None
        if self.device.type == "cuda":
            self._stream = torch.cuda.current_stream(self.device)
            if self._stream.cuda_stream == 0:
                self._stream = torch.cuda.Stream(self.device)
        self._kinds = [_kind(local(p)) for p in parameters]
        self._step = self._new_step()
        self._make_memory(parameters)
        self._make_groups()
        self._actions = [
            self._compile(i, a)
            for i, a in enumerate(self._step.layout["actions"])
        ]
        self.counts = [0] * len(parameters)  # updates of each parameter
        self.counted = torch.zeros(len(parameters))
        self._addresses: list[int] = []
        self._rounded: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._versions: list[int] = []  # of weights that have masters
        self.keys: dict[int, str] = {}  # of states, by number
        self.owned: list[Any] = []  # states that owners have, of all ranks
        self.shared: dict[int, list[str]] = {}  # keys of states in parts
        self.mesh: Any = None  # of all ranks, for states that are handed out
        self._told: Any = None  # pinned numbers and an event, on a GPU
        self._pending: Any = None  # the last step's numbers, on a GPU
        self._ended: Any = None  # pinned number and an event, on a GPU
        self.bind(parameters)

    # Making it.

    def _new_step(self) -> Step:
        if self._stream is None:
            return Step(self.plan, self.layout.rank, threads=self.setup.threads)
        number = self.device.index or 0
        held: dict[int, torch.Tensor] = {}

        def allocate(num_bytes: int) -> int:
            memory = torch.empty(
                max(num_bytes, 1), dtype=torch.uint8, device=self.device
            )
            held[memory.data_ptr()] = memory
            return memory.data_ptr()

        def release(address: int) -> None:
            held.pop(address, None)

        return Step(
            self.plan,
            self.layout.rank,
            device=f"cuda:{number}",
            stream=self._stream.cuda_stream,
            scratch=(allocate, release),
        )

    def _make_memory(self, parameters: Sequence[torch.Tensor]) -> None:
        layout = self._step.layout
        device = self.device
        self._memories = [
            torch.zeros(n, device=device) for n in layout["memories"]
        ]
        self.states = [
            self._view(t, s)
            for t, tensor in enumerate(layout["tensors"])
            for s in (*tensor["states"], *tensor["owned"])
        ]
        self._slots = torch.zeros(
            max(1, layout["slot_elements"]),
            dtype=_WIRES[layout["wire"]],
            device=device,
        )
        self._numbers = torch.zeros(NUMBERS, dtype=torch.int64, device=device)
        self.masters: list[torch.Tensor | None] = [
            local(p).detach().float() if p.dtype == torch.bfloat16 else None
            for p in parameters
        ]

    def _view(self, tensor: int, state: dict[str, Any]) -> State:
        elements = 1
        for n in state["shape"]:
            elements *= n
        memory = self._memories[state["memory"]]
        value = memory[state["at"] : state["at"] + elements].view(
            state["shape"]
        )
        made = State(
            state["name"],
            tensor,
            self._matrix(tensor, state),
            value,
            state["initially"],
            [tuple(e) for e in state.get("kept", ())],
        )
        made.reset()
        return made

    def _matrix(self, tensor: int, state: dict[str, Any]) -> int:
        """Among the matrices of a tensor, whose stack and splits have some."""
        if "number" not in state:
            return -1
        splits = self.setup.splits[tensor]
        before = [sum(splits[:i]) for i in range(max(1, len(splits)))]
        return state["number"] * len(before) + before.index(state["first_row"])

    def _make_groups(self) -> None:
        self._groups = [
            self._group(ranks) for ranks in self._step.layout["groups"]
        ]
        everyone = list(range(self.world))
        self.everyone = self._group(everyone) if self.world > 1 else None

    def _group(self, ranks: Sequence[int]) -> Any:
        """A group of the world's ranks; None if this rank is not in it."""
        if self.layout.rank not in ranks:
            return None
        members = tuple(self.layout.ranks[r] for r in ranks)
        made = self.setup.groups
        if members not in made:
            with _named_group(f"canzona{self.layout.serial}_{members}"):
                made[members] = dist.new_group(
                    list(members),
                    use_local_synchronization=True,
                    group_desc="canzona",
                )
        return made[members]

    def _compile(
        self,
        number: int,
        action: dict[str, Any],
    ) -> tuple[str, str, Callable[[dict[int, Any]], None]]:
        kind, label = action["kind"], action.get("label", "")
        if kind == "compute":
            return kind, label, lambda _: self._step.run(number)
        if kind == "wait":
            of = action["for"]
            label = self._step.layout["actions"][of].get("label", "")
            return kind, label, lambda works: works.pop(of).wait()
        group = self._groups[action["group"]]
        if kind == "broadcast":
            block = self._slots.narrow(0, action["at"], action["count"])
            root = self.layout.ranks[action["root"]]

            def broadcast(works: dict[int, Any]) -> None:
                works[number] = dist.broadcast(
                    block, root, group=group, async_op=True
                )

            return kind, label, broadcast
        sent = self._slots.narrow(0, action["send_at"], sum(action["send"]))
        got = self._slots.narrow(
            0, action["receive_at"], sum(action["receive"])
        )

        def all_to_all(works: dict[int, Any]) -> None:
            works[number] = dist.all_to_all_single(
                got,
                sent,
                action["receive"],
                action["send"],
                group=group,
                async_op=True,
            )

        return kind, label, all_to_all

    def has_many(self, tensor: int) -> bool:
        """True if a tensor is more than one matrix."""
        flat = self.names[self.parameter_of(tensor)] in self.setup.flattened
        stack = self.layout.tensors[tensor].shape[:-2]
        return (
            len(self.setup.splits[tensor]) > 1
            or not flat
            and any(n > 1 for n in stack)
        )

    def parameter_of(self, tensor: int) -> int:
        return self.layout.tensors[tensor].parameter

    # Memory that is bound.

    def bind(self, parameters: Sequence[torch.Tensor]) -> None:
        """Tells the library where weights are, if they are elsewhere now."""
        addresses = [
            (p._local_tensor if is_dtensor(p) else p).data_ptr()
            for p in parameters
        ]
        if addresses == self._addresses:
            return
        self._check_kinds(parameters)
        weights = [0] * len(self.layout.tensors)
        masters = [0] * len(self.layout.tensors)
        for tensor, address, master in zip(
            self._tensors, addresses, self.masters
        ):
            weights[tensor] = address
            masters[tensor] = 0 if master is None else master.data_ptr()
        self._step.bind(
            weights,
            masters,
            [m.data_ptr() for m in self._memories],
            self._slots.data_ptr(),
            self._numbers.data_ptr(),
        )
        self._addresses = addresses
        self._versions = []  # whoever moved weights may have changed them

    def _check_kinds(self, parameters: Sequence[torch.Tensor]) -> None:
        """UsageError if a parameter is another than when layouts were read."""
        for name, p, kind in zip(self.names, parameters, self._kinds):
            now = _kind(local(p))
            if now != kind:
                raise UsageError(
                    f"parameter {name}: is {now} now, but was {kind} when "
                    "layouts were read; make the optimizer anew and load the "
                    "old one's state_dict()"
                )

    def refresh_masters(self, parameters: Sequence[torch.Tensor]) -> None:
        """Takes over weights that somebody else has written.

        A master whose rounding is still the weight keeps its fraction."""
        self._rounded = [
            (p, m) for p, m in zip(parameters, self.masters) if m is not None
        ]
        if [_version(p) for p, _ in self._rounded] == self._versions:
            return
        for p, master in self._rounded:
            weights = local(p).detach()
            same = master.to(weights.dtype) == weights
            master.copy_(torch.where(same, master, weights.float()))
        self._remember_versions()

    def _remember_versions(self) -> None:
        self._versions = [_version(p) for p, _ in self._rounded]

    # A step.

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
            self.bind(parameters)
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

    def _reduce(self, place: slice, operation: Any, label: str) -> None:
        if self.everyone is not None:
            self._communicate(
                label,
                lambda: dist.all_reduce(
                    self._numbers[place], operation, group=self.everyone
                ),
            )

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

    def _communicate_all(self) -> None:
        works: dict[int, Any] = {}
        for kind, label, act in self._actions:
            if kind != "compute":
                self._communicate(label, lambda: act(works))

    def _communicate(self, label: str, act: Callable[[], Any]) -> None:
        try:
            act()
        except Exception as error:
            self._broken = label
            text = f"optimizer step, {label}: {error}"
            try:
                named = type(error)(text)
            except Exception:
                named = RuntimeError(text)
            raise named from error

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

    def reset(self, parameters: set[int]) -> None:
        """States of these parameters, as before the first step."""
        for state in self.states:
            if self.parameter_of(state.tensor) in parameters:
                state.reset()
        for i in parameters:
            self.set_count(i, 0)

    def set_count(self, parameter: int, count: int) -> None:
        self.counts[parameter] = count
        self.counted[parameter] = count

    def close(self) -> None:
        self._step.close()
