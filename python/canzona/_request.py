"""What the planner is asked: rules, tensors and what each rank stores of them
(docs/plan.md)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Mapping, Sequence

from . import _options, _routing
from ._errors import UsageError
from ._layout import CutTensor, Layout
from ._library import load
from ._routing import ELEMENTS, Route
from ._storage_plan import StoragePlan
from ._stored import Box


def make_request(
    layout: Layout,
    routes: Mapping[str, Route],
    groups: Sequence[Mapping[str, Any]],
    in_group: Sequence[int],
    config: Mapping[str, Any],
) -> dict[str, Any]:
    """`in_group`: the group of each parameter. The same on every rank."""
    written: dict[Any, int] = {}
    tensors = []
    for number, held in enumerate(layout.tensors):
        route = routes[layout.described[held.parameter].name]
        entry = _tensor(held, route)
        entry["group"] = in_group[held.parameter]
        key = (id(held.stored), tuple(entry["shape"]))
        if key in written:
            entry["stored"] = {"like": written[key]}
        written.setdefault(key, number)
        tensors.append(entry)
    request = {
        "canzona_storage": 1,
        "world": layout.world,
        "wire": config["wire"],
        "share_states": config["share_states"],
        "groups": groups,
        "tensors": tensors,
    }
    if config.get("master", "fp32") != "fp32":
        request["master"] = config["master"]
    if config.get("teams", "off") != "off":  # pickles may be older
        request["teams"] = str(config["teams"])
    for name in ("capacity_bytes", "ranks_per_node", "links"):
        if config.get(name) is not None:
            request[name] = config[name]
    cost = config.get("cost")
    if cost is not None:
        request["cost_table"] = cost.table
    # Whoever names a capacity wants it kept; else owners work side by side.
    if config["capacity_bytes"] is not None:
        request["strict_capacity"] = True
    return request


def _tensor(held: CutTensor, route: Route) -> dict[str, Any]:
    shape, stored = held.shape, held.stored
    if route.rule != ELEMENTS and len(shape) != len(route.shape):
        stored = [
            [_flat_box(held.name, shape, b) for b in boxes]
            for boxes in stored
        ]
        shape = _routing.flattened(shape)
    if not shape:
        shape = (1,)
        stored = [[((0,), (1,)) for _ in boxes] for boxes in stored]
    entry: dict[str, Any] = {
        "name": held.name,
        "shape": shape,
        "dtype": held.dtype,
        "stored": stored,
    }
    if route.splits:
        entry["splits"] = route.splits
    return entry


def _flat_box(name: str, shape: Sequence[int], box: Box) -> Box:
    first, count = box
    rest = tuple(shape[1:])
    if any(first[1:]) or tuple(count[1:]) != rest:
        raise UsageError(
            f"parameter {name}: is cut along another dimension than the "
            "first, so it cannot be flattened"
        )
    return (first[0], 0), (count[0], _routing.flattened(shape)[1])


def rule_options(
    group: Mapping[str, Any], kind: str, config: Mapping[str, Any]
) -> dict[str, str]:
    """A group's options as the library reads them. Sums over strips cost a
    little; only teams need them."""
    options = _options.to_rule(group, kind, settled_precision(kind))
    strips = "strips" in _options.own_names(group["rule"])
    if strips and config.get("teams", "off") == "off":  # pickles may be older
        options.setdefault("strips", "1")
    return options


@lru_cache(maxsize=2)
def settled_precision(device: str) -> str | None:
    """Of products, where options leave it open; by what the machine has."""
    if device != "cpu":
        return None
    kernel = load("cpu").describe("cpu").rpartition(" ")[2]
    if kernel == "avx512":
        try:
            with open("/proc/cpuinfo") as f:
                return "bf16" if "avx512_bf16" in f.read() else "fp32"
        except OSError:
            return "fp32"
    return "bf16" if kernel == "amx" else "fp32"


def check_ranges(groups: Sequence[Mapping[str, Any]], device: str) -> None:
    """UsageError if a rule refuses the options of a parameter group."""
    kind = "cuda" if device == "cuda" else "cpu"
    options = [
        {
            "rule": g["rule"],
            "options": _options.to_rule(g, kind, settled_precision(kind)),
        }
        for g in groups
    ]
    tensors = [
        {
            "name": f"group {i}",
            "shape": (2, 2),
            "dtype": "fp32",
            "group": i,
            "stored": [[((0, 0), (2, 2))]],
        }
        for i in range(len(groups))
    ]
    request = {
        "canzona_storage": 1,
        "world": 1,
        "wire": "fp32",
        "share_states": False,
        "groups": options,
        "tensors": tensors,
    }
    try:
        if tensors:
            StoragePlan(request).digest
    except UsageError as error:
        raise UsageError(_options.in_torchs_words(str(error))) from None
