"""What training scripts do to states: surgery, bf16 masters, state dicts of
others in another order."""

import copy
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import canzona
from nets import KINDS, backward, net, same, values
from test_scripts import counts, snapshot, trained, unchanged

# States that scripts change.


def test_deleted_states_begin_anew():
    """As ReLoRA does after it has merged its factors."""
    model = net()
    optimizer = canzona.AdamW(model, lr=0.01)
    trained(model, optimizer)
    weight = model[0].weight
    del optimizer.state[weight]
    assert counts_of_saved(optimizer)["0.weight"] == 0
    backward(model)
    gradient = weight.grad.clone()
    optimizer.step()
    state = optimizer.state[weight]
    assert state["step"] == 1 and optimizer.state[model[2].weight]["step"] == 6
    assert torch.allclose(state["exp_avg"], 0.1 * gradient)


def counts_of_saved(optimizer):
    saved = optimizer.state_dict()
    names = [n for g in saved["param_groups"] for n in g["param_names"]]
    keys = [k for g in saved["param_groups"] for k in g["params"]]
    assert set(saved["state"]) == set(keys)
    return {n: int(saved["state"][k]["step"]) for n, k in zip(names, keys)}


@pytest.mark.parametrize("load", ["fresh", "saved"])
@pytest.mark.parametrize("key", ["exp_avg", "step", None])
def test_loading_forgets_what_a_script_changed(load, key):
    model = net()
    optimizer = canzona.AdamW(model, lr=0.01)
    fresh = copy.deepcopy(optimizer.state_dict())
    trained(model, optimizer, 2)
    saved = copy.deepcopy(optimizer.state_dict())
    weight = model[0].weight
    if key is None:
        del optimizer.state[weight]
    else:
        optimizer.state[weight][key] = optimizer.state[weight][key] + 5
    optimizer.load_state_dict(fresh if load == "fresh" else saved)
    assert optimizer.state[weight]["step"] == (0 if load == "fresh" else 2)
    backward(model)
    gradient = weight.grad.clone()
    optimizer.step()
    if load == "fresh":
        assert torch.allclose(
            optimizer.state[weight]["exp_avg"], 0.1 * gradient
        )


@pytest.mark.parametrize(
    "act",
    [
        lambda o: copy.deepcopy(o),
        lambda o: copy.deepcopy(o.state_dict()),
        lambda o: o.add_param_group(
            {"params": [("more", nn.Parameter(torch.ones(3).bfloat16()))]}
        ),
    ],
)
def test_deleted_masters_begin_anew(act):
    model = net(dtype=torch.bfloat16)
    optimizer = canzona.Muon(model)
    trained(model, optimizer, 2)
    optimizer.state.clear()
    act(optimizer)
    trained(model, optimizer, 1)
    state = optimizer.state[model[0].weight]
    assert state["step"] == 1 and state["master"].is_leaf
    assert torch.equal(state["master"].bfloat16(), model[0].weight)


@pytest.mark.parametrize("how", ["clear", "empty", "new"])
def test_cleared_states_begin_anew(how):
    model, other = net(), net()
    optimizer, fresh = canzona.SOAP(model), canzona.SOAP(other)
    trained(model, optimizer)
    if how == "clear":
        optimizer.state.clear()
    elif how == "empty":
        for p in model.parameters():
            optimizer.state[p] = {}
    else:
        optimizer.state = type(optimizer.state)(dict)
    other.load_state_dict(model.state_dict())
    trained(model, optimizer)
    trained(other, fresh)
    assert same(values(model), values(other))


def test_replaced_states_are_taken_over():
    model, other = net(), net()
    optimizer, theirs = canzona.Muon(model), canzona.Muon(other)
    trained(model, optimizer)
    trained(other, theirs)
    with torch.no_grad():
        theirs.state[other[0].weight]["momentum_buffer"].mul_(0.1)
    state = optimizer.state[model[0].weight]
    state["momentum_buffer"] = state["momentum_buffer"] * 0.1
    trained(model, optimizer)
    trained(other, theirs)
    assert same(values(model), values(other))
    assert same(
        *(
            list(o.state[m[0].weight].values())
            for o, m in ((optimizer, model), (theirs, other))
        )
    )


