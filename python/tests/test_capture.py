"""Steps inside CUDA graphs that scripts capture (capturable=True)."""

import copy

import pytest
import torch

import canzona
import layouts
from conftest import spawn
from nets import net


@pytest.mark.parametrize("rule", [canzona.SOAP, canzona.Shampoo])
def test_rules_that_ask_the_host_refuse_at_once(rule):
    with pytest.raises(canzona.UsageError, match="capturable=True: .*refresh"):
        rule(net(), capturable=True)


def test_a_replay_cannot_raise():
    with pytest.raises(canzona.UsageError, match='nonfinite="raise"'):
        canzona.Muon(net(), capturable=True, nonfinite="raise")


def stepped(model, **options):
    optimizer = canzona.Muon(model, **options)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    return optimizer


def test_tensors_on_the_cpu_are_refused():
    with pytest.raises(canzona.UsageError, match="are on the cpu; expected a G"):
        stepped(net(), capturable=True)


def shared_by_ranks():
    model, told = layouts.build("fsdp2")
    optimizer = canzona.Muon(model, capturable=True, **told)
    layouts.set_gradients(model, 1)
    try:
        optimizer.step()
    except canzona.UsageError as error:
        return str(error)


def test_several_ranks_are_refused():
    for text in spawn(2, shared_by_ranks):
        assert "capturable=True: this step is shared by 2 ranks" in text


def test_a_saved_switch_is_not_loaded():
    optimizer = stepped(net())
    saved = optimizer.state_dict()
    for group in saved["param_groups"]:
        group["capturable"] = True
    optimizer.load_state_dict(saved)
    assert not any(g.get("capturable") for g in optimizer.param_groups)
    optimizer.step()


gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="there is no GPU"
)
RULES = {
    "muon": (canzona.Muon, {}, torch.float32),
    "bf16 wire": (canzona.Muon, {"wire": "bf16"}, torch.float32),
    "clipped": (canzona.Muon, {"clip_norm": 0.5}, torch.float32),
    "masters": (canzona.Muon, {}, torch.bfloat16),
    "normuon": (canzona.Muon, {"second_moment": "normuon"}, torch.float32),
    "adamw": (canzona.AdamW, {}, torch.float32),
}


@pytest.fixture
def cuda(monkeypatch):
    monkeypatch.setenv("CANZONA_TEST_DEVICE", "cuda")


def gradients(model, step):
    """Writes this step's gradients where those of the first one lie."""
    for name, p in model.named_parameters():
        value = layouts.numbers(name, step, p.shape).to(p.dtype)
        if p.grad is None:
            p.grad = value.clone()
        else:
            p.grad.copy_(value)


def rate(step):
    return 0.01 / step


