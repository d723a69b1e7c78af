"""Parameters that change, join or are copied, and where optimizers live."""

import copy
import gc
import os
import pickle
import threading
import weakref

import pytest
import torch
from torch import nn

import canzona
from nets import KINDS, backward, net, same, values

# Copies.


@pytest.mark.parametrize("rule", ["muon", "soap"])
@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_copies_go_on_alike(rule, way):
    model = net()
    optimizer = KINDS[rule](model, lr=0.01)
    for seed in range(3):
        backward(model, seed)
        optimizer.step()
    pair = (model, optimizer)
    other, copied = (
        copy.deepcopy(pair)
        if way == "deepcopy"
        else pickle.loads(pickle.dumps(pair))
    )
    assert copied.param_groups[0]["params"][0] is other[0].weight
    for seed in range(3):
        for m, o in ((model, optimizer), (other, copied)):
            o.zero_grad()
            backward(m, seed + 9)
            o.step()
    assert same(values(model), values(other))
    assert copied.state[other[0].weight]["step"] == 6


def test_bf16_weights_that_were_replaced_are_taken_over():
    model = net(dtype=torch.bfloat16)
    optimizer = canzona.Muon(model, lr=1e-4)
    backward(model)
    optimizer.step()
    master = optimizer.state[model[0].weight]["master"]
    assert master.dtype == torch.float32
    assert torch.equal(master.bfloat16(), model[0].weight)
    assert not torch.equal(master, model[0].weight.float())
    with torch.no_grad():
        model[0].weight.fill_(0.5)
    optimizer.step()
    assert (model[0].weight - 0.5).abs().max() < 0.01


def test_bf16_weights_that_lie_elsewhere_are_taken_over():
    model = net(dtype=torch.bfloat16)
    optimizer = canzona.Muon(model, lr=1e-4)
    backward(model)
    optimizer.step()
    model[0].weight.data = torch.full_like(model[0].weight, 0.5)
    optimizer.step()
    assert (model[0].weight - 0.5).abs().max() < 0.01


@pytest.mark.parametrize(
    "change, words",
    [
        (
            lambda w: w.bfloat16(),
            "is [16, 8] bfloat16 on cpu now, but was " "[16, 8] float32",
        ),
        (lambda w: w[:2].clone(), "is [2, 8] float32"),
        (lambda w: w.t().contiguous().t(), "not contiguous now"),
    ],
)
def test_parameters_that_became_others_are_refused(change, words):
    model = net()
    optimizer = canzona.Muon(model)
    backward(model)
    optimizer.step()
    weight = model[0].weight
    kept = weight.data
    weight.grad, weight.data = None, change(kept)
    weight.grad = torch.ones_like(weight)
    before = values(model)
    with pytest.raises(canzona.UsageError) as error:
        optimizer.step()
    assert "parameter 0.weight: " in str(error.value)
    assert words in str(error.value)
    assert same(before, values(model))
    weight.grad, weight.data = None, kept.clone()
    optimizer.step()


@pytest.mark.parametrize("how", ["unfreeze", "add_param_group"])
def test_parameters_that_became_others_before_a_new_plan_are_refused(how):
    model, more = net(), nn.Linear(4, 4)
    model[2].requires_grad_(False)
    optimizer = canzona.Muon(model)
    backward(model)
    optimizer.step()
    model.zero_grad()
    model.to(torch.bfloat16).requires_grad_(True)
    before = values(model)
    backward(model)
    with pytest.raises(canzona.UsageError, match="0.weight: is .* bfloat16"):
        if how == "add_param_group":
            optimizer.add_param_group({"params": more.named_parameters()})
        optimizer.step()
    assert same(before, values(model))
    model.zero_grad()
    model.to(torch.float32)
    backward(model)
    optimizer.step()
    assert optimizer.state[model[0].weight]["step"] == 2


