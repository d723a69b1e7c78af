"""The heads of attention layers: which rows of which weights belong to which.

    found = find_heads(model)          # by name of the weight
    found["layers.0.attn.q_proj.weight"].blocks     # [128, 128, …]
    find_outputs(model)["layers.0.attn.o_proj.weight"]  # 32, side by side

Geometry comes from a Hugging Face config, or from the attributes of the module
that has the projections. Rows are counted as torch stores them: outputs first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from torch import nn

from ._errors import UsageError
from ._routing import ELEMENTS, FROZEN, Route, clean, fitting

# What modules call their projections.
_ROLES = {
    "q": ("q_proj", "q_b_proj", "wq", "wq_b", "query", "to_q", "linear_q"),
    "k": ("k_proj", "wk", "key", "to_k", "linear_k"),
    "v": ("v_proj", "wv", "value", "to_v", "linear_v"),
    "kv": ("kv_b_proj", "wkv_b"),
    "qkv": ("qkv_proj", "qkv", "Wqkv", "query_key_value", "linear_qkv"),
}
# Projections whose heads are columns.
_OUT = ("o_proj", "out_proj", "wo", "to_out", "linear_proj")
_ROLE_OF = {name: role for role, names in _ROLES.items() for name in names}

# What configs and modules call the numbers.
_NUMBERS = {
    "heads": (
        "num_attention_heads",
        "num_heads",
        "n_heads",
        "n_head",
        "index_n_heads",
    ),
    "groups": (
        "num_key_value_heads",
        "num_query_groups",
        "num_kv_heads",
        "n_kv_heads",
    ),
    "dim": ("head_dim", "kv_channels", "d_head", "index_head_dim"),
    "nope": ("qk_nope_head_dim",),
    "rope": ("qk_rope_head_dim",),
    "value": ("v_head_dim",),
}
# Projections whose rows are laid out by query group, as Megatron's are.
_BY_GROUP = ("linear_qkv", "query_key_value")


@dataclass(frozen=True)
class Rows:
    """Some rows of a weight: `head` counts query heads for "q" and "q_rope",
    groups of them for "k" and "v"."""

    part: str  # "q", "q_rope", "k", "v"
    head: int
    count: int


@dataclass(frozen=True)
class HeadRows:
    """A weight of an attention layer, as rows of heads."""

    layer: str  # the name of the attention module
    heads: int  # query heads of the layer
    groups: int
    rows: tuple[Rows, ...]
    source: str

    @property
    def blocks(self) -> list[int]:
        """The heights of its heads, each a matrix of its own: the nope and the
        rope part of a query are one, key and value are two."""
        kinds = groupby(self.rows, lambda r: (r.part[0], r.head))
        return [sum(r.count for r in head) for _, head in kinds]

    def __str__(self) -> str:
        blocks = self.blocks
        sizes = sorted(set(blocks), reverse=True)
        many = " and ".join(f"{blocks.count(n)} of {n} rows" for n in sizes)
        return f"heads: {many} ({self.source})"


@dataclass(frozen=True)
class _Attention:
    """An attention layer: its projections by role, and what is known of it."""

    name: str
    module: nn.Module
    projections: Mapping[str, tuple[str, Any]]
    numbers: Mapping[str, int]
    source: str

    def key(self, child: str, part: str = "weight") -> str:
        return ".".join(filter(None, (self.name, child, part)))


def find_heads(model: nn.Module) -> dict[str, HeadRows]:
    """By name of the weight or bias, as model.named_parameters() has it."""
    found = {}
    for of in _attentions(model):
        for role, (child, weight) in of.projections.items():
            if len(weight.shape) != 2:
                continue
            rows = _weight(of, role, child, tuple(weight.shape))
            found[of.key(child)] = rows
            bias = getattr(getattr(of.module, child), "bias", None)
            if isinstance(bias, nn.Parameter) and bias.numel():
                found[of.key(child, "bias")] = rows
    return found


def find_outputs(model: nn.Module) -> dict[str, int]:
    """How many heads the columns of output projections have, by name of the
    weight."""
    found: dict[str, int] = {}
    for of in _attentions(model):
        for child, its in of.module.named_children():
            weight = getattr(its, "weight", None)
            if child not in _OUT or weight is None or len(weight.shape) != 2:
                continue
            heads = of.numbers.get("heads", 0)
            if not heads or weight.shape[1] % heads:
                raise UsageError(
                    f"heads='all': parameter {of.key(child)} "
                    f"{list(weight.shape)}: its columns are not {heads} heads "
                    f"({of.source}: {dict(of.numbers)}); use heads='auto', "
                    "which leaves it whole, or name the heads"
                )
            found[of.key(child)] = heads
    return found


def _attentions(model: nn.Module) -> Iterable[_Attention]:
    config = next(
        (
            m.config
            for m in model.modules()
            if hasattr(getattr(m, "config", None), "num_attention_heads")
        ),
        None,
    )
    for name, module in model.named_modules():
        name = clean(f"{name}.").removesuffix(".")
        projections = {
            _ROLE_OF[child]: (child, its.weight)
            for child, its in module.named_children()
            if child in _ROLE_OF and getattr(its, "weight", None) is not None
        }
        if "qkv" not in projections and not (
            "q" in projections and {"k", "kv"} & set(projections)
        ):
            continue
        numbers, source = _geometry(module, config)
        if "groups" not in numbers and "k" in projections and "dim" in numbers:
            # Indexers have one key for all heads and do not say so.
            groups, rest = divmod(len(projections["k"][1]), numbers["dim"])
            if rest == 0 and 0 < groups < numbers.get("heads", 0):
                numbers["groups"] = groups
        yield _Attention(name, module, projections, numbers, source)


def _geometry(module: nn.Module, config: Any) -> tuple[dict[str, int], str]:
    """What the module itself says comes first. A config that has another number
    of heads speaks of another attention."""
    numbers: dict[str, int] = {}
    sources = []
    for of, source in (
        (module, type(module).__name__),
        (getattr(module, "config", None), "its config"),
        (config, "the model's config"),
    ):
        said = _said_by(of)
        heads = numbers.get("heads")
        if heads and said.get("heads", heads) != heads:
            continue
        if said.keys() - numbers.keys():
            sources.append(source)
        numbers = {**said, **numbers}
    return numbers, ", ".join(sources)


def _said_by(of: Any) -> dict[str, int]:
    said: dict[str, int] = {}
    for number, names in _NUMBERS.items():
        for name in names:
            value = getattr(of, name, None)
            if type(value) is int and value > 0:
                said[number] = value
                break
    return said


def _weight(
    of: _Attention, role: str, child: str, shape: tuple[int, ...]
) -> HeadRows:
    key, numbers, source = of.key(child), of.numbers, of.source
    heads = numbers.get("heads", 0)
    if not heads:
        raise UsageError(
            f"heads: parameter {key} {list(shape)}: neither its module nor a "
            f"config says how many heads it has (found: {dict(numbers)}; "
            f"looked for {', '.join(_NUMBERS['heads'])}); name them: "
            f'heads={{"{key}": 32}}'
        )
    # Every head of latent attention has a key of its own.
    groups = heads if "nope" in numbers else numbers.get("groups", heads)
    if heads % groups:
        raise UsageError(
            f"heads: parameter {key}: {groups} groups of keys do not divide "
            f"{heads} heads ({source})"
        )
    rows = tuple(_rows(role, child, shape[0], heads, groups, numbers))
    total = sum(r.count for r in rows)
    if total != shape[0] or any(r.count < 1 for r in rows):
        raise UsageError(
            f"heads: parameter {key} has {shape[0]} rows, but {heads} heads in "
            f"{groups} groups have {total} ({source}: {dict(numbers)})"
        )
    return HeadRows(of.name, heads, groups, rows, source)


def _rows(
    role: str,
    child: str,
    height: int,
    heads: int,
    groups: int,
    numbers: Mapping[str, int],
) -> Iterable[Rows]:
    nope, rope = numbers.get("nope"), numbers.get("rope")
    value = numbers.get("value", numbers.get("dim", 0))
    if role == "q" and nope and rope:
        for h in range(heads):
            yield Rows("q", h, nope)
            yield Rows("q_rope", h, rope)
    elif role == "kv":
        for h in range(heads):
            yield Rows("k", h, nope or 0)
            yield Rows("v", h, value)
    elif role == "qkv":
        each = height // (heads + 2 * groups)
        per = heads // groups
        if child in _BY_GROUP:
            for g in range(groups):
                yield from (Rows("q", g * per + i, each) for i in range(per))
                yield Rows("k", g, each)
                yield Rows("v", g, each)
        else:
            yield from (Rows("q", h, each) for h in range(heads))
            yield from (Rows("k", g, each) for g in range(groups))
            yield from (Rows("v", g, each) for g in range(groups))
    else:
        many = heads if role == "q" else groups
        yield from (Rows(role, h, height // many) for h in range(many))


def put_found(routes: Sequence[Route], found: Mapping[str, HeadRows]) -> None:
    """Cuts the matrices that have heads; UsageError if none has."""
    cut = 0
    for r in routes:
        of, its = r.awake or r, found.get(r.name)
        if its is None or of.rule in (ELEMENTS, FROZEN):
            continue
        _refuse_splits("heads='auto'", r.name, of)
        of.splits = its.blocks
        of.reason += f"; {its}"
        r.reason = of.reason if r is of else f"{r.reason}; {its}"
        cut += 1
    if not cut:
        raise UsageError(
            "heads='auto': no matrix is a projection of an attention layer; "
            f"expected modules with {', '.join(_ROLE_OF)}; name the matrices: "
            'heads={"*.q_proj.weight": 32}'
        )


def put_outputs(routes: Sequence[Route], found: Mapping[str, int]) -> None:
    """Cuts output projections by columns."""
    for r in routes:
        of = r.awake or r
        if r.name in found and of.rule not in (ELEMENTS, FROZEN):
            _cut_columns("heads='all'", r.name, of, found[r.name])
            r.reason = of.reason


def put_given(routes: Sequence[Route], heads: Mapping[str, Any]) -> None:
    """Cuts matrices into as many equal heads as the caller says: by columns
    where it says so, or if they are output projections."""
    by_name = {r.name: r for r in routes}
    for pattern, count in heads.items():
        what = f"heads['{pattern}']"
        by_columns = isinstance(count, tuple) and count[:1] == ("columns",)
        count = count[1] if by_columns and len(count) == 2 else count
        if type(count) is not int or count < 1:
            raise UsageError(
                f"{what}: {heads[pattern]!r}; expected a number of heads, or "
                '("columns", number)'
            )
        for name in fitting(pattern, [*by_name], "heads"):
            of = by_name[name].awake or by_name[name]
            if of.rule in (ELEMENTS, FROZEN):
                raise UsageError(
                    f"{what}: parameter {name} goes to {of.rule} "
                    f"({of.reason}), which has no heads"
                )
            if by_columns or {*name.split(".")} & {*_OUT}:
                _cut_columns(what, name, of, count)
                continue
            rows = of.shape[-2]
            if rows % count:
                raise UsageError(
                    f"{what}: {count} heads do not divide the {rows} rows of "
                    f"parameter {name} {list(of.shape)}"
                )
            _refuse_splits(what, name, of)
            of.splits = [rows // count] * count
            of.reason += f"; heads: {count} of {rows // count} rows ({what})"


def _cut_columns(what: str, name: str, of: Route, heads: int) -> None:
    columns = of.shape[-1]
    if columns % heads:
        raise UsageError(
            f"{what}: {heads} heads do not divide the {columns} columns of "
            f"parameter {name} {list(of.shape)}"
        )
    if of.rule != "muon":
        raise UsageError(
            f"{what}: the heads of parameter {name} {list(of.shape)} are "
            f"columns, and rule {of.rule} cuts only rows; use canzona.Muon, or "
            "leave it whole"
        )
    _refuse_splits(what, name, of)
    of.column_heads = heads
    of.reason += f"; heads: {heads} of {columns // heads} columns ({what})"


def _refuse_splits(what: str, name: str, of: Route) -> None:
    if of.splits or of.column_heads > 1:
        has = f"splits already ({of.splits})" if of.splits else "heads already"
        raise UsageError(
            f"{what}: parameter {name} has {has}; give one of heads= and "
            "splits="
        )
