"""Arguments of the optimizers: signatures, help, and answers to wrong ones."""

import inspect
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from torch import nn

import canzona
from canzona import _keywords, _options
from nets import KINDS, net

# Options that the package sets by itself, or has under a name of its own.
OURS = {
    "learning_rate": "lr",
    "device": None,
    "scale_shape": None,
    "column_heads": None,
}


def parameters(rule):
    return inspect.signature(KINDS[rule]).parameters


def options(rule):
    """The rule's options that are arguments: (argument, option)."""
    for option in canzona.rules()[rule]["options"]:
        name = OURS.get(option["name"], option["name"])
        if name is not None:
            yield name, option


@pytest.mark.parametrize("rule", KINDS)
def test_every_option_of_a_rule_is_a_documented_keyword(rule):
    given = parameters(rule)
    text = KINDS[rule].__doc__
    for name, _ in options(rule):
        assert name in given, name
    for name, parameter in given.items():
        assert f"\n    {name}: " in text, name
        assert parameter.default is not parameter.empty or name == "params"
        assert parameter.kind not in (
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
        )
    for line in text.splitlines():
        assert len(line) <= 80
    shown = str(inspect.signature(KINDS[rule]))
    assert "object at 0x" not in shown and "ForwardRef" not in shown


@pytest.mark.parametrize("rule", KINDS)
def test_defaults_in_signatures_are_those_of_the_rule(rule):
    given = parameters(rule)
    torchs = _options.torch_names(rule)
    in_force = KINDS[rule](net()).param_groups[0]
    for name, option in options(rule):
        default = given[name].default
        if name in torchs or name == "flatten":
            assert default in (None, "none"), name
        elif option["default"] != (shown := _options.text(default)):
            assert float(option["default"]) == float(shown), name
    for name in ("lr", "betas", "momentum", "eps", "weight_decay", "ns_steps"):
        if name in in_force:
            assert in_force[name] == given[name].default, name
    assert "0.95" in str(inspect.signature(canzona.Muon))


@pytest.mark.parametrize("rule", KINDS)
def test_words_that_signatures_allow_are_those_of_the_rule(rule):
    for name, option in options(rule):
        kind = parameters(rule)[name].annotation
        literals = [kind] if get_origin(kind) is Literal else get_args(kind)
        words = {
            str(word)
            for of in literals
            if get_origin(of) is Literal
            for word in get_args(of)
        }
        allowed = {
            word for word in option["allowed"].split("|") if ".." not in word
        }
        if kind is bool:
            assert allowed == {"on", "off"}, name
        elif words and name != "steps":
            assert words == allowed, name


def test_shared_arguments_are_those_of_the_base():
    base = inspect.signature(_keywords.MatrixOptimizer.__init__).parameters
    declared = set(get_type_hints(_keywords.Shared))
    own = {n for n, p in base.items() if p.kind == p.KEYWORD_ONLY}
    assert own <= declared
    assert declared - own == set(_keywords._SWITCHES)


def test_public_methods_say_what_they_do_themselves():
    """torch's texts promise what does not hold here, such as that names do not
    matter when a state dict is loaded."""
    for name in ("add_param_group", "load_state_dict", "state_dict", "step"):
        theirs = getattr(torch.optim.Optimizer, name).__doc__
        assert inspect.getdoc(getattr(canzona.Muon, name)) not in ("", theirs)
        assert getattr(canzona.Muon, name).__doc__ != theirs


def test_an_argument_is_told_from_a_default():
    """Even if it has the default's value: a preset's is another."""
    group = canzona.Muon(net(), preset="nvidia").param_groups[0]
    assert group["nesterov"] is False and group["weight_decay"] == 0.01
    group = canzona.Muon(
        net(), preset="nvidia", nesterov=True, weight_decay=0.1
    ).param_groups[0]
    assert group["nesterov"] is True and group["weight_decay"] == 0.1
    group = canzona.Muon(net(), 0.5, 0.25, 0.75).param_groups[0]
    assert [group[n] for n in ("lr", "weight_decay", "momentum")] == [
        0.5,
        0.25,
        0.75,
    ]


def test_a_class_may_be_derived():
    class Mine(canzona.Muon):
        def __init__(self, params, **options):
            super().__init__(params, momentum=0.5, **options)

    group = Mine(net(), lr=0.25).param_groups[0]
    assert (group["momentum"], group["lr"]) == (0.5, 0.25)


def test_switches_of_torch_are_accepted():
    for kind in KINDS.values():
        kind(net(), fused=True, foreach=False, maximize=False)
        with pytest.raises(canzona.UsageError, match="maximize=True is not"):
            kind(net(), maximize=True)


