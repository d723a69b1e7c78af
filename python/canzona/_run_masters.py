"""Which masters of bf16 weights still belong to their weights, which scripts
write and load as they like.

For _run.py, whose Run is one of these. torch counts writes of tensors; that
tells of weights that were written since the last step. Of an fp32 master the
weight itself tells more, since it is its rounding (_masters.py).
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
        for i, kept in enumerate(self.masters if usable else ()):
            if kept is not None and not is_remainder(kept):
                self._look_at(i, parameters[i], kept)
        if usable:
            self.refresh_remainders(parameters)

    def refresh_remainders(self, parameters: Sequence[torch.Tensor]) -> None:
        """The same of remainders that were not loaded, before they are used or
        saved, without other ranks."""
        for i, kept in enumerate(self.masters):
            if kept is None or not is_remainder(kept) or i in self.pending:
                continue
            # Nobody but us writes weights before a version is known.
            if self._versions[i] is None:
                self._versions[i] = _version(parameters[i])
            self._look_at(i, parameters[i], kept)

    def _look_at(self, i: int, p: torch.Tensor, kept: torch.Tensor) -> None:
        if i not in self.pending and self._versions[i] != _version(p):
            take_over(local(p).detach(), kept)
            self._versions[i] = _version(p)

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
        now, then = {}, {}
        for i in self.pending:
            now[i] = self._sum_here(i, parameters[i]) if usable else 0
            then[i] = self._expected(i)
        sums = self._summed([now, then], usable)
        if sums is None:
            return  # the step ends with the error of a rank
        others = []
        for i, pending in sorted(self.pending.items()):
            kept = self.masters[i]
            assert kept is not None
            weights = local(parameters[i]).detach()
            saved = sums[1][i] if pending.of_part else pending.checksum
            if sums[0][i] != saved:
                others.append(self.names[i])
                reset_master(weights, kept)
            elif pending.remainder is not None:
                kept.copy_(exact(weights, pending.remainder).view(kept.shape))
            self._versions[i] = _version(parameters[i])
        self.pending = {}
        if others:
            warn(
                f"{len(others)} parameters, {others[0]} among them, have other "
                "weights than when their masters were saved as remainders; "
                "these masters begin anew from the weights"
            )

    def checksums(self, parameters: Sequence[torch.Tensor]) -> dict[int, int]:
        """Of the weights, by parameter, as they are saved beside remainders. A
        collective if it needs_sums()."""
        here = {
            i: (
                self._expected(i)
                if i in self.pending
                else self._sum_here(i, parameters[i])
            )
            for i, kept in enumerate(self.masters)
            if kept is not None and is_remainder(kept)
        }
        sums = self._summed([here], True)
        assert sums is not None
        waiting = {
            i: p.checksum for i, p in self.pending.items() if not p.of_part
        }
        return {**sums[0], **waiting}

    def needs_sums(self) -> bool:
        """True if a checksum is that of parts on several ranks."""
        return self.setup.master == "remainder" and self._has_cut()

    def _has_cut(self) -> bool:
        """The same on all ranks."""
        return any(
            tensor.dtype == "bf16"
            and not all(is_whole(tensor, rank) for rank in tensor.holders)
            for tensor in self.layout.tensors
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
        self, columns: Sequence[dict[int, int]], usable: bool
    ) -> list[dict[int, int]] | None:
        """Shares of checksums by parameter, added up over the ranks, which
        wrap around. None if a rank is not usable. No collective unless a
        tensor is cut. Untied copies of a parameter are added up apart."""
        if self.everyone is None or not self._has_cut():
            return list(columns) if usable else None
        each = len(self.layout.tensors)
        shares = [0] * (each * len(columns)) + [0 if usable else 1]
        for c, column in enumerate(columns):
            for i, share in column.items():
                shares[c * each + self.layout.mine[i]] = share
        told = torch.tensor(shares, dtype=torch.int64, device=self.device)
        dist.all_reduce(told, group=self.everyone)
        *sums, unusable = told.tolist()
        if unusable:
            return None
        return [
            {
                i: (
                    sums[c * each + self.layout.mine[i]]
                    if self._is_cut(i)
                    else share
                )
                for i, share in column.items()
            }
            for c, column in enumerate(columns)
        ]
