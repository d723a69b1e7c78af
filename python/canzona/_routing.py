"""Which parameter goes to which rule, and why.

    named, _, known, _ = collect(model)
    for r in route(named, known, "muon", rules={"*.gate.weight": "adamw"}):
        print(r.name, r.rule, r.reason)

Weights of Linear layers and stacks of experts' matrices go to the matrix rule;
embeddings, heads, routers, LoRA factors, vectors and everything else go to
AdamW. `rules` overrides this by pattern (fnmatch; the last match wins).
_modules.py finds out what modules say about their parameters.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from dataclasses import dataclass, field, replace
from typing import Iterable, Mapping, Sequence

import torch

from ._errors import UsageError
from ._modules import Known
from ._warn import warn

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
# What is inside a router (torchtitan's router.gate), DeepSpeed's gate.wg, and the
# gate of an expert that takes all tokens.
_ROUTER = re.compile(
    r"(^|\.)(\w*router(\.\w+)*|gate\.wg|shared_experts?_gate)\.weight$", re.I
)
# Words that name a router beside experts, and something else in other layers.
_GATE = re.compile(r"(^|\.)(gate|gating|wg|switch)\.weight$", re.I)
_LORA = re.compile(r"(^|[._])lora_", re.I)
# A name that _collect.py has made for a parameter without one.
_NAMELESS = re.compile(r"parameter\d+")
_BY_SHAPE = "a matrix, by its shape"
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
    column_heads: int = 1  # side by side, each a matrix of its own
    group: int = 0  # of the caller's groups
    awake: Route | None = None  # where it goes once it requires a gradient


def clean(name: str) -> str:
    """A parameter's name without the words of wrappers."""
    while True:
        shorter = _WRAPPERS.sub(lambda m: m.group(1), name)
        shorter = shorter.replace("..", ".").lstrip(".")
        if shorter == name:
            return name
        name = shorter


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
        return ELEMENTS, (
            "a head tied to an embedding" if known.tied else "an embedding"
        )
    if _LORA.search(name):
        return ELEMENTS, "a low-rank factor of LoRA"
    if known is not None and known.head:
        return ELEMENTS, "the model's head"
    if _EMBEDDING.search(name) and not (known and known.linear):
        return ELEMENTS, "an embedding, by its name"
    if _names_head(name):
        return ELEMENTS, "a head, by its name"
    if _is_router(name, shape, known):
        return ELEMENTS, "a router"
    return _by_owner(name, shape, known, matrix_rule)


def _names_head(name: str) -> bool:
    inside = any(part.isdigit() for part in name.split("."))
    return bool(_HEAD.search(name) or _OUTER_HEAD.search(name) and not inside)


def _is_router(name: str, shape: Sequence[int], known: Known | None) -> bool:
    if len(shape) == 2 and _ROUTER.search(name):
        return True
    if len(shape) != 2 or not _GATE.search(name):
        return False
    if known is not None and any("expert" in s.lower() for s in known.siblings):
        return True
    return known is None and shape[0] * 4 <= shape[1]


def _is_stack(name: str, dims: int, known: Known | None) -> bool:
    """True for a 3-D tensor of experts' matrices."""
    kind = type(known.owner).__name__ if known is not None else ""
    return dims == 3 and bool(_EXPERTS.search(name) or "expert" in kind.lower())


def _by_owner(
    name: str, shape: Sequence[int], known: Known | None, matrix_rule: str
) -> tuple[str, str]:
    dims = len(shape)
    if known is not None and known.convolution:
        return ELEMENTS, (
            f'a convolution; rules={{"{name}": "{matrix_rule}"}} flattens it'
        )
    if _is_stack(name, dims, known):
        return matrix_rule, f"{shape[0]} experts' matrices"
    if dims != 2:
        return ELEMENTS, f"has {dims} dimensions and is no stack of experts"
    if known is None or known.owner is None:
        return matrix_rule, _BY_SHAPE
    kind = type(known.owner).__name__
    if known.linear:
        return matrix_rule, f"weight of {kind}"
    return ELEMENTS, (
        f"a parameter of {kind}, which is no Linear; rules= takes it"
    )


