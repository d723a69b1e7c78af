"""Which masters of bf16 weights still belong to their weights, which scripts
write and load as they like.

For _run.py, whose Run is one of these. torch counts writes of tensors; that tells
of weights that were written since the last step. Of an fp32 master the weight
itself tells more, since it is its rounding (_masters.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from ._layout import local
from ._masters import (
    Pending,
    checksum,
    exact,
    is_remainder,
    is_whole,
    provides,
    reset_master,
    take_over,
)
from ._run_exchange import RunExchange
from ._warn import warn


def _version(parameter: torch.Tensor) -> int:
    """Grows whenever torch writes to a parameter, or to this rank's part."""
    part = local(parameter)
    return parameter._version + (0 if part is parameter else part._version)


class RunMasters(RunExchange):
    def refresh_masters(
        self, parameters: Sequence[torch.Tensor], usable: bool = True
    ) -> None:
        """Takes over weights that somebody else has written.

        After masters were loaded, a collective in which a rank takes part that
        is not usable because of an error."""
        if self.pending:
            self._settle(parameters, usable)
        if usable:
            self.look_at_versions(parameters)

    def look_at_versions(self, parameters: Sequence[torch.Tensor]) -> None:
        """The same on this rank alone, but for masters that were loaded."""
        for i, (p, kept) in enumerate(zip(parameters, self.masters)):
            if kept is None or i in self.pending:
                continue
            known, now = self._versions[i], _version(p)
            # Nobody but us writes weights before a version is known.
            new = known is None and is_remainder(kept)
            if known != now and not new:
                take_over(local(p).detach(), kept)
            self._versions[i] = now

    def remember_versions(self, parameters: Sequence[torch.Tensor]) -> None:
        self._versions = [_version(p) for p in parameters]

    def forget_versions(self) -> None:
        """Masters were written: the next step compares those in fp32 with the
        weights, which may be loaded later."""
        for i, kept in enumerate(self.masters):
            if kept is None or not is_remainder(kept):
                self._versions[i] = None

    def accept_weights(self, i: int) -> None:
        """A script wrote a remainder: it is of the weights as they are."""
        self.pending.pop(i, None)
        self._versions[i] = None

    def put_pending(self, i: int, pending: Pending) -> None:
        """What was loaded of a master waits for the weight that it fits."""
        self.pending[i] = pending
        self._versions[i] = None

    def _settle(
        self, parameters: Sequence[torch.Tensor], usable: bool
    ) -> None:
        """Loaded masters count if the weights are those that they were saved
        with; otherwise the weights count."""
        numbers = sorted(self.pending)
        now = [
            self._sum_here(i, parameters[i]) if usable else 0 for i in numbers
        ]
        then = [self._expected(i) for i in numbers]
        sums = self._summed([*numbers, *numbers], [*now, *then], usable)
        if sums is None:
            return  # the step ends with the error of a rank
        others = []
        for i, is_now, was in zip(numbers, sums, sums[len(numbers) :]):
            pending, kept = self.pending.pop(i), self.masters[i]
            assert kept is not None
            if not pending.of_part:
                was = pending.checksum
            weights = local(parameters[i]).detach()
            if is_now != was:
                others.append(self.names[i])
                reset_master(weights, kept)
            elif pending.remainder is not None:
                kept.copy_(exact(weights, pending.remainder).view(kept.shape))
            self._versions[i] = _version(parameters[i])
        if others:
            warn(
                f"{len(others)} parameters, {others[0]} among them, have other "
                "weights than when their masters were saved as remainders; "
                "these masters begin anew from the weights"
            )

    def checksums(self, parameters: Sequence[torch.Tensor]) -> dict[int, int]:
        """Of the weights, by parameter, as they are saved beside remainders. A
        collective if it needs_sums()."""
        numbers = [
            i
            for i, kept in enumerate(self.masters)
            if kept is not None and is_remainder(kept)
        ]
        here = [
            self._expected(i) if i in self.pending
            else self._sum_here(i, parameters[i])
            for i in numbers
        ]
        sums = self._summed(numbers, here, True)
        assert sums is not None
        waiting = {
            i: p.checksum for i, p in self.pending.items() if not p.of_part
        }
        return {**dict(zip(numbers, sums)), **waiting}

    def needs_sums(self) -> bool:
        """True if a checksum is that of parts on several ranks."""
        return any(
            kept is not None and is_remainder(kept) and self._is_cut(i)
            for i, kept in enumerate(self.masters)
        )

    def _is_cut(self, i: int) -> bool:
        tensor = self.layout.tensors[self.layout.mine[i]]
        return not all(is_whole(tensor, rank) for rank in tensor.holders)

    def _sum_here(self, i: int, parameter: torch.Tensor) -> int:
        """This rank's share of a checksum."""
        tensor = self.layout.tensors[self.layout.mine[i]]
        rank = self.layout.rank
        if self._is_cut(i) and not provides(tensor, rank):
            return 0
        return checksum(tensor, rank, local(parameter).detach())

    def _expected(self, i: int) -> int:
        """The same of the weights that a loaded master belongs to."""
        pending = self.pending[i]
        tensor = self.layout.tensors[self.layout.mine[i]]
        if self._is_cut(i) and not provides(tensor, self.layout.rank):
            return 0
        return pending.checksum if pending.of_part else 0

    def _summed(
        self, numbers: Sequence[int], here: Sequence[int], usable: bool
    ) -> list[int] | None:
        """Shares of checksums added up over the ranks, which wrap around. None
        if a rank is not usable. No collective unless a tensor is cut."""
        cut = [k for k, i in enumerate(numbers) if self._is_cut(i)]
        sums = list(here)
        if not cut or self.everyone is None:
            return sums if usable else None
        told = torch.tensor(
            [*(here[k] for k in cut), 0 if usable else 1],
            dtype=torch.int64,
            device=self.device,
        )
        dist.all_reduce(told, group=self.everyone)
        *added, unusable = told.tolist()
        for k, total in zip(cut, added):
            sums[k] = total
        return None if unusable else sums
