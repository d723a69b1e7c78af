"""Which parameter goes to which rule, and why.

    routes = route(model_or_parameters, rule="muon", rules={"*.gate": "adamw"})
    for r in routes: print(r.name, r.rule, r.reason)

Weights of Linear layers and stacks of experts' matrices go to the matrix rule;
embeddings, heads, routers, LoRA's factors, vectors and all else go to AdamW.
`rules` overrules that by pattern (fnmatch; the last one that fits counts).
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from dataclasses import dataclass, field
from typing import Iterable, Mapping, Sequence

import torch
from torch import nn

from ._errors import UsageError

FROZEN = "frozen"
ELEMENTS = "adamw"

# Words that wrappers put between the names of a model's modules.
_WRAPPERS = re.compile(
    r"(^|\.)(module|_orig_mod|_checkpoint_wrapped_module|_fsdp_wrapped_module)"
    r"(?=\.)"
)

_EMBEDDING = re.compile(
    r"(^|\.)(embed\w*|\w*embeddings?|\w*embed_tokens|wte|wpe|tok_emb|pos_emb)"
    r"(\.|$)",
    re.I,
)
_HEAD = re.compile(r"(^|\.)(lm_head|unembed\w*|embed_out)\.weight$", re.I)
# Words that mean something else inside of layers.
_OUTER_HEAD = re.compile(
    r"(^|\.)(head|\w+_head|output|classifier|score)\.weight$", re.I
)
_ROUTER = re.compile(
    r"(^|\.)(router|gate|gating|wg|switch)\.(weight|wg\.weight)$", re.I
)
_LORA = re.compile(r"(^|[._])lora_", re.I)
_EXPERTS = re.compile(r"(^|\.)\w*experts?\w*(\.|$)", re.I)


@dataclass
class Route:
    """Where a parameter goes."""

    name: str
    parameter: torch.Tensor
    rule: str  # "muon", …, "adamw" or "frozen"
    reason: str
    shape: tuple[int, ...]  # as the rule sees it; a convolution's is flattened
    splits: list[int] = field(default_factory=list)
    group: int = 0  # of the caller's groups
    awake: Route | None = None  # where it goes once it requires a gradient


@dataclass
class Known:
    """What a model tells of one of its parameters."""

    owner: nn.Module | None = None  # the module it belongs to
    head: bool = False  # the output layer, or tied to an embedding
    embedding: bool = False
    siblings: frozenset[str] = frozenset()  # modules beside the owner
    vocabulary: int = 0  # of the model's largest embedding


def clean(name: str) -> str:
    """A parameter's name without the words of wrappers."""
    while True:
        shorter = _WRAPPERS.sub(lambda m: m.group(1), name)
        shorter = shorter.replace("..", ".").lstrip(".")
        if shorter == name:
            return name
        name = shorter


def know(model: nn.Module) -> dict[int, Known]:
    """By id of the parameter."""
    known: dict[int, Known] = {}
    outputs = _output_layers(model)
    vocabulary = max(
        (
            m.num_embeddings
            for m in model.modules()
            if isinstance(m, nn.Embedding)
        ),
        default=0,
    )
    for parent in model.modules():
        names = frozenset(n for n, _ in parent.named_children())
        for child in parent.children():
            _know_module(known, child, names, child in outputs, vocabulary)
    _know_module(known, model, frozenset(), False, vocabulary)
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


def _know_module(
    known: dict[int, Known],
    module: nn.Module,
    siblings: frozenset[str],
    head: bool,
    vocabulary: int,
) -> None:
    embedding = isinstance(module, (nn.Embedding, nn.EmbeddingBag))
    for p in module.parameters(recurse=False):
        of = known.setdefault(id(p), Known(vocabulary=vocabulary))
        if of.owner is None or not embedding:
            of.owner = module
            of.siblings |= siblings
        of.embedding |= embedding
        of.head |= head


