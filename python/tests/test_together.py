"""Mistakes of one rank: every rank raises, nothing changes, all may go on."""

import copy
import inspect

import pytest
import torch
import torch.distributed as dist
from torch import nn

import canzona
import layouts
from canzona import _optimizer, _run, _together
from conftest import errors, spawn

# What is wrong on rank 1 alone: what it does before the call, the call, and
# how the mistake is taken back.


def _momentum(optimizer, value):
    for group in optimizer.param_groups:
        if group["rule"] == "muon":
            group["momentum"] = value


def _rates(optimizer, value):
    for group in optimizer.param_groups:
        group["lr"] = value


def _states(optimizer, model):
    return optimizer.state[dict(layouts.named(model))["up.weight"]]


def _broken_states(optimizer, model):
    _states(optimizer, model)["momentum_buffer"] = torch.zeros(1)


def _mended_states(optimizer, model):
    run = optimizer._run
    number = run.names.index("up.weight")
    _states(optimizer, model).update(run.exposed[number])


STEPS = {
    "an option out of range": (
        lambda o, m: _momentum(o, -3.0),
        lambda o, m: _momentum(o, 0.95),
        "momentum",
    ),
    "an option of another kind": (
        lambda o, m: _momentum(o, "much"),
        lambda o, m: _momentum(o, 0.95),
        "momentum",
    ),
    "another option": (
        lambda o, m: _momentum(o, 0.5),
        lambda o, m: _momentum(o, 0.95),
        "momentum is 0.95 on rank 0 and 0.5 on rank 1",
    ),
    "another rate": (
        lambda o, m: _rates(o, 0.5),
        lambda o, m: _rates(o, 0.02),
        "lr is 0.02 on rank 0 and 0.5 on rank 1",
    ),
    "a rate that is none": (
        lambda o, m: _rates(o, "fast"),
        lambda o, m: _rates(o, 0.02),
        "lr='fast'; expected a number",
    ),
    "a switch": (
        lambda o, m: o.param_groups[0].update(maximize=True),
        lambda o, m: o.param_groups[0].update(maximize=False),
        "maximize=True",
    ),
    "a replaced state": (
        _broken_states,
        _mended_states,
        "state 'momentum_buffer' of parameter up.weight",
    ),
}


def refused_step(layout, what):
    model, told = layouts.build(layout)
    optimizer = layouts.optimizer_of(model, told, "muon")
    layouts.steps(model, optimizer, 1, 2)
    wrong, right, _ = STEPS[what]
    before = [layouts.whole(p) for p in model.parameters()]
    layouts.set_gradients(model, 3)
    if dist.get_rank() == 1:
        wrong(optimizer, model)
    try:
        optimizer.step()
        optimizer.skipped_steps  # a GPU tells later
        text = ""
    except canzona.UsageError as error:
        text = str(error)
    after = [layouts.whole(p) for p in model.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(before, after))
    if dist.get_rank() == 1:
        right(optimizer, model)
    layouts.steps(model, optimizer, 3, 4)
    return text, layouts.digest(model, optimizer)


def refused_steps(layout):
    return {what: refused_step(layout, what) for what in STEPS}


@pytest.mark.parametrize("layout", ["ddp2", "fsdp2"])
def test_mistakes_before_a_step_are_raised_on_all_ranks(layout):
    good = layouts.train("one", "muon", count=4)
    for rank, answers in enumerate(spawn(2, refused_steps, layout)):
        for what, (text, digest) in answers.items():
            assert STEPS[what][2] in text, (rank, what, text)
            assert digest == good, what


# State dicts.

DICTS = {
    "no dict": lambda saved: 7,
    "no states": lambda saved: {"param_groups": saved["param_groups"]},
    "a state of another shape": lambda saved: _with_state(
        saved, "momentum_buffer", torch.zeros(3)
    ),
    "a step that is none": lambda saved: _with_state(saved, "step", "many"),
    "another name": lambda saved: _renamed(saved),
    "an option that cannot be read": lambda saved: _with_option(saved),
    "no states of a parameter": lambda saved: _without_states(saved),
    "a state that is whole": lambda saved: _with_whole_state(saved),
}


def _without_states(saved):
    del saved["state"][0]
    return saved


def _with_whole_state(saved):
    """Others would wait for this rank to bring a DTensor's parts together."""
    state = saved["state"][0]
    state["momentum_buffer"] = torch.zeros(state["momentum_buffer"].shape)
    return saved


def _with_state(saved, key, value):
    saved["state"][0][key] = value
    return saved


def _renamed(saved):
    saved["param_groups"][0]["param_names"][0] = "another"
    return saved


def _with_option(saved):
    saved["param_groups"][0]["lr"] = "fast"
    return saved


