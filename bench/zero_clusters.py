#!/usr/bin/env python3
"""Predicted, not measured: sizes of ZeRO on clusters like those of AsyncHZP.

    python3 bench/zero_clusters.py --markdown clusters.md

Cards that reach a share of 300 TFLOP/s, 64 GB each, groups of 8 at 400 GB/s,
200 Gb/s between them; 16M tokens a step in micro-batches of 8,192. For every
model, rule and number of cards: the fastest sizes that fit beside the paper's
(64, 8, 8). Standard library only.
"""
from cluster_table import ClusterTable, cluster_parser

MODELS = ("qwen3-32b", "qwen3-30b-a3b")
CARDS = (256, 512, 1024)
RULES = ("adamw", "muon")
MICRO_BATCH = 8192
STEP_TOKENS = 1 << 24


def parse_arguments():
    parser = cluster_parser(__doc__)
    parser.add_argument("--tflops", type=float, default=150,
                        help="that a card reaches [half of 300]")
    parser.add_argument("--all", action="store_true",
                        help="every triple, not only those near the paper's")
    return parser.parse_args()


def triples(cards):
    found = ["zero1", "zero2", "zero3"]
    z1 = 16
    while z1 <= cards:
        for z2, z3 in ((8, 8), (4, 8), (8, 4), (16, 16), (4, 4), (8, 16)):
            found.append(f"z1={z1},z2={z2},z3={z3}")
        z1 *= 2
    return ";".join(found)


def predict(table, model, rule, cards):
    return table.predicted(
        "compare", "--model", model, "--mesh", f"dp={cards}", "--rule", rule,
        "--zero", "all" if table.args.all else triples(cards),
        "--micro-batches", STEP_TOKENS // MICRO_BATCH // cards, "--tokens",
        MICRO_BATCH, "--length", MICRO_BATCH, "--tflops", table.args.tflops,
        "--link", "intra=400GB/s,inter=25GB/s,latency=10us", "--memory-cap",
        "64GB")["sizes"]


def cell(size):
    z = size["zero"]
    return (f"{z['z1']},{z['z2']},{z['z3']} | "
            f"{size['predicted_iteration_seconds']:.2f} | "
            f"{size['memory_bytes'] / 1e9:.1f}")


def main():
    table = ClusterTable(parse_arguments())
    table.say("| model | rule | cards | chosen | s | GB | the paper's | s | GB "
              "| linearity |", "|---|---|---|---|---|---|---|---|---|---|")
    for model in MODELS:
        for rule in RULES:
            first = None
            for cards in CARDS:
                sizes = predict(table, model, rule, cards)
                best = sizes[0]
                paper = next(s for s in sizes
                             if tuple(s["zero"].values()) == (64, 8, 8))
                work = best["predicted_iteration_seconds"] * cards
                first = first or work
                fits = "" if best["fits"] else " (nothing fits)"
                table.say(f"| {model} | {rule} | {cards} | "
                          f"{cell(best)}{fits} | {cell(paper)} | "
                          f"{100 * first / work:.1f} % |")
    table.save()


if __name__ == "__main__":
    main()
