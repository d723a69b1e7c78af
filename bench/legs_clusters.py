#!/usr/bin/env python3
"""Predicted, not measured: plain ZeRO-1 on 256 GPUs, direct and once per node.

    python3 bench/legs_clusters.py --markdown legs.md

Kernels as they were measured on one H200 (cost_tables/nvidia_h200.json), nodes
of 8 at 350 GB/s a rank, 45 GB/s per NIC between them. For every strategy: how
long a rank's links to other nodes and to its own are busy with sums and new
parameters of a step of Qwen3-8B on dp=256; and the optimizer's step of
Qwen3-32B on dp=32,tp=8. Standard library only.
"""
import argparse
import json
import subprocess

STRATEGIES = ("replicated", "layerwise", "start_offset", "contiguous",
              "megatron", "balanced")
FAST, SLOW = 350e9, 45e9  # bytes a second, each way


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--canzona", default="build/canzona")
    parser.add_argument("--cost", default="cost_tables/nvidia_h200.json")
    parser.add_argument("--rule", default="muon")
    parser.add_argument("--markdown")
    return parser.parse_args()


def plan(args, model, mesh, strategy, collectives):
    command = [args.canzona, "plan", "--model", model, "--mesh", mesh,
               "--rule", args.rule, "--strategy", strategy, "--cost",
               args.cost, "--link",
               f"intra={FAST / 1e9:g}GB/s,inter={SLOW / 1e9:g}GB/s",
               "--ranks-per-node", "8", "--collectives", collectives,
               "--activations", "none", "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


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
    args = parse_arguments()
    text = ["| strategy | direct: slow links, mean s | slowest rank | fast "
            "links, mean | legs: slow links, mean s | slowest rank | fast "
            "links, mean |", "|---|---|---|---|---|---|---|"]
    for strategy in STRATEGIES:
        direct, legs = (plan(args, "qwen3-8b", "dp=256", strategy, how)
                        for how in ("direct", "node"))
        text.append(f"| `{strategy}` | {cells(direct)} | {cells(legs)} |")
        print(text[-1], flush=True)
    text += ["", "| strategy | step, s | of this broadcasts, s |", "|---|---|---|"]
    for strategy in STRATEGIES:
        shown = plan(args, "qwen3-32b", "dp=32,tp=8", strategy, "auto")
        sent = max(
            max(w["sent_intra"], w["received_intra"]) / FAST +
            max(w["sent_inter"], w["received_inter"]) / SLOW
            for w in (r["bytes"].get("broadcast", dict.fromkeys((
                "sent_intra", "sent_inter", "received_intra",
                "received_inter"), 0)) for r in shown["ranks"]))
        text.append(f"| `{strategy}` | "
                    f"{shown['predicted']['step_seconds_mean']:.4f} | "
                    f"{sent:.3f} |")
        print(text[-1], flush=True)
    if args.markdown:
        with open(args.markdown, "w") as file:
            file.write("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
