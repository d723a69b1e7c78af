"""What ranks store, read from DTensors, against the numbers they hold."""

import pytest
import torch
import torch.distributed as dist
import torch.nn as nn

from canzona import _agree, _layout
from canzona._errors import UsageError
from conftest import errors, spawn


def _mesh(shape, names=None):
    from torch.distributed.tensor import init_device_mesh

    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def _model(rows=7, cols=6):
    """Parameters hold their own elements' numbers."""
    model = nn.Sequential(
        nn.Linear(cols, rows, bias=False), nn.Linear(rows, cols)
    )
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.arange(p.numel(), dtype=torch.float32).view(p.shape))
    return model


def _check(model, replicas=()):
    """Boxes of every rank, after comparing this rank's with its numbers."""
    named = list(model.named_parameters())
    layout = _agree.agree(
        [_layout.describe(n, p, replicas) for n, p in named], {}
    )
    for i, (name, p) in enumerate(named):
        tensor = layout.tensors[layout.mine[i]]
        whole = torch.arange(p.numel(), dtype=torch.float32).view(p.shape)
        parts = []
        for first, count in tensor.stored[layout.rank]:
            box = tuple(slice(a, a + n) for a, n in zip(first, count))
            parts.append(whole[box].reshape(-1))
        expected = torch.cat(parts) if parts else torch.empty(0)
        assert torch.equal(
            expected, _layout.local(p).detach().reshape(-1)
        ), name
    return [(t.name, t.stored) for t in layout.tensors], layout.ranks


def fsdp2(rows, cols, way, shape=None):
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    model = _model(rows, cols)
    world = dist.get_world_size()
    if way == "rows":
        fully_shard(model, mesh=_mesh((world,)))
    elif way == "cols":
        fully_shard(
            model,
            mesh=_mesh((world,)),
            shard_placement_fn=lambda p: Shard(p.ndim - 1),
        )
    elif way == "hsdp":
        fully_shard(model, mesh=_mesh(shape, ("r", "s")))
    else:
        mesh = _mesh(shape, ("dp", "tp"))
        parallelize_module(
            model, mesh["tp"], {"0": ColwiseParallel(), "1": RowwiseParallel()}
        )
        if way == "fsdp_tp":
            fully_shard(model, mesh=mesh["dp"])
        elif way == "ddp_tp":
            return _check(
                model, dist.get_process_group_ranks(mesh["dp"].get_group())
            )
    return _check(model)


@pytest.mark.parametrize("world", [2, 3, 4])
@pytest.mark.parametrize("rows", [1, 2, 7, 8])
def test_fsdp2_rows(world, rows):
    answers = spawn(world, fsdp2, rows, 6, "rows")
    assert all(a == answers[0] for a in answers)
    stored = dict(answers[0][0])["0.weight"]
    assert sum(count[0] for boxes in stored for _, count in boxes) == rows


def test_fsdp2_columns():
    answers = spawn(3, fsdp2, 6, 9, "cols")
    assert dict(answers[0][0])["0.weight"] == [
        [((0, 3 * r), (6, 3))] for r in range(3)
    ]


def test_hsdp_stores_each_piece_twice():
    answers = spawn(4, fsdp2, 7, 6, "hsdp", (2, 2))
    stored = dict(answers[0][0])["0.weight"]
    assert stored[0] == stored[2] == [((0, 0), (4, 6))]
    assert stored[1] == stored[3] == [((4, 0), (3, 6))]


@pytest.mark.parametrize("rows", [8, 6])
def test_fsdp2_and_tp_on_one_and_two_dimensions(rows):
    answers = spawn(4, fsdp2, rows, 6, "fsdp_tp", (2, 2))
    assert all(a == answers[0] for a in answers)


def test_tensor_parallel_alone_is_a_world_per_mesh():
    answers = spawn(4, fsdp2, 8, 6, "tp", (2, 2))
    assert [a[1] for a in answers] == [[0, 1], [0, 1], [2, 3], [2, 3]]


def test_replicas_join_the_meshes_of_tensor_parallel():
    answers = spawn(4, fsdp2, 8, 6, "ddp_tp", (2, 2))
    assert [a[1] for a in answers] == [[0, 1, 2, 3]] * 4
    stored = dict(answers[0][0])["0.weight"]
    assert stored[0] == stored[2] and stored[1] == stored[3]
    assert stored[0] != stored[1]


def experts():
    from torch.distributed.tensor import Shard, distribute_tensor

    rank = dist.get_rank()
    mesh = _mesh((4,))
    pairs = _mesh((2, 2), ("dp", "ep"))
    model = nn.Module()
    numbers = torch.arange(4 * 3 * 2, dtype=torch.float32).view(4, 3, 2)
    model.experts = nn.Parameter(
        distribute_tensor(numbers, pairs["ep"], [Shard(0)])
    )
    rows = torch.arange(12, dtype=torch.float32).view(6, 2)
    model.dense = nn.Parameter(distribute_tensor(rows, mesh, [Shard(0)]))
    assert rank == dist.get_rank()
    return _check(model)


