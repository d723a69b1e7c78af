#!/usr/bin/env python3
"""Numbers of the runtime: strategies, scaling, pipeline, iteration, prediction.

    python3 bench/step_numbers.py --ranks 16 --markdown steps.md --json steps.json
    python3 bench/step_numbers.py --ranks 2 --only strategies --small

Runs `canzona bench step` and keeps what it said. Standard library only. Each
part is bounded in time; a part that fails is named and the others go on.
"""
import argparse
import json
import os
import subprocess
import sys
import time

STRATEGIES = "replicated,layerwise,start_offset,contiguous,megatron,balanced"


def model_flags(rule, scale, layers):
    """Flags of `canzona plan` and `bench step`; 0 layers: all."""
    flags = ["--model", "qwen3-1.7b", "--scale", scale, "--rule", rule]
    if layers:
        flags += ["--layers", str(layers)]
    if rule == "muon":
        flags += ["--rule-option", "precision=bf16"]
    if rule in ("soap", "shampoo"):
        flags += ["--rule-option", "precondition_frequency=5"]
    return flags


class Bench:
    def __init__(self, args):
        self.args = args
        self.runs = []
        self.lines = []
        self.began = time.time()

    def say(self, text=""):
        self.lines.append(text)
        print(text, flush=True)

    def step(self, what, *flags, limit=120):
        """One `bench step`; None if it failed."""
        command = [self.args.canzona, "bench", "step", "--json", "--quiet",
                   "--parameters", "fp32", *flags]
        try:
            done = subprocess.run(command, capture_output=True, text=True,
                                  timeout=limit)
        except subprocess.TimeoutExpired:
            self.say(f"{what}: not done in {limit} s")
            return None
        if done.returncode != 0:
            self.say(f"{what}: exit {done.returncode}: "
                     f"{done.stderr.strip()[-300:]}")
            return None
        result = json.loads(done.stdout)
        self.runs.append({"what": what, "command": " ".join(command[1:]),
                          "result": result})
        return result

    def model(self, rule):
        scale, layers = self.args.sizes["muon" if rule == "muon" else "other"]
        return model_flags(rule, scale, layers)


def meshes(ranks):
    if ranks >= 16:
        return ["dp=16", "dp=4,tp=4", "dp=2,tp=8"]
    return [f"dp={ranks}", f"tp={ranks}"]


def chosen_meshes(args):
    return args.meshes.split(";") if args.meshes else meshes(args.ranks)


def row(cells):
    return "| " + " | ".join(cells) + " |"


def strategies(bench):
    """Every strategy, rule and mesh; the speed-up over `replicated`."""
    bench.say("\n## Optimizer step by strategy\n")
    bench.say(row(["rule", "mesh", "strategy", "step, mean", "worst", "speed-up",
                   "busiest rank", "sent per step", "predicted step"]))
    bench.say("|" + "---|" * 9)
    args = bench.args
    for rule in args.rules.split(","):
        periodic = rule in ("soap", "shampoo")
        chosen = "replicated,balanced" if rule == "adamw" else args.strategy
        # Seven timed steps, or two periods of them.
        steps = args.steps or (11 if periodic else 8)
        for mesh in chosen_meshes(args):
            flags = bench.model(rule) + [
                "--mesh", mesh, "--steps", str(steps), "--warmup", "1",
                "--iterations", "0", "--compute", "0"]
            if args.cost:
                flags += ["--cost", args.cost]
            show_strategies(bench, rule, mesh, bench.step(
                f"{rule} {mesh}", *flags, "--strategy", chosen))
            if periodic:
                show_strategies(bench, rule + ", 5 phases", mesh, bench.step(
                    f"{rule} {mesh} phases", *flags, "--strategy", "balanced",
                    "--phases", "5"))


def show_strategies(bench, rule, mesh, result):
    if result is None:
        return
    base = next((s["step_seconds_mean"] for s in result["strategies"]
                 if s["name"] == "replicated"), None)
    for s in result["strategies"]:
        mean = s["step_seconds_mean"]
        bench.say(row([
            rule, mesh, s["name"], f"{mean * 1e3:.1f} ms",
            f"{s['step_seconds_worst'] * 1e3:.1f} ms",
            f"{base / mean:.2f}x" if base else "",
            f"{s['step_compute_seconds'] * 1e3:.1f} ms",
            f"{s['bytes_sent_max'] / 2**20:.1f} MiB",
            f"{s['predicted_step_seconds'] * 1e3:.1f} ms"]))
    if not result["digests_agree"]:
        bench.say("DIGESTS DIFFER")


def scaling(bench):
    """1 → ranks."""
    bench.say("\n## Scaling\n")
    for rule in bench.args.rules.split(","):
        if rule == "adamw":
            continue
        alone, together = (
            bench.step(f"scaling {rule} {ranks}", *bench.model(rule),
                       "--strategy", "balanced", "--steps", "8",
                       "--iterations", "0", "--compute", "0", "--mesh",
                       f"dp={ranks}") for ranks in (1, bench.args.ranks))
        if alone is None or together is None:
            continue
        one, all_ranks = (result["strategies"][0]["step_seconds_mean"]
                          for result in (alone, together))
        bench.say(f"{rule}: step on {bench.args.ranks} ranks "
                  f"{all_ranks * 1e3:.1f} ms, on one {one * 1e3:.0f} ms, "
                  f"efficiency {one / (bench.args.ranks * all_ranks):.3f}")


