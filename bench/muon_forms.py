#!/usr/bin/env python3
"""Times the newer forms of Muon beside plain Muon, on the same matrices.

  muon_forms.py build-cuda/canzona                  ours on a GPU
  muon_forms.py build-cuda/canzona --peers FOLDER   dion's and Emerging's, too
  muon_forms.py build/canzona --device cpu --layers 1 --model qwen3-0.6b

Ours is bench/rule beside the program. Each round runs plain Muon and every form in turn; the table has medians over
rounds, their range, and ratios to plain Muon of the same round. Peers need a
python3 with PyTorch and their sources in FOLDER/dion, FOLDER/emerging and
FOLDER/absl; they run compiled, as their own documentation runs them.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

FORMS = {
    "plain": {},
    "NorMuon": {"second_moment": "normuon"},
    "NorMuon, per row": {"second_moment": "normuon",
                         "second_moment_axis": "rows"},
    "MuonEq": {"equilibrate": "rows"},
    "Muon+": {"renorm": "on"},
    "AdaMuon": {"second_moment": "adamuon"},
    "NAMO": {"second_moment": "namo"},
    "MuonH": {"constraint": "hyperball"},
}
# layers, hidden, ffn, width of the queries, of keys and of values
MODELS = {"qwen3-0.6b": (28, 1024, 3072, 2048, 1024),
          "qwen3-1.7b": (28, 2048, 6144, 2048, 1024)}
HEADS = 128


def shapes_of(options):
    layers, hidden, ffn, queries, keys = MODELS[options.model]
    return [(queries, hidden), (keys, hidden), (keys, hidden),
            (hidden, queries), (ffn, hidden), (ffn, hidden),
            (hidden, ffn)] * (options.layers or layers)


def per_head(shapes):
    """The same with q, k and v, the first three of seven, cut into heads."""
    return [part for i, (rows, cols) in enumerate(shapes)
            for part in ([(HEADS, cols)] * (rows // HEADS) if i % 7 < 3
                         else [(rows, cols)])]


def write_model(folder, name, shapes):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        json.dump([{"name": f"layers.{i}.w", "shape": list(shape)}
                   for i, shape in enumerate(shapes)], file)
    return path


def ours(options, model, form):
    words = [os.path.join(os.path.dirname(options.program), "bench", "rule"),
             "--model", model, "--rule", "muon", "--device", options.device,
             "--rounds", str(options.steps), "--json"]
    for name, value in form.items():
        words += ["--rule-option", f"{name}={value}"]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit status {done.returncode}")
    return json.loads(done.stdout)["seconds"]


def print_row(name, seconds, ratios):
    low, high = min(ratios), max(ratios)
    print(f"| {name} | {statistics.median(seconds) * 1e3:.1f} ms | "
          f"{statistics.median(ratios):.3f} ({low:.3f} to {high:.3f}) |",
          flush=True)


def time_ours(options):
    with tempfile.TemporaryDirectory() as folder:
        shapes = shapes_of(options)
        whole = write_model(folder, "whole.json", shapes)
        heads = write_model(folder, "heads.json", per_head(shapes))
        runs = {name: (whole, form) for name, form in FORMS.items()}
        runs["q, k, v per head"] = (heads, {})
        outputs = write_model(folder, "outputs.json", shapes[3::7])
        columns = str(shapes[3][1] // HEADS)
        runs["output projections alone"] = (outputs, {})
        runs["the same, per head"] = (outputs, {"column_heads": columns})
        seconds = {name: [] for name in runs}
        for _ in range(options.rounds):
            for name, run in runs.items():
                seconds[name].append(ours(options, *run))
    for name, times in seconds.items():
        print_row(name, times,
                  [t / p for t, p in zip(times, seconds["plain"])])
    return statistics.median(seconds["plain"])


def peers(options):
    for name in ("dion", "emerging", "absl"):
        sys.path.insert(0, os.path.join(options.peers, name))

    def dion(kind):
        def make(parameters):
            import dion
            return getattr(dion, kind)(
                parameters, lr=1e-3, nesterov=True, use_triton=True,
                use_polar_express=False)
        return make

    def emerging(method):
        def make(parameters):
            from emerging_optimizers.orthogonalized_optimizers import (
                adaptive_muon, muon)
            if method is None:
                return muon.Muon(parameters, lr=1e-3, momentum=0.95,
                                 weight_decay=0.1)
            return adaptive_muon.AdaptiveMuon(
                parameters, lr=1e-3, momentum=0.95, weight_decay=0.1,
                moment2_method=method)
        return make

    return {"dion's Muon, Triton": dion("Muon"),
            "dion's NorMuon, Triton": dion("NorMuon"),
            "Emerging's Muon": emerging(None),
            "Emerging's NorMuon": emerging("normuon")}


def time_peers(options, plain):
    import torch
    from torch_measure import step_seconds
    for name, make in peers(options).items():
        parameters = [torch.nn.Parameter(torch.randn(shape, device="cuda"))
                      for shape in shapes_of(options)]
        for p in parameters:
            p.grad = torch.randn_like(p)
        try:
            optimizer = make(parameters)
            seconds = step_seconds(optimizer, options.steps, "cuda")
        except Exception as error:  # a peer may lack something here
            print(f"| {name} | not run: {type(error).__name__}: "
                  f"{str(error)[:200]} | |", flush=True)
            continue
        print_row(name, [seconds], [seconds / plain])
        del optimizer, parameters
        torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--model", choices=list(MODELS), default="qwen3-1.7b")
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--peers", default="")
    options = parser.parse_args()
    print("| form | step | : plain Muon |\n|---|---|---|", flush=True)
    plain = time_ours(options)
    if options.peers:
        time_peers(options, plain)


if __name__ == "__main__":
    main()
