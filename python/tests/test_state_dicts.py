"""State dicts in one process."""

import copy
from collections import defaultdict

import pytest
import torch

import canzona
import layouts
from nets import KINDS, backward, follow, net, same, values


@pytest.mark.parametrize("rule", list(KINDS))
def test_ten_and_ten_steps_are_twenty(rule, tmp_path):
    model, told = layouts.build("one")
    optimizer = layouts.optimizer_of(model, told, rule)
    layouts.steps(model, optimizer, 1, 10)
    torch.save((model.state_dict(), optimizer.state_dict()), tmp_path / "x")
    layouts.steps(model, optimizer, 11, 20)
    weights, saved = torch.load(tmp_path / "x", weights_only=True)
    other, told = layouts.build("one")
    again = layouts.optimizer_of(other, told, rule)
    other.load_state_dict(weights)
    again.load_state_dict(saved)
    layouts.steps(other, again, 11, 20)
    assert layouts.digest(model, optimizer) == layouts.digest(other, again)


def test_state_dicts_of_torchs_optimizers_load():
    model, other = net(), net()
    adamw = torch.optim.AdamW(other.parameters(), lr=0.05)
    mine = canzona.AdamW(model)
    for seed in range(2):
        other.zero_grad()
        backward(other, seed)
        adamw.step()
    with torch.no_grad():
        for p, q in zip(model.parameters(), other.parameters()):
            p.copy_(q)
    mine.load_state_dict(adamw.state_dict())
    assert mine.param_groups[0]["lr"] == 0.05
    follow(mine, adamw, model, other, 3)
    for p, q in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-6)


def test_torchs_pair_of_optimizers_loads_into_one():
    model = net()
    matrices = [(n, p) for n, p in model.named_parameters() if p.ndim == 2]
    others = [(n, p) for n, p in model.named_parameters() if p.ndim < 2]
    muon = torch.optim.Muon(matrices, lr=0.01)
    adamw = torch.optim.AdamW(others, lr=0.03)
    backward(model)
    muon.step()
    adamw.step()
    mine = canzona.Muon(model)
    mine.load_state_dict(muon.state_dict())
    mine.load_state_dict(adamw.state_dict())
    assert [g["lr"] for g in mine.param_groups] == [0.01, 0.03]
    for name, p in matrices:
        assert torch.equal(
            mine.state[p]["momentum_buffer"], muon.state[p]["momentum_buffer"]
        ), name
    for name, p in others:
        assert torch.equal(mine.state[p]["exp_avg"], adamw.state[p]["exp_avg"])
        assert mine.state[p]["step"] == 1


@pytest.mark.parametrize("way", ["load", "assign", "clear"])
@pytest.mark.parametrize("rule", sorted(KINDS))
def test_states_that_are_thrown_away_begin_anew(rule, way):
    runs = []
    for used in (True, False):
        model = net()
        optimizer = KINDS[rule](model, lr=0.01)
        fresh = copy.deepcopy(optimizer.state_dict())
        if used:
            backward(model, seed=7)
            optimizer.step()
            model.load_state_dict(net().state_dict())
            if way == "load":
                optimizer.load_state_dict(fresh)
            elif way == "assign":
                optimizer.state = defaultdict(dict)
            else:
                optimizer.state.clear()
            optimizer.zero_grad()
        for seed in range(3):
            backward(model, seed)
            optimizer.step()
        runs.append(
            values(model)
            + [
                v.clone()
                for p in model.parameters()
                for v in optimizer.state[p].values()
            ]
        )
    assert same(*runs)


def test_loaded_rates_are_the_optimizers_own():
    one, other = (canzona.Muon(net(), lr=torch.tensor(r)) for r in (0.1, 0.2))
    other.load_state_dict(one.state_dict())
    one.param_groups[0]["lr"].fill_(9.0)
    assert other.param_groups[0]["lr"] == torch.tensor(0.1)