def loaded_badly(layout, begun):
    """Rank 1 has a bad state dict; by mistake: kinds, and equal bits after."""
    found = {}
    for what, change in DICTS.items():
        model, told = layouts.build(layout)
        optimizer = layouts.optimizer_of(model, told, "muon")
        layouts.steps(model, optimizer, 1, 2)
        saved = copy.deepcopy(optimizer.state_dict())
        if not begun:
            optimizer = layouts.optimizer_of(model, told, "muon")
        bad = copy.deepcopy(saved)
        try:
            optimizer.load_state_dict(change(bad) if dist.get_rank() else bad)
            kind = ""
        except Exception as error:
            kind = type(error).__name__
        optimizer.load_state_dict(saved)
        layouts.steps(model, optimizer, 3, 4)
        found[what] = kind, layouts.digest(model, optimizer)
    return found


@pytest.mark.parametrize("layout", ["ddp2", "fsdp2"])
@pytest.mark.parametrize("begun", [False, True])
def test_bad_state_dicts_of_one_rank_are_refused_on_all(layout, begun):
    good = layouts.train("one", "muon", count=4)
    for answers in spawn(2, loaded_badly, layout, begun, timeout=300):
        for what, (kind, digest) in answers.items():
            # Plain tensors are whole.
            right = layout == "ddp2" and what == "a state that is whole"
            assert kind == ("" if right else "UsageError"), what
            assert digest == good, what


def unfroze_before_saving(layout):
    """Rank 1's state dict has states of a parameter that sleeps here."""
    model, told = layouts.build(layout)
    by_name = dict(layouts.named(model))
    by_name["up.weight"].requires_grad_(False)
    optimizer = layouts.optimizer_of(model, told, "muon")
    layouts.steps(model, optimizer, 1, 1, leave_out=("up.weight",))
    without = copy.deepcopy(optimizer.state_dict())
    by_name["up.weight"].requires_grad_(True)
    layouts.steps(model, optimizer, 2, 2)
    saved = copy.deepcopy(optimizer.state_dict())
    by_name["up.weight"].requires_grad_(False)
    by_name["up.weight"].grad = None
    again = layouts.optimizer_of(model, told, "muon")
    layouts.steps(model, again, 1, 1, leave_out=("up.weight",))
    again.load_state_dict(saved if dist.get_rank() else without)


def test_ranks_that_load_different_parameters_are_refused():
    for kind, text in errors(2, unfroze_before_saving, "ddp2", timeout=300):
        assert kind == "UsageError", text
        assert "up.weight has no states on rank 0, but states momentum_b" in text


# Gradients that ranks bring into the layout of their parameters together.


def partial(missing_at):
    """A norm under sequence parallelism: replicated, its gradient Partial. At
    step `missing_at` rank 1 has none."""
    from torch.distributed.tensor import DTensor, Partial, Replicate
    from torch.distributed.tensor import distribute_tensor

    mesh = layouts.mesh(2)
    model = nn.Linear(4, 4, bias=False).to(layouts.device())
    norm = nn.LayerNorm(4, bias=False).to(layouts.device())
    for module in (model, norm):
        module.weight = nn.Parameter(
            distribute_tensor(
                module.weight.detach() * 0 + 1, mesh, [Replicate()]
            )
        )
    optimizer = canzona.Muon(
        [("w", model.weight), ("norm", norm.weight)], lr=0.1, clip_norm=1.0
    )
    caught = []
    for step in range(1, 4):
        model.weight.grad = layouts.like(
            model.weight, layouts.numbers("w", step, (4, 4))
        )
        half = layouts.numbers("n", step, (4,)) * (0.25 + 0.5 * dist.get_rank())
        norm.weight.grad = DTensor.from_local(
            half, mesh, [Partial()], run_check=False
        )
        if step == missing_at and dist.get_rank() == 1:
            norm.weight.grad = None
        try:
            optimizer.step()
            optimizer.skipped_steps  # a GPU tells later
        except canzona.UsageError as error:
            caught.append(str(error))
    return (
        caught,
        layouts.whole(norm.weight).tolist(),
        [int(s["step"]) for s in optimizer.state.values()],
    )


@pytest.mark.parametrize("missing_at", [0, 1, 2])
def test_a_missing_gradient_beside_partial_ones(missing_at):
    a, b = spawn(2, partial, missing_at, timeout=300)
    assert a == b
    caught, _, counts = a
    if missing_at == 0:
        assert caught == [] and counts == [3, 3]
    else:
        assert len(caught) == 1 and "gradient of norm" in caught[0], caught
        assert "ranks [0]" in caught[0] and counts == [2, 2]