@pytest.mark.parametrize("how", ["in place", "by data", "replaced", "number"])
def test_numbers_of_steps_are_taken_over(how):
    model, other = net(), net()
    optimizer = canzona.AdamW(model, lr=0.01)
    theirs = torch.optim.AdamW(other.parameters(), lr=0.01)
    trained(model, optimizer)
    trained(other, theirs)
    for o, m in ((optimizer, model), (theirs, other)):
        for p in m.parameters():
            if how == "in place" or o is theirs:
                o.state[p]["step"].zero_()
            elif how == "by data":
                o.state[p]["step"].data.zero_()
            else:
                o.state[p]["step"] = torch.zeros(()) if how == "replaced" else 0
    trained(model, optimizer, 2)
    trained(other, theirs, 2)
    for a, b in zip(values(model), values(other)):
        assert torch.allclose(a, b, atol=1e-6)
    assert set(counts(optimizer).values()) == {2}


@pytest.mark.parametrize(
    "key, value, words",
    [
        ("momentum_buffer", torch.zeros(3), r"a tensor \[3\] of float32 now"),
        ("momentum_buffer", "no", "is str 'no' now; expected a tensor"),
        ("step", -1, "expected a number of steps"),
        ("mine", torch.zeros(1), "is not known; expected step, momentum"),
    ],
)
def test_states_that_have_no_place_are_refused(key, value, words):
    model = net()
    optimizer = canzona.Muon(model)
    trained(model, optimizer)
    before = values(model)
    optimizer.state[model[0].weight][key] = value
    for call in (optimizer.step, optimizer.state_dict):
        with pytest.raises(canzona.UsageError, match=words) as error:
            call()
        assert "parameter 0.weight" in str(error.value)
    assert same(before, values(model))


def test_states_given_to_a_frozen_parameter_count_once_it_is_trained():
    model = net()
    model[0].requires_grad_(False)
    optimizer = canzona.AdamW(model)
    trained(model, optimizer, 1)
    bias = model[0].bias
    optimizer.state[bias] = dict(
        step=torch.tensor(5.0),
        exp_avg=torch.ones_like(bias),
        exp_avg_sq=torch.ones_like(bias),
    )
    model[0].requires_grad_(True)
    trained(model, optimizer, 1)
    assert optimizer.state[bias]["step"] == 6
    assert optimizer.state[bias]["exp_avg"].mean() > 0.5
    assert optimizer.state[model[0].weight]["step"] == 1


