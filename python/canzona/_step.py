"""One rank's step of a held plan, on memory that is given by addresses.

    plan = StoragePlan(request)
    step = Step(plan, rank=0)
    step.bind(weights, masters, states, slots, rooms, numbers)
    step.begin(gradients, steps=[1, 1], rates=[2e-3, 2e-3])
    for number, action in enumerate(step.layout["actions"]):
        if action["kind"] == "compute":
            step.run(number)
        …                                     # the caller moves bytes
    step.end()

Nothing here knows of torch: an address is an int, 0 means NULL. A call costs
about a microsecond; begin() copies its lists into arrays made once. The memory
must live, where it is, as long as the step or until it is bound anew.
"""

from __future__ import annotations

import ctypes
import json
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from ._errors import UsageError
from ._library import (
    NUMBERS,
    Allocator,
    Library,
    Memory,
    Outcome,
    Rate,
    Replay,
    load,
)
from ._storage_plan import StoragePlan

FP32 = 0
BF16 = 1

__all__ = ["BF16", "FP32", "NUMBERS", "Outcome", "Step"]


class _Addresses:
    """A C array of pointers, filled from a list."""

    def __init__(self, values: Sequence[int]):
        self._values = array("Q", values)

    @property
    def address(self) -> int:
        return self._values.buffer_info()[0]


class _Numbers:
    """A C array of a fixed length, refilled at every step."""

    def __init__(self, kind: str, length: int, what: str):
        self._values = array(kind, [0]) * length
        self._view = memoryview(self._values)
        self._what = what
        self.address = self._values.buffer_info()[0] if length else None

    def fill(self, values: Sequence[float]) -> None:
        if len(values) != len(self._values):
            raise UsageError(
                f"{self._what}: {len(values)} values, "
                f"expected {len(self._values)}"
            )
        self._view[:] = array(self._values.typecode, values)


class _Gradients:
    """An array of canzona_gradient: an address and a dtype each."""

    def __init__(self, length: int):
        self._values = array("q", [0]) * (2 * length)
        view = memoryview(self._values)
        self._data, self._dtypes = view[0::2], view[1::2]
        self._length = length
        self.address = self._values.buffer_info()[0] if length else None

    def fill(
        self, addresses: Sequence[int], dtypes: Sequence[int] | None
    ) -> None:
        if len(addresses) != self._length:
            raise UsageError(
                f"gradients: {len(addresses)} addresses, "
                f"expected {self._length}"
            )
        self._data[:] = array("q", addresses)
        if dtypes is not None:
            if len(dtypes) != self._length:
                raise UsageError(
                    f"gradients: {len(dtypes)} dtypes, expected {self._length}"
                )
            self._dtypes[:] = array("q", dtypes)


class _Scratch:
    """canzona_allocator around two functions of Python's."""

    def __init__(
        self, allocate: Callable[[int], int], release: Callable[[int], None]
    ):
        self.error: BaseException | None = None

        def allocate_bytes(_: int | None, num_bytes: int) -> int | None:
            try:
                return allocate(num_bytes) or None
            except BaseException as error:  # must not pass through C
                self.error = error
                return None

        def release_memory(_: int | None, address: int | None) -> None:
            try:
                release(address or 0)
            except BaseException as error:
                self.error = error

        self._allocator = Allocator(
            Allocator.ALLOCATE(allocate_bytes),
            Allocator.RELEASE(release_memory),
            None,
        )

    @property
    def address(self) -> int:
        return ctypes.addressof(self._allocator)


