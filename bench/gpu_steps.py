#!/usr/bin/env python3
"""Steps of the runtime on a GPU: beside the rule alone, and over 8 ranks.

  gpu_steps.py build-cuda/canzona              one rank: step : bench/rule, host
  gpu_steps.py build-cuda/canzona --ranks      8 thread ranks: replicated : balanced
  gpu_steps.py build-cuda/canzona --nccl       the same on 8 processes of NCCL
  gpu_steps.py build/canzona --device cpu --quick   the same on a CPU, to try it

One rank: Muon on the 196 matrices of Qwen3-1.7B, SOAP on those of one of its
layers, of which the runtime's step (gradients looked at, states and weights
updated) is to take no more than 1.06 times what bench/rule takes (built with CANZONA_BUILD_BENCH), and 1 ms of
the host. SOAP's is a plain step, without a refresh. Eight ranks: Qwen3-1.7B at half its widths, whose
step is to be 7.5 times as fast with `balanced` as with `replicated`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile


def matrices(options, rule):
    hidden, heads, keys, inner = (
        (64, 64, 32, 192) if options.quick else (2048, 2048, 1024, 6144))
    # SOAP's factors and bases of all layers do not fit into one GPU, and its
    # first step decomposes every factor, which takes seconds for each layer.
    layers = 2 if options.quick else {"muon": 28, "soap": 1}[rule]
    shapes = {"q": [heads, hidden], "k": [keys, hidden], "v": [keys, hidden],
              "o": [hidden, heads], "gate": [inner, hidden],
              "up": [inner, hidden], "down": [hidden, inner]}
    return [{"name": f"layers.{layer}.{name}", "shape": shape}
            for layer in range(layers) for name, shape in shapes.items()]


def run(words, prefix=()):
    done = subprocess.run([*prefix, *words], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join([*prefix, *words])}: exit status "
                 f"{done.returncode}")
    return json.loads(done.stdout)


def one_rank(options):
    print(f"{'rule':10}{'bench/rule':>12}{'runtime':>12}{'ratio':>8}"
          f"{'host':>10}   limit 1.06, 1 ms")
    bench_rule = os.path.join(os.path.dirname(options.program), "bench", "rule")
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "matrices.json")
        for rule in ("muon", "soap"):
            with open(model, "w") as file:
                json.dump(matrices(options, rule), file)
            same = ["--model", model, "--rule", rule, "--device",
                    options.device, "--json"]
            # One of the ten steps of SOAP's period refreshes: medians are
            # those of plain steps on both sides.
            steps = "6" if options.quick else "20"
            alone = run([bench_rule, *same, "--rounds",
                         "2" if options.quick else "9"])
            step = run([options.program, "bench", "step", *same, "--quiet", "--mesh",
                        "dp=1", "--strategy", "balanced", "--steps", steps,
                        "--warmup", "4", "--iterations", "0", "--compute", "0",
                        "--parameters", "fp32"])["strategies"][0]
            plain = alone["median_seconds"]
            ratio = step["step_seconds"] / plain
            print(f"{rule:10}{1e3 * plain:9.3f} ms"
                  f"{1e3 * step['step_seconds']:9.3f} ms{ratio:8.3f}"
                  f"{1e3 * step['host_seconds']:7.3f} ms", flush=True)


def ranks(options, meshes, transport, prefix):
    print(f"{'mesh':12}{'rule':10}{'replicated':>13}{'balanced':>13}"
          f"{'speed-up':>10}   limit 7.5")
    for mesh in meshes:
        for rule in ("muon", "shampoo"):
            small = ["--scale", "1/16", "--layers", "2"] if options.quick else [
                "--scale", "1/2"]
            # Eight whole sets of Shampoo's states fill the GPU with 20 layers.
            if rule == "shampoo" and not options.quick:
                small += ["--layers", "20"]
            steps = "3" if options.quick else "4" if options.nccl else "12"
            found = run([options.program, "bench", "step", "--model",
                         "qwen3-1.7b", *small, "--mesh", mesh, "--rule", rule,
                         "--device", options.device, "--strategy",
                         "replicated,balanced", "--steps", steps, "--warmup",
                         "1", "--iterations", "0", "--compute", "0", "--json",
                         "--quiet", "--transport", *transport, *options.share],
                        prefix)
            slow, fast = found["strategies"]
            print(f"{mesh:12}{rule:10}"
                  f"{1e3 * slow['step_seconds_mean']:10.3f} ms"
                  f"{1e3 * fast['step_seconds_mean']:10.3f} ms"
                  f"{fast['speedup_over_replicated']:10.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--ranks", action="store_true")
    parser.add_argument("--nccl", action="store_true")
    parser.add_argument("--quick", action="store_true",
                        help="small shapes, to try the commands")
    parser.add_argument("--split-gpu", action="store_true",
                        help="thread ranks have an equal share of the GPU's "
                        "multiprocessors each")
    options = parser.parse_args()
    options.share = ["--split-gpu"] if options.split_gpu else []
    options.program = os.path.abspath(options.program)
    if options.nccl:
        prefix = ["mpirun", "--allow-run-as-root", "--oversubscribe",
                  "--bind-to", "none", "-n", "8"]
        ranks(options, ["dp=8"], ["nccl", "--share-gpu"], prefix)
    elif options.ranks:
        ranks(options, ["dp=8", "dp=2,tp=4"], ["thread"], [])
    else:
        one_rank(options)


if __name__ == "__main__":
    main()
