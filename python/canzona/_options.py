"""Options of rules by torch's names, and back.

A parameter group holds `lr`, `weight_decay` and a rule's options under the
names that torch.optim gives them (`momentum`, `betas`, `eps`, `ns_steps`, …),
the others under their own. `to_rule(group)` makes of it what the library reads:
text by the rule's own names (docs/rules.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Mapping, Sequence

from ._errors import UsageError
from ._hints import unknown
from ._routing import nearest

# torch.optim.Muon's, the set "simple".
SIMPLE = (3.4445, -4.7750, 2.0315)

_SCALES = {"match_rms_adamw": "match_rms"}

# torch's name → the rule's.
_COMMON = {"eps": "epsilon"}
_NAMES: dict[str, dict[str, str]] = {
    "muon": {
        "eps": "epsilon",
        "ns_steps": "steps",
        "ns_coefficients": "coefficients",
        "adjust_lr_fn": "scale",
    },
    "soap": _COMMON,
    "shampoo": _COMMON,
    "adamw": _COMMON,
}
_BETAS = ("beta1", "beta2")

# Keys of a parameter group that are no options of a rule.
OTHERS = {
    "params",
    "param_names",
    "rule",
    "lr",
    "initial_lr",
    "max_lr",
    "min_lr",
    "max_momentum",
    "base_momentum",
    "swa_lr",
    "preset",
    "differentiable",
    "capturable",
    "foreach",
    "maximize",
    "fused",
    "decoupled_weight_decay",
    "amsgrad",
}

# Switches of torch's optimizers that have no counterpart here.
_REFUSED = ("maximize", "amsgrad", "differentiable")

# Options that the package decides by where tensors are.
_OURS = {"device", "flatten", "scale_shape", "learning_rate"}


@lru_cache(maxsize=1)
def facts() -> dict[str, dict[str, Any]]:
    from . import rules

    return rules()


@lru_cache(maxsize=None)
def own_names(rule: str) -> frozenset[str]:
    return frozenset(o["name"] for o in facts()[rule]["options"])


@lru_cache(maxsize=None)
def known(rule: str) -> frozenset[str]:
    """Every name by which an option of a rule may be given."""
    own = own_names(rule) - _OURS
    names = own | set(_NAMES[rule])
    return names | {"betas"} if own.issuperset(_BETAS) else names


def own_name(rule: str, name: str) -> str:
    """A rule's own name of an option of torch's."""
    return _NAMES[rule].get(name, name)


def torch_names(rule: str) -> dict[str, str]:
    """torch's names by the rule's own, where they differ."""
    names = {own: name for name, own in _NAMES[rule].items()}
    if own_names(rule).issuperset(_BETAS):
        names.update(beta1="betas[0]", beta2="betas[1]")
    return names


def in_torchs_words(text: str) -> str:
    """A message of the library's with torch's name of an option beside the
    rule's own."""

    def both(found: re.Match[str]) -> str:
        begin, rule, own = found.groups()
        name = torch_names(rule).get(own)
        return begin + (f"{name} ({own})=" if name else f"{own}=")

    return re.sub(r"(rule (\w+): )(\w+)=", both, text)


def check_names(
    given: Mapping[str, Any], rules: tuple[str, ...], what: str
) -> None:
    """UsageError for a name that none of the rules knows."""
    names = set().union(*(known(r) for r in rules)) | {"lr"}
    for name in given:
        if name not in names and name not in OTHERS:
            raise unknown(name, names, rules, what)


def preset_values(rule: str, preset: str | None) -> dict[str, str]:
    """A rule's defaults with a preset's values."""
    values = {o["name"]: o["default"] for o in facts()[rule]["options"]}
    presets = {p["name"]: p["values"] for p in facts()[rule]["presets"]}
    if preset is not None:
        if preset not in presets:
            raise UsageError(
                f"preset '{preset}': {rule} has "
                f"{', '.join(presets)}{nearest(preset, presets)}"
            )
        values.update(presets[preset])
    return values


def has_preset(rule: str, preset: str | None) -> bool:
    return any(p["name"] == preset for p in facts()[rule]["presets"])


