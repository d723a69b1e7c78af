"""Rules, choices and tensor parallelism, for zero_numbers.py."""
from zero_report import (cells, crossing, hidden_text, link_text, machine_line,
                         milliseconds, sizes, time_text)
from zero_session import DEEP

# Name, options, timed iterations.
RULES = [("adamw", [], 5), ("muon", [], 5),
         ("soap", ["precondition_frequency=3"], 3),
         ("shampoo", ["precondition_frequency=3"], 3)]
STEPS = [("muon", [], 5), ("muon", ["precision=bf16"], 3)] + RULES[2:]


def run_rules(bench, seconds):
    """The link is scaled for AdamW, and then the same for all."""
    model = {"model.length": 128}
    common = ["--preset", "small", "--mesh", f"dp={bench.args.ranks}", "--zero",
              "hier:4", "--overlap", "background", "--ranks-per-node", 4,
              "--micro-batches", 8, "--tokens", 1024]
    rows, first = [], None
    for rule, options, steps in RULES:
        words = list(common)
        for option in options:
            words += ["--rule-option", option]
        if first is None:
            words += ["--link", "intra=10GB/s,inter=1GB/s", "--comm-ratio", 0.5]
        else:
            words += ["--link", link_text(first["link"])]
        answer = bench.run("rules", seconds / len(RULES), *words, "--rule",
                           rule, "--steps", steps, "--repeat", 1,
                           settings=model)
        if answer is None:
            if first is None:
                return
            continue
        first = first or answer
        cell, base = cells(answer)[0], cells(first)[0]
        rows.append(
            f"| {rule} | {time_text(cell)} | "
            f"{milliseconds(cell['iteration_seconds_mean'])} | "
            f"{milliseconds(cell['iteration_seconds_worst'])} | "
            f"{cell['iteration_seconds_mean'] / base['iteration_seconds_mean']:.3f}"
            f" | {milliseconds(cell['optimizer_seconds'])} | "
            f"{hidden_text(cell, 'step_')} | "
            f"{100 * cell['step_hidden_limit']:.0f} % | {hidden_text(cell)} |")
    bench.link = link_text(first["link"])
    bench.say("", "## Rules on hier:4, 8k tokens a rank and step", "",
              "Wanted: Muon 1.05 times AdamW.", "", machine_line(first), "",
              "| rule | iteration, ms (spread) | mean | worst | : AdamW | "
              "optimizer, ms | hidden in the step (covered) | limit | "
              "hidden (covered) |", "|---" * 9 + "|", *rows)


def run_step(bench, seconds):
    """Few tokens, so that the step is most of what is measured."""
    rows, machine = [], ""
    for rule, options, steps in STEPS:
        words = ["--mesh", f"dp={bench.args.ranks}", "--zero", "hier:4",
                 "--overlap", "background", "--ranks-per-node", 4, "--tokens",
                 128, "--link", bench.link, "--rule", rule, "--steps", steps,
                 "--repeat", 1]
        for option in options:
            words += ["--rule-option", option]
        answer = bench.run("step", seconds / len(STEPS), *words, settings=DEEP)
        if answer is None:
            continue
        cell, machine = cells(answer)[0], machine or machine_line(answer)
        # Neither both ends of the pipeline nor more than there is to compute.
        limit = min(cell["step_hidden_limit"],
                    cell["optimizer_seconds"] / cell["step_busy_seconds"])
        rows.append(
            f"| {' '.join([rule, *options])} | "
            f"{milliseconds(cell['optimizer_seconds'])} | "
            f"{1e3 * cell['step_waited_seconds']:.1f} | "
            f"{1e3 * cell['step_exposed_seconds']:.1f} | "
            f"{1e3 * cell['step_busy_seconds']:.1f} | "
            f"{hidden_text(cell, 'step_')} | {100 * limit:.0f} % |")
    bench.say("", "## The step on hier:4, 24 layers", "",
              f"Links {bench.link}. Wanted: 85 % of the step's gathers and "
              "scatters hidden.", "", machine, "",
              "| rule | optimizer, ms | waits, ms | of it links busy, ms | "
              "links, ms | hidden (covered) | limit |", "|---" * 7 + "|", *rows)