def test_an_optimizer_made_before_parameters_were_replaced_is_refused():
    with torch.device("meta"):
        model = net()
    optimizer = canzona.Muon(model)
    model.to_empty(device="cpu")
    for p in model.parameters():
        nn.init.ones_(p)
    backward(model)
    with pytest.raises(canzona.UsageError, match="parameter 0.weight: .*to_em"):
        optimizer.step()
    for group in optimizer.param_groups:  # as accelerate does
        group["params"] = [model.get_parameter(n) for n in group["param_names"]]
    before = values(model)
    optimizer.step()
    assert not same(before, values(model))


def test_parameters_that_were_replaced_after_a_step_are_refused():
    model = net()
    optimizer = canzona.Muon(model)
    backward(model)
    optimizer.step()
    optimizer.zero_grad()
    optimizer.step()  # there is nothing to do
    model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)
    backward(model)
    with pytest.raises(canzona.UsageError, match="0.weight: the model has ano"):
        optimizer.step()


def test_a_part_that_others_took_from_the_model_is_trained():
    """Whoever keeps a parameter and gives it gradients knows what they do."""
    model = net()
    optimizer = canzona.Muon(model)
    own = model[0].weight
    model[0].weight = nn.Parameter(torch.ones(16, 8))
    backward(model)
    own.grad = torch.ones_like(own)
    before = own.detach().clone()
    optimizer.step()
    assert not torch.equal(before, own)


def test_gradients_are_not_kept_for_a_look_at_the_last_step():
    model = net()
    run = canzona.Muon(model)._built()
    event = type("Event", (), {"record": lambda self: None})()
    run._told = torch.zeros(16, dtype=torch.int64), event  # as on a GPU
    run._seen = [0] * 16
    gradient = torch.zeros(16, 8)
    kept = weakref.ref(gradient)
    run._remember([gradient, None])
    del gradient
    assert kept() is None
    assert run._pending[1] == [True, False]


def test_a_step_may_be_interrupted():
    model = net()
    optimizer = canzona.Muon(model)
    backward(model)
    optimizer.step()
    actions = optimizer._run._actions
    kind, label, act = actions[0]

    def interrupted(works):
        actions[0] = kind, label, act
        raise KeyboardInterrupt

    actions[0] = kind, label, interrupted
    with pytest.raises(KeyboardInterrupt):
        optimizer.step()
    before = values(model)
    optimizer.step()
    assert not same(before, values(model))


def test_added_groups():
    model, more = net(), nn.Linear(4, 4)
    optimizer = canzona.SOAP(model, lr=0.01)
    for seed in range(2):
        backward(model, seed)
        optimizer.step()
    factor = optimizer.state[model[0].weight]["L"].clone()
    optimizer.add_param_group({"params": more.named_parameters(), "lr": 0.5})
    assert [g["rule"] for g in optimizer.param_groups] == [
        "soap",
        "adamw",
        "soap",
        "adamw",
    ]
    assert torch.equal(factor, optimizer.state[model[0].weight]["L"])
    more(torch.randn(2, 4)).sum().backward()
    before = values(more)
    optimizer.step()
    assert not same(before, values(more))
    assert optimizer.state[model[0].weight]["step"] == 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", ["module", "named", "list"])
