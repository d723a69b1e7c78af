"""This rank's gradients as the library wants them: contiguous, at addresses.

    gradients = Gradients(names, layout, device)
    found = gradients.collect(parameters)
    step.begin(*gradients.arguments(found, counts, rates))

Nothing is copied but a gradient that is not contiguous. A gradient that does not
fit its parameter is a UsageError, which collect() returns rather than raises:
other ranks have to hear of it first.
"""

from __future__ import annotations

import hashlib
from operator import attrgetter, is_
from typing import Any, Sequence

import torch

from ._errors import UsageError
from ._layout import Layout, is_dtensor, local
from ._step import BF16, FP32
from ._together import Pause

Found = list[torch.Tensor | None]

# Less than any number that ranks compare.
_NOTHING = -(2**63)

_spec = attrgetter("_spec")  # of a DTensor

_DTYPES = {torch.float32: FP32, torch.bfloat16: BF16}


class Redistributed(Pause):
    """Gradients are laid out otherwise than their parameters (Partial, under
    tensor parallelism), which all ranks must change together."""

    unlike = (
        "gradient of {}: must be redistributed on ranks {}, but is missing or "
        "laid out otherwise on ranks {}; all ranks must have it alike"
    )

    def __init__(self, gradients: dict[int, Any], names: Sequence[str]):
        super().__init__(
            [f"{names[i]} {g.placements}" for i, g in gradients.items()]
        )
        self.gradients = gradients


class Gradients:
    def __init__(
        self, names: Sequence[str], layout: Layout, device: torch.device
    ):
        self._names = names
        self._device = device
        self._mine = layout.mine
        self._parameter_of = [t.parameter for t in layout.tensors]
        self._expected: list[tuple[bool, torch.dtype, torch.Size]] = []
        # The same as columns, where all parameters are DTensors or none is.
        self._usual: tuple[bool, list[torch.dtype], list[torch.Size]] | None
        self._usual = None
        self._kinds: list[int] = []  # by parameter, of usual gradients
        self.are_usual = False  # those that were collected last
        # Gradients that ranks have agreed to redistribute, by parameter: zeros
        # in their place, for a step in which this rank has none.
        self._agreed: dict[int, Any] = {}
        # True where tensors of the plan are this rank's parameters, in order.
        self._plain = self._mine == list(range(len(layout.tensors)))

    def expect(self, parameters: Sequence[torch.Tensor]) -> None:
        """Remembers what gradients of these parameters have to be like."""
        self._expected = [
            (is_dtensor(p), part.dtype, part.shape)
            for p, part in ((p, local(p)) for p in parameters)
        ]
        sharded, dtypes, shapes = map(list, zip(*self._expected))
        self._kinds = [_DTYPES[dtype] for dtype in dtypes]
        if len(set(sharded)) == 1:
            self._usual = sharded[0], dtypes, shapes

    def agree_on(self, pause: Redistributed, parameters: Sequence[Any]) -> None:
        """From now on all ranks redistribute these gradients at every step."""
        for i, g in pause.gradients.items():
            p = parameters[i]
            to = (p.device_mesh, p.placements)
            self._agreed[i] = (_zeros_like(g), to)

    def take_part(self) -> None:
        """Redistributes zeros, for the ranks that have gradients."""
        for _, (zeros, to) in sorted(
            self._agreed.items(), key=lambda item: item[0]
        ):
            zeros.redistribute(*to)

    def collect(
        self, parameters: Sequence[torch.Tensor]
    ) -> Found | UsageError | Redistributed:
        """This rank's parts, contiguous; or what is wrong with one, or must be
        agreed on first."""
        usual = self._collect_usual(parameters)
        self.are_usual = usual is not None
        if usual is not None:
            return usual
        found: Found = []
        error: UsageError | None = None
        new: dict[int, Any] = {}
        device = self._device
        index = -1 if device.index is None else device.index
        for i, (p, expected) in enumerate(zip(parameters, self._expected)):
            g = p.grad
            if i in self._agreed:
                g = self._redistributed(i, g)
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
                    try:
                        if _lies_otherwise(g, p):
                            new[i] = g
                            continue
                        part = _part(self._names[i], p, g, device).contiguous()
                    except UsageError as wrong:
                        error = error or wrong
                g = part
            found.append(g)
        return error or (Redistributed(new, self._names) if new else found)

    def _collect_usual(
        self, parameters: Sequence[torch.Tensor]
    ) -> Found | None:
        """Gradients if all are there and like their parameters; otherwise
        None. Every step asks this, so it loops in C."""
        if self._agreed or self._usual is None:
            return None
        sharded, dtypes, shapes = self._usual
        found: list[Any] = list(map(attrgetter("grad"), parameters))
        if sharded:
            kinds = map(type, parameters)
            if not all(map(isinstance, found, kinds)) or not all(
                map(is_, map(_spec, found), map(_spec, parameters))
            ):
                return None
            found = list(map(attrgetter("_local_tensor"), found))
        index = -1 if self._device.index is None else self._device.index
        fits = (
            set(map(type, found)) == {torch.Tensor}
            and list(map(attrgetter("dtype"), found)) == dtypes
            and list(map(attrgetter("shape"), found)) == shapes
            and set(map(torch.Tensor.get_device, found)) == {index}
            and all(map(torch.Tensor.is_contiguous, found))
        )
        return found if fits else None

    def _redistributed(self, i: int, g: Any) -> Any:
        """A gradient laid out like its parameter; other ranks wait for this
        one even if it has none."""
        zeros, to = self._agreed[i]
        fits = (
            is_dtensor(g)
            and g.placements == zeros.placements
            and g.shape == zeros.shape
        )
        moved = (g if fits else zeros).redistribute(*to)
        return moved if fits else g

    def arguments(
        self,
        found: Found,
        counts: Sequence[int],
        rates: Sequence[float],
        anywhere: int,
    ) -> tuple[list[int], list[int], Sequence[float], list[int]]:
        """Addresses, numbers of steps, rates and dtypes for Step.begin().

        A gradient of which this rank has no elements is there all the same, at
        `anywhere`; so are those of other ranks' own copies (Likeness)."""
        if self.are_usual:
            own = list(map(torch.Tensor.data_ptr, found))  # type: ignore
            kinds = self._kinds
            if 0 in own:
                own = [address or anywhere for address in own]
        else:
            own = [0 if g is None else g.data_ptr() or anywhere for g in found]
            kinds = [FP32 if g is None else _DTYPES[g.dtype] for g in found]
        if self._plain:
            return own, [n + 1 for n in counts], rates, kinds
        addresses = [anywhere] * len(self._parameter_of)
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
    """The local part of a DTensor that is laid out like its parameter: FSDP2's
    gradients share one object that says so."""
    if getattr(g, "_spec", None) is p._spec:  # type: ignore[attr-defined]
        return g._local_tensor  # type: ignore[attr-defined]
    return g