BAD_STATE_DICTS = {
    "no groups": (lambda d: d.pop("param_groups"), ["no 'param_groups'"]),
    "no states": (lambda d: d.pop("state"), ["no 'state'", "state_dict()"]),
    "groups of a dict": (
        lambda d: d.update(param_groups={}),
        ["'param_groups' is dict", "a list of groups"],
    ),
    "states of a list": (
        lambda d: d.update(state=[]),
        ["'state' is list", "expected a dict"],
    ),
    "a group that is none": (
        lambda d: d["param_groups"].__setitem__(1, 7),
        ["group 1 is int '7'"],
    ),
    "no params": (
        lambda d: d["param_groups"][1].pop("params"),
        ["group 1 has no 'params'"],
    ),
    "params of a text": (
        lambda d: d["param_groups"][0].update(params="ab"),
        ["group 0 has params str 'ab'"],
    ),
    "fewer names": (
        lambda d: d["param_groups"][0]["param_names"].pop(),
        ["group 0 has 2 params", "as many names"],
    ),
    "twice": (
        lambda d: d["param_groups"][1].update(params=[0, 3]),
        ["parameter 0.bias (number 0) is in it twice"],
    ),
    "a tensor as params": (
        lambda d: d["param_groups"][0].update(params=[torch.zeros(2), 1]),
        ["parameter 0 of group 0", "its number or name"],
    ),
    "a state that is a tensor": (
        lambda d: d["state"].update({0: torch.zeros(3)}),
        ["the state of parameter 0.weight is a tensor [3]"],
    ),
    "a state without name": (
        lambda d: d["state"][0].update({7: torch.zeros(3)}),
        ["parameter 0.weight has a state named int '7'"],
    ),
    "a missing state": (
        lambda d: d["state"][0].pop("momentum_buffer"),
        ["parameter 0.weight lacks state 'momentum_buffer'"],
    ),
    "another shape": (
        lambda d: d["state"][0].update(momentum_buffer=torch.zeros(3)),
        ["'momentum_buffer' of parameter 0.weight", "[3]", "[16, 8]"],
    ),
    "no tensor": (
        lambda d: d["state"][0].update(momentum_buffer=None),
        ["'momentum_buffer' of parameter 0.weight is NoneType", "[16, 8]"],
    ),
    "a list": (
        lambda d: d["state"][2].update(exp_avg=[0.0] * 16),
        ["'exp_avg' of parameter 0.bias is list", "[16]"],
    ),
    "integers": (
        lambda d: d["state"][2].update(exp_avg=torch.zeros(16).int()),
        ["'exp_avg' of parameter 0.bias is a tensor [16] of int32"],
    ),
    "nowhere": (
        lambda d: d["state"][2].update(exp_avg=torch.zeros(16, device="meta")),
        ["'exp_avg' of parameter 0.bias is on the meta device"],
    ),
    "one too many": (
        lambda d: d["state"][0].update(L=torch.zeros(3)),
        ["parameter 0.weight has no state 'L'", "momentum_buffer"],
    ),
    "steps of a text": (
        lambda d: d["state"][0].update(step="many"),
        ["'step' of parameter 0.weight is str 'many'"],
    ),
    "steps below 0": (
        lambda d: d["state"][0].update(step=torch.tensor(-1.0)),
        ["'step' of parameter 0.weight", "from 0 on"],
    ),
    "steps of a vector": (
        lambda d: d["state"][0].update(step=torch.zeros(2)),
        ["'step' of parameter 0.weight is a tensor [2]"],
    ),
    "another rule": (
        lambda d: d["param_groups"][0].update(rule="soap"),
        ["parameter 0.weight", "saved with rule soap"],
    ),
    "a rate of a text": (
        lambda d: d["param_groups"][0].update(lr="high"),
        ["the group of 0.weight", "lr='high'", "expected a number"],
    ),
    "a rate below 0": (
        lambda d: d["param_groups"][1].update(lr=-1.0),
        ["the group of 0.bias", "lr=-1.0", "at least 0"],
    ),
    "states of nobody": (
        lambda d: d["state"].update({9: d["state"][0]}),
        ["states of parameter number 9, which is in none of its groups"],
    ),
    "betas of a number": (
        lambda d: d["param_groups"][1].update(betas=0.9),
        ["the group of 0.bias", "betas"],
    ),
}


@pytest.mark.parametrize("what", BAD_STATE_DICTS)
def test_bad_state_dicts_change_nothing(what):
    change, words = BAD_STATE_DICTS[what]
    model = net()
    optimizer = canzona.Muon(model)
    backward(model)
    optimizer.step()
    good = copy.deepcopy(optimizer.state_dict())
    bad = copy.deepcopy(good)
    # All that comes before the mistake is another's.
    for i in bad["state"]:
        for value in bad["state"][i].values():
            value += 1
    bad["param_groups"][0]["momentum"] = 0.5
    change(bad)
    with pytest.raises(canzona.UsageError) as e:
        optimizer.load_state_dict(bad)
    for word in words:
        assert word in str(e.value)
    again = optimizer.state_dict()
    assert again["param_groups"] == good["param_groups"]
    for i in good["state"]:
        for key, value in good["state"][i].items():
            assert torch.equal(value, again["state"][i][key]), (i, key)
    optimizer.load_state_dict(good)


@pytest.mark.parametrize("bad", [None, [], 7, "text", {}])
def test_state_dicts_that_are_none(bad):
    optimizer = canzona.Muon(net())
    with pytest.raises(canzona.UsageError, match="load_state_dict"):
        optimizer.load_state_dict(bad)


def test_a_fresh_state_dict_is_empty_and_reads_no_layout():
    optimizer = canzona.Muon(net())
    state = optimizer.state_dict()
    assert state["state"] == {} and optimizer._run is None
    optimizer.load_state_dict(state)
    assert optimizer._run is None
