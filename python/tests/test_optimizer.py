"""The optimizers in one process: torch's interface, and torch's numbers."""

import contextlib
import copy
import gc
import os
import pickle
import threading
import weakref
from collections import defaultdict

import pytest
import torch
from torch import nn

import canzona
import layouts

KINDS = {
    "muon": canzona.Muon,
    "soap": canzona.SOAP,
    "shampoo": canzona.Shampoo,
    "adamw": canzona.AdamW,
}


def net(seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(
        dtype
    )


def backward(model, seed=1, scale=1.0):
    torch.manual_seed(seed)
    p = next(model.parameters())
    loss = model(torch.randn(5, 8, dtype=p.dtype)).square().mean() * scale
    loss.backward()
    return loss


def values(model):
    return [p.detach().clone() for p in model.parameters()]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b))


# Construction.


def test_it_is_an_optimizer_with_names_and_rules_in_its_groups():
    optimizer = canzona.Muon(net(), lr=2e-3)
    assert isinstance(optimizer, torch.optim.Optimizer)
    muon, adamw = optimizer.param_groups
    assert muon["rule"] == "muon" and adamw["rule"] == "adamw"
    assert muon["param_names"] == ["0.weight", "2.weight"]
    assert muon["lr"] == adamw["lr"] == 2e-3
    assert muon["adjust_lr_fn"] == "match_rms_adamw"
    assert "2.bias" in optimizer.routing and "a vector" in optimizer.routing
    assert "muon" in repr(optimizer)


def test_a_preset_gives_what_is_not_given():
    muon, adamw = canzona.Muon(net(), preset="keller").param_groups
    assert muon["lr"] == 0.02 and muon["weight_decay"] == 0
    assert muon["adjust_lr_fn"] == "original"
    assert adamw["betas"] == (0.9, 0.95) and adamw["lr"] == 0.02
    muon, adamw = canzona.Muon(
        net(), lr=1e-3, weight_decay=0.3, preset="keller"
    ).param_groups
    assert muon["lr"] == 1e-3 and adamw["weight_decay"] == 0.3


def test_groups_by_pattern_and_by_list():
    groups = canzona.Muon(
        net(), groups={"*.bias": {"weight_decay": 0}, "2.weight": {"lr": 0.5}}
    ).param_groups
    assert [(g["param_names"], g["weight_decay"], g["lr"]) for g in groups] == [
        (["0.weight"], 0.1, 1e-3),
        (["0.bias", "2.bias"], 0, 1e-3),
        (["2.weight"], 0.1, 0.5),
    ]
    model = net()
    groups = canzona.Muon(
        [
            {"params": model[0].named_parameters(), "lr": 0.1},
            {
                "params": [("w", model[2].weight)],
                "rule": "adamw",
                "betas": (0, 0.5),
            },
        ],
        rules={"bias": "frozen"},
        adamw={"eps": 1e-3},
    ).param_groups
    assert [(g["rule"], g["lr"], g["eps"]) for g in groups] == [
        ("muon", 0.1, 1e-7),
        ("adamw", 1e-3, 1e-3),
    ]


def test_a_groups_preset_and_a_patterns_rule_count():
    model = net()
    groups = canzona.Muon(
        [
            {"params": model[0].named_parameters(), "preset": "keller"},
            {"params": [("w", model[2].weight)]},
        ]
    ).param_groups
    assert [(g["preset"], g["lr"], g["weight_decay"]) for g in groups] == [
        ("keller", 0.02, 0),
        ("keller", 0.02, 0),
        (None, 1e-3, 0.1),
    ]
    optimizer = canzona.Muon(net(), groups={"0.*": {"rule": "adamw"}})
    assert [(g["rule"], g["param_names"]) for g in optimizer.param_groups] == [
        ("muon", ["2.weight"]),
        ("adamw", ["2.bias"]),
        ("adamw", ["0.weight", "0.bias"]),
    ]
    with pytest.raises(canzona.UsageError, match="did you mean keller"):
        canzona.Muon(net(), groups={"*.bias": {"preset": "kellr"}})