def partial_in_two():
    """Agreed on in another order than that of the parameters."""
    from torch.distributed.tensor import DTensor, Partial, Replicate
    from torch.distributed.tensor import distribute_tensor

    mesh = layouts.mesh(2)
    a, b = (
        nn.Parameter(distribute_tensor(torch.ones(n, 4), mesh, [Replicate()]))
        for n in (4, 8)
    )
    optimizer = canzona.AdamW([("a", a), ("b", b)])

    def step(*parameters):
        for p in parameters:
            p.grad = DTensor.from_local(torch.ones(p.shape), mesh, [Partial()])
        optimizer.step()

    step(b)
    step(a, b)
    if dist.get_rank() == 1:
        optimizer.state[a]["mine"] = torch.ones(1)
    try:
        step(a, b)
    except canzona.UsageError as error:
        optimizer.state[a].pop("mine", None)
        step(a, b)
        return str(error), int(optimizer.state[a]["step"])


def test_a_mistake_beside_partial_gradients():
    for text, count in spawn(2, partial_in_two, timeout=300):
        assert "state 'mine' of parameter a" in text and count == 2


# New plans after states were consolidated.


def planned_after_consolidating(share):
    model, _ = layouts.build("ddp2")
    by_name = dict(layouts.named(model))
    by_name["up.weight"].requires_grad_(False)
    optimizer = layouts.optimizer_of(model, {"share_states": share}, "muon")
    layouts.steps(model, optimizer, 1, 2, leave_out=("up.weight",))
    optimizer.consolidate(to=0)
    more = nn.Parameter(torch.ones(3))
    optimizer.add_param_group({"params": [("more", more)]})
    by_name["up.weight"].requires_grad_(True)
    layouts.steps(model, optimizer, 3, 3)
    if share:
        with pytest.raises(canzona.UsageError, match="consolidate"):
            optimizer.state_dict()
    optimizer.consolidate(None)
    saved = optimizer.state_dict()
    names = [n for g in saved["param_groups"] for n in g["param_names"]]
    return {n: int(saved["state"][i]["step"]) for i, n in enumerate(names)}


@pytest.mark.parametrize("share", [False, True])
def test_plans_are_made_anew_after_states_were_consolidated(share):
    for counts in spawn(2, planned_after_consolidating, share, timeout=300):
        assert counts["down.weight"] == 3 and counts["up.weight"] == 1


# Every public call that other ranks take part in passes through one place.

# What it is called with; the rest is this rank's own matter: torch's hooks and
# zero_grad, and what only looks.
TOGETHER = {
    "add_param_group": lambda o: o.add_param_group(
        {"params": [("more", _more())]}
    ),
    "consolidate": lambda o: o.consolidate(None),
    "load_state_dict": lambda o: o.load_state_dict(
        copy.deepcopy(o.state_dict())
    ),
    "state_dict": lambda o: o.state_dict(),
    "step": lambda o: o.step(),
    "plan": lambda o: o.plan,
}
ALONE = {
    "close",
    "defaults",
    "grad_norm",
    "param_groups",
    "profile_hook_step",
    "register_load_state_dict_post_hook",
    "register_load_state_dict_pre_hook",
    "register_state_dict_post_hook",
    "register_state_dict_pre_hook",
    "register_step_post_hook",
    "register_step_pre_hook",
    "routing",
    "rule",
    "skipped_steps",
    "state",
    "zero_grad",
}
# Its own exchange carries errors (test_qk_clip.py).
BY_ITSELF = {"clip_qk"}
# Of these only the first use, which makes the plan, is everybody's.
FIRST = {"plan"}


def _more():
    return nn.Parameter(torch.ones(3))


def test_the_list_of_public_calls_is_whole():
    public = {
        name
        for name, _ in inspect.getmembers(_optimizer.MatrixOptimizer)
        if not name.startswith("_") and not name.startswith("Optimizer")
    }
    assert public - ALONE - BY_ITSELF == set(TOGETHER)


def passes(name):
    """How often a call passes through the place, once all is planned or as the
    first use."""
    model = layouts.sharded()
    optimizer = canzona.SOAP(model, replicas=dist.group.WORLD)
    layouts.set_gradients(model, 1)
    if name not in FIRST:
        optimizer.step()
    seen = []
    usual = _together.raise_on_all, _run.Run._start, _optimizer.agree

    def counted(number):
        def call(*arguments, **options):
            seen.append(number)
            return usual[number](*arguments, **options)

        return call

    _together.raise_on_all = counted(0)
    _run.Run._start = counted(1)
    _optimizer.agree = counted(2)
    try:
        TOGETHER[name](optimizer)
    finally:
        _together.raise_on_all, _run.Run._start, _optimizer.agree = usual
    return seen


@pytest.mark.parametrize("name", TOGETHER)
def test_public_calls_pass_through_one_place(name):
    for seen in spawn(2, passes, name, timeout=300):
        assert seen, name
