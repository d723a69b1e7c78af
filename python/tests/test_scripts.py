"""What training scripts do around steps: frozen layers, schedulers, surgery on
states, copies, state dicts in another order."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import canzona
from nets import KINDS, backward, net, same, values


def trained(model, optimizer, count=5):
    for seed in range(count):
        model.zero_grad()
        backward(model, seed)
        optimizer.step()


def counts(optimizer):
    return {
        n: int(optimizer.state[p]["step"])
        for g in optimizer.param_groups
        for n, p in zip(g["param_names"], g["params"])
    }


# Calls that are refused.


def snapshot(model, optimizer):
    """Everything that a refused call must leave as it was."""
    return (
        values(model),
        [
            {k: v.clone() for k, v in optimizer.state[p].items()}
            for p in model.parameters()
            if p in optimizer.state
        ],
        [
            {k: list(v) if isinstance(v, list) else v for k, v in g.items()}
            for g in optimizer.param_groups
        ],
        optimizer.routing,
        optimizer.plan.digest,
    )


def unchanged(before, after):
    assert same(before[0], after[0])
    assert len(before[1]) == len(after[1])
    for a, b in zip(before[1], after[1]):
        assert a.keys() == b.keys() and same(a.values(), b.values())
    assert len(before[2]) == len(after[2])
    for a, b in zip(before[2], after[2]):
        assert a.keys() == b.keys()
        assert all(x is y for x, y in zip(a["params"], b["params"]))
        assert a["param_names"] == b["param_names"] and a["lr"] == b["lr"]
    assert before[3:] == after[3:]


@pytest.mark.parametrize("kind", ["muon", "soap"])
@pytest.mark.parametrize("when", ["looked at", "planned"])
def test_a_refused_group_costs_no_states(kind, when):
    model = net()
    optimizer = KINDS[kind](model)
    trained(model, optimizer)
    more = nn.Parameter(torch.ones(8, 4))
    group = {"params": [("more", more)]}
    if when == "looked at":
        more.data = torch.ones(4, 8).t()
    else:
        group["preset"] = None
        group["beta2" if kind == "soap" else "momentum"] = 7.0
    before = snapshot(model, optimizer)
    with pytest.raises(canzona.UsageError):
        optimizer.add_param_group(group)
    unchanged(before, snapshot(model, optimizer))
    more.data = more.data.contiguous()
    optimizer.add_param_group({"params": [("more", more)]})
    more.grad = torch.ones_like(more)
    backward(model)
    optimizer.step()
    assert set(counts(optimizer).values()) == {6, 1}


@pytest.mark.parametrize("kind", ["muon", "soap"])
def test_a_refused_unfreezing_costs_no_states(kind):
    model = net()
    model.append(nn.Linear(4, 4))
    model[3].weight.data = model[3].weight.data.t()
    model[3].requires_grad_(False)
    optimizer = KINDS[kind](model)
    trained(model, optimizer)
    model[3].requires_grad_(True)
    model.zero_grad()
    backward(model)
    before = snapshot(model, optimizer)
    with pytest.raises(canzona.UsageError, match="3.weight: is not contiguous"):
        optimizer.step()
    unchanged(before, snapshot(model, optimizer))
    model[3].weight.data = model[3].weight.data.contiguous()
    optimizer.step()
    assert set(counts(optimizer).values()) == {6, 1}
    assert optimizer.state[model[0].weight]["step"] == 6


@pytest.mark.parametrize("switch", ["maximize", "amsgrad", "capturable"])
def test_switches_set_later_are_refused(switch):
    model = net()
    optimizer = canzona.AdamW(model)
    trained(model, optimizer, 1)
    before = values(model)
    optimizer.param_groups[0][switch] = True
    with pytest.raises(canzona.UsageError, match=f"{switch}=True"):
        optimizer.step()
    assert same(before, values(model))
    optimizer.param_groups[0][switch] = False
    optimizer.step()


def test_a_group_keeps_its_rule():
    model = net()
    optimizer = canzona.Muon(model)
    trained(model, optimizer, 1)
    before = values(model)
    optimizer.param_groups[0]["rule"] = "adamw"
    with pytest.raises(canzona.UsageError, match="rule='adamw'.* goes to muon"):
        optimizer.step()
    assert same(before, values(model))
    optimizer.param_groups[0]["rule"] = "muon"
    optimizer.step()


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda w: w.t(), r"\[4, 4\] float32 on cpu, not contiguous now"),
        (lambda w: w[:2], r"is \[2, 4\] float32 on cpu now"),
        (lambda w: w.view(2, 8), r"is \[2, 8\] float32 on cpu now"),
    ],
)
def test_weights_that_stay_at_their_address_as_others_are_refused(
    change, words
):
    weight = nn.Parameter(torch.randn(4, 4))
    optimizer = canzona.Muon([("weight", weight)])
    weight.grad = torch.ones(4, 4)
    optimizer.step()
    weight.grad, weight.data = None, change(weight.data)
    weight.grad = torch.ones_like(weight)
    with pytest.raises(canzona.UsageError, match=words):
        optimizer.step()


# Frozen parameters.


@pytest.mark.parametrize(
    "make, rates",
    [
        (lambda o: lr_scheduler.LambdaLR(o, lambda n: 0.5**n), None),
        (lambda o: lr_scheduler.StepLR(o, 1, 0.5), None),
        (lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=20), None),
        (lambda o: lr_scheduler.CosineAnnealingLR(o, 10), None),
        (lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0), 1.0),
        (
            lambda o: lr_scheduler.SequentialLR(
                o,
                [
                    lr_scheduler.ConstantLR(o, 0.1),
                    lr_scheduler.ExponentialLR(o, 0.9),
                ],
                [2],
            ),
            None,
        ),
    ],
)
def test_unfrozen_parameters_have_the_rate_of_their_schedule(make, rates):
    model = net()
    model[0].requires_grad_(False)
    optimizer = canzona.Muon(
        model, lr=0.5, groups={"0.*": {"weight_decay": 0.0}}
    )
    scheduler = make(optimizer)
    for seed in range(6):
        if seed == 3:
            model[0].requires_grad_(True)
        model.zero_grad()
        backward(model, seed)
        optimizer.step()
        scheduler.step(*([] if rates is None else [rates]))
        assert len({float(g["lr"]) for g in optimizer.param_groups}) == 1
    assert counts(optimizer)["0.weight"] == 3


@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
@pytest.mark.parametrize("given", ["module", "list"])
def test_copies_know_frozen_parameters(way, given):
    model = net()
    model[0].requires_grad_(False)
    optimizer = canzona.Muon(model if given == "module" else model.parameters())
    trained(model, optimizer, 2)
    pair = (model, optimizer)
    other, copied = (
        copy.deepcopy(pair)
        if way == "deepcopy"
        else pickle.loads(pickle.dumps(pair))
    )
    for m, o in ((model, optimizer), (other, copied)):
        m[0].requires_grad_(True)
        trained(m, o, 3)
    assert same(values(model), values(other))
    assert sorted(counts(copied).values()) == [3, 3, 5, 5]


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_frozen_parameters_are_members_of_their_groups(kind):
    """zero_grad() clears them and GradScaler unscales them, as torch's."""
    model, other = net(), net()
    theirs = torch.optim.AdamW(other.parameters(), lr=0.01)
    for m in (model, other):
        m[0].requires_grad_(False)
    optimizer = KINDS[kind](model, lr=0.01)
    for m, o in ((model, optimizer), (other, theirs)):
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        for seed in range(4):
            if seed == 2:
                m[0].requires_grad_(True)
                backward(m, 77)  # a batch that is thrown away
                o.zero_grad()
            o.zero_grad()
            scaler.scale(backward_loss(m, seed)).backward()
            scaler.step(o)
            scaler.update()
    for p, q in zip(model[0].parameters(), other[0].parameters()):
        assert optimizer.state[p]["step"] == 2
        if kind == "adamw":
            assert torch.allclose(p, q, atol=1e-6)