@pytest.mark.parametrize(
    "options, words",
    [
        ({"momentun": 0.9}, ["no option 'momentun'", "did you mean momentum"]),
        ({"preset": "kellr"}, ["preset 'kellr'", "did you mean keller"]),
        ({"lr": -1}, ["lr=-1", "at least 0"]),
        ({"lr": torch.zeros(2)}, ["lr", "2 elements"]),
        ({"wire": "fp16"}, ["wire='fp16'", "fp32, bf16"]),
        ({"nonfinite": "rise"}, ["nonfinite='rise'", "did you mean raise"]),
        ({"clip_norm": 0}, ["clip_norm=0", "above 0"]),
        ({"threads": -1}, ["threads=-1", "from 1 on"]),
        ({"capacity_bytes": 0}, ["capacity_bytes=0", "from 1 on"]),
        ({"ranks_per_node": 1.5}, ["ranks_per_node=1.5", "an integer"]),
        (
            {"adamw": {"beta": 1}},
            ["adamw=", "no option 'beta'", "did you mean beta"],
        ),
        (
            {"groups": {"*.wieght": {}}},
            ["'*.wieght'", "fits no parameter", "did you mean 0.weight"],
        ),
        ({"groups": {"*": {"wd": 1}}}, ["no option 'wd'"]),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(canzona.UsageError) as e:
        canzona.Muon(net(), **options)
    assert isinstance(e.value, ValueError)
    for word in words:
        assert word in str(e.value)


def test_options_that_a_rule_refuses_are_refused_at_first_use():
    optimizer = canzona.Muon(net(), momentum=1.5)
    with pytest.raises(canzona.UsageError, match="momentum"):
        optimizer.plan


def test_two_devices_and_no_matrices():
    model = net()
    model[2].to("meta")
    with pytest.raises(canzona.UsageError, match="2.weight.*meta"):
        canzona.Muon(model).plan
    with pytest.raises(canzona.UsageError, match="no parameter goes to soap"):
        canzona.SOAP(nn.LayerNorm(4))


# Steps.


@pytest.mark.parametrize("rule", list(KINDS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_rule_learns(rule, dtype):
    model = net(dtype=dtype)
    optimizer = KINDS[rule](model, lr=0.02)
    first = backward(model).item()
    for _ in range(30):
        optimizer.step()
        optimizer.zero_grad()
        last = backward(model).item()
    assert last < 0.5 * first


def test_parameters_and_gradients_are_not_copied():
    model = net()
    optimizer = canzona.Muon(model)
    backward(model)
    before = [(p.data_ptr(), p.grad.data_ptr()) for p in model.parameters()]
    grads = [p.grad.clone() for p in model.parameters()]
    old = values(model)
    optimizer.step()
    assert before == [
        (p.data_ptr(), p.grad.data_ptr()) for p in model.parameters()
    ]
    assert same(grads, [p.grad for p in model.parameters()])
    assert not any(torch.equal(a, b) for a, b in zip(old, values(model)))


def test_closures_and_hooks():
    model = net()
    optimizer = canzona.Muon(model, lr=0.01)
    seen = []
    optimizer.register_step_pre_hook(lambda *a: seen.append("pre"))
    optimizer.register_step_post_hook(lambda *a: seen.append("post"))

    def closure():
        optimizer.zero_grad()
        return backward(model)

    loss = optimizer.step(closure)
    assert loss.item() > 0 and seen == ["pre", "post"]


def test_autograd_notices_changed_weights():
    model = net()
    optimizer = canzona.Muon(model)
    loss = backward_graph(model)
    backward(model)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def backward_graph(model):
    return model(torch.randn(5, 8)).square().mean()


@pytest.mark.parametrize("rule", sorted(KINDS))
def test_parameters_without_elements_need_no_care(rule):
    weight, rows, none, scalar, row = parameters = [
        nn.Parameter(torch.ones(shape))
        for shape in ((4, 4), (0, 4), (0,), (), (1, 5))
    ]
    optimizer = KINDS[rule](parameters, lr=0.01)
    for p in parameters:
        p.grad = torch.ones_like(p)
    for _ in range(2):  # SOAP's first one fills its factors alone
        optimizer.step()
    for p in (weight, scalar, row):
        assert (p != 1).all()
    assert "parameter1  frozen   has no elements" in optimizer.routing
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.step()


def test_a_parameter_without_gradient_is_left_alone():
    model, other = net(), net()
    a, b = canzona.Muon(model), canzona.Muon(other)
    for seed in range(3):
        for m in (model, other):
            m.zero_grad()
            backward(m, seed)
        if seed == 1:
            model[0].weight.grad = None
            kept = model[0].weight.detach().clone()
        a.step()
        b.step()
        if seed == 1:
            assert torch.equal(kept, model[0].weight)
    assert a.state[model[0].weight]["step"] == 2
    assert a.state[model[2].weight]["step"] == 3


def test_a_step_without_gradients_changes_nothing():
    model = net()
    optimizer = canzona.Muon(model)
    before = values(model)
    optimizer.step()
    assert same(before, values(model))
    assert optimizer.state[model[0].weight]["step"] == 0


def test_rates_may_be_tensors_and_schedulers_change_them():
    results = []
    for rate in (0.1, torch.tensor(0.1)):
        model = net()
        optimizer = canzona.Muon(model, lr=rate)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        for seed in range(3):
            backward(model, seed)
            optimizer.step()
            scheduler.step()
        results.append(values(model))
    assert same(*results)
    assert abs(float(optimizer.param_groups[0]["lr"]) - 0.0125) < 1e-9


@pytest.mark.parametrize(
    "make",
    [
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=9),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 5),
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda k: k / 5),
        lambda o: torch.optim.lr_scheduler.CyclicLR(o, 0.01, 0.1),
        lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0),
    ],
)
@pytest.mark.parametrize("kind", [canzona.Muon, canzona.AdamW])
def test_schedulers(make, kind):
    model = net()
    optimizer = kind(model)
    scheduler = make(optimizer)
    for seed in range(4):
        backward(model, seed)
        optimizer.step()
        if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            scheduler.step(1.0)
        else:
            scheduler.step()