def _zeros_like(g: Any) -> Any:
    return type(g).from_local(
        torch.zeros_like(local(g)),
        g.device_mesh,
        g.placements,
        run_check=False,
        shape=g.shape,
        stride=g.stride(),
    )


def _lies_otherwise(g: torch.Tensor, p: torch.Tensor) -> bool:
    return (
        is_dtensor(p)
        and is_dtensor(g)
        and g.shape == p.shape
        and not g.is_sparse
        and (g.placements != p.placements or g.device_mesh != p.device_mesh)
    )


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
    if is_dtensor(p) and not is_dtensor(g):
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


class Likeness:
    """Which gradients are there, as numbers that ranks must have alike.

    For layouts in which not every rank has every tensor: look() compares all of
    them. Only ranks that have a tensor must agree on its gradient. Ranks of
    such tensors form *circles*; a circle of one has nothing to agree on. `told`
    has two numbers for each circle, then those of the step; they are reduced by
    MAX, so that a number and its negative show whether all were equal."""

    def __init__(self, layout: Layout):
        of = [tuple(layout.tensors[t].holders) for t in layout.mine]
        everyones = {tuple(t.holders) for t in layout.tensors}
        everyone = tuple(range(layout.world))
        self._circles = sorted(
            c for c in everyones if 1 < len(c) < layout.world
        )
        self._members = [
            [p for p, holders in enumerate(of) if holders == circle]
            for circle in (*self._circles, everyone)
        ]
        self._is_in = [layout.rank in c for c in (*self._circles, everyone)]
        self._is_needed = everyones != {everyone}
        self._said: tuple[list[bool], Any] = [], None
        self._values = torch.empty(0)
        self.num_numbers = 2 * len(self._circles)

    def put(self, found: Found, told: torch.Tensor, options: Any) -> None:
        """Says which gradients this rank has, in the place of look(), and what
        else all ranks must have alike: rates and options."""
        if not self._is_needed:
            return
        there = [g is not None for g in found]
        if (there, options) != self._said:
            self._said = there, options
            self._values = torch.tensor(
                [n for i in range(len(self._members)) for n in self._pair(i)]
            ).to(told.device)
        at = self.num_numbers
        told[:at].copy_(self._values[:at])
        told[at + 1 : at + 3].copy_(self._values[at:])

    def _pair(self, circle: int) -> tuple[int, int]:
        if not self._is_in[circle]:
            return _NOTHING, _NOTHING
        there, options = self._said
        have = bytes(there[p] for p in self._members[circle])
        everybody = circle == len(self._members) - 1
        text = have + (repr(options).encode() if everybody else b"")
        number = int.from_bytes(hashlib.sha256(text).digest()[:7], "little")
        return number, -number

    def judge(self, told: torch.Tensor) -> None:
        """Makes the step's numbers unlike if those of a circle are."""
        at = self.num_numbers
        if at:
            told[at + 1] += (told[0:at:2] != -told[1:at:2]).any()


def unlike(layout: Layout, there: Sequence[Any]) -> UsageError | None:
    """`there`: by rank, by parameter, whether it has a gradient."""
    for tensor in layout.tensors:
        p, ranks = tensor.parameter, layout.ranks
        have = [ranks[h] for h in tensor.holders if there[h][p]]
        lack = [ranks[h] for h in tensor.holders if not there[h][p]]
        if have and lack:
            name = layout.described[p].name
            return UsageError(
                f"gradient of {name}: is there on ranks {have}, but None on "
                f"ranks {lack}; all ranks must have it, or none"
            )
    return None


def unlike_options(
    ranks: Sequence[int], rates: Sequence[Any], options: Sequence[Any]
) -> UsageError:
    """`rates` and `options`: by rank, by group."""
    for rank, its_rates, its_options in zip(ranks, rates, options):
        for group, (ours, theirs) in enumerate(zip(rates[0], its_rates)):
            if ours != theirs:
                return UsageError(
                    f"group {group}: lr is {ours} on rank {ranks[0]} and "
                    f"{theirs} on rank {rank}; give every rank the same"
                )
        for group, (mine, other) in enumerate(zip(options[0], its_options)):
            for name in sorted({*mine, *other}):
                ours, theirs = mine.get(name), other.get(name)
                if ours != theirs:
                    return UsageError(
                        f"group {group}: {name} is {ours} on rank {ranks[0]} "
                        f"and {theirs} on rank {rank}; give every rank the same"
                    )
    return UsageError("ranks have gradients of different parameters")