def backward_loss(model, seed):
    torch.manual_seed(seed)
    return model(torch.randn(5, 8)).square().mean()


def test_hooks_of_state_dicts_are_called_for_state_dicts_alone():
    model = net()
    model[0].requires_grad_(False)
    optimizer = canzona.Muon(model)
    trained(model, optimizer, 2)
    seen = []
    optimizer.register_state_dict_post_hook(
        lambda o, d: seen.append(1) or {**d, "state": {}}
    )
    model[0].requires_grad_(True)
    trained(model, optimizer, 1)
    more = nn.Parameter(torch.ones(3))
    optimizer.add_param_group({"params": [("more", more)]})
    assert not seen and counts(optimizer)["2.weight"] == 3


def test_loading_forgets_what_a_scheduler_left():
    optimizer = canzona.AdamW(net(), lr=0.01)
    before = copy.deepcopy(optimizer.state_dict())
    lr_scheduler.StepLR(optimizer, 1)
    optimizer.load_state_dict(before)
    assert "initial_lr" not in optimizer.param_groups[0]
    assert optimizer.param_groups[0].keys() == before["param_groups"][0].keys()


def test_a_model_that_is_frozen_whole():
    model = net()
    model.requires_grad_(False)
    optimizer = canzona.Muon(model)
    optimizer.step()
    model.requires_grad_(True)
    trained(model, optimizer, 2)
    assert set(counts(optimizer).values()) == {2}


