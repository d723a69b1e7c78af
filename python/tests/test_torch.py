"""Against torch's own optimizers, and their tests."""

import pytest
import torch
from torch import nn

import canzona
from nets import follow, net, values


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


@pytest.mark.parametrize("name", ["maximize", "amsgrad"])
def test_switches_that_we_do_not_have(name):
    with pytest.raises(canzona.UsageError, match=f"{name}=True is not supp"):
        canzona.AdamW(net(), **{name: True})
