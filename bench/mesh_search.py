#!/usr/bin/env python3
"""Predicted, not measured: meshes that are searched for, and how long it takes.

    python3 bench/mesh_search.py --markdown mesh.md

Part `time`: seconds of `canzona compare --meshes` and what it counted. Part
`best`: the best of ND parallelism with ZeRO-1, with ZeRO-1 to 3, of hierarchical
ZeRO over data parallelism alone, and of all. Standard library only.
"""
import json
import subprocess
import tempfile
import time

from cluster_table import ClusterTable, cluster_parser

MODELS = ("qwen3-8b", "llama-3-70b", "qwen3-235b-a22b")
# Cells: name, model, ranks and options.
H100 = ("--gpu", "h100-80", "--length", 4096, "--global-batch", "4M")
# AsyncHZP's cards: 64 GB, groups of 8 at 400 GB/s, 200 Gb/s between them.
PAPER = ("--memory-cap", "64GB", "--tflops", 150,
         "--link", "intra=400GB/s,inter=25GB/s,latency=10us",
         "--global-batch", "16M")
# The dense model of AsyncHZP's paper.
SEED_OSS = {"model_type": "llama", "architectures": ["LlamaForCausalLM"],
            "hidden_size": 5120, "intermediate_size": 27648,
            "num_hidden_layers": 64, "num_attention_heads": 80,
            "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 155136,
            "tie_word_embeddings": False}
SEED = "seed-oss-36b"
CELLS = (
    ("64 H100", "llama-3-70b", 64, H100 + ("--rule", "muon")),
    ("64 H100", "qwen3-30b-a3b", 64, H100 + ("--rule", "muon")),
    ("AsyncHZP, 8K", SEED, 256, PAPER + ("--length", 8192, "--rule", "adamw")),
    ("AsyncHZP, 32K", SEED, 256, PAPER + ("--length", 32768, "--rule", "adamw")),
)


def parse_arguments():
    parser = cluster_parser(__doc__)
    parser.add_argument("--parts", default="time,best")
    parser.add_argument("--ranks", default="64,1024,16384")
    parser.add_argument("--models", default=",".join(MODELS))
    return parser.parse_args()


def search(table, model, ranks, *options):
    if model == SEED:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(SEED_OSS, file)
            file.flush()
            return search(table, file.name, ranks, *options)
    return table.predicted("compare", "--meshes", "--model", model, "--ranks",
                           ranks, *options, activations="bf16")


def name(row):
    again = ", recompute" if row["recompute"] else ""
    return (f"{row['name']}, {row['micro_batches']} x {row['tokens']}{again} | "
            f"{row['seconds']:.2f}")


def say_times(table):
    table.say("| model | ranks | seconds | layouts | over the cap | too slow | "
              "simulated | gap | best | s |", "|---|---|---|---|---|---|---|---|---|---|")
    for model in table.args.models.split(","):
        for ranks in map(int, table.args.ranks.split(",")):
            start = time.monotonic()
            found = search(table, model, ranks, "--rule", "muon", "--gpu",
                           "h200", "--length", 4096, "--global-batch",
                           f"{max(4, ranks // 16)}M")
            seconds = time.monotonic() - start
            of = found["search"]
            table.say(f"| {model} | {ranks} | {seconds:.1f} | {of['in_space']} | "
                      f"{of['over_cap']} | {of['too_slow']} | {of['simulated']} | "
                      f"{100 * of['gap']:.1f} % | {name(found['choice'])} |")


def choice(table, model, ranks, *options):
    try:
        return search(table, model, ranks, *options)
    except subprocess.CalledProcessError:
        return None  # nothing fits


def cell(row):
    return name(row) if row else "none fits | –"


def say_best(table):
    table.say("| cell | model | ranks | ND, ZeRO-1 | s | ND, ZeRO-1 to 3 | s | "
              "hierarchical ZeRO, dp alone | s | best of all | s | over ND |",
              "|---|---|---|---|---|---|---|---|---|---|---|---|")
    for title, model, ranks, options in CELLS:
        nd = choice(table, model, ranks, *options, "--forbid", "zero")
        flat = choice(table, model, ranks, *options, "--forbid", "hierarchical")
        found = search(table, model, ranks, *options)
        alone = [row for row in found["kinds"] if row["kind"].startswith("hier")]
        best = found["choice"]
        gain = (f"{100 * (nd['choice']['seconds'] / best['seconds'] - 1):.1f} %"
                if nd else "–")
        table.say(f"| {title} | {model} | {ranks} | {cell(nd and nd['choice'])} | "
                  f"{cell(flat and flat['choice'])} | "
                  f"{cell(alone and alone[0])} | {name(best)} | {gain} |")


def main():
    table = ClusterTable(parse_arguments())
    if "time" in table.args.parts:
        say_times(table)
    if "best" in table.args.parts:
        say_best(table)
    table.save()


if __name__ == "__main__":
    main()
