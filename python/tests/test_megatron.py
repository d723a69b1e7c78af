"""canzona.megatron without Megatron: its attributes, its table and its wrapper
are stand-ins (megatron_parts.py). scripts/test_megatron.py has the real one."""

import copy
import dataclasses
import functools
import hashlib
import logging
import subprocess
import sys
import time
import warnings

import pytest
import torch
import torch.distributed as dist

import canzona
import canzona.megatron
import megatron_parts as parts
from conftest import spawn
from layouts import numbers

NAMES = list(parts.WHOLE)


def digests(whole):
    return {
        name: hashlib.sha256(t.contiguous().numpy().tobytes()).hexdigest()[:12]
        for name, t in whole.items()
    }


def world_of_all():
    if not dist.is_initialized():
        return None, 0, 1
    return dist.group.WORLD, dist.get_rank(), dist.get_world_size()


def made_in_world(table, **options):
    """An optimizer whose masters came after its construction."""
    group, rank, size = world_of_all()
    model = parts.Model(NAMES, rank, size, torch.bfloat16)
    optimizer, _ = parts.optimizer_of(
        table, parts.config(**options), model, group
    )
    parts.with_masters(optimizer)
    return optimizer


def train(table, number, **options):
    _, rank, size = world_of_all()
    optimizer = made_in_world(table, **options)
    for n in range(1, number + 1):
        parts.step(optimizer, NAMES, n, rank, size)
    return optimizer


def whole_states(optimizer):
    group, _, _ = world_of_all()
    ps = parts.members(optimizer)
    momenta = [optimizer.state[p]["momentum_buffer"] for p in ps]
    assert all(list(optimizer.state[p]) == ["momentum_buffer"] for p in ps)
    weights = digests(parts.gathered(NAMES, ps, group))
    return weights, digests(parts.gathered(NAMES, momenta, group))


def everything():
    """All that one rank can say, in one go: spawning costs more."""
    group, rank, size = world_of_all()
    with parts.megatron() as table:
        canzona.megatron.register()
        optimizer = train(table, 3)
        found = {"whole": whole_states(optimizer)}
        found["resumed"] = resumed(table, copy.deepcopy(optimizer.state_dict()))
        found["moved"] = moved(optimizer)
        optimizer = train(table, 2, muon_tp_mode="blockwise")
        shards = parts.members(optimizer)
        found["blockwise"] = max(
            (a - b).abs().max().item()
            for a, b in zip(shards, by_hand(rank, size))
        )
        plans = canzona.megatron.plan(optimizer)
        found["stays"] = [p.world for p in plans]
        whole = train(table, 1)
        found["worlds"] = [
            p.world for p in canzona.megatron.plan(whole)
        ]
        found["names"] = [r["name"] for p in whole.plans() for r in p.audit]
        found["two"] = two_models(table)
        canzona.megatron.register(teams="auto", links="intra=400GB/s")
        found["teams"] = whole_states(train(table, 3))
        canzona.megatron.register(heads=True)
        found["heads"] = whole_states(train(table, 3))
        canzona.megatron.unregister()
        found["back"] = table["muon"].optimizer_cls is parts.TensorParallelMuon
    return found


def two_models(table):
    """Two models of one process, of which one takes steps that the other does
    not; Megatron changes no other's weights."""
    _, rank, size = world_of_all()
    first, second = made_in_world(table), made_in_world(table)
    for n in (1, 2, 3):
        parts.step(first, NAMES, n, rank, size)
        if n != 2:
            parts.step(second, NAMES, n, rank, size)
    other = made_in_world(table)
    for n in (1, 3):
        parts.step(other, NAMES, n, rank, size)
    return whole_states(first), whole_states(second) == whole_states(other)


def resumed(table, saved):
    """States loaded into a new optimizer before its plan, and trained on."""
    group, rank, size = world_of_all()
    first = train(table, 3)
    again = train(table, 0)
    init = table["muon"].init_state_fn
    init(again, None)
    assert not again._parts  # zeros plan nothing
    again.load_state_dict(saved)
    for p, q in zip(parts.members(again), parts.members(first)):
        p.data.copy_(q.data)
    for n in (4, 5):
        parts.step(first, NAMES, n, rank, size)
        parts.step(again, NAMES, n, rank, size)
    return whole_states(first) == whole_states(again)