def test_unfrozen_parameters_are_trained_from_then_on(kind, given):
    """Like parameters that had no gradient until then."""
    runs = []
    for frozen in (True, False):
        model = net()
        model[0].requires_grad_(not frozen)
        params = {
            "module": model,
            "named": model.named_parameters(),
            "list": model.parameters(),
        }[given]
        optimizer = KINDS[kind](params, lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
        start = values(model)
        for seed in range(5):
            if seed == 2:
                if frozen:
                    assert same(start[:2], values(model)[:2])
                    assert "requires no gradient yet" in optimizer.routing
                model[0].requires_grad_(True)
            model.zero_grad()
            backward(model, seed)
            if seed < 2:
                model[0].weight.grad = model[0].bias.grad = None
            optimizer.step()
            scheduler.step()
        assert "no gradient yet" not in optimizer.routing
        runs.append(
            values(model)
            + [optimizer.state[p]["step"].clone() for p in model.parameters()]
        )
        names = [n for g in optimizer.param_groups for n in g["param_names"]]
        assert len(names) == len(set(names)) == 4
    assert [int(n) for n in runs[0][4:]] == [3, 3, 5, 5]
    assert same(*runs)


@pytest.mark.parametrize("lr", [-1.0, float("nan")])
def test_a_refused_first_step_wakes_no_parameter(lr):
    model = net()
    model[0].requires_grad_(False)
    optimizer = canzona.Muon(model)
    model[0].requires_grad_(True)
    optimizer.param_groups[0]["lr"] = lr
    backward(model)
    before = optimizer.routing
    with pytest.raises(canzona.UsageError, match="group 0: lr=.*; expected"):
        optimizer.step()
    assert optimizer.routing == before
    optimizer.param_groups[0]["lr"] = 0.1
    optimizer.step()
    assert optimizer.state[model[0].weight]["step"] == 1


def test_unfrozen_parameters_keep_their_options():
    model = net()
    model[0].requires_grad_(False)
    optimizer = canzona.Muon(
        model,
        groups={"0.*": {"lr": 0.5, "weight_decay": 0.0}},
        splits={"0.weight": [6, 10]},
    )
    assert [g["param_names"] for g in optimizer.param_groups] == [
        ["2.weight"],
        ["2.bias"],
        ["0.weight"],
        ["0.bias"],
    ]
    assert "0.weight" not in str(optimizer.plan.audit)
    model[0].requires_grad_(True)
    backward(model)
    optimizer.step()
    rates = {
        n: g["lr"] for g in optimizer.param_groups for n in g["param_names"]
    }
    assert rates["0.weight"] == rates["0.bias"] == 0.5 != rates["2.bias"]
    assert "0.weight:1" in str(optimizer.plan.audit)


def test_parameters_frozen_by_rule_stay_so():
    model = net()
    optimizer = canzona.Muon(model, rules={"0.*": "frozen"})
    before = values(model)
    backward(model)
    optimizer.step()
    assert same(before[:2], values(model)[:2])


def test_unfrozen_parameters_may_be_added_by_hand():
    model = net()
    model[0].requires_grad_(False)
    optimizer = canzona.Muon(model)
    backward(model)
    optimizer.step()
    model[0].requires_grad_(True)
    optimizer.add_param_group({"params": model[0].parameters(), "lr": 0.5})
    options = [g.keys() for g in optimizer.param_groups if g["rule"] == "adamw"]
    assert options[0] == options[-1]
    before = values(model)
    backward(model)
    optimizer.step()
    assert not any(torch.equal(a, b) for a, b in zip(before, values(model)))
    assert len(optimizer._parameters()) == 4


@pytest.mark.parametrize("still_frozen", [False, True])
def test_frozen_parameters_go_where_they_would_have_gone_in_added_groups(
    still_frozen,
):
    def stepped(joins):
        torch.manual_seed(0)
        words, q_proj = nn.Embedding(5, 6), nn.Linear(6, 4, bias=False)
        model = nn.ModuleDict(
            dict(words=words, q_proj=q_proj, last=nn.Linear(6, 6))
        )
        for part in (words, q_proj):
            part.requires_grad_(joins != "by a group")
        optimizer = canzona.Muon(
            model, heads={"q_proj.weight": 2}, splits={"last.weight": [2, 4]}
        )
        if joins == "by a group":
            if not still_frozen:
                model.requires_grad_(True)
            for part in (words, q_proj):
                optimizer.add_param_group({"params": part.parameters()})
        model.requires_grad_(True)
        for p in model.parameters():
            p.grad = torch.arange(1.0, p.numel() + 1).view(p.shape) ** 0.5
        optimizer.step()
        rules = {
            name: group["rule"]
            for group in optimizer.param_groups
            for name in group["param_names"]
        }
        return values(model), rules

    expected, rules = stepped("from the start")
    assert rules["words.weight"] == "adamw"
    found, its_rules = stepped("by a group")
    assert same(expected, found) and its_rules == rules


def test_an_added_group_may_give_frozen_parameters_another_rule():
    model = net()
    model[0].requires_grad_(False)
    optimizer = canzona.Muon(model, heads={"0.weight": 2})
    group = {"params": [model[0].weight], "rule": "adamw"}
    optimizer.add_param_group(group)
    backward(model.requires_grad_(True))
    optimizer.step()
    assert "exp_avg" in optimizer.state[model[0].weight]


def test_added_groups_that_are_refused_change_nothing():
    frozen = nn.Parameter(torch.ones(4, 4), requires_grad=False)
    weight, more = (nn.Parameter(torch.ones(4, 4)) for _ in range(2))
    optimizer = canzona.Muon([frozen, weight])
    weight.grad = torch.ones(4, 4)
    optimizer.step()
    half = nn.Parameter(torch.ones(4, 4).half())
    for params, words in (
        ([weight], "is in this optimizer already"),
        ([("parameter1", more)], "has this name already"),
        ([more, half], "is float16"),
    ):
        with pytest.raises(canzona.UsageError, match=words):
            optimizer.add_param_group({"params": params})
        optimizer.step()
    assert optimizer.state[weight]["step"] == 4
    optimizer.add_param_group({"params": [more]})
    more.grad = torch.ones(4, 4)
    optimizer.step()
    assert optimizer.param_groups[-1]["param_names"] == ["parameter2"]
    assert [optimizer.state[p]["step"] for p in (weight, more)] == [5, 1]


# Processes and threads.


def test_two_optimizers_and_another_thread():
    model, other = net(), net()
    a, b = canzona.Muon(model), canzona.Muon(other)
    for seed in range(3):
        for m in (model, other):
            m.zero_grad()
            backward(m, seed)
        threads = [threading.Thread(target=o.step) for o in (a, b)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert same(values(model), values(other))


def test_forked_workers_of_a_data_loader():
    model = net()
    optimizer = canzona.Muon(model)
    backward(model)
    optimizer.step()
    data = torch.utils.data.TensorDataset(torch.randn(8, 8))
    loader = torch.utils.data.DataLoader(
        data, 2, num_workers=2, multiprocessing_context="fork"
    )
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    assert optimizer.state[model[0].weight]["step"] == 5


def test_a_forked_child_cannot_step():
    model = net()
    optimizer = canzona.Muon(model)
    backward(model)
    optimizer.step()
    child = os.fork()
    if child == 0:
        try:
            optimizer.step()
            os._exit(1)
        except canzona.Error as e:
            gc.collect()
            os._exit(0 if "forked" in str(e) else 2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    optimizer.step()


def test_flush_denormal_changes_nothing():
    results = []
    for flush in (False, True):
        torch.set_flush_denormal(flush)
        try:
            model = net()
            optimizer = canzona.AdamW(model)
            for p in model.parameters():
                p.grad = torch.full_like(p, 1e-21)
            optimizer.step()
            results.append(
                values(model)
                + [s["exp_avg_sq"].clone() for s in optimizer.state.values()]
            )
        finally:
            torch.set_flush_denormal(False)
    assert same(*results)


def test_the_profiler_sees_rounds():
    model = net()
    optimizer = canzona.Muon(model)
    backward(model)
    optimizer.step()
    with torch.profiler.profile() as profile:
        optimizer.step()
    names = {e.key for e in profile.key_averages()}
    assert "Optimizer.step#Muon.step" in names
    assert any(n.startswith("canzona ") for n in names), names


def test_a_log_line(caplog):
    with caplog.at_level("INFO", "canzona"):
        canzona.Muon(net()).plan
    (line,) = [r.getMessage() for r in caplog.records if r.name == "canzona"]
    assert "2 tensors to muon, 2 to adamw" in line


def test_no_memory_grows():
    model = net()
    optimizer = canzona.Muon(model)
    backward(model)
    for _ in range(20):
        optimizer.step()
    gc.collect()
    before = resident()
    for _ in range(500):
        optimizer.step()
    gc.collect()
    assert resident() - before < 1 << 20


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