def test_a_changed_option_counts_from_the_next_step():
    model, other = net(), net()
    a = canzona.Muon(model, lr=0.1, weight_decay=0.0)
    b = canzona.Muon(other, lr=0.1, weight_decay=0.0)
    for m, o in ((model, a), (other, b)):
        backward(m)
        o.step()
    assert same(values(model), values(other))
    a.param_groups[0]["weight_decay"] = 0.5
    for m, o in ((model, a), (other, b)):
        o.step()
    w, v = model[0].weight, other[0].weight
    assert not torch.equal(w, v)
    assert torch.equal(model[0].bias, other[0].bias)


# Gradients that are not finite, norms.


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nonfinite(bad):
    for mode in ("skip", "raise", "propagate"):
        model = net()
        optimizer = canzona.Muon(model, nonfinite=mode)
        backward(model)
        optimizer.step()
        before = values(model)
        momentum = optimizer.state[model[0].weight]["momentum_buffer"].clone()
        model[0].bias.grad[2] = bad
        if mode == "raise":
            with pytest.raises(canzona.NumericalError, match="0.bias"):
                optimizer.step()
        else:
            optimizer.step()
        if mode == "propagate":
            assert not model[0].bias.isfinite().all()
            continue
        assert same(before, values(model))
        assert torch.equal(
            momentum, optimizer.state[model[0].weight]["momentum_buffer"]
        )
        assert optimizer.skipped_steps == 1
        assert optimizer.state[model[0].weight]["step"] == 1
        model[0].bias.grad[2] = 0
        optimizer.step()
        assert optimizer.state[model[0].weight]["step"] == 2