def test_experts_on_a_mesh_of_their_own():
    tensors, ranks = spawn(4, experts)[3]
    assert ranks == [0, 1, 2, 3]
    assert [n for n, _ in tensors] == ["dense", "experts", "experts@rank2"] or [
        n for n, _ in tensors
    ] == ["experts", "experts@rank2", "dense"]
    stored = dict(tensors)
    assert stored["experts"][2] == [] and stored["experts@rank2"][0] == []
    assert stored["experts"][1] == [((2, 0, 0), (2, 3, 2))]


def plain(replicated):
    model = _model()
    return _check(model, range(dist.get_world_size()) if replicated else ())


def test_plain_tensors_are_this_ranks_own_or_replicas():
    assert [a[1] for a in spawn(2, plain, False)] == [[0], [1]]
    tensors, ranks = spawn(2, plain, True)[0]
    assert ranks == [0, 1]
    assert dict(tensors)["1.bias"] == [[((0,), (6,))]] * 2


def mixed(alike):
    """A plain tensor beside a DTensor: one of each rank's, or one of all."""
    from torch.distributed.fsdp import fully_shard

    model = _model()
    fully_shard(model[0], mesh=_mesh((2,)))
    named = list(model.named_parameters())
    layout = _agree.agree(
        [_layout.describe(n, p) for n, p in named], {}, [alike] * len(named)
    )
    return [t.name for t in layout.tensors], layout.unclear


def test_plain_tensors_beside_others():
    assert (
        spawn(2, mixed, True)
        == [(["0.weight", "1.weight", "1.bias"], "1.weight")] * 2
    )
    assert spawn(2, mixed, False)[0] == (
        ["0.weight", "1.weight", "1.weight@rank1", "1.bias", "1.bias@rank1"],
        "1.weight",
    )


# Bad input.


def test_kinds_of_parameters_that_are_refused():
    def refused(tensor):
        with pytest.raises(UsageError, match="parameter a.b") as e:
            _layout.describe("a.b", tensor)
        return str(e.value)

    assert "float16" in refused(torch.zeros(2, dtype=torch.float16))
    assert "complex" in refused(torch.zeros(2, dtype=torch.complex64))
    assert "float64" in refused(torch.zeros(2, dtype=torch.float64))
    assert "meta" in refused(torch.zeros(2, 2, device="meta"))
    assert "sparse" in refused(torch.zeros(2, 2).to_sparse())
    assert "contiguous" in refused(torch.zeros(2, 3).t())


def bad(what):
    from torch.distributed.tensor import DTensor, Partial, Shard

    rank = dist.get_rank()
    mesh = _mesh((2,))
    if what == "partial":
        p = DTensor.from_local(torch.zeros(2, 2), mesh, [Partial()])
        return _layout.describe("w", p)
    if what == "one rank's mistake":
        try:
            dtype = torch.float16 if rank == 1 else torch.float32
            p = DTensor.from_local(
                torch.zeros(2, 2, dtype=dtype), mesh, [Shard(0)]
            )
            described = [_layout.describe("w", p)]
        except UsageError as e:
            described = e
        return _agree.agree(described, {})
    if what == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        model = FSDP(_model(), device_id=torch.device("cpu"))
        return [_layout.describe(n, p) for n, p in model.named_parameters()]
    name = "v" if what == "names" and rank == 1 else "w"
    rows = 6 if what == "shapes" and rank == 1 else 4
    p = DTensor.from_local(torch.zeros(rows // 2, 2), mesh, [Shard(0)])
    about = {"groups": [{"lr": 0.5 if what == "options" and rank else 0.1}]}
    return _agree.agree([_layout.describe(name, p)], about)


@pytest.mark.parametrize(
    "what, words",
    [
        ("partial", ["parameter w", "Partial: a sum", "redistribute"]),
        ("one rank's mistake", ["parameter w", "float16"]),
        ("fsdp1", ["FSDP1", "fully_shard"]),
        ("names", ["parameter number 0", "w [4, 2]", "v [4, 2]", "rank 1"]),
        ("shapes", ["parameter number 0", "[4, 2]", "[6, 2]"]),
        ("options", ["groups[0].lr", "0.1", "0.5"]),
    ],
)
def test_bad_layouts_are_refused_on_every_rank(what, words):
    for kind, text in errors(2, bad, what):
        assert kind == "UsageError"
        for word in words:
            assert word in text