def test_a_model_that_is_frozen_whole_has_no_states():
    model = net()
    model.requires_grad_(False)
    optimizer = canzona.Muon(model)
    assert not optimizer.state and not optimizer.state_dict()["state"]
    with pytest.raises(canzona.UsageError, match="no plan"):
        optimizer.plan


def unfrozen(save_at):
    """A script that freezes a layer, unfreezes it, and saves."""
    model = net()
    model[0].requires_grad_(False)
    optimizer = canzona.Muon(model, lr=0.01)
    saved = None
    for seed in range(6):
        if seed == 2:
            model[0].requires_grad_(True)
        model.zero_grad()
        backward(model, seed)
        optimizer.step()
        if seed == save_at:
            saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    return model, optimizer, saved


@pytest.mark.parametrize("begun", [False, True])
def test_runs_that_unfroze_a_parameter_are_resumed_by_their_script(begun):
    expected, _, (weights, states) = unfrozen(3)
    model = net(7)
    model[0].requires_grad_(False)
    optimizer = canzona.Muon(model, lr=0.01)
    if begun:
        trained(model, optimizer, 1)
    model.load_state_dict(weights)
    optimizer.load_state_dict(states)
    model[0].requires_grad_(True)
    for seed in (4, 5):
        model.zero_grad()
        backward(model, seed)
        optimizer.step()
    assert same(values(expected), values(model))
    assert sorted(counts(optimizer).values()) == [4, 4, 6, 6]


def test_a_state_dict_from_before_a_parameter_was_unfrozen():
    model, optimizer, (weights, states) = unfrozen(1)
    model.load_state_dict(weights)
    optimizer.load_state_dict(states)
    assert counts(optimizer)["0.weight"] == 0
    assert not optimizer.state[model[0].weight]["momentum_buffer"].any()
    assert counts(optimizer)["2.weight"] == 2


# Norms.


def test_the_norm_without_a_limit():
    model = net()
    optimizer = canzona.Muon(model)
    assert math.isnan(optimizer.grad_norm) and optimizer.skipped_steps == 0
    trained(model, optimizer, 1)
    assert math.isnan(optimizer.grad_norm)
    model[0].weight.grad.fill_(float("inf"))
    optimizer.step()
    assert optimizer.grad_norm == math.inf and optimizer.skipped_steps == 1


def test_a_limit_of_infinity_measures_alone():
    model = net()
    optimizer = canzona.Muon(model, clip_norm=math.inf)
    trained(model, optimizer, 1)
    squares = sum(
        float(p.grad.double().square().sum()) for p in model.parameters()
    )
    assert math.isclose(optimizer.grad_norm, squares**0.5, rel_tol=1e-6)
