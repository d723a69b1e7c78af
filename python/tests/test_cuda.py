"""On a GPU: ranks that share it, by NCCL over sockets."""

import copy

import pytest
import torch

import canzona
import layouts
import test_together
from conftest import spawn

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="there is no GPU"
)

RUNS = {
    f"{rule} {wire}": (rule, {"wire": wire}, torch.float32)
    for rule in ("muon", "soap", "shampoo", "adamw")
    for wire in ("fp32", "bf16")
}
RUNS["muon in bf16"] = ("muon", {}, torch.bfloat16)

LAYOUTS = ["ddp2", "shared2", "fsdp2", "fsdp4", "columns2", "hsdp", "tp2"]


def on_gpu(world, function, *arguments):
    return spawn(
        world,
        function,
        *arguments,
        backend="nccl",
        timeout=600,
        env={
            "CANZONA_TEST_DEVICE": "cuda",
            "NCCL_HOSTID": "h{rank}",
            "NCCL_NET": "Socket",
            "NCCL_SOCKET_IFNAME": "lo",
        },
    )


@pytest.fixture(scope="module")
def alone():
    return on_gpu(1, layouts.train_all, "one", RUNS, 10)[0]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_do_not_change_a_bit(layout, alone):
    world = layouts.LAYOUTS[layout]
    for rank, got in enumerate(
        on_gpu(world, layouts.train_all, layout, RUNS, 10)
    ):
        for name in RUNS:
            unlike = [
                k
                for k in alone[name][1]
                if got[name][1].get(k) != alone[name][1][k]
            ]
            assert not unlike, (rank, name, unlike)


@pytest.mark.parametrize("layout", ["fsdp4", "hsdp"])
def test_teams_do_not_change_a_bit(layout):
    import test_teams as teams

    arguments = layouts.train_all, "one", teams.runs("off"), 6
    expected = on_gpu(1, teams.large, *arguments)[0]
    arguments = layouts.train_all, layout, teams.runs("auto"), 6
    for rank, got in enumerate(on_gpu(4, teams.large, *arguments)):
        for name in teams.RUNS:
            assert got[name] == expected[name], (rank, name)


def test_ranks_that_disagree_on_a_refresh_change_nothing():
    import test_teams as teams

    teams.check_disagreeing(on_gpu(4, teams.large, teams.disagreeing))


def model_and(**options):
    model = layouts.fresh().cuda()
    return model, canzona.Muon(model, **options)


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setenv("CANZONA_TEST_DEVICE", "cuda")


def test_nonfinite_is_told_at_the_next_step(gpu):
    model, optimizer = model_and(nonfinite="raise")
    layouts.steps(model, optimizer, 1, 2)
    before = [p.detach().clone() for p in model.parameters()]
    layouts.set_gradients(model, 3)
    model.up.weight.grad[0, 0] = float("nan")
    optimizer.step()
    with pytest.raises(canzona.NumericalError, match="up.weight"):
        optimizer.step()
    after = [p.detach() for p in model.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(before, after))
    assert optimizer.skipped_steps == 1
    assert optimizer.state[model.up.weight]["step"] == 2


def test_forward_and_backward_in_a_graph_of_the_callers(gpu):
    def made():
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)
        ).cuda()
        return model, canzona.Muon(model, lr=0.01, rules={"*weight": "muon"})

    inputs = [torch.randn(32, 64, device="cuda") for _ in range(8)]
    plain, optimizer = made()
    for x in inputs:
        optimizer.zero_grad()
        plain(x).square().mean().backward()
        optimizer.step()
    model, optimizer = made()
    place = torch.empty_like(inputs[0])
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(place.copy_(inputs[0])).square().mean().backward()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(place).square().mean().backward()
    places = [p.grad.data_ptr() for p in model.parameters()]
    for x in inputs:
        place.copy_(x)
        graph.replay()
        optimizer.step()
    assert places == [p.grad.data_ptr() for p in model.parameters()]
    for p, q in zip(plain.parameters(), model.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4)


def test_another_stream_sees_the_gradients(gpu):
    model, optimizer = model_and()
    other, second = model_and()
    layouts.steps(model, optimizer, 1, 3)
    side = torch.cuda.Stream()
    for step in range(1, 4):
        layouts.set_gradients(other, step)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            second.step()
        torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    assert all(
        torch.equal(a, b)
        for a, b in zip(model.parameters(), other.parameters())
    )


