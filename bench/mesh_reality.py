#!/usr/bin/env python3
"""Are layouts predicted in the order in which they run?

    python3 bench/mesh_reality.py --ranks 16 --json reality.json
    python3 bench/mesh_reality.py --ranks 16 --models deep --turns 2
    python3 bench/mesh_reality.py --device cuda --ranks 8

Trains two small models with `canzona train` on thread ranks, in layouts of dp,
tp, pp and ZeRO, in turns, and predicts each by `canzona plan` from what was
measured on the same machine in the same run: forward and backward of a rank
while all cores do the same, collectives between threads, and the rule's costs.
Prints iterations, Kendall's tau, and the regret: how much slower the layout
predicted to be best is than the best measured. Asked: tau >= 0.8, regret <= 5 %.

On a GPU, `canzona bench step` runs the layouts on modelled links and predicts
them itself; forward and backward are products of the model's shapes.
Standard library only.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

LENGTH = 256  # tokens of a sequence; a micro-batch is one sequence
MODELS = {  # layers, hidden, ffn, heads, kv heads, head dim
    "deep": (8, 256, 768, 16, 8, 16),
    "wide": (4, 384, 1536, 16, 8, 24),
}
CUDA_LINKS = "intra=20GB/s,inter=4GB/s,latency=20us"


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--canzona", default="build/canzona")
    parser.add_argument("--ranks", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rule", default="muon")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5,
                        help="per run; the first two are not timed")
    parser.add_argument("--batch", type=int, default=2,
                        help="sequences of an iteration per rank")
    parser.add_argument("--overlap", default="none",
                        help="a rank's threads share its core, so nothing is "
                             "hidden there; background on machines with more")
    parser.add_argument("--scale", type=int, default=1,
                        help="divides the widths of the models, for a test")
    parser.add_argument("--limit", type=float, default=3600,
                        help="seconds of a model after which no turn begins")
    parser.add_argument("--json")
    return parser.parse_args()


def run(*command, **more):
    done = subprocess.run(list(map(str, command)), capture_output=True,
                          text=True, **more)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}\n"
                           f"{done.stderr.strip()[-400:]}")
    return done.stdout


def layouts(ranks, device):
    """Meshes and sizes of ZeRO; of 16 ranks twelve."""
    found = [(f"dp={ranks}", zero) for zero in
             ("zero1", "zero2", "zero3", f"hier:{max(2, ranks // 4)}")]
    for tp in (2, 4, 8):
        if ranks % tp == 0 and ranks > tp:
            found.append((f"dp={ranks // tp},tp={tp}", "zero1"))
    if ranks >= 4:
        found.append((f"dp={ranks // 2},tp=2", "zero3"))
    if device == "cuda":
        if ranks >= 4:
            found.append((f"dp={ranks // 2},tp=2", "zero2"))
            found.append((f"dp={ranks // 4},tp=4" if ranks > 4 else "tp=4",
                          "zero1"))
        return list(dict.fromkeys(found))
    if ranks >= 2:
        found.append((f"dp={ranks // 2},pp=2" if ranks > 2 else "pp=2",
                      "zero1"))
    if ranks >= 4:
        found.append((f"dp={ranks // 4},pp=4" if ranks > 4 else "pp=4",
                      "zero1"))
        found.append((f"dp={ranks // 4},tp=2,pp=2" if ranks > 4 else
                      "tp=2,pp=2", "zero1"))
    if ranks >= 8:
        found.append((f"dp={ranks // 8},tp=4,pp=2", "zero1"))
    return found


def axis(mesh, name):
    return int(dict(part.split("=") for part in mesh.split(",")).get(name, 1))


def write_config(folder, name, numbers):
    layers, hidden, ffn, heads, kv_heads, head_dim = numbers
    path = os.path.join(folder, name + ".json")
    with open(path, "w") as file:
        json.dump({"model_type": "qwen3", "vocab_size": 256,
                   "hidden_size": hidden, "intermediate_size": ffn,
                   "num_hidden_layers": layers, "head_dim": head_dim,
                   "num_attention_heads": heads, "rope_theta": 10000,
                   "num_key_value_heads": kv_heads, "rms_norm_eps": 1e-6,
                   "tie_word_embeddings": False}, file)
    return path


class Reality:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.parts = {}  # of iterations, as the first rank measured them

    def train_command(self, config, mesh, zero, sequences, where):
        return [self.args.canzona, "train", "--model", config, "--mesh", mesh,
                "--zero", zero, "--rule", self.args.rule, "--steps",
                self.args.steps, "--run", where, "--overwrite", "--quiet",
                "--overlap", self.args.overlap, "--ranks-per-node",
                self.args.ranks, "--set", f"model.length={LENGTH}", "--set",
                "batch.micro=1", "--set", f"batch.global={sequences}", "--set",
                "eval.sequences=1"]

    def measured_iterations(self, config, mesh, zero):
        """Seconds of each timed iteration of one run."""
        where = os.path.join(self.folder, "run")
        run(*self.train_command(config, mesh, zero,
                                self.args.batch * self.args.ranks, where))
        with open(os.path.join(where, "summary.json")) as file:
            self.parts[(mesh, zero)] = json.load(file)["per_rank"][0]
        with open(os.path.join(where, "metrics.jsonl")) as file:
            ends = [json.loads(line)["seconds"] for line in file]
        return [b - a for a, b in zip(ends[1:], ends[2:])]

    def passes_seconds(self, numbers, tp):
        """Forward and backward of a micro-batch on one rank of tp, while every
        core trains the same slice of the model by itself."""
        layers, hidden, ffn, heads, kv_heads, head_dim = numbers
        config = write_config(self.folder, f"slice{tp}", (
            layers, hidden, ffn // tp, heads // tp, max(1, kv_heads // tp),
            head_dim))
        started = []
        for r in range(self.args.ranks):
            where = os.path.join(self.folder, f"alone{r}")
            command = self.train_command(config, "dp=1", "none",
                                         self.args.batch, where)
            started.append((where, subprocess.Popen(
                list(map(str, command)), stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, text=True)))
        seconds = []
        for where, process in started:
            _, said = process.communicate()
            if process.returncode != 0:
                raise RuntimeError(said[-400:])
            with open(os.path.join(where, "summary.json")) as file:
                summary = json.load(file)
            seconds.append(summary["per_rank"][0]["forward_backward_seconds"] /
                           summary["steps"] / self.args.batch)
        return statistics.median(seconds)

    def links(self):
        """Speed of a rank's port, and latency, between threads."""
        def seconds(size):
            result = json.loads(run(
                self.args.canzona, "bench", "collectives", "--ranks",
                self.args.ranks, "--bytes", size, "--json", "--quiet"))
            return [(c["sent_bytes"], c["seconds"])
                    for c in result["collectives"]
                    if c["of"] == "equal"]
        large, small = seconds("16MiB"), seconds("4KiB")
        messages = self.args.ranks - 1
        rate = sum(b for b, _ in large) / sum(
            max(t - s, 1e-9) for (_, t), (_, s) in zip(large, small))
        latency = statistics.median(s for _, s in small) / (1 + messages / 10)
        return rate, latency

    def plan(self, config, mesh, zero, *more):
        return json.loads(run(
            self.args.canzona, "plan", "--model", config, "--mesh", mesh,
            "--zero", zero, "--rule", self.args.rule, "--parameters", "fp32",
            "--activations", "fp32", "--length", LENGTH, "--tokens", LENGTH,
            "--ranks-per-node", self.args.ranks, "--overlap",
            self.args.overlap, "--json", "--quiet", *more))

    def cost_table(self, config):
        plan = os.path.join(self.folder, "plan.json")
        table = os.path.join(self.folder, "cost.json")
        run(self.args.canzona, "plan", "--model", config, "--mesh",
            f"dp={self.args.ranks}", "--rule", self.args.rule, "--parameters",
            "fp32", "--rule-option", "device=cpu", "-o", plan, "--quiet")
        run(self.args.canzona, "calibrate", "--ranks", self.args.ranks, "--for",
            plan, "-o", table, "--quiet")
        return table

    def predict(self, config, mesh, zero, inputs):
        """Seconds of an iteration, by the planner."""
        tp = axis(mesh, "tp")
        teraflops = inputs["flops"] / tp / inputs["passes_seconds"][tp] / 1e12
        link = (f"intra={inputs['link_bytes_per_second']:.0f}B/s,"
                f"latency={inputs['latency_seconds'] * 1e6:.3f}us")
        plan = self.plan(
            config, mesh, zero, "--tflops", teraflops, "--link", link, "--cost",
            inputs["cost"], "--rule-option", "device=cpu", "--global-batch",
            self.args.batch * self.args.ranks * LENGTH)
        return plan["predicted"]["iteration"]["seconds"]

    def inputs(self, config, numbers, meshes):
        rate, latency = self.links()
        at_one = self.plan(config, "dp=1", "none", "--tflops", 1,
                           "--global-batch", LENGTH)
        return {"link_bytes_per_second": rate, "latency_seconds": latency,
                "flops": 1e12 *
                at_one["predicted"]["iteration"]["compute_seconds"],
                "cost": self.cost_table(config),
                "passes_seconds": {
                    tp: self.passes_seconds(numbers, tp)
                    for tp in sorted({axis(mesh, "tp") for mesh in meshes})}}

    def on_cpu(self, name):
        layers, hidden, ffn, heads, kv_heads, head_dim = MODELS[name]
        scale = self.args.scale
        numbers = (layers, hidden // scale, ffn // scale, heads, kv_heads,
                   head_dim // scale)
        config = write_config(self.folder, name, numbers)
        chosen = layouts(self.args.ranks, "cpu")
        inputs = self.inputs(config, numbers, [mesh for mesh, _ in chosen])
        rates = {tp: inputs["flops"] / tp / s / 1e9
                 for tp, s in inputs["passes_seconds"].items()}
        print(f"\n{name}: a rank's Gflop/s by tp: " + ", ".join(
            f"{tp}: {rate:.0f}" for tp, rate in rates.items()) +
            f"; {inputs['link_bytes_per_second'] / 1e9:.2f} GB/s, "
            f"{inputs['latency_seconds'] * 1e6:.0f} us between threads",
            flush=True)
        times = {layout: [] for layout in chosen}
        start = time.monotonic()
        for turn in range(self.args.turns):
            if time.monotonic() - start > self.args.limit:
                print(f"{turn} of {self.args.turns} turns", flush=True)
                break
            for mesh, zero in chosen:
                try:
                    times[(mesh, zero)] += self.measured_iterations(
                        config, mesh, zero)
                except RuntimeError as error:
                    print(error, file=sys.stderr)
        rows = []
        for (mesh, zero), seconds in times.items():
            if seconds:
                rows.append({"mesh": mesh, "zero": zero,
                             "measured": statistics.median(seconds),
                             "spread": max(seconds) / min(seconds) - 1,
                             "parts": self.parts[(mesh, zero)],
                             "predicted": self.predict(config, mesh, zero,
                                                       inputs)})
        return rows, inputs

    def on_gpu(self, name):
        """Both times are those of `bench step`, in turns."""
        config = write_config(self.folder, name, MODELS[name])
        rows = []
        for mesh, zero in layouts(self.args.ranks, "cuda"):
            measured, predicted = [], []
            for _ in range(self.args.turns):
                try:
                    result = json.loads(run(
                        self.args.canzona, "bench", "step", "--model", config,
                        "--mesh", mesh, "--zero", zero, "--rule",
                        self.args.rule, "--strategy", "balanced", "--device",
                        "cuda", "--split-gpu", "--compute", "products",
                        "--tokens", 2048, "--micro-batches",
                        self.args.batch * axis(mesh, "tp"), "--link",
                        CUDA_LINKS, "--ranks-per-node",
                        max(2, self.args.ranks // 2), "--iterations",
                        self.args.steps, "--steps", 2, "--overlap",
                        "background", "--json", "--quiet"))
                except RuntimeError as error:
                    print(error, file=sys.stderr)
                    break
                plan = result["strategies"][0]
                measured.append(plan["iteration_seconds"])
                predicted.append(plan["predicted_iteration_seconds"])
            if measured:
                rows.append({"mesh": mesh, "zero": zero,
                             "measured": statistics.median(measured),
                             "predicted": statistics.median(predicted)})
        return rows, {"links": CUDA_LINKS}


def kendall(rows):
    """Tau: the share of pairs in the same order less that of the others."""
    same = other = 0
    for i, a in enumerate(rows):
        for b in rows[:i]:
            sign = ((a["measured"] - b["measured"]) *
                    (a["predicted"] - b["predicted"]))
            same += sign > 0
            other += sign < 0
    return (same - other) / max(1, same + other)


def regret(rows):
    chosen = min(rows, key=lambda row: row["predicted"])
    return chosen["measured"] / min(row["measured"] for row in rows) - 1


def show(name, rows):
    print(f"\n| {name} | zero | measured | predicted | |\n|---|---|---|---|---|")
    for row in sorted(rows, key=lambda row: row["measured"]):
        off = row["predicted"] / row["measured"] - 1
        print(f"| {row['mesh']} | {row['zero']} | "
              f"{row['measured'] * 1e3:.1f} ms | "
              f"{row['predicted'] * 1e3:.1f} ms | {100 * off:+.0f} % |")
    print(f"\n{name}: {len(rows)} layouts, tau {kendall(rows):.2f}, regret "
          f"{100 * regret(rows):.1f} %", flush=True)


def main():
    args = parse_arguments()
    args.canzona = os.path.abspath(args.canzona)
    answer = {"ranks": args.ranks, "device": args.device, "rule": args.rule,
              "turns": args.turns, "models": {}}
    with tempfile.TemporaryDirectory() as folder:
        reality = Reality(args, folder)
        for name in args.models.split(","):
            rows, inputs = (reality.on_gpu if args.device == "cuda" else
                            reality.on_cpu)(name)
            if len(rows) < 2:
                sys.exit(f"{name}: fewer than two layouts ran")
            show(name, rows)
            answer["models"][name] = {
                "rows": rows, "inputs": inputs, "tau": kendall(rows),
                "regret": regret(rows)}
    if args.json:
        with open(args.json, "w") as file:
            json.dump(answer, file, indent=1)


if __name__ == "__main__":
    main()