@pytest.mark.parametrize("kind", ["adamw", "soap"])
def test_states_that_are_moved_are_taken_over(kind):
    """The usual recipe to move an optimizer's states to another device."""
    model, other = net(), net()
    optimizer, theirs = KINDS[kind](model), KINDS[kind](other)
    trained(model, optimizer, 2)
    trained(other, theirs, 2)
    for state in optimizer.state.values():
        for value in state.values():
            value.data = value.data.clone()
    trained(model, optimizer, 3)
    trained(other, theirs, 3)
    assert same(values(model), values(other))
    saved, expected = optimizer.state_dict(), theirs.state_dict()
    for i, values_of in expected["state"].items():
        assert same(saved["state"][i].values(), values_of.values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("kind", ["muon", "soap"])
def test_another_default_dtype_changes_nothing(kind, dtype):
    results = []
    for default in (torch.float32, dtype):
        model = net()
        torch.set_default_dtype(default)
        try:
            optimizer = KINDS[kind](model)
            for seed in range(3):
                for p in model.parameters():
                    p.grad = torch.full_like(p, 0.1 * (seed + 1))
                optimizer.step()
            results.append(values(model))
        finally:
            torch.set_default_dtype(torch.float32)
    assert same(*results)


def test_a_closed_optimizer_saves_nothing():
    model = net()
    optimizer = canzona.Muon(model)
    trained(model, optimizer, 1)
    optimizer.close()
    for call in (optimizer.step, optimizer.state_dict):
        with pytest.raises(canzona.UsageError, match="was closed"):
            call()
    with pytest.raises(canzona.UsageError, match="was closed"):
        copy.deepcopy(optimizer)


def test_a_look_at_the_states_plans_nothing():
    model = net()
    optimizer = canzona.Muon(model)
    assert model[0].weight not in optimizer.state and not optimizer.state
    assert optimizer._run is None
    optimizer.plan
    assert len(optimizer.state) == 4


def test_the_first_use_may_be_in_inference_mode():
    """Where Lightning validates, and saves."""
    model, other = net(), net()
    ours, same_ours = canzona.Muon(model), canzona.Muon(other)
    with torch.inference_mode():
        ours.plan
        assert len(ours.state) == 4
    trained(model, ours, 2)
    with torch.inference_mode():
        ours.load_state_dict(ours.state_dict())
    trained(model, ours, 1)
    trained(other, same_ours, 2)
    trained(other, same_ours, 1)
    assert same(values(model), values(other))


def test_a_deleted_optimizer_gives_its_memory_back_at_once():
    model = net()
    optimizer = canzona.SOAP(model)
    trained(model, optimizer, 2)
    state = weakref.ref(optimizer.state[model[0].weight]["exp_avg"])
    gc.collect()
    gc.disable()
    try:
        del optimizer
        assert state() is None
    finally:
        gc.enable()


def test_a_refused_load_that_woke_a_parameter():
    model, other = net(), net()
    model[0].requires_grad_(False)
    optimizer, theirs = canzona.AdamW(model), canzona.AdamW(other)
    trained(model, optimizer, 2)
    trained(other, theirs, 2)
    saved = copy.deepcopy(theirs.state_dict())
    saved["state"][0]["exp_avg"] = torch.zeros(3, 3)
    before = snapshot(model, optimizer)
    with pytest.raises(canzona.UsageError, match="shape"):
        optimizer.load_state_dict(saved)
    unchanged(before, snapshot(model, optimizer))
    trained(model, optimizer, 1)
    assert optimizer.state[model[2].weight]["step"] == 3


def test_checkpoints_of_what_was_unfrozen_before_the_first_use():
    """torch.distributed.checkpoint loads what optimizer.state has, and makes
    the states of a new optimizer by a step of its own."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    model = net()
    before = values(model)
    model[0].requires_grad_(False)
    optimizer = canzona.AdamW(model)
    model[0].requires_grad_(True)
    saved = get_optimizer_state_dict(model, optimizer)
    assert len(saved["state"]) == len(optimizer.state) == 4
    assert same(before, values(model)) and not any(optimizer._run.counts)


def test_groups_without_parameters_stay():
    optimizer = canzona.AdamW([{"params": []}, {"params": net().parameters()}])
    assert [len(g["params"]) for g in optimizer.param_groups] == [0, 4]
    lr_scheduler.LambdaLR(optimizer, [lambda n: 1.0, lambda n: 0.5])


@pytest.mark.parametrize(
    "group", [{}, {"params": {nn.Parameter(torch.ones(2))}}]
)
def test_groups_that_are_none_are_refused(group):
    optimizer = canzona.AdamW(net())
    with pytest.raises(canzona.UsageError, match="add_param_group"):
        optimizer.add_param_group(group)


# bf16.


def test_masters_of_a_fresh_state_dict_are_the_weights():
    model = net(dtype=torch.bfloat16)
    optimizer = canzona.AdamW(model, lr=1e-5)
    fresh = copy.deepcopy(optimizer.state_dict())
    trained(model, optimizer, 2)
    optimizer.load_state_dict(fresh)
    for p in model.parameters():
        assert torch.equal(optimizer.state[p]["master"], p.float())


def lowered(load, start=3, steps=20):
    """20 steps from a state dict; `load(model, optimizer, saved)`."""
    model = net(dtype=torch.bfloat16)
    optimizer = canzona.Muon(model, lr=1e-3)
    trained(model, optimizer, start)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    model, optimizer = load(model, optimizer, saved)
    for seed in range(steps):
        model.zero_grad()
        backward(model, 100 + seed)
        optimizer.step()
    return values(model)


@pytest.mark.parametrize("first", ["model", "optimizer"])
@pytest.mark.parametrize("begun", [False, True])
def test_masters_survive_both_orders_of_loading(first, begun):
    def load(_, __, saved):
        model = net(5, torch.bfloat16)
        optimizer = canzona.Muon(model, lr=1e-3)
        if begun:
            trained(model, optimizer, 2)
        if first == "model":
            model.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
        if first == "optimizer":
            model.load_state_dict(saved[0])
        return model, optimizer

    expected = lowered(lambda model, optimizer, _: (model, optimizer))
    assert same(expected, lowered(load))


def test_loaded_masters_do_not_bring_old_weights_back():
    model = net(dtype=torch.bfloat16)
    optimizer = canzona.Muon(model, lr=0.5, weight_decay=0.0)
    trained(model, optimizer, 1)
    old = copy.deepcopy(optimizer.state_dict())
    trained(model, optimizer, 3)
    now = values(model)
    optimizer.load_state_dict(old)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    backward(model)
    optimizer.step()
    assert same(now, values(model))


# State dicts of others.


class Three(nn.Module):
    """Our groups reorder these: the matrices come first."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.randn(6))
        self.b = nn.Linear(6, 6, bias=False)
        self.c = nn.Parameter(torch.randn(6))


def with_gradients(model, seed):
    torch.manual_seed(seed)
    for p in model.parameters():
        p.grad = torch.randn_like(p)


def stepped_alike(theirs, other, optimizer, model):
    for seed in range(3):
        for m, o in ((other, theirs), (model, optimizer)):
            with_gradients(m, seed)
            o.step()
    for a, b in zip(other.parameters(), model.parameters()):
        assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("given", ["module", "list"])
def test_positions_count_in_the_order_of_the_parameters(given):
    torch.manual_seed(0)
    model = Three()
    other = copy.deepcopy(model)
    theirs = torch.optim.AdamW(other.parameters(), lr=0.01)
    for seed in range(3):
        with_gradients(other, 10 + seed)
        theirs.step()
    model.load_state_dict(other.state_dict())
    params = model if given == "module" else model.parameters()
    optimizer = canzona.AdamW(
        params, lr=0.01, groups={"a" if given == "module" else "*0": {}}
    )
    names = [n for g in optimizer.param_groups for n in g["param_names"]]
    assert names != [n for n, _ in model.named_parameters()]
    optimizer.load_state_dict(theirs.state_dict())
    stepped_alike(theirs, other, optimizer, model)


@pytest.mark.parametrize(
    "prefix", ["module.", "_orig_mod.", "module._orig_mod."]
)
def test_names_of_wrappers_do_not_count(prefix):
    torch.manual_seed(0)
    model = Three()
    other = copy.deepcopy(model)
    named = [(prefix + n, p) for n, p in other.named_parameters()]
    theirs = torch.optim.AdamW(named, lr=0.01)
    for seed in range(3):
        with_gradients(other, 10 + seed)
        theirs.step()
    model.load_state_dict(other.state_dict())
    optimizer = canzona.AdamW(model, lr=0.01, groups={"a": {}})
    optimizer.load_state_dict(theirs.state_dict())
    stepped_alike(theirs, other, optimizer, model)


def test_names_that_do_not_match_are_refused():
    model = Three()
    optimizer = canzona.Muon(model)
    with_gradients(model, 0)
    optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    saved["param_groups"][1]["param_names"][0] = "z"
    with pytest.raises(canzona.UsageError, match="has no parameter z"):
        optimizer.load_state_dict(saved)


def test_groups_of_another_grouping():
    """The same names in one group, saved in several."""
    torch.manual_seed(0)
    model = Three()
    other = copy.deepcopy(model)
    theirs = canzona.Muon(other, lr=0.01, groups={"c": {"weight_decay": 0.5}})
    for seed in range(3):
        with_gradients(other, 10 + seed)
        theirs.step()
    model.load_state_dict(other.state_dict())
    optimizer = canzona.Muon(model, lr=0.01)
    optimizer.load_state_dict(theirs.state_dict())
    for name, p in model.named_parameters():
        q = dict(other.named_parameters())[name]
        assert same(optimizer.state[p].values(), theirs.state[q].values()), name