def test_no_memory_grows(gpu):
    model, optimizer = model_and()
    layouts.steps(model, optimizer, 1, 5)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(200):
        optimizer.step()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before


def one_rank_fails():
    """Rank 1 cannot compute: it raises at once, rank 0 when it asks."""
    model, told = layouts.build("fsdp2")
    optimizer = layouts.optimizer_of(model, told, "muon")
    layouts.steps(model, optimizer, 1, 2)
    if torch.distributed.get_rank() == 1:

        def fails(_):
            raise RuntimeError("as asked for")

        optimizer._run._step.run = fails
    caught = []
    for ask in (
        lambda: layouts.steps(model, optimizer, 3, 3),
        lambda: optimizer.skipped_steps,
        lambda: layouts.steps(model, optimizer, 4, 4),
    ):
        try:
            ask()
            caught.append("")
        except Exception as error:
            caught.append(str(error))
    return caught


def test_a_rank_that_fails_is_told_to_the_others():
    first, second = on_gpu(2, one_rank_fails)
    assert first[0] == "" and second[0] == "as asked for"
    assert first[1].startswith("rank 1 failed during the last step")
    assert "start again from a checkpoint" in first[2]
    assert "start again from a checkpoint" in second[2]


def test_mistakes_of_one_rank_change_nothing_on_any(alone):
    good = on_gpu(1, layouts.train_all, "one", {"muon": RUNS["muon fp32"]}, 4)
    for answers in on_gpu(2, test_together.refused_steps, "fsdp2"):
        for what, (text, digest) in answers.items():
            assert text, what
            assert digest == good[0]["muon"], what


@pytest.mark.parametrize("missing_at", [0, 1, 2])
def test_a_missing_gradient_beside_partial_ones(missing_at):
    a, b = on_gpu(2, test_together.partial, missing_at)
    for caught, _, counts in (a, b):
        assert len(caught) == (missing_at > 0)
        assert counts == ([2, 2] if missing_at else [3, 3])
    assert a[1] == b[1]


def test_parameters_unfrozen_on_some_ranks_are_an_error_on_all():
    for text in on_gpu(2, unfrozen_on_one):
        assert text


def unfrozen_on_one():
    model, told = layouts.build("fsdp2")
    model.up.weight.requires_grad_(False)
    optimizer = layouts.optimizer_of(model, told, "muon")
    layouts.steps(model, optimizer, 1, 2, leave_out=("up.weight",))
    leave_out = () if torch.distributed.get_rank() else ("up.weight",)
    layouts.set_gradients(model, 3, leave_out=leave_out)
    try:
        optimizer.step()
        optimizer.skipped_steps
    except canzona.UsageError as error:
        return str(error)


def test_copies_wait_for_the_step(gpu):
    model, optimizer = model_and()
    layouts.steps(model, optimizer, 1, 5)
    pair = copy.deepcopy((model, optimizer))
    for m, o in ((model, optimizer), pair):
        layouts.steps(m, o, 6, 8)
    torch.cuda.synchronize()
    assert all(
        torch.equal(a, b)
        for a, b in zip(model.parameters(), pair[0].parameters())
    )


def test_infinities_show_where_they_propagate(gpu):
    model, optimizer = model_and(nonfinite="propagate", clip_norm=1e9)
    layouts.set_gradients(model, 1)
    model.up.weight.grad[0, 0] = float("inf")
    optimizer.step()
    assert model.up.weight.isnan().all()
    assert model.down.weight.isfinite().all()
    assert optimizer.grad_norm == float("inf")


def test_unfrozen_parameters_are_trained(gpu):
    model = layouts.fresh().cuda()
    model.up.requires_grad_(False)
    optimizer = canzona.Muon(model)
    layouts.steps(model, optimizer, 1, 2, leave_out=("up.weight", "up.bias"))
    model.up.requires_grad_(True)
    before = model.up.weight.detach().clone()
    layouts.steps(model, optimizer, 3, 4)
    assert not torch.equal(before, model.up.weight)
    assert optimizer.state[model.up.weight]["step"] == 2
    assert optimizer.state[model.down.weight]["step"] == 4