def moved(optimizer):
    """Weights and states replaced by others at other addresses, as offloading
    does, halved on the way and back; a state that is gone begins anew."""
    _, rank, size = world_of_all()
    other = copy.deepcopy(whole_states(optimizer))
    for p in parts.members(optimizer):
        p.data = p.data.clone()
        state = optimizer.state[p]
        state["momentum_buffer"] = state["momentum_buffer"].clone()
    same = whole_states(optimizer) == other
    addresses = [p.data_ptr() for p in parts.members(optimizer)]
    for name, p in zip(NAMES, parts.members(optimizer)):
        p.grad = torch.zeros_like(p)
    before = parts.members(optimizer)[0].clone()
    del optimizer.state[parts.members(optimizer)[1]]
    optimizer.step()
    p, gone = parts.members(optimizer)[:2]
    return (
        same
        and not torch.equal(before, p)
        and not optimizer.state[gone]["momentum_buffer"].any()
        and bool(optimizer.state[p]["momentum_buffer"].any())
        and addresses == [q.data_ptr() for q in parts.members(optimizer)]
    )


def by_hand(rank, size):
    """Shards alone, by canzona.Muon: q, k and v of a shard are three."""
    named = []
    for name in NAMES:
        p = parts.gradient(name, 0, rank, size).bfloat16().float()
        named.append((name, torch.nn.Parameter(pieces(name, p))))
    rows = [n * 4 // size for n in parts.HEADS]
    groups = [
        {"params": named[:2], "lr": 1e-2, "weight_decay": 0.1},
        {"params": named[2:], "lr": 3e-3, "weight_decay": 0.0},
    ]
    optimizer = canzona.Muon(
        groups,
        preset="nvidia",
        momentum=0.9,
        nesterov=True,
        scale_extra=0.2,
        rules={"*": "muon"},
        splits={NAMES[0]: rows},
    )
    for n in (1, 2):
        for name, p in named:
            p.grad = pieces(name, parts.gradient(name, n, rank, size))
        optimizer.step()
    return [back(name, p.detach()) for name, p in named]


def pieces(name, shard):
    """[q; k; v] of a shard."""
    if not parts.is_qkv(name):
        return shard
    of = shard.view(-1, sum(parts.HEADS), shard.shape[1])
    return torch.cat(
        [p.reshape(-1, shard.shape[1]) for p in of.split(list(parts.HEADS), 1)]
    )


def back(name, p):
    if not parts.is_qkv(name):
        return p
    groups = p.shape[0] // sum(parts.HEADS)
    rows = [groups * n for n in parts.HEADS]
    of = [t.view(groups, -1, p.shape[1]) for t in p.split(rows)]
    return torch.cat(of, 1).reshape(p.shape)


def by_one_process(rows):
    """Whole matrices, without Megatron's attributes: what all must equal. QKV
    is split into these rows."""
    named = []
    for name, (shape, *_) in parts.WHOLE.items():
        p = numbers(name, 0, shape).bfloat16().float()
        named.append((name, torch.nn.Parameter(p)))
    optimizer = canzona.Muon(
        [
            {"params": named[:2], "lr": 1e-2, "weight_decay": 0.1},
            {"params": named[2:], "lr": 3e-3, "weight_decay": 0.0},
        ],
        preset="nvidia",
        momentum=0.9,
        nesterov=True,
        scale_extra=0.2,
        rules={"*": "muon"},
        splits={NAMES[0]: rows},
    )
    for step in (1, 2, 3):
        for name, p in named:
            p.grad = numbers(name, step, p.shape)
        optimizer.step()
    return digests({name: p.detach() for name, p in named})


answers = functools.cache(lambda size: spawn(size, everything))
expected = functools.cache(lambda: by_one_process([4 * n for n in parts.HEADS]))
of_every_size = pytest.mark.parametrize("size", (1, 2, 4), ids="tp{}".format)


@of_every_size
@pytest.mark.parametrize("kind", parts.KINDS)
def test_one_hash(kind, size):
    name = NAMES[parts.KINDS[kind]]
    first = answers(1)[0]["whole"][1][name]
    for found in answers(size):
        weights, momenta = (of[name] for of in found["whole"])
        assert weights == expected()[name] and momenta == first


@of_every_size
def test_ranks(size):
    for found in answers(size):
        assert found["whole"] == answers(1)[0]["whole"]
        assert found["blockwise"] == 0.0
        assert found["stays"] == [1, 1]
        assert found["worlds"] == [size, size]
        assert found["resumed"] and found["moved"] and found["back"]
        assert f"{NAMES[1]}" in found["names"]
        assert f"{NAMES[0]}:2" in found["names"]
        assert found["two"] == (found["whole"], True)
        assert found["teams"] == found["whole"]


@of_every_size
def test_each_head_is_a_matrix(size):
    heads = by_one_process([2] * 16)
    assert heads[NAMES[0]] != expected()[NAMES[0]]
    for found in answers(size):
        assert found["heads"][0] == heads


def lists_of_worlds(counts):
    """Two TP groups with other lists of matrices, one perhaps with none."""
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    rank = dist.get_rank()
    group, names = groups[rank // 2], NAMES[1 : 1 + counts[rank // 2]]
    began = time.monotonic()
    with parts.megatron() as table:
        canzona.megatron.register()
        model = parts.Model(names, rank % 2, 2)
        model.config.rows = list(parts.HEADS)
        optimizer, _ = parts.optimizer_of(table, parts.config(), model, group)
        for n in (1, 2):
            parts.step(optimizer, names, n, rank % 2, 2)
        plans = canzona.megatron.plan(optimizer)
    tensors = sum(len(p.json["storage"]["tensors"]) for p in plans)
    return tensors, time.monotonic() - began


@pytest.mark.parametrize("counts", [(3, 2), (3, 0)])
def test_worlds_with_lists_of_their_own(counts):
    for rank, (tensors, took) in enumerate(spawn(4, lists_of_worlds, counts)):
        assert tensors == counts[rank // 2]
        assert took < 15  # no world waits for the other


# The table, on one process.


def made(**options):
    with parts.megatron() as table:
        canzona.megatron.register()
        model = parts.Model(NAMES, 0, 1)
        return parts.optimizer_of(table, parts.config(**options), model, None)[
            0
        ]


def test_the_table():
    with parts.megatron() as table, warnings.catch_warnings():
        warnings.simplefilter("error")
        old = table["muon"]
        canzona.megatron.register()
        canzona.megatron.register(wire="bf16")
        new = table["muon"]
        assert new.default_param_overrides is old.default_param_overrides
        model = parts.Model(NAMES, 0, 1)
        optimizer, _ = parts.optimizer_of(table, parts.config(), model, None)
        assert '"wire":"bf16"' in optimizer.plans()[0].text.replace(" ", "")
        assert optimizer.defaults["momentum"] == 0.9
        canzona.megatron.unregister()
        canzona.megatron.unregister()
        assert table["muon"] is old


@pytest.mark.parametrize(
    "ours, words",
    [
        (dict(wire="fp8"), "wire.*fp8"),
        (dict(wires="bf16"), "wires"),
        (dict(scale="none"), "register.scale.*Megatron sets scale"),
        (dict(group=None), "register.group.*Megatron sets group"),
        (dict(equilibrate="columns"), "equilibrate"),
    ],
)
def test_arguments_that_are_refused(ours, words):
    with parts.megatron() as table:
        old = table["muon"]
        with pytest.raises(canzona.UsageError, match=words):
            canzona.megatron.register(**ours)
        assert table["muon"] is old


def test_forms_of_muon():
    with parts.megatron() as table:
        canzona.megatron.register(equilibrate="rows")
        even = train(table, 1)
        canzona.megatron.register()
        plain = train(table, 1)
        assert whole_states(even)[0] != whole_states(plain)[0]
        canzona.megatron.register(second_moment="normuon")
        with pytest.raises(canzona.UsageError, match="states.*checkpoints"):
            train(table, 1)


def test_another_version_is_told():
    @dataclasses.dataclass
    class Entry(parts.EmergingOptimizerEntry):
        fused_fn: object = None

    class Muon(parts.TensorParallelMuon):
        def __init__(self, params, lr=1.0, gtp=None):
            pass

    with parts.megatron("0.20.1", Entry, Muon):
        with pytest.warns(UserWarning) as told:
            canzona.megatron.register()
    text = str(told[0].message)
    for word in (
        "0.20.1",
        "0.19",
        "fused_fn is new",
        "gtp is new",
        "tp_mode is gone",
    ):
        assert word in text

    @dataclasses.dataclass
    class Less:
        optimizer_cls: type
        config_to_kwargs: object = None

    with parts.megatron("0.21.0", Less):
        with pytest.raises(canzona.UsageError, match="init_state_fn is gone"):
            canzona.megatron.register()
    with parts.megatron("0.18.0") as table:
        table.clear()
        with pytest.raises(canzona.UsageError, match="no Muon .*'muon'.*0.19"):
            canzona.megatron.register()


@pytest.mark.parametrize(
    "options, words",
    [
        (dict(optimizer_cuda_graph=True), "--optimizer-cuda-graph"),
        (dict(muon_coefficient_type="custom"), "'custom' is not one of"),
        (dict(muon_coefficient_type="aol"), "aol is refused"),
        (dict(muon_scale_mode="muP"), "--muon-scale-mode muP"),
        (dict(muon_fp32_matmul_prec="low"), "--muon-fp32-matmul-prec low"),
        (dict(muon_tp_mode="ring"), "--muon-tp-mode ring"),
        (dict(weight_decay=-1.0), "weight_decay"),
    ],
)
def test_options_that_are_refused(options, words):
    with pytest.raises(canzona.UsageError, match=words):
        made(**options)


def test_options_that_are_not_known():
    with parts.megatron() as table:
        entry = table["muon"]
        to_kwargs = entry.config_to_kwargs
        entry.config_to_kwargs = lambda *a: {**to_kwargs(*a), "gtp": 1}
        canzona.megatron.register()
        with pytest.raises(canzona.UsageError, match="option 'gtp'"):
            parts.optimizer_of(
                table, parts.config(), parts.Model(NAMES, 0, 1), None
            )


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda p: setattr(p, "is_gtp_weight_remat", True), "GTP weight"),
        (lambda p: setattr(p, "data", p.data[:20].clone()), "20 rows of q, k"),
    ],
)
def test_tensors_that_are_refused(change, words):
    optimizer = made()
    change(parts.members(optimizer)[0])
    with pytest.raises(canzona.UsageError, match=words) as error:
        optimizer.step()
    assert NAMES[0] in str(error.value)