def pipeline(bench):
    """The exchange over tp on modelled links; fused and unfused rounds."""
    ranks = bench.args.ranks
    mesh = "tp=8" if ranks >= 8 else f"tp={ranks}"
    bench.say(f"\n## Exchange over tp, {mesh}, modelled link\n")
    common = bench.model("muon") + [
        "--mesh", mesh, "--strategy", "balanced", "--steps", "5",
        "--iterations", "0", "--compute", "0", "--ranks-per-node", str(ranks)]
    first = bench.step("pipelined", *common, "--comm-ratio", "0.5",
                       "--capacity", bench.args.capacity)
    if first is None:
        return
    link = first["link"]
    speed = f"{link['intra_bytes_per_second'] / 1e6:.3f}MB/s"
    fixed = ["--link", f"intra={speed},inter={speed},latency=0us"]
    bench.say(row(["rounds", "capacity", "step", "exposed"]))
    bench.say("|---|---|---|---|")
    runs = [("pipelined", bench.args.capacity, []),
            ("serial", bench.args.capacity, ["--serial"])]
    runs += [("pipelined", c, []) for c in
             ("0", "1MiB", "64MiB", "1024MiB")]
    for kind, capacity, extra in runs:
        result = bench.step(f"{kind} {capacity}", *common, *fixed, *extra,
                            "--capacity", capacity)
        if result is None:
            continue
        s = result["strategies"][0]
        bench.say(row([kind, capacity, f"{s['step_seconds'] * 1e3:.1f} ms",
                       f"{100 * (1 - s['step_hidden_fraction']):.1f} %"]))


def iteration(bench):
    """layerwise : balanced where layerwise has the paper's shares."""
    ranks = bench.args.ranks
    chosen = bench.args.meshes.split(";") if bench.args.meshes else (
        ["dp=4,tp=4", "dp=16"] if ranks >= 16 else [f"dp={ranks}"])
    for mesh in chosen:
        bench.say(f"\n## Iteration on {mesh}, modelled link\n")
        one_iteration(bench, mesh)


def shares(result, name):
    """(iteration, compute, optimizer, exposed) of one strategy, seconds."""
    s = next(x for x in result["strategies"] if x["name"] == name)
    whole, compute = s["iteration_seconds"], result["compute_seconds"]
    return whole, compute, whole - compute - s["waited_seconds"], s["waited_seconds"]


def one_iteration(bench, mesh):
    # Buckets that leave while backward goes on.
    common = bench.model("muon") + ["--mesh", mesh, "--steps", "1",
                                    "--bucket-elements", "2000000",
                                    "--ranks-per-node",
                                    str(bench.args.ranks)]
    plain = bench.step("layerwise without a link", *common, "--strategy",
                       "layerwise", "--iterations", "0", "--compute", "0")
    if plain is None:
        return
    compute = plain["strategies"][0]["step_compute_seconds"] * 58 / 28
    speed = 10 * plain["strategies"][0]["bytes_sent_max"] / compute
    for _ in range(5):  # towards the paper's 58 : 28 : 14
        link = f"intra={speed / 1e6:.3f}MB/s,inter={speed / 1e6:.3f}MB/s"
        result = bench.step("layerwise at " + link, *common, "--strategy",
                            "layerwise", "--iterations", "2", "--compute",
                            f"{compute:.4f}", "--link", link + ",latency=0us")
        if result is None:
            return
        whole, compute, optimizer, exposed = shares(result, "layerwise")
        bench.say(f"link {speed / 1e6:.0f} MB/s, compute {compute * 1e3:.0f} ms: "
                  f"optimizer {100 * optimizer / whole:.0f} %, exposed "
                  f"{100 * exposed / whole:.0f} %")
        if (abs(optimizer / whole - 0.28) < 0.015 and
                abs(exposed / whole - 0.14) < 0.02):
            break
        compute = optimizer * 58 / 28
        speed *= min(max(2 * exposed / optimizer, 0.4), 3.0)
    both = bench.step("layerwise and balanced", *common, "--strategy",
                      "layerwise,balanced", "--iterations", "5", "--compute",
                      f"{compute:.4f}", "--link", link + ",latency=0us")
    if both is None:
        return
    show_iteration(bench, both)


def show_iteration(bench, both):
    times = {}
    for name in ("layerwise", "balanced"):
        whole, compute, optimizer, exposed = shares(both, name)
        times[name] = whole
        bench.say(f"{name} {whole * 1e3:.0f} ms: optimizer "
                  f"{100 * optimizer / whole:.0f} %, exposed communication "
                  f"{100 * exposed / whole:.1f} %")
    bench.say(f"{times['layerwise'] / times['balanced']:.2f}x; the limit, compute "
              f"alone: {times['layerwise'] / compute:.2f}x")


PARTS = {"strategies": strategies, "scaling": scaling, "pipeline": pipeline,
         "iteration": iteration}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--canzona", default="build/canzona")
    parser.add_argument("--ranks", type=int, default=os.cpu_count())
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--rules", default="muon,adamw,shampoo,soap")
    parser.add_argument("--cost", default="")
    parser.add_argument("--capacity", default="1600MiB")
    parser.add_argument("--meshes", default="", help="'dp=16;dp=4,tp=4'")
    parser.add_argument("--strategy", default=STRATEGIES)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--markdown")
    parser.add_argument("--json")
    args = parser.parse_args()
    args.sizes = ({"muon": ("1/16", 4), "other": ("1/16", 4)} if args.small else
                  {"muon": ("1/4", 0), "other": ("1/8", 14)})
    bench = Bench(args)
    for part in args.only.split(","):
        begin = time.time()
        PARTS[part](bench)
        print(f"({part}: {time.time() - begin:.0f} s)", file=sys.stderr)
        if args.json:
            with open(args.json, "w") as file:
                json.dump(bench.runs, file)
        if args.markdown:
            with open(args.markdown, "w") as file:
                file.write("\n".join(bench.lines) + "\n")


if __name__ == "__main__":
    main()
