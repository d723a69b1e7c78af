"""Hints for options that do not exist: what people mean by them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ._errors import UsageError
from ._routing import ELEMENTS, nearest

# Words of other libraries and of habit.
_SYNONYMS = {
    "learning_rate": "lr",
    "rate": "lr",
    "wd": "weight_decay",
    "decay": "weight_decay",
    "mu": "momentum",
    "beta": "betas",
    "ns_iters": "ns_steps",
    "num_ns_steps": "ns_steps",
    "backend_steps": "ns_steps",
    "precondition_freq": "precondition_frequency",
    "update_freq": "precondition_frequency",
    "block_size": "max_preconditioner_dim",
    "max_grad_norm": "clip_norm",
    "max_norm": "clip_norm",
    "grad_clip": "clip_norm",
    "gradient_clip_val": "clip_norm",
    "process_group": "replicas",
    "model": "params",
    "module": "params",
    "parameters": "params",
    "named_parameters": "params",
    "param_groups": "params",
}

_HINTS = {
    "amsgrad": "; it is not supported for AdamW's parameters either",
    "device": "; a step runs where the parameters are",
}

_OF_ADAMW = re.compile(r"adamw?_(\w+)|(\w+)_adamw?")
_OF_MATRICES = re.compile(r"(?:muon|soap|shampoo)_(\w+)")
_ADAMWS = ("lr", "betas", "beta1", "beta2", "eps", "weight_decay")


def unknown(
    name: str, names: Iterable[str], rules: Sequence[str], what: str
) -> UsageError:
    """The error for an option that none of the rules has, with a hint at the
    one that was meant; `names` are the valid ones."""
    known = sorted(names)
    hint = _hint(name, known, rules) or nearest(name, known)
    if what.startswith("group "):
        hint += "; keys of your own go into optimizer.param_groups afterwards"
    return UsageError(
        f"{what}: {' and '.join(rules)} {'has' if len(rules) == 1 else 'have'} "
        f"no option '{name}'{hint}"
    )


def _hint(name: str, known: Sequence[str], rules: Sequence[str]) -> str:
    match = _OF_ADAMW.fullmatch(name)
    meant = next(filter(None, match.groups()), name) if match else name
    match = _OF_MATRICES.fullmatch(meant)
    meant = match.group(1) if match else meant
    meant = _SYNONYMS.get(meant, meant)
    has_adamw = "adamw" in known and ELEMENTS not in rules  # as an argument
    if (
        meant in _ADAMWS
        and has_adamw
        and (meant not in known or "adam" in name)
    ):
        return (
            f'; adamw={{"{meant}": …}} sets it for the parameters that are not '
            "matrices"
        )
    if meant == "momentum" and meant not in known and "betas" in known:
        return "; its momentum is the first of betas=(beta1, beta2)"
    if meant == "params" and meant in known:
        return "; pass the model as the first argument"
    if meant != name and meant in known:
        return f"; did you mean {meant}?"
    return _HINTS.get(name, "")
