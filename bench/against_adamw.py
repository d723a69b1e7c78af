#!/usr/bin/env python3
"""Counts the steps that a matrix rule needs for AdamW's evaluation loss.

  python3 bench/against_adamw.py --data /usr/share/doc --cores 2 --out build/against

Every run is a whole one, with a schedule of its own length: AdamW takes
--steps steps, a matrix rule its share of them (0.75 for Muon and SOAP, 0.85 for
Shampoo). Rates of matrices are tried a factor 2 apart until the best is not at
an edge; embeddings, head and norms have the same AdamW rate in all runs. The
best rates are run with three seeds. Runs that are there are not run again, so
that the command may be stopped and given anew, on several machines too.

Leaves OUT/table.md, OUT/results.json and OUT/curves.svg.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time

# Share of AdamW's steps, first guess of the rate, ranks of a run, options.
RULES = {
    "adamw": (1.0, 1e-3, 1, []),
    "muon": (0.75, 5e-3, 1, ["--rule-option", "precision=bf16"]),
    "soap": (0.75, 3e-3, 2, []),
    "shampoo": (0.85, 1.5e-3, 2, []),
}
COLORS = {"adamw": "#888888", "muon": "#d95f02", "soap": "#1b9e77",
          "shampoo": "#7570b3"}


def parse_arguments(about=__doc__, rules=RULES, steps=600,
                    out="build/against_adamw"):
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--canzona", default="build/canzona")
    parser.add_argument("--data", required=True)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--steps", type=int, default=steps,
                        help="of AdamW, if it is among the rules")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8,
                        help="sequences of a step")
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--out", default=out)
    parser.add_argument("--rules", default=",".join(rules))
    parser.add_argument("--set", action="append", default=[],
                        help="key=value, for all runs")
    parser.add_argument("--rate", action="append", default=[],
                        help="rule=rate: the first guess")
    parser.add_argument("--minutes", type=float, default=0,
                        help="start no run after so many minutes")
    parser.add_argument("--table-only", action="store_true",
                        help="of what is there")
    return parser.parse_args()


class Bench:
    """Runs of rules, or of forms of the rule `one`."""

    def __init__(self, args, table=RULES, one=""):
        self.args = args
        self.table = table
        self.one = one
        self.begin = time.time()
        self.rules = args.rules.split(",")
        self.free = args.cores
        self.changed = threading.Condition()
        self.rates = {rule: table[rule][1] for rule in table}
        for text in args.rate:
            rule, rate = text.split("=")
            self.rates[rule] = float(rate)

    def steps(self, rule):
        return round(self.table[rule][0] * self.args.steps)

    def ranks(self, rule):
        return min(self.table[rule][2], self.args.cores)

    def folder(self, rule, rate, seed):
        return os.path.join(self.args.out, f"{rule}_{rate:g}_{seed}")

    def command(self, rule, rate, seed):
        command = [self.args.canzona, "train", "--preset", self.args.preset,
                   "--data", self.args.data, "--rule", self.one or rule,
                   "--steps", str(self.steps(rule)), "--seed", str(seed),
                   "--run", self.folder(rule, rate, seed), "--overwrite",
                   "--ranks", str(self.ranks(rule)),
                   "--set", f"rule.learning_rate={rate:g}",
                   "--set", f"batch.global={self.args.batch}", "--set",
                   f"batch.micro={self.args.batch // self.ranks(rule)}"]
        # Runs of all lengths are measured on the same text.
        command += ["--set", "eval.sequences=all"]
        command += self.table[rule][3]
        for setting in self.args.set:
            command += ["--set", setting]
        return command

    def result(self, rule, rate, seed):
        path = os.path.join(self.folder(rule, rate, seed), "summary.json")
        try:
            with open(path) as file:
                summary = json.load(file)
        except (OSError, json.JSONDecodeError):
            return None
        is_whole = (summary["steps"] == self.steps(rule)
                    and summary["eval_loss"] is not None)
        return summary if is_whole else None

    def run(self, rule, rate, seed):
        found = self.result(rule, rate, seed)
        if found or self.args.table_only:
            return found
        minutes = (time.time() - self.begin) / 60
        if self.args.minutes and minutes > self.args.minutes:
            return None
        with self.changed:
            self.changed.wait_for(lambda: self.free >= self.ranks(rule))
            self.free -= self.ranks(rule)
        done = subprocess.run(self.command(rule, rate, seed),
                              capture_output=True, text=True)
        with self.changed:
            self.free += self.ranks(rule)
            self.changed.notify_all()
        if done.returncode != 0:
            print(f"{' '.join(self.command(rule, rate, seed))}\n{done.stderr}",
                  file=sys.stderr)
            return None
        summary = self.result(rule, rate, seed)
        print(f"{rule:8} rate {rate:<8g} seed {seed}: eval "
              f"{summary['eval_loss']:.4f} in {summary['seconds']:.0f} s",
              flush=True)
        return summary

    def losses(self, rule, seed):
        """Evaluation losses of seed `seed` by rate, of runs that are there."""
        found = {}
        for name in os.listdir(self.args.out):
            parts = name.split("_")
            if len(parts) == 3 and parts[0] == rule and parts[2] == str(seed):
                summary = self.result(rule, float(parts[1]), seed)
                if summary:
                    found[float(parts[1])] = summary["eval_loss"]
        return found

    def wanted_rates(self, rule):
        """Rates that have to be tried before the best is inside."""
        middle = self.rates[rule]
        found = self.losses(rule, 1)
        grid = {middle / 2, middle, middle * 2}
        if grid <= set(found):
            best = min(found, key=found.get)
            grid |= {best / 2, best * 2}
        return [rate for rate in sorted(grid) if rate not in found]

    def best_rate(self, rule):
        found = self.losses(rule, 1)
        return min(found, key=found.get) if found else self.rates[rule]

    def run_all(self, jobs):
        threads = [threading.Thread(target=self.run, args=job) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return all(self.result(*job) for job in jobs)

    def search(self, rule):
        while rates := self.wanted_rates(rule):
            if not self.run_all([(rule, rate, 1) for rate in rates]):
                return
        self.run_all([(rule, self.best_rate(rule), seed)
                      for seed in range(2, self.args.seeds + 1)])

    def search_all(self):
        """Every rule by itself; whoever takes longest begins."""
        threads = [threading.Thread(target=self.search, args=[rule])
                   for rule in reversed(self.rules)]
        for thread in threads:
            thread.start()
            time.sleep(0.2)
        for thread in threads:
            thread.join()

    def of_seeds(self, rule):
        rate = self.best_rate(rule)
        found = [self.result(rule, rate, seed)
                 for seed in range(1, self.args.seeds + 1)]
        return [summary for summary in found if summary]

    def write(self, table):
        """The table, and the numbers behind it."""
        print(table)
        with open(os.path.join(self.args.out, "table.md"), "w") as file:
            file.write(table)
        results = {rule: {"rates": self.losses(rule, 1),
                          "best": self.best_rate(rule),
                          "eval_loss": [s["eval_loss"]
                                        for s in self.of_seeds(rule)]}
                   for rule in self.rules}
        with open(os.path.join(self.args.out, "results.json"), "w") as file:
            json.dump(results, file, indent=2)


def mean(values):
    return statistics.fmean(values) if values else float("nan")


def spread(values):
    return max(values) - min(values) if values else float("nan")


def table(bench):
    lines = ["| rule | steps | share | rate of matrices | evaluation loss, mean "
             "of seeds (spread) | below AdamW's | tokens | seconds |",
             "|---|---|---|---|---|---|---|---|"]
    adamw = mean([s["eval_loss"] for s in bench.of_seeds("adamw")])
    for rule in bench.rules:
        runs = bench.of_seeds(rule)
        losses = [s["eval_loss"] for s in runs]
        lines.append(
            f"| {rule} | {bench.steps(rule)} | "
            f"{bench.steps(rule) / bench.args.steps:.2f} | "
            f"{bench.best_rate(rule):g} | {mean(losses):.4f} "
            f"({spread(losses):.4f}, {len(losses)} seeds) | "
            f"{adamw - mean(losses):+.4f} | "
            f"{runs[0]['tokens'] if runs else 0:,} | "
            f"{mean([s['seconds'] for s in runs]):.0f} |")
    lines += ["", "Rates tried, with the evaluation loss of seed 1:", ""]
    for rule in bench.rules:
        tried = sorted(bench.losses(rule, 1).items())
        lines.append(f"- {rule}: " + ", ".join(
            f"{rate:g}: {loss:.4f}" for rate, loss in tried))
    return "\n".join(lines) + "\n"


def curve(folder, width=20):
    """Training losses of a run, smoothed over `width` steps."""
    with open(os.path.join(folder, "metrics.jsonl")) as file:
        losses = [json.loads(line)["loss"] for line in file]
    return [(i + 1, mean(losses[max(0, i - width + 1):i + 1]))
            for i in range(width, len(losses), 5)]


def svg(bench):
    curves = {}
    for rule in bench.rules:
        folder = bench.folder(rule, bench.best_rate(rule), 1)
        if bench.result(rule, bench.best_rate(rule), 1):
            curves[rule] = curve(folder)
    if not curves:
        return ""
    width, height, left, bottom = 720, 360, 56, 40
    top_loss = max(points[len(points) // 12][1] for points in curves.values())
    low_loss = min(y for points in curves.values() for _, y in points)
    steps = bench.args.steps

    def x(step):
        return left + (width - left - 90) * step / steps

    def y(loss):
        share = (loss - low_loss) / (top_loss - low_loss)
        return 12 + (height - bottom - 24) * (1 - min(share, 1))

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} '
             f'{height}" font-family="sans-serif" font-size="12" '
             f'fill="#555"><rect width="{width}" height="{height}" '
             'fill="#fff"/>']
    for i in range(5):
        loss = low_loss + (top_loss - low_loss) * i / 4
        parts.append(f'<line x1="{left}" x2="{width - 90}" y1="{y(loss):.1f}" '
                     f'y2="{y(loss):.1f}" stroke="#eee"/><text x="8" '
                     f'y="{y(loss) + 4:.1f}">{loss:.2f}</text>')
        step = steps * i / 4
        parts.append(f'<text x="{x(step):.1f}" y="{height - 18}" '
                     f'text-anchor="middle">{step:.0f}</text>')
    parts.append(f'<text x="{x(steps / 2):.1f}" y="{height - 3}" '
                 'text-anchor="middle">step (training loss, mean of 20 steps, '
                 'best rates, seed 1)</text>')
    ends = sorted((points[-1][1], rule) for rule, points in curves.items())
    labels = []  # from the bottom up, never on each other
    for loss, rule in ends:
        at = x(curves[rule][-1][0])
        height_at = y(loss)
        for other_x, other_y, _ in labels:
            if abs(other_x - at) < 50:
                height_at = min(height_at, other_y - 13)
        labels.append((at, height_at, rule))
    label_y = {rule: height_at for _, height_at, rule in labels}
    for rule, points in curves.items():
        line = " ".join(f"{x(s):.1f},{y(l):.1f}" for s, l in points)
        parts.append(f'<polyline fill="none" stroke="{COLORS[rule]}" '
                     f'stroke-width="1.8" points="{line}"/>'
                     f'<text x="{x(points[-1][0]) + 6:.1f}" '
                     f'y="{label_y[rule] + 4:.1f}" fill="{COLORS[rule]}">'
                     f'{rule}</text>')
    return "\n".join(parts) + "\n</svg>\n"


def main():
    bench = Bench(parse_arguments())
    os.makedirs(bench.args.out, exist_ok=True)
    if not bench.args.table_only:
        bench.search_all()
    bench.write(table(bench))
    with open(os.path.join(bench.args.out, "curves.svg"), "w") as file:
        file.write(svg(bench))


if __name__ == "__main__":
    main()