def run_auto(bench, seconds):
    """Every triple is measured: the prediction's choice against the best."""
    rows, lines = [], []
    links = ["intra=10GB/s,inter=1GB/s", "intra=3GB/s,inter=1GB/s",
             "intra=1GB/s,inter=1GB/s"]
    for link in links:
        answer = bench.run(
            "auto", seconds / len(links), "--mesh", "dp=8", "--zero", "all",
            "--overlap", "background", "--ranks-per-node", 4, "--tokens", 256,
            "--link", link, "--comm-ratio", 1.5, "--steps", 5, "--repeat", 1,
            settings={"model.layers": 8, "model.hidden": 256, "model.ffn": 512,
                      "model.head_dim": 32, "model.length": 128})
        if answer is None:
            continue
        triples = cells(answer)
        ratios = sorted(cell["predicted_seconds"] / cell["iteration_seconds"]
                        for cell in triples)
        near = sum(abs(ratio - 1) <= 0.15 for ratio in ratios)
        lines.append(
            f"{link}: predicted : measured {ratios[0]:.2f} to {ratios[-1]:.2f}, "
            f"median {ratios[len(ratios) // 2]:.2f}, {near} of {len(ratios)} "
            f"within 15 %. {machine_line(answer)}")
        memory = sorted(cell["memory_predicted_max"] for cell in triples)
        for cap in (memory[-1], memory[len(memory) // 2]):
            fits = [cell for cell in triples
                    if cell["memory_predicted_max"] <= cap]
            chosen = min(fits, key=lambda cell: cell["predicted_seconds"])
            best = min(fits, key=lambda cell: cell["iteration_seconds"])
            rows.append(
                f"| {link} | {cap / 1e6:.1f} | {len(fits)} | {sizes(chosen)} | "
                f"{time_text(chosen)} | {sizes(best)} | {time_text(best)} | "
                f"{chosen['iteration_seconds'] / best['iteration_seconds']:.3f}"
                " |")
    bench.say("", "## What the prediction chooses, dp=8, all triples measured",
              "", "Wanted: within 10 % of the fastest that fits.", "",
              "| link | cap, MB | fit | chosen | its ms | fastest | its ms | "
              "ratio |", "|---|---|---|---|---|---|---|---|", *rows, "", *lines)


def run_tensor(bench, seconds):
    """Sequences of one length make a micro-batch; the link is the first's."""
    ranks, rows, link = bench.args.ranks, [], None
    measured, predicted, machine = [], [], ""
    for length in (128, 32, 16, 64, 512, 1024):
        pair = []
        for mesh, zero, tokens in ((f"dp={ranks}", "hier:4", length),
                                   (f"dp={ranks // 4},tp=4", "zero1",
                                    4 * length)):
            words = ["--preset", "small", "--mesh", mesh, "--zero", zero,
                     "--overlap", "background", "--ranks-per-node", 4,
                     "--tokens", tokens, "--steps", 5, "--repeat", 1]
            if link is None:
                words += ["--link", "intra=10GB/s,inter=1GB/s", "--comm-ratio",
                          1.0]
            else:
                words += ["--link", link_text(link)]
            answer = bench.run("tensor", seconds / 12, *words,
                               settings={"model.length": length})
            if answer is None:
                break
            link = link or answer["link"]
            machine = machine or machine_line(answer)
            pair.append(cells(answer)[0])
        if len(pair) < 2:
            break
        zero, tensor = pair
        measured.append((length, tensor["iteration_seconds"] /
                         zero["iteration_seconds"]))
        predicted.append((length, tensor["predicted_seconds"] /
                          zero["predicted_seconds"]))
        rows.append((length,
            f"| {length} | {time_text(zero)} | "
            f"{milliseconds(zero['predicted_seconds'])} | {time_text(tensor)} | "
            f"{milliseconds(tensor['predicted_seconds'])} | "
            f"{measured[-1][1]:.2f} | {predicted[-1][1]:.2f} |"))
    if not rows:
        return
    bench.say("", f"## dp={ranks} hier:4 against dp={ranks // 4},tp=4", "",
              machine, "",
              "| tokens of a rank | hier:4, ms (spread) | predicted | "
              "tp=4, ms (spread) | predicted | tp : hier | predicted |",
              "|---" * 7 + "|", *(row for _, row in sorted(rows)), "",
              "Tokens of a rank at which the better one changes: measured "
              f"{crossing(measured)}, predicted {crossing(predicted)}.")