@pytest.mark.parametrize(
    "rule, name, words",
    [
        ("muon", "betas", 'adamw={"betas": …} sets it for the parameters'),
        ("muon", "beta1", 'adamw={"beta1": …}'),
        ("muon", "lr_adamw", 'adamw={"lr": …}'),
        ("muon", "adamw_lr", 'adamw={"lr": …}'),
        ("soap", "adam_wd", 'adamw={"weight_decay": …}'),
        ("muon", "muon_lr", "did you mean lr?"),
        ("muon", "muon_params", "pass the model as the first argument"),
        ("adamw", "model", "pass the model as the first argument"),
        ("adamw", "lr_adamw", "did you mean lr?"),
        ("adamw", "momentum", "the first of betas=(beta1, beta2)"),
        ("soap", "momentum", "the first of betas=(beta1, beta2)"),
        ("muon", "wd", "did you mean weight_decay?"),
        ("soap", "learning_rate", "did you mean lr?"),
        ("muon", "max_grad_norm", "did you mean clip_norm?"),
        ("muon", "clip_nrom", "did you mean clip_norm?"),
        ("shampoo", "precondition_freq", "did you mean precondition_frequency"),
        ("muon", "amsgrad", "not supported for AdamW's parameters either"),
        ("muon", "device", "a step runs where the parameters are"),
    ],
)
def test_names_that_people_type(rule, name, words):
    with pytest.raises(canzona.UsageError) as e:
        KINDS[rule](net(), **{name: 0.5})
    assert f"{KINDS[rule].__name__}: {rule} has no option '{name}'" in str(
        e.value
    )
    assert words in str(e.value)


def test_beta2_is_that_of_a_second_moment():
    with pytest.raises(canzona.UsageError, match='adamw={"beta2": …} sets it'):
        canzona.Muon(net(), beta2=0.5)
    canzona.Muon(net(), beta2=0.5, second_moment="normuon")
    canzona.Muon(net(), beta2=0.5, preset="nanochat")


def test_an_option_by_both_of_its_names():
    with pytest.raises(canzona.UsageError, match="epsilon=1.0: is the same op"):
        canzona.Muon(net(), eps=1e-3, epsilon=1.0)
    with pytest.raises(canzona.UsageError, match="beta1=0.5: .* as betas="):
        canzona.AdamW(net(), betas=(0.9, 0.9), beta1=0.5)
    group = canzona.Muon(net(), epsilon=1e-3, steps=7).param_groups[0]
    assert (group["eps"], group["ns_steps"]) == (1e-3, 7)


@pytest.mark.parametrize(
    "name, value, words",
    [
        ("clip_norm", "one", "clip_norm='one': expected a number above 0"),
        ("threads", "auto", "threads='auto': expected an integer from 1 on"),
        ("capacity_bytes", 0.5, "capacity_bytes=0.5: expected an integer"),
        ("rules", "adamw", "rules='adamw': expected a dict like"),
        ("rules", ["0.weight"], "rules=['0.weight']: expected a dict"),
        ("groups", {"0.weight": 0.1}, "groups['0.weight']: 0.1; expected a"),
        ("adamw", 1e-3, "adamw=0.001: expected a dict like"),
        ("splits", {"0.weight": 4}, "splits['0.weight']: 4; expected a list"),
        ("adamw", {"betas": (0.9,)}, "betas=(0.9,): expected two numbers"),
        ("ns_coefficients", (1, 2), "ns_coefficients=(1, 2): expected three"),
        ("lr", "1e-3", "lr='1e-3': expected a number"),
        ("adjust_lr_fn", "rms", "adjust_lr_fn (scale)='rms' is not one of"),
        ("ns_steps", 0, "ns_steps (steps)='0' is not one of"),
        ("replicas", 0, "replicas=0: expected a process group, a mesh or"),
    ],
)
def test_values_of_another_kind(name, value, words):
    with pytest.raises(canzona.UsageError) as e:
        canzona.Muon(net(), **{name: value})
    assert words in str(e.value)


def test_keys_of_ones_own_go_into_the_groups_later():
    with pytest.raises(canzona.UsageError, match="'name'.*; keys of your own"):
        canzona.Muon([{"params": net(), "name": "all"}])
    optimizer = canzona.Muon(net())
    optimizer.param_groups[0]["name"] = "matrices"
    other = canzona.Muon(net())
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["name"] == "matrices"


def used_up():
    found = net().parameters()
    list(found)
    return found


@pytest.mark.parametrize(
    "params, words",
    [
        (lambda: net().parameters, "Call it: model.parameters()"),
        (lambda: {"params": [torch.ones(2, 2)]}, "Groups go into a list"),
        (lambda: net().state_dict(), "params is OrderedDict; expected a mod"),
        (lambda: [net(), net()], 'Several modules are groups: [{"params"'),
        (used_up, "params is empty"),
        (lambda: torch.ones(2), "params is Tensor; expected a module"),
        (lambda: "weights", "params is str"),
        (lambda: 3, "params is int"),
        (lambda: {nn.Parameter(torch.ones(2, 2))}, "is a set, whose order"),
        (
            lambda: [{"params": [torch.ones(2, 2)], "param_names": "ab"}],
            "group 0: has 2 param_names for 1 params",
        ),
    ],
)
def test_params_that_are_something_else(params, words):
    with pytest.raises(canzona.UsageError) as e:
        canzona.Muon(params())
    assert words in str(e.value)


def test_a_model_has_to_be_given():
    with pytest.raises(TypeError, match="params"):
        canzona.Muon(lr=0.1)
