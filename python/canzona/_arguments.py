"""Arguments of optimizers that are no options of a rule, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch.distributed as dist

from ._cost import read_cost
from ._errors import UsageError
from ._masters import FORMS
from ._routing import fitting, nearest

_NONFINITE = ("skip", "raise", "propagate")
_WIRES = ("fp32", "bf16")
_FLATTEN = ("none", "first_dim")
_TEAMS = ("off", "auto", 2, 4, 8)


def make_config(**given: Any) -> dict[str, Any]:
    """What an optimizer keeps of them; UsageError names a wrong one."""
    _one_of("nonfinite", given["nonfinite"], _NONFINITE)
    _one_of("wire", given["wire"], _WIRES)
    _one_of("master", given["master"], FORMS)
    _one_of("flatten", given["flatten"], _FLATTEN)
    _one_of("teams", given["teams"], _TEAMS)
    if given["links"] is not None and not isinstance(given["links"], str):
        raise UsageError(
            f"links={given['links']!r}: expected text such as "
            '"intra=400GB/s,inter=50GB/s,latency=10us", or None'
        )
    clip_norm = given["clip_norm"]
    if clip_norm is not None and not _is_above(clip_norm, 0):
        raise UsageError(
            f"clip_norm={clip_norm!r}: expected a number above 0, or None"
        )
    for name in ("capacity_bytes", "ranks_per_node", "threads"):
        value = given[name]
        if value is not None and not (
            _is_above(value, 0) and int(value) == value
        ):
            raise UsageError(
                f"{name}={value!r}: expected an integer from 1 on, or None"
            )
    return dict(
        given,
        share_states=bool(given["share_states"]),
        clip_norm=None if clip_norm is None else float(clip_norm),
        flatten=given["flatten"] == "first_dim",
        cost=read_cost(given["cost"]),
        rules=as_dict("rules", given["rules"]),
        splits=as_dict("splits", given["splits"]),
        heads=(
            given["heads"]
            if given["heads"] in ("auto", "all")
            else as_dict("heads", given["heads"])
        ),
    )


def _is_above(value: Any, least: float) -> bool:
    try:
        return bool(value > least) and not isinstance(value, str)
    except (TypeError, ValueError, RuntimeError):
        return False


# What the arguments that are dicts hold.
_DICTS = {
    "adamw": '{"betas": (0.9, 0.95)}',
    "groups": '{"*.norm.*": {"weight_decay": 0}}',
    "rules": '{"*.gate.weight": "adamw"}',
    "splits": '{"*.qkv.weight": [q, k, v]}',
    "heads": '{"*.q_proj.weight": 32}, "auto" or "all"',
}


def as_dict(name: str, value: Any) -> dict[str, Any]:
    """An argument that is a dict or None; UsageError for anything else."""
    if not isinstance(value or {}, Mapping):
        raise UsageError(
            f"{name}={value!r}: expected a dict like {_DICTS[name]}"
        )
    return dict(value or {})


def _one_of(name: str, value: Any, words: Sequence[Any]) -> None:
    if value not in words:
        raise UsageError(
            f"{name}={value!r}: expected {', '.join(map(str, words))}"
            f"{nearest(str(value), [str(w) for w in words])}"
        )


def replicas_by_name(
    replicas: Any, names: Sequence[str]
) -> dict[str, tuple[int, ...]]:
    """Of parameters that patterns name; the last one that fits counts."""
    if not isinstance(replicas, Mapping):
        return {}
    return {
        name: ranks_of(ranks)
        for pattern, ranks in replicas.items()
        for name in fitting(pattern, names, "replicas")
    }


def check_layout_arguments(layout: Any, group: Any, share_states: Any) -> None:
    """UsageError for what layout= and group= cannot be."""
    if layout is not None and not callable(layout):
        raise UsageError(
            f"layout={layout!r}: expected a function of a name and a tensor "
            "that returns canzona.Stored or None"
        )
    if layout is not None and share_states:
        raise UsageError(
            "share_states=True: is not supported with layout=, whose states "
            "are saved where they lie"
        )
    if group is not None and not isinstance(group, dist.ProcessGroup):
        raise UsageError(
            f"group={group!r}: expected a process group of which this rank is "
            "a member"
        )


def ranks_of(replicas: Any) -> tuple[int, ...]:
    """Global ranks of a process group or mesh, or as they are given."""
    if replicas is None or isinstance(replicas, Mapping):
        return ()
    if hasattr(replicas, "get_group"):
        replicas = replicas.mesh.flatten().tolist()
    if isinstance(replicas, Iterable):
        ranks = tuple(sorted({int(r) for r in replicas}))
        world = dist.get_world_size() if dist.is_initialized() else 1
        for rank in ranks:
            if not 0 <= rank < world:
                raise UsageError(
                    f"replicas={list(ranks)}: there is no rank {rank} among "
                    f"the {world} of this world"
                )
        return ranks
    if not isinstance(replicas, dist.ProcessGroup):
        raise UsageError(
            f"replicas={replicas!r}: expected a process group, a mesh or a "
            "list of ranks"
        )
    return tuple(dist.get_process_group_ranks(replicas))
