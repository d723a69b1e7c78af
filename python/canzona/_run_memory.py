"""The memory of one rank's steps: weights are bound by address, states and
slots are torch's tensors that the library computes on.

For _run.py, whose Run is one of these.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch

from ._errors import UsageError
from ._gradients import Likeness
from ._layout import Layout, is_dtensor, local
from ._masters import Pending, new_master, reset_master
from ._step import NUMBERS, Step
from ._storage_plan import StoragePlan

_MOVED = -1
_WIRES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def _kind(tensor: torch.Tensor) -> str:
    """All that the library relies on but the address, in words."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    dense = "" if tensor.is_contiguous() else ", not contiguous"
    return f"{list(tensor.shape)} {dtype} on {tensor.device}{dense}"


@dataclass
class State:
    """A state of a tensor on this rank, in the library's memory."""

    name: str
    tensor: int  # of the request
    matrix: int  # number of the tensor's matrix; -1: lies like the weights
    value: torch.Tensor  # a view of the memory
    initially: str  # what it begins with
    kept: list[tuple[int, int]] = field(default_factory=list)  # first, count
    # Of a part of a matrix's state: the whole one's shape, where the part
    # begins, and whether this rank is the one that provides it.
    whole: tuple[int, ...] | None = None
    first: tuple[int, ...] = ()
    given: bool = True

    def place(self) -> tuple[slice, ...]:
        """Where the part lies in the whole state."""
        return tuple(
            slice(a, a + n) for a, n in zip(self.first, self.value.shape)
        )

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
    plan: StoragePlan
    names: list[str]
    device: torch.device
    wire: str
    master: str  # the form of masters
    nonfinite: str
    clip_norm: float | None
    threads: int
    options: list[dict[str, str]]  # of the rules, by group
    splits: list[list[int]]  # rows, by tensor
    flattened: set[str]  # parameters that are seen as one matrix
    plan_groups: list[tuple[int, int]]  # parameter group, heads of columns
    groups: dict[tuple[int, ...], Any] = field(default_factory=dict)