@pytest.mark.parametrize("wire", ["fp32", "bf16"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_shows_where_it_propagates(bad, wire):
    """As of torch.optim.Muon: no number of that matrix is left."""
    model = net()
    optimizer = canzona.Muon(
        model, nonfinite="propagate", clip_norm=1e9, wire=wire
    )
    backward(model)
    model[0].weight.grad[1, 2] = bad
    reference = nn.Parameter(model[0].weight.detach().clone())
    reference.grad = model[0].weight.grad.clone()
    torch.optim.Muon([reference]).step()
    assert reference.isnan().all()
    optimizer.step()
    assert model[0].weight.isnan().all()
    assert all(p.isfinite().all() for p in (model[0].bias, model[2].weight))
    assert optimizer.grad_norm == float("inf")
    assert optimizer.skipped_steps == 0


@pytest.mark.parametrize("mode", ["skip", "raise"])
def test_the_norm_of_what_is_not_finite_is_not_finite(mode):
    model = net()
    optimizer = canzona.Muon(model, nonfinite=mode, clip_norm=1.0)
    backward(model)
    model[0].weight.grad[1, 2] = float("nan")
    gradient = model[2].weight.grad.clone()
    with contextlib.suppress(canzona.NumericalError):
        optimizer.step()
    assert optimizer.skipped_steps == 1
    assert optimizer.grad_norm == float("inf")
    assert torch.equal(model[2].weight.grad, gradient)
    model.zero_grad()
    backward(model)
    optimizer.step()
    assert 0 < optimizer.grad_norm < float("inf")


def test_clip_norm_is_clip_grad_norm():
    model, other = net(), net()
    a = canzona.AdamW(model, clip_norm=0.01)
    b = canzona.AdamW(other)
    for seed in range(3):
        for m in (model, other):
            m.zero_grad()
            backward(m, seed, 100)
        norm = nn.utils.clip_grad_norm_(other.parameters(), 0.01)
        a.step()
        b.step()
        assert abs(a.grad_norm - norm.item()) < 1e-4 * norm.item()
    for x, y in zip(values(model), values(other)):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)


def test_grad_scaler():
    model = net()
    optimizer = canzona.Muon(model, lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for seed in range(3):
        optimizer.zero_grad()
        torch.manual_seed(seed)
        loss = model(torch.randn(5, 8)).square().mean()
        scaler.scale(loss).backward()
        if seed == 1:
            model[0].weight.grad[0, 0] = float("inf")
        before = values(model)
        scaler.step(optimizer)
        scaler.update()
        assert same(before, values(model)) == (seed == 1)


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


def test_gradients_are_not_kept_for_a_look_at_the_last_step():
    model = net()
    run = canzona.Muon(model)._built()
    event = type("Event", (), {"record": lambda self: None})()
    run._told = torch.zeros(16, dtype=torch.int64), event  # as on a GPU
    gradient = torch.zeros(16, 8)
    kept = weakref.ref(gradient)
    run._remember([gradient, None])
    del gradient
    assert kept() is None
    assert run._pending[2] == [True, False]


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
    ]
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
    before = values(model)
    backward(model)
    optimizer.step()
    assert not any(torch.equal(a, b) for a, b in zip(before, values(model)))
    assert len(optimizer._parameters()) == 4


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


# Against torch's own.


def follow(mine, theirs, model, other, count=10):
    for step in range(1, count + 1):
        for p, q in zip(model.parameters(), other.parameters()):
            p.grad = torch.randn(
                p.shape,
                generator=torch.Generator().manual_seed(step * 100 + p.numel()),
            )
            q.grad = p.grad.clone()
        mine.step()
        theirs.step()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lr": 0.1},
        {"betas": (0.8, 0.9)},
        {"eps": 1e-3},
        {"weight_decay": 0.3},
    ],
)
def test_adamw_is_torchs(options):
    model, other = net(), net()
    follow(
        canzona.AdamW(model, **options),
        torch.optim.AdamW(other.parameters(), **options),
        model,
        other,
    )
    for p, q in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lr": 0.05},
        {"momentum": 0.5},
        {"nesterov": False},
        {"weight_decay": 0.7},
        {"ns_steps": 3},
        {"eps": 1e-2},
        {"ns_coefficients": (2.0, -1.5, 0.5)},
        {"adjust_lr_fn": "original"},
        {"adjust_lr_fn": "match_rms_adamw"},
    ],
)
def test_muon_is_torchs(options):
    """torch computes Newton-Schulz in bf16, which is what is allowed for."""
    model, other = net(), net()
    for m in (model, other):
        for layer in (m[0], m[2]):
            layer.bias = None
    given = {"adjust_lr_fn": "original", **options}
    start = values(model)
    follow(
        canzona.Muon(model, **given),
        torch.optim.Muon(other.parameters(), **given),
        model,
        other,
    )
    for p, q, s in zip(model.parameters(), other.parameters(), start):
        moved = (q - s).norm()
        assert (p - q).norm() < 0.02 * moved + 1e-6