def _head_by_width(
    named: Sequence[tuple[str, torch.Tensor, int]],
    known: Mapping[int, Known],
    given: Mapping[str, tuple[str, str]],
    matrix_rule: str,
) -> str | None:
    """The head of a model that does not name one: its last layer with as many
    rows as an embedding, outside of blocks that recur."""
    if matrix_rule == ELEMENTS:
        return None
    of = {name: known.get(id(p), Known()) for name, p, _ in named}
    wide = [
        name
        for name, p, _ in named
        if p.dim() == 2 and p.shape[0] in of[name].vocabularies
        if _names_head(name)
        or usual(name, p.shape, of[name], matrix_rule)[0] == matrix_rule
    ]
    outer = [name for name in wide if not of[name].repeated]
    if any(k.tied or k.head for k in of.values()) or any(
        _names_head(name) or given.get(name, ("", ""))[1] == ELEMENTS
        for name in outer
    ):
        return None  # the model or the caller names it
    open_ones = [name for name in outer if name not in given]
    inner = [name for name in wide if name not in given]
    if len(open_ones) > 1:
        warn(_several_heads(open_ones, matrix_rule))
    elif inner and not outer and not any(map(_names_head, of)):
        warn(
            f"{len(inner)} layers have as many rows as an embedding "
            f"({inner[0]}, …), all inside blocks that recur, so none is taken "
            f'for the model\'s head; if one is: rules={{"{inner[-1]}": "adamw"}}'
        )
    return open_ones[-1] if open_ones else None


def _several_heads(names: Sequence[str], matrix_rule: str) -> str:
    *others, last = names
    return (
        f"{len(names)} layers have as many rows as an embedding "
        f"({', '.join(names[:3])}{', …' if len(names) > 3 else ''}); the last "
        f"one, {last}, is taken for the model's head and goes to AdamW, the "
        f'others go to {matrix_rule}; to decide otherwise: rules={{"{last}": '
        f'"{matrix_rule}", "{others[-1]}": "adamw"}}'
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
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> list[Route]:
    """Routes (name, parameter, group) in their order.

    `flatten`: convolutions go to the matrix rule too, as one matrix each.
    `shapes`: of whole tensors, where the parameter is a piece of one.
    """
    names = [n for n, _, _ in named]
    given = _given_rules(rules or {}, names, matrix_rule)
    head = _head_by_width(named, known, given, matrix_rule)
    routes = []
    for name, parameter, group in named:
        shape = tuple((shapes or {}).get(name, parameter.shape))
        of = known.get(id(parameter))
        if name in given:
            pattern, rule = given[name]
            reason = f"rules= says so ('{pattern}')"
        elif name == head:
            rule = ELEMENTS
            reason = f"a head: as wide as the vocabulary ({shape[0]})"
        elif flatten and of and of.convolution and len(shape) > 2:
            rule, reason = matrix_rule, "a convolution"
        else:
            rule, reason = usual(name, shape, of, matrix_rule)
        if rule not in (ELEMENTS, FROZEN):
            shape = _matrix_shape(name, shape, of, matrix_rule, flatten)
            if len(shape) < parameter.dim():
                reason += f", flattened to {shape[0]} x {shape[1]}"
        found = Route(name, parameter, rule, reason, shape, group=group)
        waits = not parameter.requires_grad and parameter.grad is None
        if waits and name not in given and rule != FROZEN:
            found = asleep(found)
        routes.append(found)
    _put_splits(routes, splits or {})
    _tell_nameless(routes, matrix_rule)
    return routes


def _tell_nameless(routes: Sequence[Route], rule: str) -> None:
    """Warns about matrices that might be embeddings or heads."""
    found = [
        r
        for r in routes
        if (r.awake or r).reason == _BY_SHAPE and _NAMELESS.fullmatch(r.name)
    ]
    if found and rule != ELEMENTS:
        shape = " x ".join(map(str, found[0].parameter.shape))
        what = f"{found[0].name}, {shape}"
        many = f"{len(found)} matrices ({what}, …) have no names"
        warn(
            f"{many if len(found) > 1 else f'a matrix ({what}) has no name'}, "
            "so embeddings and heads are not recognized and "
            f"go to {rule} as well; pass the model itself, or its "
            "named_parameters(). If all of them are meant: "
            f'[{{"params": …, "rule": "{rule}"}}]'
        )


def asleep(found: Route) -> Route:
    """The route of a parameter that requires no gradient yet."""
    return replace(
        found,
        rule=FROZEN,
        reason=f"requires no gradient yet; {found.rule} then",
        shape=tuple(found.parameter.shape),
        awake=found,
    )


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
    if known is not None and known.owner is not None:
        flatten = known.convolution
    elif _is_stack(name, len(shape), known):
        flatten = False
    return flattened(shape) if flatten and len(shape) > 2 else shape


def _put_splits(
    routes: list[Route], splits: Mapping[str, Sequence[int]]
) -> None:
    names = [r.name for r in routes]
    by_name = {r.name: r for r in routes}
    for pattern, rows in splits.items():
        if not isinstance(rows, Sequence) or isinstance(rows, str):
            raise UsageError(
                f"splits['{pattern}']: {rows!r}; expected a list of row counts"
            )
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
        f"no parameter goes to {rule}: {'; '.join(lines) or 'there is none'}"
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
