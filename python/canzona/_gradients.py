"""This rank's gradients as the library wants them: contiguous, at addresses.

    gradients = Gradients(names, layout, device)
    found = gradients.collect(parameters)
    step.begin(*gradients.arguments(found, counts, rates))

Nothing is copied but a gradient that is not contiguous. A gradient that does not
fit its parameter is a UsageError, which collect() returns rather than raises:
other ranks have to hear of it first.
"""

from __future__ import annotations

from typing import Any, Sequence

import torch

from ._errors import UsageError
from ._layout import Layout, is_dtensor, local
from ._step import BF16, FP32

Found = list[torch.Tensor | None]

_DTYPES = {torch.float32: FP32, torch.bfloat16: BF16}


class Gradients:
    def __init__(
        self, names: Sequence[str], layout: Layout, device: torch.device
    ):
        self._names = names
        self._device = device
        self._mine = layout.mine
        self._parameter_of = [t.parameter for t in layout.tensors]
        self._expected: list[tuple[bool, torch.dtype, torch.Size]] = []
        # True where tensors of the plan are this rank's parameters, in order.
        self._plain = self._mine == list(range(len(layout.tensors)))

    def expect(self, parameters: Sequence[torch.Tensor]) -> None:
        """Remembers what gradients of these parameters have to be like."""
        self._expected = [
            (is_dtensor(p), part.dtype, part.shape)
            for p, part in ((p, local(p)) for p in parameters)
        ]

    def collect(self, parameters: Sequence[torch.Tensor]) -> Found | UsageError:
        """This rank's parts, contiguous; or what is wrong with one."""
        found: Found = []
        device = self._device
        index = -1 if device.index is None else device.index
        try:
            # This is done at every step, so the usual case is quick.
            for i, (p, expected) in enumerate(zip(parameters, self._expected)):
                g = p.grad
                if g is not None:
                    sharded, dtype, shape = expected
                    part = _shard(g, p) if sharded else g
                    if not (
                        type(part) is torch.Tensor
                        and part.dtype is dtype
                        and part.shape == shape
                        and part.get_device() == index
                        and part.is_contiguous()
                    ):
                        part = _part(self._names[i], p, g, device).contiguous()
                    g = part
                found.append(g)
        except UsageError as error:
            return error
        return found

    def arguments(
        self,
        found: Found,
        counts: Sequence[int],
        rates: Sequence[float],
        anywhere: int,
    ) -> tuple[list[int], list[int], Sequence[float], list[int]]:
        """Addresses, numbers of steps, rates and dtypes for Step.begin().

        A gradient of which this rank has no elements is there all the same, at
        `anywhere`; so are those of other ranks' own copies."""
        own = [0 if g is None else g.data_ptr() or anywhere for g in found]
        kinds = [FP32 if g is None else _DTYPES[g.dtype] for g in found]
        if self._plain:
            return own, [n + 1 for n in counts], rates, kinds
        addresses = [anywhere if own[p] else 0 for p in self._parameter_of]
        dtypes = [FP32] * len(addresses)
        for parameter, tensor in enumerate(self._mine):
            addresses[tensor] = own[parameter]
            dtypes[tensor] = kinds[parameter]
        return (
            addresses,
            [counts[p] + 1 for p in self._parameter_of],
            rates,
            dtypes,
        )


def _shard(g: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """The local part of a DTensor that lies as its parameter does, as FSDP2's
    do by one object."""
    if getattr(g, "_spec", None) is p._spec:  # type: ignore[attr-defined]
        return g._local_tensor  # type: ignore[attr-defined]
    return g


def _part(
    name: str, p: torch.Tensor, g: torch.Tensor, device: torch.device
) -> torch.Tensor:
    if g.is_sparse:
        raise UsageError(
            f"gradient of {name}: is sparse; expected a dense one (an "
            "embedding's sparse=False)"
        )
    if g.shape != p.shape:
        raise UsageError(
            f"gradient of {name}: has shape {list(g.shape)}, its parameter "
            f"{list(p.shape)}"
        )
    if is_dtensor(p) and is_dtensor(g):
        if g.placements != p.placements or g.device_mesh != p.device_mesh:
            g = g.redistribute(p.device_mesh, p.placements)
    elif is_dtensor(p):
        raise UsageError(
            f"gradient of {name}: is a plain tensor, its parameter a DTensor"
        )
    return _checked(name, local(p), local(g), device)


def _checked(
    name: str, weight: torch.Tensor, part: torch.Tensor, device: torch.device
) -> torch.Tensor:
    """A rank's part of a gradient; fp32 ones of bf16 weights are welcome."""
    if part.dtype != weight.dtype and part.dtype != torch.float32:
        raise UsageError(
            f"gradient of {name}: is {part.dtype}, its parameter "
            f"{weight.dtype}"
        )
    if part.device != device:
        raise UsageError(
            f"gradient of {name}: is on {part.device}, its parameter on "
            f"{device}"
        )
    if part.shape != weight.shape:
        raise UsageError(
            f"gradient of {name}: this rank has {list(part.shape)} of it, and "
            f"of its parameter {list(weight.shape)}"
        )
    return part


def unlike(
    names: Sequence[str], ranks: Sequence[int], there: Sequence[Any]
) -> UsageError:
    """`there`: by rank, by parameter, whether it has a gradient."""
    for i, name in enumerate(names):
        have = [r for r, of in zip(ranks, there) if of[i]]
        if 0 < len(have) < len(ranks):
            lack = [r for r in ranks if r not in have]
            return UsageError(
                f"gradient of {name}: is there on ranks {have}, but None on "
                f"ranks {lack}; all ranks must have it, or none"
            )
    return UsageError("ranks have gradients of different parameters")