def usable(inputs):
    """torch's own inputs, without switches that we do not have."""
    refused = ("amsgrad", "maximize", "capturable", "differentiable")
    return [
        i.kwargs for i in inputs if not any(i.kwargs.get(k) for k in refused)
    ]


def torch_inputs(rule):
    common = pytest.importorskip("torch.testing._internal.common_optimizers")
    return {
        "adamw": common.optim_inputs_func_adamw,
        "muon": common.optim_inputs_func_muon,
    }[rule]("cpu")


def test_torchs_own_inputs():
    seen = 0
    for given in usable(torch_inputs("adamw")):
        model, other = net(), net()
        follow(
            canzona.AdamW(model, **given),
            torch.optim.AdamW(other.parameters(), **given),
            model,
            other,
            5,
        )
        seen += 1
        for p, q in zip(model.parameters(), other.parameters()):
            torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-6)
    for given in usable(torch_inputs("muon")):
        model, other = (nn.Linear(12, 16, bias=False) for _ in range(2))
        with torch.no_grad():
            other.weight.copy_(model.weight)
        start = values(model)[0]
        given = {"adjust_lr_fn": None, **given}
        follow(
            canzona.Muon(model, **given),
            torch.optim.Muon(other.parameters(), **given),
            model,
            other,
            5,
        )
        seen += 1
        moved = (other.weight - start).norm()
        assert (model.weight - other.weight).norm() < 0.02 * moved + 1e-6
    assert seen >= 8


def test_torchs_own_bad_inputs():
    common = pytest.importorskip("torch.testing._internal.common_optimizers")
    for make, kind in (
        (common.optim_error_inputs_func_adamw, canzona.AdamW),
        (common.optim_error_inputs_func_muon, canzona.Muon),
    ):
        for bad in make("cpu", torch.float32):
            given = bad.optimizer_error_input
            # We name what has no name, and rates and decays are numbers.
            if (
                "with/without names" in given.desc
                or "as a Tensor" in given.desc
                or "foreach" in given.desc
                or "both Tensors" in given.desc
            ):
                continue
            params = net() if given.params is None else given.params
            with pytest.raises(ValueError):
                kind(params, **given.kwargs).plan


@pytest.mark.parametrize("name", ["maximize", "amsgrad", "capturable"])
def test_switches_that_we_do_not_have(name):
    with pytest.raises(canzona.UsageError, match=f"{name}=True is not supp"):
        canzona.AdamW(net(), **{name: True})


# State dicts in one process.


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


def test_parameters_may_be_swapped_before_the_first_step():
    model, other = net(), net()
    optimizer = canzona.Muon(model, lr=0.1)
    for group in optimizer.param_groups:
        group["params"] = [
            dict(other.named_parameters())[n] for n in group["param_names"]
        ]
    before = values(other)
    backward(other)
    optimizer.step()
    assert not same(before, values(other))


def test_a_convolution_is_flattened_on_request():
    model = nn.Sequential(nn.Conv2d(2, 6, 3), nn.Flatten(), nn.Linear(24, 2))
    optimizer = canzona.Muon(model, flatten="first_dim")
    model(torch.randn(1, 2, 4, 4)).sum().backward()
    optimizer.step()
    state = optimizer.state[model[0].weight]
    assert state["momentum_buffer"].shape == model[0].weight.shape
    flat = nn.Parameter(torch.zeros(6, 18))
    assert "0.weight" in optimizer.routing and flat.ndim == 2


def test_replicas_are_ranks_of_the_world():
    with pytest.raises(canzona.UsageError, match="no rank 5 among the 1"):
        canzona.Muon(nn.Linear(4, 4), replicas=[0, 5])
