"""Communication of one rank's steps: process groups, which are made once, and
the plan's actions as calls of torch.distributed.

For _run.py, whose Run is one of these.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator
from typing import Any, Callable, Sequence

import torch
import torch.distributed as dist

from ._meeting import default_timeout
from ._run_memory import RunMemory, Setup
from ._together import together

_naming = threading.Lock()


@contextlib.contextmanager
def _named_group(name: str) -> Iterator[None]:
    """Gives a name to the process group that this thread makes meanwhile.

    torch names a group of some ranks after the number of groups that the
    process is in; ranks for which that differs would wait for each other. No
    public call of torch 2.9 to 2.13 takes a name. A torch without the function
    that is replaced here names groups itself."""
    c10d: Any = dist.distributed_c10d
    me = threading.get_ident()
    with _naming:
        usual: Any = getattr(c10d, "_process_group_name", None)

        def named(*arguments: Any, **options: Any) -> Any:
            mine = threading.get_ident() == me
            return name if mine else usual(*arguments, **options)

        if usual is None:
            yield
            return
        c10d._process_group_name = named
        try:
            yield
        finally:
            c10d._process_group_name = usual


def _group(setup: Setup, ranks: Sequence[int]) -> Any:
    """A group of the world's ranks; None if this rank is not in it."""
    layout, made = setup.layout, setup.groups
    if layout.rank not in ranks:
        return None
    members = tuple(layout.ranks[r] for r in ranks)
    if members not in made:
        with _named_group(f"canzona{layout.serial}_{members}"):
            made[members] = dist.new_group(
                list(members),
                timeout=default_timeout(setup.device.type),
                use_local_synchronization=True,
                group_desc="canzona",
            )
    return made[members]


def _wait(work: Any) -> None:
    for one in work if isinstance(work, list) else (work,):
        one.wait()


class RunExchange(RunMemory):
    """Memory and communication of a rank's steps."""

    def __init__(self, setup: Setup, parameters: Sequence[torch.Tensor]):
        self.everyone = None
        if setup.layout.world > 1:
            self.everyone = _group(setup, range(setup.layout.world))
        with together(self.everyone, setup.layout.ranks):
            super().__init__(setup, parameters)
        self._broken = ""  # where a step was that did not end
        self._groups = [
            _group(setup, ranks) for ranks in self._step.layout["groups"]
        ]
        self._actions = [
            self._compile(i, a)
            for i, a in enumerate(self._step.layout["actions"])
        ]

    def _compile(
        self,
        number: int,
        action: dict[str, Any],
    ) -> tuple[str, str, Callable[[dict[int, Any]], None]]:
        kind, label = action["kind"], action.get("label", "")
        step = self._step  # `self` in a closure would be a reference cycle
        if kind == "compute":
            return kind, label, lambda _: step.run(number)
        if kind == "wait":
            of = action["for"]
            label = self._step.layout["actions"][of].get("label", "")
            return kind, label, lambda works: _wait(works.pop(of))
        group = self._groups[action["group"]]
        if kind == "exchange":
            return kind, label, self._exchange(number, action)
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

    def _exchange(
        self, number: int, action: dict[str, Any]
    ) -> Callable[[dict[int, Any]], None]:
        """What members of a team send each other, out of their rooms."""
        rooms, group, step = self._rooms, self._groups[action["group"]], self._step
        ranks = step.layout["groups"][action["group"]]
        me = ranks.index(self.layout.rank)
        this = weakref.ref(self)  # `self` in a closure would be a cycle
        parameter = self.parameter_of(action["tensors"][0])

        def views(blocks: list[list[int]]) -> list[tuple[int, torch.Tensor]]:
            return [(i, rooms.narrow(0, at, n)) for i, at, n in blocks]

        sent, received = views(action["send"]), views(action["receive"])
        own = [
            [view for i, view in views_ if i == me]
            for views_ in (sent, received)
        ]
        messages = [
            dist.P2POp(
                operation, view, self.layout.ranks[ranks[i]], group=group
            )
            for operation, views_ in ((dist.isend, sent), (dist.irecv, received))
            for i, view in views_
            if i != me
        ]

        def exchange(works: dict[int, Any]) -> None:
            works[number] = []
            run: Any = this()
            if not step.needs(number, run.counts[parameter] + 1):
                return
            for source, target in zip(*own):
                target.copy_(source)
            if messages:
                works[number] = dist.batch_isend_irecv(messages)

        return exchange

    def _reduce(self, place: slice, operation: Any, label: str) -> None:
        """Reduces some of the step's numbers over all ranks, the first ones
        together with those of _likeness, which lie before them."""
        if self.everyone is not None:
            before = self._likeness.num_numbers
            numbers = self._told_numbers[
                place.start and before + place.start : before + place.stop
            ]
            self._communicate(
                label,
                lambda: dist.all_reduce(
                    numbers, operation, group=self.everyone
                ),
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
