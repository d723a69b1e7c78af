"""Bytes between nodes, counted: modules that go direct and once per node, for
zero_numbers.py. No figure depends on the machine."""
from zero_report import cells

# Bytes do not depend on tokens.
SHORT = {"model.length": 32}


def run_bytes(bench, seconds):
    """Four nodes of four, 4 micro-batches; N is the number of parameters."""
    rows = []
    common = ["--preset", "tiny", "--mesh", "dp=16", "--overlap", "background",
              "--ranks-per-node", 4, "--micro-batches", 4, "--tokens", 32,
              "--steps", 1, "--warmup", 0, "--repeat", 1]
    for rule in ("adamw", "muon"):
        words = [*common, "--rule", rule]
        direct = bench.run("bytes", seconds / 4, *words, "--zero",
                           "zero3;hier:4", settings=SHORT)
        node = bench.run("bytes", seconds / 4, *words, "--zero", "zero3",
                         "--collectives", "node", settings=SHORT)
        if direct is None or node is None:
            return
        zero3, hier = cells(direct)
        for name, cell in (("zero3", zero3),
                           ("zero3 --collectives node", cells(node)[0]),
                           ("hier:4", hier)):
            slow = cell["slow_bytes_per_rank"]
            rows.append(
                f"| {rule} | {name} | {slow} | {cell['slow_bytes_predicted']} "
                f"| {slow / direct['parameters']:.3f}N | "
                f"{slow / hier['slow_bytes_per_rank']:.2f} | "
                f"{cell['digest'][:8]} |")
    bench.say("", "## Bytes between nodes, four nodes of four, 4 micro-batches",
              "", "Of the rank that sends most, in a step. Wanted: 24 times "
              "hier:4 for zero3, 6 times where it sends once per node; a "
              "matrix rule's step has an exchange of its own on top.", "",
              "| rule | | slow bytes, counted | predicted | | : hier:4 | "
              "digest |", "|---|---|---|---|---|---|---|", *rows)