class RunMemory:
    """A step handle with its memory. Used by one thread at a time."""

    def __init__(self, setup: Setup, parameters: Sequence[torch.Tensor]):
        self.setup = setup
        self.layout = setup.layout
        self.plan = setup.plan
        self.names = setup.names
        self.world = setup.layout.world
        self.device = setup.device
        self._tensors = setup.layout.mine  # by parameter
        # The default stream has no handle that the library could issue to.
        self._stream = None
        if self.device.type == "cuda":
            self._stream = torch.cuda.current_stream(self.device)
            if self._stream.cuda_stream == 0:
                self._stream = torch.cuda.Stream(self.device)
        self._likeness = Likeness(self.layout)
        self._kinds = [_kind(local(p)) for p in parameters]
        self._step = self._new_step()
        self._make_memory(parameters)
        self.counts = [0] * len(parameters)  # updates of each parameter
        # The same, for scripts.
        self.counted = torch.zeros(
            len(parameters), dtype=torch.float32, device="cpu"
        )
        size = self.counted.numel() * self.counted.element_size()
        self._counted_bytes = (ctypes.c_char * size).from_address(
            self.counted.data_ptr()
        )
        self._bytes_shown = bytes(size)
        self.loaded = False  # states are not those of a new optimizer
        self.exposed: list[dict[str, Any]] = (
            []
        )  # optimizer.state, as we gave it
        self.memory: list[dict[str, torch.Tensor]] = []  # where that lies
        self.seen: list[Any] = []  # its parameters, dicts and values
        self.watched: list[torch.Tensor] = []  # one of each parameter's
        self.addresses: list[int] = []  # where these lie
        self._lie: Any = None  # where weights are, and how
        self._has_dtensors = any(map(is_dtensor, parameters))
        # By parameter: the version at which its master was known to be its;
        # None: unknown, _MOVED: certainly another.
        self._versions: list[int | None] = [None] * len(parameters)
        self.pending: dict[int, Pending] = {}  # by parameter
        self.bind(parameters)

    def _new_step(self) -> Step:
        if self._stream is None:
            return Step(self.plan, self.layout.rank, threads=self.setup.threads)
        number = self.device.index or 0
        held: dict[int, torch.Tensor] = {}
        device = self.device  # `self` in a closure would be a reference cycle

        def allocate(num_bytes: int) -> int:
            memory = torch.empty(
                max(num_bytes, 1), dtype=torch.uint8, device=device
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
            torch.zeros(n, dtype=torch.float32, device=device)
            for n in layout["memories"]
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
        self._rooms = torch.zeros(
            layout["room_bytes"], dtype=torch.uint8, device=device
        )
        before = self._likeness.num_numbers
        self._told_numbers = torch.zeros(
            before + NUMBERS, dtype=torch.int64, device=device
        )
        self._numbers = self._told_numbers[before:]
        self.masters: list[torch.Tensor | None] = [
            new_master(local(p).detach(), self.setup.master) for p in parameters
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
            tuple(state["whole"]) if "whole" in state else None,
            tuple(state.get("first", ())),
            state.get("given", True),
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

    def has_alone(self, parameter: int) -> bool:
        """True if this rank alone stores the parameter."""
        tensor = self.layout.tensors[self.layout.mine[parameter]]
        return len(tensor.holders) == 1 < self.world

    # Memory that is bound.

    def bind(self, parameters: Sequence[torch.Tensor]) -> bool:
        """Tells the library where weights are; True if they are elsewhere
        now."""
        parts = parameters
        if self._has_dtensors:
            parts = [p._local_tensor if is_dtensor(p) else p for p in parts]
        # Whoever assigns p.data may leave it where it is, transposed.
        lie = (
            list(map(torch.Tensor.data_ptr, parts)),
            list(map(torch.Tensor.is_contiguous, parts)),
            list(map(attrgetter("shape"), parts)),
        )
        before = self._lie
        if lie == before:
            return False
        self.check_kinds(parameters)
        weights = [0] * len(self.layout.tensors)
        masters = [0] * len(self.layout.tensors)
        for tensor, address, master in zip(self._tensors, lie[0], self.masters):
            weights[tensor] = address
            masters[tensor] = 0 if master is None else master.data_ptr()
        self._step.bind(
            weights,
            masters,
            [m.data_ptr() for m in self._memories],
            self._slots.data_ptr(),
            self._rooms.data_ptr(),
            self._numbers.data_ptr(),
        )
        self._lie = lie
        # Weights that were moved may have been changed.
        for i, now in enumerate(zip(*lie)):
            if before is not None and now != tuple(of[i] for of in before):
                self._versions[i] = _MOVED
        return True

    def check_kinds(self, parameters: Sequence[torch.Tensor]) -> None:
        """UsageError if a parameter is another than when layouts were read."""
        for name, p, kind in zip(self.names, parameters, self._kinds):
            now = _kind(local(p))
            if now != kind:
                raise UsageError(
                    f"parameter {name}: is {now} now, but was {kind} when "
                    "layouts were read; make the optimizer anew and load the "
                    "old one's state_dict()"
                )

    def reset(
        self, parameters: set[int], weights: Sequence[torch.Tensor]
    ) -> None:
        """States of these parameters, as before the first step."""
        for i in parameters:
            master = self.masters[i]
            if master is not None:
                reset_master(local(weights[i]).detach(), master)
                self.pending.pop(i, None)
                self._versions[i] = None
        for state in self.states:
            if self.parameter_of(state.tensor) in parameters:
                state.reset()
        self.set_counts({i: 0 for i in parameters})

    def set_counts(self, counts: Mapping[int, int]) -> None:
        """Of these parameters."""
        for parameter, count in counts.items():
            self.counts[parameter] = count
        self.put_counts()

    def put_counts(self) -> None:
        """Shows the counts to scripts."""
        self.counted.copy_(torch.tensor(self.counts, dtype=torch.float32))
        self._bytes_shown = bytes(self._counted_bytes)

    def count_shown(self) -> None:
        """Shows one step more of every parameter."""
        self.counted += 1
        self._bytes_shown = bytes(self._counted_bytes)

    def take_counts(self) -> None:
        """Takes over counts that a script has written in place, also by
        `step.data`; UsageError for what is no number of steps."""
        if bytes(self._counted_bytes) == self._bytes_shown:
            return
        written = self.counted.tolist()
        for name, count in zip(self.names, written):
            if not (count >= 0 and count.is_integer()):
                raise UsageError(
                    f"optimizer.state: state 'step' of parameter {name} is "
                    f"{count}; expected a number of steps, from 0 on"
                )
        self.counts = [int(count) for count in written]
        self._bytes_shown = bytes(self._counted_bytes)

    def close(self) -> None:
        self._step.close()
