#!/usr/bin/env python3
"""Evaluation losses of Muon's forms on text: seeds, and the best of several rates.

  python3 bench/muon_losses.py --data perl.pod --batch 4 --cores 16 --set eval.sequences=256

All forms take as many steps, of the same sequences from the same weights. Rates
are tried a factor 2 apart on seed 1, three and more until the best is not at an
edge; the best one is run with every seed. Embeddings, head and norms have the
same AdamW rate in all runs. Runs that are there are not run again, so that the
command may be stopped and given anew.

Leaves OUT/table.md and OUT/results.json.
"""

import os

from against_adamw import Bench, mean, parse_arguments, spread


def options(text):
    words = ["precision=bf16", *text.split()]
    return [flag for word in words for flag in ("--rule-option", word)]


# The chain of nanochat, but with the scale with which AdamW's rates carry over.
NANOCHAT = """equilibrate=rows renorm=on second_moment=normuon beta2=0.9
    second_moment_eps=1e-10 second_moment_eps_mode=clamp coefficients=polar-dion
    norm_factor=1.01 epsilon=1e-06 epsilon_mode=add cautious_decay=on"""

# As RULES of against_adamw.py: share of the steps, first guess of the rate,
# ranks, arguments. The rate of MuonH is an angle.
FORMS = {
    "muon": (1.0, 5e-3, 1, options("")),
    "normuon": (1.0, 5e-3, 1, options("second_moment=normuon")),
    "nanochat": (1.0, 5e-3, 1, options(NANOCHAT)),
    "muonh": (1.0, 2e-2, 1, options("constraint=hyperball")
              + ["--set", "rule.weight_decay=0"]),
    "heads": (1.0, 5e-3, 1, options("") + ["--split", "head"]),
}


def table(bench):
    lines = ["| form | rate | evaluation loss, mean of seeds (spread) | "
             "below Muon's | each seed | seconds |", "|---|---|---|---|---|---|"]
    muon = mean([s["eval_loss"] for s in bench.of_seeds("muon")])
    for form in bench.rules:
        runs = bench.of_seeds(form)
        if not runs:  # stopped before
            continue
        losses = [s["eval_loss"] for s in runs]
        lines.append(
            f"| {form} | {bench.best_rate(form):g} | {mean(losses):.4f} "
            f"({spread(losses):.4f}, {len(losses)} seeds) | "
            f"{muon - mean(losses):+.4f} | "
            f"{', '.join(f'{loss:.4f}' for loss in losses)} | "
            f"{mean([s['seconds'] for s in runs]):.0f} |")
    lines += ["", f"{bench.args.steps} steps. Rates tried, with the evaluation "
              "loss of seed 1:", ""]
    for form in bench.rules:
        tried = sorted(bench.losses(form, 1).items())
        lines.append(f"- {form}: " + ", ".join(
            f"{rate:g}: {loss:.4f}" for rate, loss in tried))
    return "\n".join(lines) + "\n"


def main():
    bench = Bench(parse_arguments(__doc__, FORMS, 450, "build/muon_losses"),
                  FORMS, one="muon")
    os.makedirs(bench.args.out, exist_ok=True)
    if not bench.args.table_only:
        bench.search_all()
    bench.write(table(bench))


if __name__ == "__main__":
    main()
