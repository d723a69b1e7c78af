"""Muon, SOAP, Shampoo and AdamW for PyTorch, on any layout.

    optimizer = canzona.Muon(model, lr=2e-3)

Every class is a torch.optim.Optimizer. help(canzona.Muon) lists all arguments;
docs/pytorch.md says more of them. A signature declares names, types and
defaults, and @keywords passes on whatever is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from typing_extensions import Unpack

from ._keywords import Shared, documented, keywords
from ._optimizer import MatrixOptimizer
from ._stored import Stored

__all__ = ["AdamW", "Muon", "SOAP", "Shampoo", "Stored"]

_Number = float | torch.Tensor
_Auto = Literal["auto"]
_Decay = Literal["decoupled", "independent", "palm", "l2"]
_Correction = Literal["corrected", "uncorrected"]
_Grafting = Literal["none", "sgd", "adagrad", "rmsprop", "adam"]
_Products = Literal["auto", "fp32", "bf16x3"]
_Triple = tuple[float, float, float]


@documented
class Muon(MatrixOptimizer):
    """Muon for matrices, AdamW for the rest.

    The first arguments are those of torch.optim.Muon, but `adjust_lr_fn` is
    "match_rms_adamw" by default, so that one learning rate serves both rules.
    """

    rule = "muon"

    @keywords
    def __init__(
        self,
        params: Any,
        lr: _Number = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: str | _Triple | Sequence[_Triple] = (
            3.4445,
            -4.775,
            2.0315,
        ),
        eps: float = 1e-7,
        ns_steps: int | _Auto = 5,
        adjust_lr_fn: str | None = "match_rms_adamw",
        *,
        decay_form: _Decay = "decoupled",
        cautious_decay: bool = False,
        momentum_form: Literal["ema", "heavy_ball"] = "ema",
        overrun: Literal["last", "cycle"] = "last",
        newton_schulz: Literal[
            "standard", "symmetric", "gram", "auto"
        ] = "auto",
        restarts: int | _Auto = "auto",
        strips: Literal["auto", 1, 2, 4, 8] = "auto",
        precision: Literal["auto", "fp16", "bf16", "fp32", "fp64"] = "auto",
        normalization: Literal["frobenius", "schatten4"] = "frobenius",
        norm_factor: float | _Auto = "auto",
        epsilon_mode: Literal["clamp", "add"] = "clamp",
        scale_extra: float = 1.0,
        decay_lr: Literal["base", "scaled"] = "base",
        equilibrate: Literal["off", "rows"] = "off",
        equilibrate_eps: float = 1e-6,
        renorm: bool = False,
        renorm_eps: float = 1e-6,
        second_moment: Literal["none", "normuon", "adamuon", "namo"] = "none",
        beta2: float = 0.95,
        second_moment_axis: Literal["rows", "long"] = "long",
        second_moment_eps: float = 1e-8,
        second_moment_eps_mode: Literal["add", "clamp"] = "add",
        second_moment_norm_eps: float | _Auto = "auto",
        constraint: Literal["none", "hyperball"] = "none",
        constraint_eps: float = 1e-15,
        constraint_radius: float | Literal["current"] = "current",
        unsafe: bool = False,
        coefficients: str | None = None,
        steps: int | _Auto | None = None,
        epsilon: float | None = None,
        scale: str | None = None,
        **shared: Unpack[Shared],
    ) -> None: ...


@documented
class SOAP(MatrixOptimizer):
    """SOAP for matrices, AdamW for the rest.

    The first arguments are those of torch.optim.AdamW.
    """

    rule = "soap"

    @keywords
    def __init__(
        self,
        params: Any,
        lr: _Number = 3e-3,
        betas: tuple[float, float] = (0.95, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        *,
        decay_form: _Decay = "decoupled",
        decay_order: Literal["before", "after"] = "after",
        l2_in_factors: bool = True,
        beta3: float | _Auto = "auto",
        epsilon_mode: _Correction = "uncorrected",
        bias_correction: bool = True,
        nesterov: bool = False,
        momentum_basis: Literal["eigen", "original"] = "eigen",
        first_update: Literal["skip", "use"] = "skip",
        normalize_grads: bool = False,
        max_update_rms: float = 0.0,
        shampoo_beta: float | _Auto = "auto",
        factor_bias_correction: Literal[
            "off", "weights", "decomposition"
        ] = "off",
        kl: bool = False,
        max_preconditioner_dim: int = 10000,
        long_sides: Literal["skip", "cut"] = "skip",
        precondition_1d: bool = False,
        merge_dims: bool = False,
        ignored_dims: int | Sequence[int] | Literal["none"] = "none",
        strips: Literal["auto", 1, 2, 4, 8] = 1,
        precondition_frequency: int = 10,
        phases: int = 1,
        start_step: int = 1,
        first_basis: Literal["eigh", "identity"] = "eigh",
        refresh: Literal["auto", "qr", "cholesky_qr", "eigh"] = "auto",
        power_steps: int = 1,
        qr_tolerance: float = 0.0,
        sort: Literal["before", "after", "ascending"] = "before",
        eigen_reg: float = 0.0,
        qr_regularised: bool = False,
        basis_includes_gradient: bool = False,
        grafting: _Grafting = "none",
        grafting_beta2: float = 0.999,
        grafting_epsilon: float = 1e-10,
        products: _Products = "auto",
        beta1: float | None = None,
        beta2: float | None = None,
        epsilon: float | None = None,
        **shared: Unpack[Shared],
    ) -> None: ...


@documented
class Shampoo(MatrixOptimizer):
    """Shampoo for matrices, AdamW for the rest.

    The first arguments are those of torch.optim.AdamW.
    """

    rule = "shampoo"

    @keywords
    def __init__(
        self,
        params: Any,
        lr: _Number = 1e-3,
        betas: tuple[float, float] = (0.9, 0.99),
        eps: float = 1e-12,
        weight_decay: float = 0.1,
        *,
        decay_form: Literal[
            "decoupled", "corrected", "peak_independent", "l2"
        ] = "decoupled",
        beta3: float | _Auto = "auto",
        bias_correction: bool = True,
        grafting: _Grafting = "adam",
        grafting_beta2: float = 0.99,
        grafting_epsilon: float = 1e-8,
        classic_momentum: float = 0.0,
        classic_dampening: float = 0.0,
        classic_nesterov: bool = False,
        max_preconditioner_dim: int = 1024,
        merge: Literal[1, 2, "off"] = 2,
        precondition_frequency: int = 10,
        phases: int = 1,
        start_step: int | Literal["auto", "never"] = "auto",
        exponent: float | Sequence[float] | _Auto = "auto",
        drop_weighting: bool = False,
        kl: bool = False,
        trace_scaling: bool = False,
        root: Literal[
            "auto", "eigen", "pseudo", "newton", "higher", "cans"
        ] = "auto",
        root_iterations: int = 18,
        root_tolerance: float = 1e-6,
        root_order: int = 3,
        root_abs_epsilon: float = 1e-12,
        root_rel_epsilon: float = 1e-5,
        perturb: Literal["before", "after"] = "before",
        rank_rtol: float | _Auto = "auto",
        rank_atol: float = 0.0,
        products: _Products = "auto",
        beta1: float | None = None,
        beta2: float | None = None,
        epsilon: float | None = None,
        **shared: Unpack[Shared],
    ) -> None: ...


@documented
class AdamW(MatrixOptimizer):
    """AdamW for everything, with the arguments of torch.optim.AdamW."""

    rule = "adamw"

    @keywords
    def __init__(
        self,
        params: Any,
        lr: _Number = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        *,
        decay_form: _Decay = "decoupled",
        epsilon_mode: _Correction = "corrected",
        beta1: float | None = None,
        beta2: float | None = None,
        epsilon: float | None = None,
        **shared: Unpack[Shared],
    ) -> None: ...
