#!/usr/bin/env python3
"""Predicted, not measured: plain ZeRO-1 on 256 GPUs, direct and once per node.

    python3 bench/legs_clusters.py --markdown legs.md

Kernels as they were measured on one H200 (cost_tables/nvidia_h200.json), nodes
of 8 at 350 GB/s a rank, 45 GB/s per NIC between them. For every strategy: how
long a rank's links to other nodes and to its own are busy with sums and new
parameters of a step of Qwen3-8B on dp=256; and the optimizer's step of
Qwen3-32B on dp=32,tp=8. Standard library only.
"""
from cluster_table import ClusterTable, cluster_parser

STRATEGIES = ("replicated", "layerwise", "start_offset", "contiguous",
              "megatron", "balanced")
FAST, SLOW = 350e9, 45e9  # bytes a second, each way


def parse_arguments():
    parser = cluster_parser(__doc__)
    parser.add_argument("--cost", default="cost_tables/nvidia_h200.json")
    parser.add_argument("--rule", default="muon")
    return parser.parse_args()


def plan(table, model, mesh, strategy, collectives):
    return table.predicted(
        "plan", "--model", model, "--mesh", mesh, "--rule", table.args.rule,
        "--strategy", strategy, "--cost", table.args.cost, "--link",
        f"intra={FAST / 1e9:g}GB/s,inter={SLOW / 1e9:g}GB/s",
        "--collectives", collectives)


def busy(shown, link, rate):
    """Mean over ranks, and of the slowest rank's busier direction."""
    sent, slowest = 0, 0
    for rank in shown["ranks"]:
        out = sum(w["sent_" + link] for w in rank["bytes"].values())
        into = sum(w["received_" + link] for w in rank["bytes"].values())
        sent += out
        slowest = max(slowest, out, into)
    return sent / len(shown["ranks"]) / rate, slowest / rate


def cells(shown):
    slow, slowest = busy(shown, "inter", SLOW)
    fast, _ = busy(shown, "intra", FAST)
    return f"{slow:.2f} | {slowest:.2f} | {fast:.3f}"


def main():
    table = ClusterTable(parse_arguments())
    table.say("| strategy | direct: slow links, mean s | slowest rank | fast "
              "links, mean | legs: slow links, mean s | slowest rank | fast "
              "links, mean |", "|---|---|---|---|---|---|---|")
    for strategy in STRATEGIES:
        direct, legs = (plan(table, "qwen3-8b", "dp=256", strategy, how)
                        for how in ("direct", "node"))
        table.say(f"| `{strategy}` | {cells(direct)} | {cells(legs)} |")
    table.say("", "| strategy | step, s | of this broadcasts, s |",
              "|---|---|---|")
    for strategy in STRATEGIES:
        shown = plan(table, "qwen3-32b", "dp=32,tp=8", strategy, "auto")
        sent = max(
            max(w["sent_intra"], w["received_intra"]) / FAST +
            max(w["sent_inter"], w["received_inter"]) / SLOW
            for w in (r["bytes"].get("broadcast", dict.fromkeys((
                "sent_intra", "sent_inter", "received_intra",
                "received_inter"), 0)) for r in shown["ranks"]))
        table.say(f"| `{strategy}` | "
                  f"{shown['predicted']['step_seconds_mean']:.4f} | "
                  f"{sent:.3f} |")
    table.save()


if __name__ == "__main__":
    main()
