"""Muon, SOAP, Shampoo and AdamW for PyTorch, on any layout.

    optimizer = canzona.Muon(model, lr=2e-3)

Every class is a torch.optim.Optimizer. Arguments that all of them take:

`params`: a module, `named_parameters()`, parameters, or groups of these with
options of their own. `preset`: values of a public implementation's, by name
(`canzona rules muon`). Any option of the rule may be given by its name.
`adamw`: options for what is no matrix. `groups`: options by pattern,
{"*.norm.*": {"weight_decay": 0}}. `rules`: {"pattern": "muon" | "adamw" |
"frozen"}. `splits`: rows of matrices that were joined, {"*.qkv.weight":
[q, k, v]}. `flatten`:
"first_dim" sends convolutions to the matrix rule, as one matrix each.
`replicas`: a process group whose ranks have the same plain tensors. `wire`:
"fp32" or "bf16". `share_states`: replicas keep states at owners alone.
`clip_norm`: the most that the norm of all gradients may be. `nonfinite`:
"skip", "raise" or "propagate". docs/pytorch.md tells more.
"""

from __future__ import annotations

from typing import Any

import torch

from ._optimizer import _UNSET, MatrixOptimizer

__all__ = ["AdamW", "Muon", "SOAP", "Shampoo"]

_Number = float | torch.Tensor


class Muon(MatrixOptimizer):
    """Muon for matrices, AdamW for the rest.

    Arguments are torch.optim.Muon's, but `adjust_lr_fn` is "match_rms_adamw"
    unless said, so that one rate serves both rules.
    """

    rule = "muon"

    def __init__(
        self,
        params: Any,
        lr: _Number | None = None,
        weight_decay: Any = _UNSET,
        momentum: Any = _UNSET,
        nesterov: Any = _UNSET,
        ns_coefficients: Any = _UNSET,
        eps: Any = _UNSET,
        ns_steps: Any = _UNSET,
        adjust_lr_fn: Any = _UNSET,
        **options: Any,
    ):
        super().__init__(
            params,
            lr,
            weight_decay=weight_decay,
            momentum=momentum,
            nesterov=nesterov,
            ns_coefficients=ns_coefficients,
            eps=eps,
            ns_steps=ns_steps,
            adjust_lr_fn=adjust_lr_fn,
            **options,
        )


class _WithMoments(MatrixOptimizer):
    """Rules whose arguments are those of torch.optim.AdamW."""

    def __init__(
        self,
        params: Any,
        lr: _Number | None = None,
        betas: Any = _UNSET,
        eps: Any = _UNSET,
        weight_decay: Any = _UNSET,
        **options: Any,
    ):
        super().__init__(
            params,
            lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            **options,
        )


class SOAP(_WithMoments):
    """SOAP for matrices, AdamW for the rest."""

    rule = "soap"


class Shampoo(_WithMoments):
    """Shampoo for matrices, AdamW for the rest."""

    rule = "shampoo"


class AdamW(_WithMoments):
    """AdamW for everything, with the arguments of torch.optim.AdamW."""

    rule = "adamw"
