"""The optimizers in one process: torch's interface."""

import contextlib
import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import canzona
from nets import KINDS, backward, net, same, values

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


def test_adamw_shares_rates_and_given_decays_but_not_default_ones():
    for kind, rate, decay in (
        (canzona.Muon, 1e-3, 0.1),
        (canzona.SOAP, 3e-3, 0.01),
        (canzona.Shampoo, 1e-3, 0.1),
    ):
        matrices, others = kind(net()).param_groups
        assert matrices["lr"] == others["lr"] == rate
        assert (matrices["weight_decay"], others["weight_decay"]) == (
            decay,
            0.01,
        )
        groups = kind(net(), lr=0.5, weight_decay=0.2).param_groups
        assert all(g["lr"] == 0.5 for g in groups)
        assert all(g["weight_decay"] == 0.2 for g in groups)


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


def test_options_that_a_rule_refuses_are_refused_at_once():
    with pytest.raises(canzona.UsageError, match="momentum"):
        canzona.Muon(net(), momentum=1.5)
    optimizer = canzona.Muon(net())
    more = {"params": [nn.Parameter(torch.ones(4, 4))], "momentum": 1.5}
    with pytest.raises(canzona.UsageError, match="momentum"):
        optimizer.add_param_group(more)
    assert len(optimizer.param_groups) == 2


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


def test_the_first_skipped_step_is_warned_of():
    model = net()
    optimizer = canzona.Muon(model)
    backward(model)
    model[0].bias.grad[2] = float("nan")
    with pytest.warns(UserWarning) as told:
        optimizer.step()
        optimizer.step()
    (found,) = told
    assert "gradient of 0.bias: is not finite; nothing" in str(found.message)
    assert found.filename == __file__
    assert optimizer.skipped_steps == 2


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


def test_flattening_convolutions_changes_no_experts():
    results = []
    for flatten in ("none", "first_dim"):
        torch.manual_seed(0)
        model = nn.Module()
        model.experts = nn.Parameter(torch.randn(4, 16, 8))
        optimizer = canzona.Muon(model, flatten=flatten, lr=0.1)
        model.experts.square().sum().backward()
        optimizer.step()
        results.append(values(model))
        assert "4 experts' matrices" in optimizer.routing
    assert same(*results)


def test_replicas_are_ranks_of_the_world():
    with pytest.raises(canzona.UsageError, match="no rank 5 among the 1"):
        canzona.Muon(nn.Linear(4, 4), replicas=[0, 5])


def test_a_step_that_fails_leaves_streams_in_order(monkeypatch):
    """The caller's stream waits for ours, though an error has come between."""
    from canzona._run import Run

    waits = []

    class Event:
        def record(self, stream):
            self.of = stream

    class Stream:
        def wait_event(self, event):
            waits.append((self, event.of))

    ours, callers = Stream(), Stream()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: callers)
    monkeypatch.setattr(
        torch.cuda, "stream", lambda _: contextlib.nullcontext()
    )
    run = SimpleNamespace(
        _stream=ours,
        device=torch.device("cuda"),
        _edges=[Event(), Event()],
    )
    with pytest.raises(KeyError):
        with Run._on_stream(run):
            raise KeyError
    assert waits == [(ours, callers), (callers, ours)]


def test_copies_wait_for_the_last_step(monkeypatch):
    optimizer = canzona.Muon(net())
    assert optimizer.plan
    waits = []
    monkeypatch.setattr(optimizer._run, "synchronize", lambda: waits.append(1))
    copy.deepcopy(optimizer)
    assert waits


def test_groups_have_rates_of_their_own():
    rate = torch.tensor(0.5)
    optimizer = canzona.Muon(net(), lr=rate)
    for group in optimizer.param_groups:
        group["lr"].mul_(0.5)
    assert [float(g["lr"]) for g in optimizer.param_groups] == [0.25, 0.25]
