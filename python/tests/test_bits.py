"""One hash of parameters and states over all layouts, per rule and wire."""

import functools

import pytest
import torch

import layouts
from conftest import spawn

RUNS = {
    f"{rule} {wire} {str(dtype)[6:]}": (rule, {"wire": wire}, dtype)
    for rule in ("muon", "soap", "shampoo", "adamw")
    for wire in ("fp32", "bf16")
    for dtype in (torch.float32, torch.bfloat16)
    if dtype == torch.float32 or rule == "muon"
}


@functools.cache
def alone():
    return layouts.train_all("one", RUNS)


@pytest.mark.parametrize("layout", [n for n in layouts.LAYOUTS if n != "one"])
def test_layouts_do_not_change_a_bit(layout):
    expected = alone()
    for rank, got in enumerate(
        spawn(layouts.LAYOUTS[layout], layouts.train_all, layout, RUNS)
    ):
        for name in RUNS:
            unlike = [
                k
                for k in expected[name][1]
                if got[name][1].get(k) != expected[name][1][k]
            ]
            assert not unlike, (rank, name, unlike)
            assert got[name][0] == expected[name][0], (rank, name)