_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def usual(
    name: str, shape: Sequence[int], known: Known | None, matrix_rule: str
) -> tuple[str, str]:
    """Rule and reason for a parameter that nobody gave a rule."""
    dims = len(shape)
    if 0 in shape:
        return FROZEN, "has no elements"
    if dims < 2:
        return ELEMENTS, "a vector" if dims else "a scalar"
    if known is not None and known.embedding:
        linear = isinstance(known.owner, nn.Linear)
        return ELEMENTS, (
            "a head tied to an embedding" if linear else "an embedding"
        )
    if _LORA.search(name):
        return ELEMENTS, "a low-rank factor of LoRA"
    if known is not None and known.head:
        return ELEMENTS, "the model's head"
    if _EMBEDDING.search(name) and not (
        known and isinstance(known.owner, nn.Linear)
    ):
        return ELEMENTS, "an embedding, by its name"
    inside = any(part.isdigit() for part in name.split("."))
    if _HEAD.search(name) or _OUTER_HEAD.search(name) and not inside:
        return ELEMENTS, "a head, by its name"
    if known is not None and dims == 2 and shape[0] == known.vocabulary > 0:
        return ELEMENTS, f"a head: as wide as the vocabulary ({shape[0]})"
    if _is_router(name, shape, known):
        return ELEMENTS, "a router"
    return _by_owner(name, shape, known, matrix_rule)


def _is_router(name: str, shape: Sequence[int], known: Known | None) -> bool:
    match = _ROUTER.search(name)
    if match is None or len(shape) != 2:
        return False
    if match.group(2).lower() == "router":
        return True
    if known is not None and any("expert" in s.lower() for s in known.siblings):
        return True
    return known is None and shape[0] * 4 <= shape[1]


def _by_owner(
    name: str, shape: Sequence[int], known: Known | None, matrix_rule: str
) -> tuple[str, str]:
    dims = len(shape)
    owner = known.owner if known is not None else None
    kind = type(owner).__name__
    if isinstance(owner, _CONVOLUTIONS):
        return ELEMENTS, (
            'a convolution; rules={"'
            + name
            + '": "'
            + matrix_rule
            + '"} flattens it'
        )
    if dims == 3 and (_EXPERTS.search(name) or "expert" in kind.lower()):
        return matrix_rule, f"{shape[0]} experts' matrices"
    if dims != 2:
        return ELEMENTS, f"has {dims} dimensions and is no stack of experts"
    if owner is None:
        return matrix_rule, "a matrix, by its shape"
    if isinstance(owner, nn.Linear) or kind in ("Conv1D", "LinearLayer"):
        return matrix_rule, f"weight of {kind}"
    if "linear" in kind.lower():
        return matrix_rule, f"weight of {kind}"
    return ELEMENTS, (
        f"a parameter of {kind}, which is no Linear; rules= " "takes it"
    )


def nearest(word: str, known: Iterable[str]) -> str:
    """ "; did you mean X?", or nothing."""
    found = difflib.get_close_matches(word, list(known), 1, 0.4)
    return f"; did you mean {found[0]}?" if found else ""


def nearest_name(pattern: str, names: Iterable[str]) -> str:
    """The name whose ends are most like a pattern's ends."""
    head, tail = pattern.split("*")[0], pattern.split("*")[-1]

    def like(name: str) -> float:
        ends = (
            (head, name[: len(head)]),
            (tail, name[max(0, len(name) - len(tail)) :]),
        )
        return sum(
            difflib.SequenceMatcher(None, a, b).ratio() for a, b in ends if a
        )

    best = max(names, key=like, default="")
    return f"; did you mean {best}?" if best and like(best) > 0.6 else ""


def fitting(pattern: str, names: Sequence[str], what: str) -> list[str]:
    """The names that a pattern fits; UsageError with the nearest if none."""
    found = [n for n in names if fnmatch.fnmatchcase(n, pattern)]
    if not found:
        raise UsageError(
            f"{what}: pattern '{pattern}' fits no parameter"
            f"{nearest_name(pattern, names)}"
        )
    return found


def flattened(shape: Sequence[int]) -> tuple[int, ...]:
    rest = 1
    for n in shape[1:]:
        rest *= n
    return (shape[0], rest)