def make_group(
    rule: str, preset: str | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    """A parameter group's values: what is given, else a preset's."""
    values = preset_values(rule, preset)
    group: dict[str, Any] = {
        "rule": rule,
        "preset": preset,
        "lr": float(values["learning_rate"]),
        "weight_decay": float(values["weight_decay"]),
    }
    if rule == "muon":
        moment = given.get("second_moment", values["second_moment"])
        if "beta2" in given and moment == "none":
            raise UsageError(
                f"beta2={given['beta2']!r}: is that of second_moment=, which "
                'is "none"; adamw={"beta2": …} sets it for the parameters that '
                "are not matrices"
            )
        group.update(
            momentum=float(values["momentum"]),
            nesterov=values["nesterov"] == "on",
            ns_coefficients=(
                SIMPLE
                if values["coefficients"] == "simple"
                else values["coefficients"]
            ),
            eps=float(values["epsilon"]),
            ns_steps=(
                5 if values["coefficients"] == "simple" else values["steps"]
            ),
            adjust_lr_fn=(
                "match_rms_adamw"
                if values["scale"] == "match_rms"
                else values["scale"]
            ),
        )
    else:
        group.update(
            betas=(float(values["beta1"]), float(values["beta2"])),
            eps=float(values["epsilon"]),
        )
    mine = known(rule) | {"lr"}
    for name, value in given.items():
        if name in mine or (name in OTHERS and name not in ("rule", "preset")):
            group[_torch_name(rule, name, group)] = value
    for number, name in enumerate(_BETAS):
        if name in group and "betas" in group:
            betas = list(group["betas"])
            betas[number] = float(group.pop(name))
            group["betas"] = tuple(betas)
    check_numbers(group)
    refuse_switches(group, rule)
    return group


def refuse_switches(group: Mapping[str, Any], what: str) -> None:
    for name in _REFUSED:
        if group.get(name):
            raise UsageError(f"{what}: {name}={group[name]} is not supported")


def _torch_name(rule: str, name: str, group: Mapping[str, Any]) -> str:
    for torch_name, own in _NAMES[rule].items():
        if own == name and torch_name in group:
            return torch_name
    return name


def check_numbers(group: Mapping[str, Any]) -> None:
    for name in ("lr", "weight_decay", "eps"):
        value = group.get(name)
        if value is None:
            continue
        size = getattr(value, "numel", None)
        if size is not None and size() != 1:
            raise UsageError(
                f"{name}: a tensor of {size()} elements; expected one"
            )
        try:
            # A text, as YAML reads 1e-3, would stop LR schedulers later.
            number = float("x" if isinstance(value, str) else value)
        except (TypeError, ValueError):
            raise UsageError(f"{name}={value!r}: expected a number") from None
        if not 0.0 <= number < float("inf"):
            raise UsageError(
                f"{name}={number}: expected at least 0, and finite"
            )


_PLAIN = (bool, int, float, str, type(None))
# Every step reads rates; the others that are left out change nothing.
_NOT_COMPARED = OTHERS - {"rule", "preset", *_REFUSED}


def _is_plain(value: Any) -> bool:
    kind = type(value)
    return kind in _PLAIN or (kind is tuple and all(map(_is_plain, value)))


class GroupsSeen:
    """Groups as the last step saw them, since a step has little time to read
    their options again."""

    def __init__(self) -> None:
        self._seen: dict[int, dict[str, Any]] = {}

    def changed(
        self, groups: Sequence[Mapping[str, Any]]
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Those with a new value, or with one that may change in place, and
        their numbers. A group has been seen once the next one is asked for."""
        for number, group in enumerate(groups):
            now = {k: v for k, v in group.items() if k not in _NOT_COMPARED}
            plain = all(map(_is_plain, now.values()))
            if not plain or self._seen.get(number) != now:
                yield number, group
                self._seen[number] = now

    def forget(self) -> None:
        self._seen.clear()


def rates(groups: Sequence[Mapping[str, Any]]) -> list[float]:
    """Learning rates of parameter groups; UsageError for what is none."""
    found = []
    for i, group in enumerate(groups):
        try:
            rate = float(group["lr"])
        except (KeyError, TypeError, ValueError, RuntimeError):
            raise UsageError(
                f"group {i}: lr={group.get('lr')!r}; expected a number"
            ) from None
        if not 0.0 <= rate < float("inf"):
            raise UsageError(
                f"group {i}: lr={rate}; expected at least 0, and finite"
            )
        found.append(rate)
    return found


# Options of an optimizer that all of its ranks must have alike.
_ALIKE = """wire master share_states teams clip_norm nonfinite capacity_bytes
    ranks_per_node links flatten""".split()


def in_common(
    config: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What ranks compare of the options that a script gave."""
    cost = config.get("cost")  # pickles may be older
    return {
        **{k: config.get(k) for k in _ALIKE},
        "cost": cost and cost.identity,
        "rates": rates(groups),
    }


def text(value: Any) -> str:
    """A value as options of rules are written."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, (tuple, list)):
        if value and isinstance(value[0], (tuple, list)):
            return ";".join(text(v) for v in value)
        return ",".join(text(v) for v in value)
    if hasattr(value, "item"):
        return text(value.item())
    return str(value)


def to_rule(
    group: Mapping[str, Any], device: str, precision: str | None = None
) -> dict[str, str]:
    """A group's options as the library reads them; all but the rate."""
    rule = group["rule"]
    options: dict[str, str] = {}
    if group.get("preset") is not None:
        options["preset"] = group["preset"]
    mine = known(rule)
    for name, value in group.items():
        if name not in mine or (name == "ns_steps" and value == "auto"):
            continue
        if name == "betas":
            options["beta1"], options["beta2"] = _betas(value)
        elif name == "ns_coefficients":
            options["coefficients"] = _coefficients(value)
        elif name == "adjust_lr_fn":
            options["scale"] = _SCALES.get(value, value or "original")
        else:
            options[_NAMES[rule].get(name, name)] = text(value)
    own = own_names(rule)
    if "device" in own:
        options["device"] = device
    if (
        precision
        and "precision" in own
        and options.get("precision", "auto") == "auto"
    ):
        options["precision"] = precision
    return options


def _betas(value: Any) -> list[str]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise UsageError(f"betas={value!r}: expected two numbers")
    return [text(v) for v in value]


def _coefficients(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        if len(value) == 3 and not isinstance(value[0], (tuple, list)):
            if tuple(map(float, value)) == SIMPLE:
                return "simple"
            return ",".join(repr(float(v)) for v in value)
        return ";".join(",".join(repr(float(v)) for v in t) for t in value)
    except (TypeError, ValueError):
        raise UsageError(
            f"ns_coefficients={value!r}: expected three numbers, a list of "
            "such triples, or the name of a set"
        ) from None