def captured(optimizer):
    """A graph with a step, after which no step was done."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    return graph


class Rates:
    """The rates of all groups, each of which has a tensor of its own."""

    def __init__(self, optimizer):
        self.of = [group["lr"] for group in optimizer.param_groups]

    def fill_(self, value):
        for lr in self.of:
            lr.fill_(value)


def made(rule="muon"):
    """A model, its optimizer after one step, and the rates that replays
    read."""
    kind, options, dtype = RULES[rule]
    model = layouts.fresh(dtype)
    lr = torch.tensor(rate(1), dtype=torch.float64, device="cuda")
    optimizer = kind(model, lr=lr, capturable=True, **options)
    gradients(model, 1)
    optimizer.step()
    return model, optimizer, Rates(optimizer)


def plainly(rule, steps):
    kind, options, dtype = RULES[rule]
    model = layouts.fresh(dtype)
    optimizer = kind(model, lr=rate(1), **options)
    for step in steps:
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        gradients(model, step)
        optimizer.step()
    return model, optimizer


def same(one, other):
    torch.cuda.synchronize()
    for (name, p), q in zip(one[0].named_parameters(), other[0].parameters()):
        assert torch.equal(p, q), name
    saved, expected = (o[1].state_dict()["state"] for o in (one, other))
    for i, state in expected.items():
        for key, value in state.items():
            assert torch.equal(saved[i][key], value), (i, key)


@gpu
@pytest.mark.parametrize("rule", RULES)
def test_replays_are_steps(rule, cuda):
    model, optimizer, lr = made(rule)
    graph = captured(optimizer)
    for step in range(2, 7):
        gradients(model, step)
        lr.fill_(rate(step))
        graph.replay()
    same((model, optimizer), plainly(rule, range(1, 7)))
    assert optimizer.state[model.up.weight]["step"] == 6


@gpu
def test_steps_and_replays_take_turns(cuda):
    model, optimizer, lr = made()
    graph = captured(optimizer)
    for step in range(2, 9):
        gradients(model, step)
        lr.fill_(rate(step))
        graph.replay() if step % 3 else optimizer.step()
    same((model, optimizer), plainly("muon", range(1, 9)))


@gpu
def test_a_replay_that_is_not_finite_changes_nothing(cuda):
    model, optimizer, lr = made()
    graph = captured(optimizer)
    gradients(model, 9)
    model.up.weight.grad[0, 0] = float("nan")
    graph.replay()
    assert optimizer.skipped_steps == 1
    gradients(model, 2)
    lr.fill_(rate(2))
    graph.replay()
    same((model, optimizer), plainly("muon", range(1, 3)))
    assert optimizer.skipped_steps == 1


@gpu
def test_replays_that_no_longer_fit_change_nothing(cuda):
    model, optimizer, lr = made()
    graph = captured(optimizer)
    before = [p.detach().clone() for p in model.parameters()]
    gradients(model, 2)
    for change, undo in (
        (lambda: lr.fill_(float("nan")), lambda: lr.fill_(rate(2))),
        (lambda: lr.fill_(-1.0), lambda: lr.fill_(rate(2))),
    ):
        change()
        graph.replay()
        undo()
        with pytest.raises(canzona.Error, match="1 replays .* changed nothing"):
            optimizer.skipped_steps
        for p, was in zip(model.parameters(), before):
            assert torch.equal(p, was)
    graph.replay()
    same((model, optimizer), plainly("muon", range(1, 3)))


@gpu
def test_checkpoints_between_replays(cuda):
    model, optimizer, lr = made()
    graph = captured(optimizer)
    weights = copy.deepcopy(model.state_dict())
    saved = copy.deepcopy(optimizer.state_dict())
    for _ in range(2):
        for step in (2, 3):
            gradients(model, step)
            lr.fill_(rate(step))
            graph.replay()
        same((model, optimizer), plainly("muon", range(1, 4)))
        model.load_state_dict(weights)
        optimizer.load_state_dict(saved)
        assert optimizer.param_groups[0]["lr"] is lr.of[0]
        assert lr.of[0] == rate(1)
    pair = copy.deepcopy((model, optimizer))
    for which in ((model, optimizer), pair):
        gradients(which[0], 2)
        which[1].step()
    same((model, optimizer), pair)


@gpu
def test_what_must_come_before_a_capture(cuda):
    def refuse(optimizer, words):
        torch.cuda.synchronize()
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            with pytest.raises(canzona.UsageError, match=words):
                optimizer.step()

    model = layouts.fresh()
    gradients(model, 1)
    refuse(canzona.Muon(model, capturable=True), "one step outside")
    loaded = canzona.Muon(model, capturable=True)
    loaded.load_state_dict(made()[1].state_dict())
    refuse(loaded, "one step outside")
    without = canzona.Muon(model)
    without.step()
    refuse(without, "give the optimizer capturable=True")
    on_cpu = canzona.Muon(model, lr=torch.tensor(0.01), capturable=True)
    on_cpu.step()
    refuse(on_cpu, "float32 on cpu; a captured step reads")


@gpu
def test_a_captured_step_keeps_its_parameters(cuda):
    model, optimizer, _ = made()
    more = torch.nn.Parameter(torch.ones(4, 4, device="cuda"))
    graph = captured(optimizer)
    with pytest.raises(canzona.UsageError, match="part of a CUDA graph"):
        optimizer.add_param_group({"params": [("more", more)]})
    gradients(model, 2)
    graph.replay()


@gpu
def test_a_whole_iteration_in_a_graph(cuda):
    """Forward, backward and two optimizers, rates by a scheduler."""

    def build(capturable):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)
        ).cuda()
        optimizers = [
            canzona.Muon(
                part,
                lr=torch.tensor(0.01, device="cuda") if capturable else 0.01,
                rules={"weight": "muon"},
                capturable=capturable,
            )
            for part in (model[0], model[2])
        ]
        schedules = [
            torch.optim.lr_scheduler.LambdaLR(o, lambda n: 1 / (1 + n))
            for o in optimizers
        ]
        return model, optimizers, schedules

    inputs = [torch.randn(32, 64, device="cuda") for _ in range(8)]
    place = inputs[0].clone()

    def iteration(model, optimizers):
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=False)
        model(place).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()

    results = []
    for capturable in (False, True):
        model, optimizers, schedules = build(capturable)
        graph = torch.cuda.CUDAGraph()
        for n, x in enumerate(inputs):
            place.copy_(x)
            if not capturable or n < 2:
                iteration(model, optimizers)
            else:
                if n == 2:
                    torch.cuda.synchronize()
                    with torch.cuda.graph(graph):
                        iteration(model, optimizers)
                graph.replay()
            for schedule in schedules:
                schedule.step()
        results.append([p.detach() for p in model.parameters()])
        for optimizer in optimizers:
            assert optimizer.skipped_steps == 0
            steps = {int(s["step"]) for s in optimizer.state.values()}
            assert steps == {len(inputs)}
    for p, q in zip(*results):
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4)
