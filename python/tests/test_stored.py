"""Plain tensors that layout= describes, and worlds of their own by group=."""

import copy
import hashlib
import time

import pytest
import torch
import torch.distributed as dist

import canzona
from canzona import Stored, _layout
from conftest import errors, spawn
from layouts import numbers

SHAPES = {
    "rows": (12, 8),
    "columns": (8, 12),
    "gated": (16, 8),
    "qkv": (24, 8),
    "same": (5, 7),
    "flat": (8, 9),
}
ROWS = (3, 2, 1)  # of q, k and v in each of four groups
SPLITS = {"qkv": [4 * n for n in ROWS]}


def alternating(rank, world):
    """Rows of q, k and v in turn, as boxes of [q; k; v]."""
    boxes = []
    for g in range(4 * rank // world, 4 * (rank + 1) // world):
        for i, n in enumerate(ROWS):
            boxes.append(((4 * sum(ROWS[:i]) + g * n, 0), (n, 8)))
    return boxes


def flat_range(rank, world):
    """A range of the 72 elements, as rectangles."""
    begin, end = 72 * rank // world, 72 * (rank + 1) // world
    boxes = []
    while begin < end:
        row, column = divmod(begin, 9)
        whole = column == 0 and end - begin >= 9
        count = (
            ((end - begin) // 9, 9)
            if whole
            else (1, min(9 - column, end - begin))
        )
        boxes.append(((row, column), count))
        begin += count[0] * count[1]
    return boxes


def layout(name, _):
    rank, world = dist.get_rank(), dist.get_world_size()
    group, shape = dist.group.WORLD, SHAPES[name]
    if name == "qkv":
        return Stored(shape, group, boxes=alternating(rank, world))
    if name == "flat":
        return Stored(shape, group, boxes=flat_range(rank, world))
    cut = {"rows": 0, "columns": 1, "gated": (0, 2), "same": None}[name]
    return Stored(shape, group, [cut])


def boxes(name):
    if not dist.is_initialized():
        return [((0, 0), SHAPES[name])]
    described = _layout.describe(name, piece(name, 0), (), layout(name, None))
    return _layout.boxes_of(described, dist.get_rank())


def piece(name, step):
    """What this rank stores of a tensor or its gradient."""
    whole = numbers(name, step, SHAPES[name])
    if not dist.is_initialized():
        return whole
    rank, world = dist.get_rank(), dist.get_world_size()
    if name == "qkv":
        parts = [
            whole[a : a + n] for (a, _), (n, _) in alternating(rank, world)
        ]
        return torch.cat(parts)
    if name == "flat":
        return whole.reshape(-1)[72 * rank // world : 72 * (rank + 1) // world]
    if name == "gated":
        return torch.cat([half.chunk(world)[rank] for half in whole.chunk(2)])
    if name == "same":
        return whole
    return whole.chunk(world, 0 if name == "rows" else 1)[rank].contiguous()


def made(rule, **options):
    tensors = {name: torch.nn.Parameter(piece(name, 0)) for name in SHAPES}
    kind = {"muon": canzona.Muon, "soap": canzona.SOAP}[rule]
    optimizer = kind(
        list(tensors.items()),
        lr=0.02,
        splits=SPLITS,
        layout=layout if dist.is_initialized() else None,
        **options,
    )
    return tensors, optimizer


def steps(tensors, optimizer, first, last):
    for step in range(first, last + 1):
        for name, p in tensors.items():
            p.grad = piece(name, step)
        optimizer.step()


def joined(tensors):
    """Whole tensors, from the pieces of all ranks."""
    mine = {n: (boxes(n), t.detach().reshape(-1)) for n, t in tensors.items()}
    everyones = [mine]
    if dist.is_initialized():
        everyones = [None] * dist.get_world_size()
        dist.all_gather_object(everyones, mine)
    found = {n: torch.full(SHAPES[n], torch.nan) for n in tensors}
    for of in everyones:
        for name, (places, values) in of.items():
            at = 0
            for first, count in places:
                size = count[0] * count[1]
                place = tuple(slice(a, a + n) for a, n in zip(first, count))
                found[name][place] = values[at : at + size].view(count)
                at += size
    return found


def digest(tensors):
    h = hashlib.sha256()
    for name, whole in sorted(joined(tensors).items()):
        assert not whole.isnan().any(), name
        h.update(whole.contiguous().numpy().tobytes())
    return h.hexdigest()


def trained(rule, in_group):
    group = dist.group.WORLD if in_group else None
    tensors, optimizer = made(rule, group=group)
    steps(tensors, optimizer, 1, 3)
    saved = copy.deepcopy(optimizer.state_dict())
    kept = {n: p.detach().clone() for n, p in tensors.items()}
    steps(tensors, optimizer, 4, 5)
    once = digest(tensors)
    tensors, optimizer = made(rule, group=group)
    for name, p in tensors.items():
        p.data.copy_(kept[name])
    optimizer.load_state_dict(saved)
    steps(tensors, optimizer, 4, 5)
    assert digest(tensors) == once
    if rule == "soap":  # whose states are its owners'
        return once
    states = {
        n: optimizer.state[p]["momentum_buffer"] for n, p in tensors.items()
    }
    return once, digest(states)


@pytest.mark.parametrize("rule", ["muon", "soap"])
def test_bits_of_every_way_to_store(rule):
    alone = trained(rule, False)  # whole tensors, without layout=
    for world, in_group in ((1, False), (2, False), (2, True), (4, True)):
        answers = spawn(world, trained, rule, in_group)
        assert set(answers) == {alone}, (world, in_group)


# Worlds by group=.


def worlds(counts):
    """Pairs of ranks with lists of their own; seconds, and the ranks planned."""
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    rank = dist.get_rank()
    group, count = groups[rank // 2], counts[rank // 2]
    tensors = {
        f"p{i}": torch.nn.Parameter(
            numbers(f"p{i}", 0, (8, 6)).chunk(2)[rank % 2].clone()
        )
        for i in range(count)
    }
    began = time.monotonic()
    optimizer = canzona.Muon(
        [{"params": list(tensors.items())}, {"params": []}],
        layout=lambda _, p: Stored((8, 6), group, [0]),
        group=group,
    )
    for step in (1, 2):
        for name, p in tensors.items():
            p.grad = numbers(name, step, (8, 6)).chunk(2)[rank % 2]
        optimizer.step()
    took = time.monotonic() - began
    if not count:
        return took, [], ""
    values = torch.cat([p.detach().reshape(-1) for p in tensors.values()])
    return took, optimizer._run.layout.ranks, str(values.sum().item())


@pytest.mark.parametrize("counts", [(3, 2), (3, 0)])
def test_worlds_that_plan_by_themselves(counts):
    answers = spawn(4, worlds, counts)
    for rank, (took, ranks, _) in enumerate(answers):
        pair = [0, 1] if rank < 2 else [2, 3]
        assert ranks == (pair if counts[rank // 2] else [])
        assert took < 15  # nobody waits for another world
    assert answers[0][2] == spawn(4, worlds, (3, 3))[2][2]


def alone_in_a_world():
    """One rank of a group steps; its tensors are its own."""
    if dist.get_rank() == 1:
        return 0.0
    p = torch.nn.Parameter(numbers("p", 0, (4, 4)))
    optimizer = canzona.Muon(
        [("p", p)],
        layout=lambda _, p: Stored(p.shape),
        group=dist.group.WORLD,
    )
    p.grad = numbers("p", 1, (4, 4))
    began = time.monotonic()
    optimizer.step()
    return time.monotonic() - began


def test_a_rank_whose_tensors_are_its_own_waits_for_nobody():
    assert max(spawn(2, alone_in_a_world)) < 15


def beyond():
    pair = [dist.new_group([0, 1]), dist.new_group([2])][dist.get_rank() // 2]
    p = torch.nn.Parameter(torch.zeros(2, 6))
    optimizer = canzona.Muon(
        [("p", p)],
        layout=lambda _, p: Stored((6, 6), range(3), [0]),
        group=pair,
    )
    p.grad = torch.ones(2, 6)
    optimizer.step()


def test_group_refuses_a_tensor_of_other_ranks():
    for kind, text in errors(3, beyond):
        assert kind == "UsageError" and "parameter p: is tied to rank" in text


# What is refused.


@pytest.mark.parametrize(
    "stored, words",
    [
        (Stored((4, 4), [1]), ["over=", "not this one, 0"]),
        (Stored((4, 4), "tp"), ["over=", "process group, a mesh or a list"]),
        (Stored((4, 4), [0, 0]), ["names a rank twice"]),
        (Stored((4, 4), [0], [2]), ["cut 2", "2 dimensions"]),
        (Stored((4, 4), [0], [0, 1]), ["2 cuts", "1 axes"]),
        (Stored((4, 4), [0], [0], [((0, 0), (4, 4))]), ["cuts and boxes"]),
        (Stored((4, 4), boxes=[((1, 0), (4, 4))]), ["not inside", "[4, 4]"]),
        (Stored((4, 4), boxes=[((0, 0), (2, 4))]), ["8 elements", "(4, 4)"]),
        ((4, 4), ["returned (4, 4)", "canzona.Stored"]),
    ],
)
def test_layouts_that_are_refused(stored, words):
    p = torch.nn.Parameter(torch.zeros(4, 4))
    with pytest.raises(canzona.UsageError, match="parameter p") as error:
        canzona.Muon([("p", p)], layout=lambda *_: stored).plan
    for word in words:
        assert word in str(error.value)


def test_arguments_that_are_refused():
    p = [("p", torch.nn.Parameter(torch.zeros(4, 4)))]
    for options, words in (
        (dict(layout=3), "layout=3"),
        (dict(group=[0, 1]), "expected a process group"),
        (dict(layout=lambda *_: None, share_states=True), "share_states"),
    ):
        with pytest.raises(canzona.UsageError, match=words):
            canzona.Muon(p, **options)
    optimizer = canzona.Muon(p, layout=lambda *_: None)
    with pytest.raises(canzona.UsageError, match="cannot be copied"):
        copy.deepcopy(optimizer)


def consolidated():
    tensors, optimizer = made("muon")
    steps(tensors, optimizer, 1, 1)
    optimizer.consolidate(to=0)


def test_pieces_are_not_consolidated():
    for _, text in errors(2, consolidated):
        assert "consolidate(): layout=" in text
