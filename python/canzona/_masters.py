"""Masters of bf16 weights, bit by bit as canzona/base/master_bits.h has them.

A master is kept as an fp32 tensor, or as the 16 bits that restore it from the
weight, its *remainder*: a signed integer in the bits of a bf16 tensor, since
torch's collectives move no 16-bit integers.

A remainder fits any weight. So a state dict has a checksum of the weights
beside it: the sum over all elements of a hash of index and bits, which does not
depend on how a tensor is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

MASTER = "master"
REMAINDER = "remainder"
CHECKSUM = "weight_checksum"  # beside remainders, in state dicts alone
FORMS = ("fp32", "remainder")
_ROWS = 1 << 20  # elements that are hashed at once


def key_of(kept: torch.Tensor) -> str:
    """The name of a master as a state, in its form."""
    return REMAINDER if is_remainder(kept) else MASTER


def is_remainder(kept: torch.Tensor) -> bool:
    return kept.dtype == torch.bfloat16


def new_master(weights: torch.Tensor, form: str) -> torch.Tensor | None:
    """Of weights that are their own masters; None if these are fp32."""
    if weights.dtype != torch.bfloat16:
        return None
    return weights.float() if form == "fp32" else torch.zeros_like(weights)


def round_to_weights(master: torch.Tensor) -> torch.Tensor:
    """Halves go away from zero, as in the library; torch's own rounding takes
    the even neighbour."""
    return split(master)[0]


def split(master: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights and the remainders of fp32 masters."""
    bits = master.contiguous().view(torch.int32)
    nan = master.isnan()
    upper = torch.where(nan, bits >> 16 | 0x40, (bits + 0x8000) >> 16)
    lower = torch.where(nan, 0, bits)
    return _as_bf16(upper), _as_bf16(lower)


def _as_bf16(bits: torch.Tensor) -> torch.Tensor:
    return bits.to(torch.int16).view(torch.bfloat16)


def _int_bits(weights: torch.Tensor) -> torch.Tensor:
    return weights.contiguous().view(torch.int16).to(torch.int32)


def exact(weights: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """The masters of weights in fp32, as a copy unless they are kept so."""
    if not is_remainder(kept):
        return kept
    bits = (_int_bits(weights) << 16) + _int_bits(kept).view(weights.shape)
    return bits.view(torch.float32)


def put(
    weights: torch.Tensor, kept: torch.Tensor, masters: torch.Tensor
) -> None:
    """Sets weights and what is kept of their masters."""
    upper, lower = split(masters)
    weights.copy_(upper.view(weights.shape))
    kept.copy_((lower if is_remainder(kept) else masters).view(kept.shape))


def reset_master(weights: torch.Tensor, kept: torch.Tensor) -> None:
    """The weights are their own masters."""
    if is_remainder(kept):
        kept.zero_()
    else:
        kept.copy_(weights.view(kept.shape))


def take_over(weights: torch.Tensor, kept: torch.Tensor) -> None:
    """Somebody else may have written the weights. An fp32 master whose rounding
    is still the weight stays as it is; nothing tells of a remainder."""
    if is_remainder(kept):
        return reset_master(weights, kept)
    master = kept.view(weights.shape)
    upper = _int_bits(weights) << 16
    apart = master.contiguous().view(torch.int32) - upper
    # Of two weights as near either counts: earlier versions took the even one.
    same = (apart >= -0x8000) & (apart <= 0x8000)
    kept.copy_(torch.where(same, master, weights.float()).view(kept.shape))


@dataclass
class Pending:
    """A master was loaded; whether it belongs to the weights, which may be
    loaded later, is decided when it is used."""

    checksum: int  # of the weights that it belongs to
    of_part: bool = False  # the checksum is of this rank's part alone
    # Becomes an fp32 master then.
    remainder: torch.Tensor | None = None


def checksum(tensor: Any, rank: int, weights: torch.Tensor) -> int:
    """Of this rank's part of the weights of a tensor of a layout."""
    shape: Sequence[int] = tensor.shape or (1,)
    strides = [1] * len(shape)
    for d in reversed(range(len(shape) - 1)):
        strides[d] = strides[d + 1] * shape[d + 1]
    bits = weights.contiguous().view(torch.int16).reshape(-1)
    total = torch.zeros((), dtype=torch.int64, device=bits.device)
    at = 0
    for first, count in tensor.stored[rank]:
        first, count = first or (0,), count or (1,)
        inside = torch.zeros(1, dtype=torch.int64, device=bits.device)
        for d in range(1, len(shape)):
            steps = _range(first[d], count[d], bits) * strides[d]
            inside = (inside[:, None] + steps).reshape(-1)
        each = inside.numel()
        rows = max(1, _ROWS // max(1, each))
        for row in range(0, count[0], rows):
            n = min(rows, count[0] - row)
            place = _range(first[0] + row, n, bits) * strides[0]
            part = bits[at : at + n * each].view(n, each)
            total += _hash(place[:, None] + inside, part).sum()
            at += n * each
    return int(total)


def _range(first: int, count: int, like: torch.Tensor) -> torch.Tensor:
    return torch.arange(first, first + count, device=like.device)


def _hash(index: torch.Tensor, bits: torch.Tensor) -> torch.Tensor:
    """Of pairs of numbers; integers wrap around."""
    mixed = (index << 16 | bits.to(torch.int64) & 0xFFFF) * -7046029254386353131
    mixed = (mixed ^ mixed >> 29) * -4658895280553007687
    return mixed ^ mixed >> 32


def provides(tensor: Any, rank: int) -> bool:
    """True on one of the ranks that store the same part of a tensor."""
    return tensor.stored.index(tensor.stored[rank]) == rank


def is_whole(tensor: Any, rank: int) -> bool:
    """True if this rank stores all of a tensor."""
    return _elements(tensor.shape) == sum(
        _elements(count) for _, count in tensor.stored[rank]
    )


def _elements(shape: Sequence[int]) -> int:
    product = 1
    for n in shape:
        product *= n
    return product
