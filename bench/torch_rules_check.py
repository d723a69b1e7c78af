#!/usr/bin/env python3
"""Holds the transcriptions in torch_rules.py and torch_shampoo.py to parameters
that the public implementations gave in fp64. Needs torch; runs anywhere:

    python3 bench/torch_rules_check.py
"""
import sys

import torch

from torch_rules import (BatchedGramMuon, KellerMuon, Soap,
                         gram_orthogonalized, orthogonalized)
from torch_shampoo import Shampoo, eigen_root, newton_root

KELLER_2X3 = [
    [[-7.448656756318e-01, 4.789551301502e-01, 8.392597541693e-03],
     [-1.040344030228e-02, -4.996244160029e-01, 7.592780899040e-01]],
    [[-7.582810198662e-01, 4.761882618865e-01, -3.053755175656e-03],
     [-7.032638488641e-03, -5.126865843807e-01, 7.520507913938e-01]]]
KELLER_3X2 = [
    [[-7.456826540370e-01, 4.778315186967e-01],
     [-1.202696051533e-02, -4.997149845252e-01],
     [7.652509318790e-01, 2.632973983874e-01]]]
SOAP_EVERY_2 = [  # after calls 3 and 4
    [[-7.551209452137e-01, 5.016648863222e-01, -2.863864364947e-04],
     [5.495620559893e-03, -5.062964599942e-01, 7.467266097947e-01],
     [7.442637111305e-01, 2.401151061593e-01, -2.433802696706e-01]],
    [[-7.551968330507e-01, 5.041855300360e-01, 2.800345683077e-04],
     [7.830172498272e-03, -5.098579545280e-01, 7.460702652665e-01],
     [7.432216901850e-01, 2.377492809024e-01, -2.420298551511e-01]]]
SHAMPOO_DECAYED = [
    [[-7.454487706477e-01, 4.884007314190e-01, 4.972230523886e-03],
     [-8.045859256350e-03, -4.979051378719e-01, 7.590370945184e-01],
     [7.584021971154e-01, 2.558159967625e-01, -2.432294609194e-01]],
    [[-7.484892666500e-01, 4.855146365147e-01, 3.368471862116e-03],
     [-7.073293933800e-03, -5.036165314921e-01, 7.574979894848e-01],
     [7.567703042519e-01, 2.529767253273e-01, -2.356920306960e-01]]]
SHAMPOO_LATE = [
    [[-7.421875006250e-01, 4.921875001250e-01, 7.812499687500e-03],
     [-7.812499791667e-03, -5.000000000000e-01, 7.578124997917e-01],
     [7.578124998437e-01, 2.578124997917e-01, -2.421875003125e-01]],
    [[-7.459559739424e-01, 4.897783590600e-01, 6.213596719601e-03],
     [-6.847791753547e-03, -5.061976291064e-01, 7.570146419207e-01],
     [7.569212341259e-01, 2.552230486658e-01, -2.348875988595e-01]]]


def start(rows, cols):
    value = [[((3 * i + 5 * j) % 7 - 3) / 4 for j in range(cols)]
             for i in range(rows)]
    return torch.nn.Parameter(torch.tensor(value, dtype=torch.float64))


def gradient(t, rows, cols):
    value = [[((3 * i + 6 * j + 5 * t + 4 * i * j + i * i * t) % 13 - 6) / 8
              for j in range(cols)] for i in range(rows)]
    return torch.tensor(value, dtype=torch.float64)


def trajectory(make, rows, cols, steps):
    """The parameter after each step."""
    p = start(rows, cols)
    optimizer = make([p])
    seen = []
    for t in range(1, steps + 1):
        p.grad = gradient(t, rows, cols)
        optimizer.step()
        seen.append(p.detach().clone())
    return seen


def off(seen, expected):
    return max(float((a - torch.tensor(b, dtype=torch.float64)).abs().max())
               for a, b in zip(seen, expected, strict=True))


def keller(parameters):
    return KellerMuon(parameters, decay=0.1, dtype=torch.float64)


def soap(parameters):
    return Soap(parameters, period=2, lr=2 ** -8)


def shampoo(**options):
    return lambda parameters: Shampoo(
        parameters, period=1, lr=2 ** -7, betas=(0.875, 0.9375),
        grafting_beta2=0.9375, epsilon=1e-8, rel_epsilon=0, **options)


def roots_differ():
    a = torch.tensor([[4., 1, 0], [1, 3, 1], [0, 1, 2]], dtype=torch.float64)
    return float((eigen_root(a, 4, torch.tensor(1e-12)) -
                  newton_root(a, 4, torch.tensor(1e-12), 100,
                              1e-12)).abs().max())


def forms_differ():
    torch.manual_seed(0)
    x = torch.randn(2, 4, 9, dtype=torch.float64)
    return float((gram_orthogonalized(x) -
                  orthogonalized(x, torch.float64)).abs().max())


def batches_differ():
    """In fp64 a batch moves weights as the loop over parameters does."""
    ends = []
    for make in (KellerMuon, BatchedGramMuon):
        torch.manual_seed(0)
        parameters = [torch.nn.Parameter(torch.randn(*shape))
                      for shape in ((8, 5), (8, 5), (4, 6))]
        for p in parameters:
            p.grad = torch.randn_like(p)
        optimizer = make(parameters, dtype=torch.float64)
        optimizer.step()
        optimizer.step()
        ends.append(parameters)
    return max(float((a - b).detach().abs().max()) for a, b in zip(*ends))


def main():
    checks = [
        ("Muon, wide", off(trajectory(keller, 2, 3, 2), KELLER_2X3), 1e-10),
        ("Muon, tall", off(trajectory(keller, 3, 2, 1), KELLER_3X2), 1e-10),
        ("Muon, Gram form", forms_differ(), 1e-10),
        ("Muon, batched", batches_differ(), 1e-6),
        ("SOAP", off(trajectory(soap, 3, 3, 4)[2:], SOAP_EVERY_2), 1e-10),
        ("Shampoo", off(trajectory(shampoo(decay=0.125), 3, 3, 2),
                        SHAMPOO_DECAYED), 1e-10),
        ("Shampoo, begun late", off(trajectory(shampoo(decay=0, start=2),
                                               3, 3, 2), SHAMPOO_LATE), 1e-10),
        ("roots", roots_differ(), 1e-10),
    ]
    failed = [name for name, error, bound in checks if not error <= bound]
    for name, error, bound in checks:
        print(f"{name}: off by {error:.1e}, at most {bound:.0e}")
    if failed:
        sys.exit("failed: " + ", ".join(failed))


if __name__ == "__main__":
    main()