class Step:
    """A handle of canzona_step. One thread at a time uses it.

    `device` is "cpu" or "cuda:N"; on a GPU all work is issued to `stream`, an
    address of a cudaStream_t, and scratch memory comes from `scratch`, a pair
    of functions (bytes → address, address → nothing). `threads`: the most that
    a CPU uses. `layout` says which memory the step wants and what it does
    (docs/c_interface.md).
    """

    def __init__(
        self,
        plan: StoragePlan,
        rank: int,
        *,
        device: str = "cpu",
        stream: int = 0,
        threads: int = 1,
        scratch: (
            tuple[Callable[[int], int], Callable[[int], None]] | None
        ) = None,
    ):
        self._handle: int | None = None
        library = load(device)
        self._library: Library = library
        self._scratch = None if scratch is None else _Scratch(*scratch)
        self._handle = self._made(
            library.canzona_step_new(
                plan.handle(library),
                rank,
                device.encode(),
                stream or None,
                threads,
                self._scratch and self._scratch.address,
            )
        )
        self.rank = rank
        self.device = device
        self.layout: dict[str, Any] = json.loads(
            library.text(library.canzona_step_layout(self._handle))
        )
        tensors = len(self.layout["tensors"])
        self._gradients = _Gradients(tensors)
        self._steps = _Numbers("q", tensors, "steps")
        self._rates = _Numbers("d", self.layout["num_groups"], "rates")
        self._bound: tuple[_Addresses, ...] = ()
        self._outcome = Outcome()
        self._needed = ctypes.c_int32()

    def _made(self, handle: int | None) -> int:
        if handle is None:
            self._raise()
        return handle  # type: ignore[return-value]

    def _raise(self) -> None:
        error = self._library.error()
        if self._scratch is not None and self._scratch.error is not None:
            cause, self._scratch.error = self._scratch.error, None
            raise error from cause
        raise error

    def _check(self, status: int) -> None:
        if status != 0:
            self._raise()

    def bind(
        self,
        weights: Sequence[int],
        masters: Sequence[int],
        states: Sequence[int],
        slots: int,
        rooms: int,
        numbers: int,
    ) -> None:
        """Addresses by tensor (`weights`, `masters`), of the layout's
        `memories` (`states`), of slots and rooms, and of NUMBERS int64 in the
        device's memory."""
        tensors = len(self.layout["tensors"])
        wanted = (
            ("weights", weights, tensors),
            ("masters", masters, tensors),
            ("states", states, len(self.layout["memories"])),
        )
        for name, values, length in wanted:
            if len(values) != length:
                raise UsageError(
                    f"{name}: {len(values)} addresses, expected {length}"
                )
        bound = tuple(_Addresses(values) for _, values, _ in wanted)
        memory = Memory(
            bound[0].address,
            bound[1].address,
            bound[2].address,
            slots or None,
            rooms or None,
            numbers,
        )
        self._check(
            self._library.canzona_step_bind(
                self._handle, ctypes.addressof(memory)
            )
        )
        self._bound = bound

    def set_options(self, group: int, options: Mapping[str, Any]) -> None:
        """A group's options anew; states stay."""
        text = json.dumps({name: str(value) for name, value in options.items()})
        data = text.encode()
        self._check(
            self._library.canzona_step_options(
                self._handle, group, data, len(data)
            )
        )

    def begin(
        self,
        gradients: Sequence[int],
        steps: Sequence[int],
        rates: Sequence[float],
        dtypes: Sequence[int] | None = None,
    ) -> None:
        """Begins a step: addresses of gradients by tensor (0: none, the tensor
        is left alone), the number of this update by tensor, from 1, learning
        rates by group. `dtypes` (FP32 or BF16) by tensor; as last time, at
        first FP32, if they are not given."""
        self._gradients.fill(gradients, dtypes)
        self._steps.fill(steps)
        self._rates.fill(rates)
        self._check(
            self._library.canzona_step_begin(
                self._handle,
                self._gradients.address,
                self._steps.address,
                self._rates.address,
            )
        )

    def look(self) -> None:
        """Fills numbers[0..3], which are reduced over all ranks by MAX."""
        self._check(self._library.canzona_step_look(self._handle))

    def squares(self) -> None:
        """Fills numbers[4..11], which are reduced over all ranks by SUM."""
        self._check(self._library.canzona_step_squares(self._handle))

    def clip(self, limit: float) -> None:
        """Multiplies gradients by min(1, limit / norm), in place."""
        self._check(self._library.canzona_step_clip(self._handle, limit))

    def judge(self, skip: bool) -> None:
        """True: gradients that are not finite leave everything as it was."""
        self._check(self._library.canzona_step_judge(self._handle, skip))

    def run(self, action: int) -> None:
        """Carries out an action of the layout whose kind is "compute"."""
        if self._library.canzona_step_run(self._handle, action) != 0:
            self._raise()

    def needs(self, action: int, number: int) -> bool:
        """False if an exchange moves nothing in update `number` of its
        tensor."""
        self._check(
            self._library.canzona_step_needs(
                self._handle, action, number, ctypes.addressof(self._needed)
            )
        )
        return bool(self._needed.value)

    def end(self) -> None:
        self._check(self._library.canzona_step_end(self._handle))

    def capture(
        self,
        gradients: Sequence[int],
        dtypes: Sequence[int],
        counts: Sequence[int],
        rates: Sequence[tuple[float, int, bool]],
        told: int,
        limit: float,
        skip: bool,
    ) -> None:
        """Makes a step part of the CUDA graph into which `stream` is captured.
        `counts`: addresses of each tensor's number of updates, a float32 in
        host memory. `rates`, by group: a number, the address of one on the
        device, which each replay reads (0: the number itself), and whether that
        is a float64. `told`: the address of two int64, which count replays
        that changed nothing, and those of them that no longer fit the graph."""
        self._gradients.fill(gradients, dtypes)
        pointers = _Addresses(counts)
        made = (Rate * len(rates))(
            *(Rate(number, live or None, wide) for number, live, wide in rates)
        )
        replay = Replay(
            pointers.address,
            ctypes.addressof(made),
            told,
            told + 8,
            limit,
            skip,
        )
        self._check(
            self._library.canzona_step_capture(
                self._handle,
                self._gradients.address,
                ctypes.addressof(replay),
            )
        )

    def abandon(self) -> None:
        """Gives up a step that was begun, if one was; the next may begin."""
        self._check(self._library.canzona_step_abandon(self._handle))

    def outcome(self) -> Outcome:
        """What became of the last step; waits for a device."""
        self._check(
            self._library.canzona_step_outcome(
                self._handle, ctypes.addressof(self._outcome)
            )
        )
        return self._outcome

    def close(self) -> None:
        """Gives back what the library holds; may be called twice."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._library.canzona_step_free(handle)

    def __enter__(self) -> Step:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
