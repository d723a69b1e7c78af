#!/usr/bin/env python3
"""against_torch.py <dump_decoder> <folder>

Compares loss and every gradient of our decoder with those of PyTorch, of the
same weights and tokens: both in fp64, and ours in fp32 with PyTorch's in fp64.
Exits with 77, which ctest counts as skipped, where there is no PyTorch.
"""
import array
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
try:
    import torch
except ImportError:
    # scripts/bench_torch.sh installs it there.
    other = ROOT / "build/torch/bin/python"
    if other.exists() and sys.executable != str(other):
        os.execv(other, [str(other), *sys.argv])
    print("skipped: neither python3 nor build/torch has torch "
          "(pip install torch)")
    sys.exit(77)

sys.path.insert(0, str(ROOT / "bench"))
from torch_model import decoder_loss  # noqa: E402

# In fp64 the tolerance is far above rounding errors and far below any wrong
# formula; in fp32 it allows a few hundred roundings of 6e-8.
TOLERANCES = {"fp64": 1e-10, "fp32": 1e-5}


class Dump:
    """Reads what dump_decoder wrote: index.json, parameters and gradients."""

    def __init__(self, folder):
        self.folder = folder
        self.index = json.loads((folder / "index.json").read_text())
        self.dtype = self.index["dtype"]

    def tensors(self, name):
        kind = "d" if self.dtype == "fp64" else "f"
        numbers = array.array(kind, (self.folder / name).read_bytes())
        numbers = torch.tensor(numbers, dtype=torch.float64)
        found, begin = {}, 0
        for tensor in self.index["tensors"]:
            shape = tensor["shape"]
            end = begin + torch.Size(shape).numel()
            found[tensor["name"]] = numbers[begin:end].reshape(shape)
            begin = end
        if begin != len(numbers):
            raise RuntimeError(f"{name}: {len(numbers)} numbers, "
                               f"the index has {begin}")
        return found

    def micro_batches(self):
        length = self.index["config"]["length"] + 1
        return [torch.tensor(tokens).reshape(-1, length)
                for tokens in self.index["sequences"]]


def torch_results(dump):
    """Losses of each micro-batch, and the sum of their gradients."""
    config = dump.index["config"]
    weights = {name: value.requires_grad_()
               for name, value in dump.tensors("parameters.bin").items()}
    losses, balances = [], []
    for sequences in dump.micro_batches():
        loss, balance = decoder_loss(config, weights, sequences)
        (loss + balance).backward()
        losses.append(loss.item())
        balances.append(balance.item())
    return losses, balances, {n: w.grad for n, w in weights.items()}


def difference(ours, right):
    """Relative: of the largest element, and of the norm; the larger of both."""
    if right is None:
        right = torch.zeros_like(ours)
    error = ours - right
    if not ours.isfinite().all():
        return float("inf")
    pairs = [(error.abs().max().item(), right.abs().max().item()),
             (error.norm().item(), right.norm().item())]
    return max(0 if above == 0 else float("inf") if below == 0
               else above / below for above, below in pairs)


def compare(dump):
    """The largest relative difference, and where it is."""
    losses, balances, gradients = torch_results(dump)
    found = []
    for name, right in (("losses", losses), ("balances", balances)):
        ours = torch.tensor(dump.index[name], dtype=torch.float64)
        right = torch.tensor(right, dtype=torch.float64)
        found.append((difference(ours, right), name))
    for name, ours in dump.tensors("gradients.bin").items():
        found.append((difference(ours, gradients[name]), name))
    return max(found), found[0][0]


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    cases = subprocess.run([program, "list"], check=True, capture_output=True,
                           text=True).stdout.split()
    failures = 0
    for case in cases:
        for dtype, tolerance in TOLERANCES.items():
            place = folder / case / dtype
            place.mkdir(parents=True, exist_ok=True)
            subprocess.run([program, case, dtype, str(place)], check=True)
            (worst, name), loss = compare(Dump(place))
            right = worst <= tolerance
            failures += not right
            print(f"{case:20} {dtype}  loss {loss:.1e}  largest {worst:.1e} "
                  f"({name}){'' if right else f': above {tolerance:.0e}'}")
    if not cases:
        print("no cases")
    sys.exit(1 if failures or not cases else 0)


if __name__ == "__main__":
    main()