def test_an_optimizer_without_ours_has_no_plan():
    with pytest.raises(canzona.UsageError, match="no Muon of canzona's"):
        canzona.megatron.plan(torch.optim.SGD([torch.ones(1)], 0.1))


def test_chunks_of_a_virtual_pipeline_have_names_of_their_own():
    with parts.megatron() as table:
        canzona.megatron.register()
        first, second = parts.Model(NAMES[:2], 0, 1), parts.Model(
            NAMES[:2], 0, 1
        )
        both = [p for of in (first, second) for _, p in of.named_parameters()]
        optimizer, _ = parts.optimizer_of(
            table, parts.config(), first, None, both, [second]
        )
        names = {r["name"] for p in optimizer.plans() for r in p.audit}
    assert {f"chunk0.{NAMES[1]}", f"chunk1.{NAMES[1]}"} <= names


def test_blockwise_is_told_once(caplog):
    class Pair:
        size = lambda self: 2
        rank = lambda self: 0

    with parts.megatron() as table, pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "get_rank", lambda: 0)
        canzona.megatron.register()
        with caplog.at_level(logging.WARNING, "canzona"):
            parts.optimizer_of(
                table,
                parts.config(muon_tp_mode="blockwise"),
                parts.Model(NAMES, 0, 2),
                Pair(),
            )
    told = [r.getMessage() for r in caplog.records]
    assert len(told) == 1 and "--muon-tp-mode duplicated" in told[0]