def route(
    named: Sequence[tuple[str, torch.Tensor, int]],
    known: Mapping[int, Known],
    matrix_rule: str,
    rules: Mapping[str, str] | None = None,
    splits: Mapping[str, Sequence[int]] | None = None,
    flatten: bool = False,
) -> list[Route]:
    """Routes (name, parameter, group) in their order.

    `flatten`: convolutions go to the matrix rule, too, as one matrix each.
    """
    names = [n for n, _, _ in named]
    given = _given_rules(rules or {}, names, matrix_rule)
    routes = []
    for name, parameter, group in named:
        shape = tuple(parameter.shape)
        of = known.get(id(parameter))
        if name in given:
            pattern, rule = given[name]
            reason = f"rules= says so ('{pattern}')"
        else:
            rule, reason = usual(name, shape, of, matrix_rule)
            if (
                flatten
                and of
                and isinstance(of.owner, _CONVOLUTIONS)
                and len(shape) > 2
            ):
                rule, reason = matrix_rule, "a convolution, flattened"
        if rule not in (ELEMENTS, FROZEN):
            shape = _matrix_shape(name, shape, of, matrix_rule, flatten)
        found = Route(name, parameter, rule, reason, shape, group=group)
        waits = not parameter.requires_grad and parameter.grad is None
        if waits and name not in given and rule != FROZEN:
            found = Route(
                name,
                parameter,
                FROZEN,
                f"requires no gradient yet; {rule} then",
                tuple(parameter.shape),
                group=group,
                awake=found,
            )
        routes.append(found)
    _put_splits(routes, splits or {})
    return routes


def _given_rules(
    rules: Mapping[str, str], names: Sequence[str], matrix_rule: str
) -> dict[str, tuple[str, str]]:
    known = list(dict.fromkeys((matrix_rule, ELEMENTS, FROZEN)))
    given: dict[str, tuple[str, str]] = {}
    for pattern, rule in rules.items():
        if rule not in known:
            raise UsageError(
                f"rules['{pattern}']: '{rule}' is no rule here; "
                f"expected {' or '.join(known)}"
                f"{nearest(str(rule), known)}"
            )
        for name in fitting(pattern, names, "rules"):
            given[name] = (pattern, rule)
    return given


def _matrix_shape(
    name: str,
    shape: tuple[int, ...],
    known: Known | None,
    rule: str,
    flatten: bool,
) -> tuple[int, ...]:
    if len(shape) < 2:
        raise UsageError(
            f"parameter {name}: has shape {list(shape)}, but "
            f"{rule} needs a matrix; AdamW updates parameters like this one"
        )
    convolution = known is not None and isinstance(known.owner, _CONVOLUTIONS)
    if len(shape) > 2 and (convolution or flatten):
        return flattened(shape)
    return shape


def _put_splits(
    routes: list[Route], splits: Mapping[str, Sequence[int]]
) -> None:
    names = [r.name for r in routes]
    by_name = {r.name: r for r in routes}
    for pattern, rows in splits.items():
        rows = [int(n) for n in rows]
        for name in fitting(pattern, names, "splits"):
            of = by_name[name].awake or by_name[name]
            if of.rule in (ELEMENTS, FROZEN):
                raise UsageError(
                    f"splits['{pattern}']: parameter {name} goes to {of.rule} "
                    f"({of.reason}), which splits nothing"
                )
            if min(rows, default=0) < 1 or sum(rows) != of.shape[-2]:
                raise UsageError(
                    f"splits['{pattern}']: rows {rows} add up to {sum(rows)}, "
                    f"but parameter {name} has {of.shape[-2]} rows "
                    f"{list(of.shape)}"
                )
            of.splits = rows


def require_matrices(routes: Sequence[Route], rule: str) -> None:
    """UsageError if a matrix rule would have nothing to do."""
    if rule == ELEMENTS or any((r.awake or r).rule == rule for r in routes):
        return
    lines = [
        f"{r.name} {list(r.parameter.shape)}: {r.reason}" for r in routes[:3]
    ]
    raise UsageError(
        f"no parameter goes to {rule}: {'; '.join(lines)}"
        f"{'; …' if len(routes) > 3 else ''}; give it some by "
        f'rules={{"pattern": "{rule}"}}, or use canzona.AdamW'
    )


def table(routes: Sequence[Route]) -> str:
    """Every parameter with its rule and the reason, as lines."""
    if not routes:
        return ""
    width = max(len(r.name) for r in routes)
    return "\n".join(
        f"{r.name:<{width}}  {r.rule:<8} {r.reason}" for r in routes
    )
