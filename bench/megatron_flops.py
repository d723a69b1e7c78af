"""Newton-Schulz flops of the busiest rank inside Megatron-Core: its own modes
of tensor parallelism against the plans of canzona.megatron. Needs no GPU and no
Megatron.

    PYTHONPATH=python python3 bench/megatron_flops.py

Matrices are fused as Megatron fuses them, and shared out over data-parallel
ranks as its layer-wise optimizer does (one bucket, longest first, by size).
Every matrix costs the same in all modes: the flops of this library's form of
Newton-Schulz for its shape.
"""

import functools
from dataclasses import dataclass

from canzona._storage_plan import StoragePlan


@dataclass
class Model:
    layers: int
    hidden: int
    ffn: int
    heads: int
    groups: int  # query groups
    experts: int = 0
    head: int = 128


MODELS = {
    "Qwen3-1.7B": Model(28, 2048, 6144, 16, 8),
    "Qwen3-8B": Model(36, 4096, 12288, 32, 8),
    "Qwen3-32B": Model(64, 5120, 25600, 64, 8),
    "Qwen3-30B-A3B": Model(48, 2048, 768, 32, 4, experts=128),
}
# dp, tp, ep
MESHES = {
    "Qwen3-1.7B": [(4, 2, 1), (16, 2, 1), (8, 4, 1)],
    "Qwen3-8B": [(8, 2, 1), (8, 4, 1), (16, 4, 1), (8, 8, 1)],
    "Qwen3-32B": [(4, 8, 1), (8, 8, 1), (16, 8, 1), (32, 8, 1)],
    "Qwen3-30B-A3B": [(8, 2, 8), (8, 4, 8), (16, 4, 16), (32, 4, 32)],
}

# A matrix: its whole shape, the dimension that TP cuts, the stride, and the
# rows of q, k and v of a query group, or none.
Shape = tuple[tuple[int, int], int, int, tuple[int, ...]]


def dense(m: Model) -> list[Shape]:
    rows = (m.heads // m.groups * m.head, m.head, m.head)
    layer: list[Shape] = [
        ((m.groups * sum(rows), m.hidden), 0, 1, rows),
        ((m.hidden, m.heads * m.head), 1, 1, ()),
    ]
    if m.experts:
        layer.append(((m.experts, m.hidden), -1, 1, ()))
    else:
        layer.append(((2 * m.ffn, m.hidden), 0, 2, ()))
        layer.append(((m.hidden, m.ffn), 1, 1, ()))
    return layer * m.layers


def of_experts(m: Model, ep: int) -> list[Shape]:
    """An EP rank's, which tensor parallelism does not cut."""
    expert: list[Shape] = [
        ((2 * m.ffn, m.hidden), -1, 2, ()),
        ((m.hidden, m.ffn), -1, 1, ()),
    ]
    return expert * (m.layers * m.experts // ep)


def stored(shape: Shape, tp: int) -> list[list]:
    """The boxes of every rank."""
    (height, width), dim, stride, rows = shape
    whole = [[(0, 0), (height, width)]]
    if dim < 0 or tp == 1:
        return [whole] * tp
    if rows:
        groups, found = height // sum(rows), []
        for r in range(tp):
            boxes = []
            for g in range(r * groups // tp, (r + 1) * groups // tp):
                first = 0
                for n in rows:
                    boxes.append([(first + g * n, 0), (n, width)])
                    first += groups * n
            found.append(boxes)
        return found
    if dim == 1:
        n = width // tp
        return [[[(0, r * n), (height, n)]] for r in range(tp)]
    n = height // tp // stride
    half = height // stride
    return [
        [[(s * half + r * n, 0), (n, width)] for s in range(stride)]
        for r in range(tp)
    ]


def plan(shapes: tuple[Shape, ...], tp: int, teams: str) -> dict:
    tensors = []
    for i, shape in enumerate(shapes):
        tensor = dict(
            name=f"m{i}",
            shape=shape[0],
            dtype="fp32",
            group=0,
            stored=stored(shape, tp),
        )
        if shape[3]:
            groups = shape[0][0] // sum(shape[3])
            tensor["splits"] = [groups * n for n in shape[3]]
        tensors.append(tensor)
    options = {"preset": "nvidia", "device": "cuda", "nesterov": "on"}
    if teams == "off":
        options["strips"] = "1"
    return StoragePlan(
        {
            "canzona_storage": 1,
            "world": tp,
            "wire": "fp32",
            "share_states": False,
            "teams": teams,
            "groups": [{"rule": "muon", "options": options}],
            "tensors": tensors,
        }
    ).json["predicted"]


@functools.cache
def alone(shape: Shape) -> int:
    """The flops of one rank that has the whole matrix."""
    (height, width), _, _, rows = shape
    one = plan((((height, width), -1, 1, rows),), 1, "off")
    return one["makespan_ticks"]


def shard(shape: Shape, tp: int) -> Shape:
    (height, width), dim, stride, rows = shape
    size = [height, width]
    if dim >= 0:
        size[dim] //= tp
    return (size[0], size[1]), -1, stride, rows


def shared_out(shapes: list[Shape], dp: int) -> list[tuple[Shape, ...]]:
    """As LayerWiseDistributedOptimizer: longest first, the least loaded."""
    load, found = [0] * dp, [[] for _ in range(dp)]
    for shape in sorted(shapes, key=lambda s: -s[0][0] * s[0][1]):
        least = load.index(min(load))
        load[least] += shape[0][0] * shape[0][1]
        found[least].append(shape)
    return [tuple(of) for of in found]


@functools.cache
def planned(shapes: tuple[Shape, ...], tp: int, teams: str) -> tuple[int, int]:
    """The flops of the busiest rank, and the bound on them."""
    if not shapes:
        return 0, 0
    predicted = plan(shapes, tp, teams)
    return predicted["makespan_ticks"], predicted["bound_ticks"]


def row(name: str, dp: int, tp: int, ep: int) -> str:
    m = MODELS[name]
    parts = shared_out(dense(m), dp)
    experts = [0]
    if m.experts:
        edp = dp * tp // ep
        shapes = shared_out(of_experts(m, ep), edp)
        experts = [sum(map(alone, of)) for of in shapes]
    most = max(experts)
    duplicated = most + max(sum(map(alone, of)) for of in parts)
    blockwise = most + max(sum(alone(shard(s, tp)) for s in of) for of in parts)
    ours, bound = max(planned(of, tp, "off") for of in parts)
    shared = most + max(planned(of, tp, "auto")[0] for of in parts)
    total, least = most + ours, most + bound
    every = sum(sum(map(alone, of)) for of in parts)
    even = sum(experts) / len(experts) + every / (dp * tp)
    mesh = f"{dp} × {tp}" + (f", EP {ep}" if m.experts else "")
    return (
        f"| {name} | {mesh} | {total / 1e12:.2f} | "
        f"{duplicated / total:.2f} | {blockwise / total:.2f} | "
        f"{total / least:.2f} | {total / even:.2f} | {shared / 1e12:.2f} | "
        f"{duplicated / shared:.2f} | {blockwise / shared:.2f} | "
        f"{shared / even:.2f} |"
    )


print("| model | DP × TP | ours, Tflop | duplicated : ours | ", end="")
print("blockwise : ours | ours : bound | ours : even share | ", end="")
print("with teams, Tflop | duplicated : it | blockwise : it | it : even share |")
print("|---" * 11 + "|")
for name, meshes in MESHES.items():
    for mesh in meshes:
        print(row(name, *mesh), flush=True)