def test_a_script_runs_registered(tmp_path):
    folder = tmp_path / "megatron" / "core" / "optimizer"
    folder.mkdir(parents=True)
    (tmp_path / "megatron" / "core" / "__init__.py").write_text(
        "__version__ = '0.19.2'\n"
    )
    (folder / "__init__.py").write_text("")
    (folder / "emerging_optimizers.py").write_text(
        "import megatron_parts as parts\n"
        "_EMERGING_OPTIMIZERS = {'muon': parts.EmergingOptimizerEntry("
        "parts.TensorParallelMuon)}\n"
    )
    (tmp_path / "beside.py").write_text("word = 'beside'\n")
    script = tmp_path / "pretrain.py"
    script.write_text(
        "import sys, beside\n"
        "from megatron.core.optimizer.emerging_optimizers import "
        "_EMERGING_OPTIMIZERS as table\n"
        "print(__name__, beside.word, sys.argv[1:], "
        "table['muon'].optimizer_cls.__module__)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "canzona.megatron", "--wire", "bf16", "--heads"]
        + ["--teams", "auto", str(script), "--optimizer", "muon"],
        capture_output=True,
        text=True,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": ":".join([str(tmp_path), *sys.path]),
        },
    )
    assert ran.stdout.split() == [
        "__main__",
        "beside",
        "['--optimizer',",
        "'muon']",
        "canzona.megatron_muon",
    ], ran.stderr
