"""What a model's modules say about its parameters, and where they hold them.

know(model)[id(p)].owner
refuse_replaced(homes_of(named, known), names, parameters)
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

from ._errors import UsageError
from ._layout import is_dtensor


@dataclass
class Known:
    """What a model says about one of its parameters."""

    owner: nn.Module | None = None  # the module that has it
    head: bool = False  # belongs to what get_output_embeddings() returns
    embedding: bool = False
    siblings: frozenset[str] = frozenset()  # modules beside the owner
    vocabularies: frozenset[int] = (
        frozenset()
    )  # sizes of the model's embeddings
    repeated: bool = False  # the owner is part of a block that recurs

    @property
    def linear(self) -> bool:
        """By its class or, of other libraries' layers, by their name."""
        kind = type(self.owner).__name__
        return (
            isinstance(self.owner, nn.Linear)
            or kind == "Conv1D"
            or "linear" in kind.lower()
        )

    @property
    def convolution(self) -> bool:
        """Transposed and lazy ones included."""
        return isinstance(self.owner, _ConvNd)

    @property
    def tied(self) -> bool:
        """True if this is a head's weight and an embedding's."""
        return self.embedding and isinstance(self.owner, nn.Linear)


def know(model: nn.Module) -> dict[int, Known]:
    """By id of the parameter."""
    known: dict[int, Known] = {}
    outputs = _output_layers(model)
    vocabularies = frozenset(
        m.num_embeddings for m in model.modules() if isinstance(m, nn.Embedding)
    )
    repeated = _repeated(model)
    beside = [
        (child, frozenset(n for n, _ in parent.named_children()))
        for parent in model.modules()
        for child in parent.children()
    ]
    for module, siblings in [*beside, (model, frozenset[str]())]:
        embedding = isinstance(module, (nn.Embedding, nn.EmbeddingBag))
        for p in module.parameters(recurse=False):
            of = known.setdefault(id(p), Known(vocabularies=vocabularies))
            if of.owner is None or not embedding:
                of.owner = module
                of.siblings |= siblings
            of.embedding |= embedding
            of.head |= module in outputs
            of.repeated |= id(module) in repeated
    return known


def _output_layers(model: nn.Module) -> list[nn.Module]:
    found = []
    for module in model.modules():
        ask = getattr(module, "get_output_embeddings", None)
        if callable(ask):
            try:
                found.append(ask())
            except Exception:  # a model that has none may refuse to answer
                continue
    return [m for m in found if m is not None]


def _repeated(model: nn.Module) -> set[int]:
    """Ids of modules inside a ModuleList, or inside a module whose class occurs
    more than once; plain containers do not count."""
    counts = Counter(type(m) for m in model.modules())
    found: set[int] = set()

    def visit(module: nn.Module, inside: bool) -> None:
        if inside:
            found.add(id(module))
        recurs = counts[type(module)] > 1 and not isinstance(
            module, (nn.Sequential, nn.ModuleDict)
        )
        for child in module.children():
            visit(child, inside or recurs or isinstance(module, nn.ModuleList))

    visit(model, False)
    return found


@dataclass(frozen=True)
class Home:
    """A parameter's place in its model, which may hold another one by now."""

    module: weakref.ref[nn.Module]
    attribute: str

    def find(self) -> torch.Tensor | None:
        module = self.module()
        if module is None:
            return None
        return module._parameters.get(self.attribute)


def homes_of(
    named: Iterable[tuple[str, torch.Tensor]], known: Mapping[int, Known]
) -> dict[str, Home]:
    """By name; parameters that were given without a module have none."""
    homes = {}
    for name, p in named:
        owner = known.get(id(p), Known()).owner
        if owner is None:
            continue
        for attribute, its in owner._parameters.items():
            if its is p:
                homes[name] = Home(weakref.ref(owner), attribute)
    return homes


def refuse_replaced(
    homes: Mapping[str, Home], members: Iterable[tuple[str, torch.Tensor]]
) -> None:
    """UsageError if the gradient of a parameter is at another tensor, which the
    model has in its place now."""
    for name, p in members:
        now = homes[name].find() if name in homes else p
        if now is None or now is p or now.grad is None or p.grad is not None:
            continue
        after = "whatever replaces parameters (model.to_empty, model.to)"
        if is_dtensor(now):
            after = "fully_shard or parallelize_module"
        raise UsageError(
            f"parameter {name}: the model has another tensor in its place "
            "since this optimizer was made, which would not be trained; make "
            f"the optimizer after {after}"
        )
