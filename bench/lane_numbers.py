#!/usr/bin/env python3
"""What of modelled links the streams of one GPU hide: thread ranks share it.

    python3 bench/lane_numbers.py --markdown lanes.md --json lanes.json

Links are as fast as makes communication half of compute (`--comm-ratio 0.5`) for
every row by itself; forward and backward are bf16 products of the modules' own
matrices. `none` waits for everything at once, `background` runs beside compute.

    none : background   wanted 1.3 or more; 1.5 is the limit at this ratio
    hidden              1 - what compute's stream waited / what links were busy;
                        wanted 0.85 or more
    by time             the same with what an iteration takes longer than one
                        without links: ranks that share a GPU also wait for
                        each other's compute
    exchange            of a step of tp=4 whose links are busy for half of it: what
                        compute's stream waited for gathers and scatters of
                        matrices; wanted 0.15 of their time or less

Exit status 1 if a figure falls short. Under a minute on an H200; standard library
only.
"""
import argparse
import json
import subprocess
import sys
import tempfile
import time

from own_model import model_flags

MODEL = (16, 2048, 6144, 16, 8, 128)
ROWS = [(2, "zero1"), (2, "zero3"), (4, "zero1"), (4, "hier:2"), (4, "zero3")]
LEAST_RATIO, LEAST_HIDDEN, MOST_EXPOSED = 1.3, 0.85, 0.15


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--canzona", default="build-cuda/canzona")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tokens", type=int, default=8192,
                        help="of a rank and iteration")
    parser.add_argument("--ratio", type=float, default=0.5,
                        help="of communication to compute")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rows", default="",
                        help="such as 2:zero1,4:zero3,tp [all]")
    parser.add_argument("--split-gpu", action="store_true",
                        help="each rank has an equal share of the GPU's "
                        "multiprocessors, so that one which waits leaves "
                        "nothing to the others")
    parser.add_argument("--markdown")
    parser.add_argument("--json")
    return parser.parse_args()


def run(args, words):
    command = [args.canzona, "bench", "step", *map(str, words), "--device",
               args.device, "--comm-ratio", str(args.ratio), "--quiet",
               "--json"]
    if args.split_gpu:
        command.append("--split-gpu")
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if not done.stdout.startswith("{"):
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    seconds = time.monotonic() - begin
    print(f"{seconds:.0f} s:", *command[1:], file=sys.stderr, flush=True)
    return {"command": " ".join(command), "seconds": seconds,
            "answer": json.loads(done.stdout)}


def run_zero(args, folder, ranks, sizes):
    return run(args, [*model_flags(folder, *MODEL), "--bucket-elements",
                      50_000_000, "--mesh", f"dp={ranks}", "--strategy",
                      "balanced", "--zero", sizes, "--overlap",
                      "none,background", "--compute", "products", "--tokens",
                      args.tokens, "--steps", 2, "--iterations", args.steps])


def run_exchange(args):
    return run(args, ["--model", "qwen3-1.7b", "--mesh", "tp=4", "--strategy",
                      "balanced", "--capacity", "64MiB", "--compute", "0",
                      "--steps", args.steps + 1, "--iterations", 0])


def milliseconds(seconds):
    return f"{1e3 * seconds:.1f} ms"


def zero_row(ranks, sizes, answer):
    plans = {plan["overlap"]: plan for plan in answer["strategies"]}
    for plan in plans.values():
        if "error" in plan:
            sys.exit(f"{sizes} on {ranks} ranks: {plan['error']}")
    none, background = plans["none"], plans["background"]
    ratio = none["iteration_seconds"] / background["iteration_seconds"]
    hidden = background["hidden_fraction"]
    longer = (background["iteration_seconds"] - answer["compute_seconds"]
              - background["step_compute_seconds"])
    by_time = 1 - max(0, longer) / background["links_busy_seconds"]
    good = (ratio >= LEAST_RATIO and hidden >= LEAST_HIDDEN
            and answer["digests_agree"])
    return good, [ranks, f"`{sizes}`", milliseconds(none["iteration_seconds"]),
                  milliseconds(background["iteration_seconds"]),
                  f"{ratio:.2f}x", f"{hidden:.2f}", f"{by_time:.2f}",
                  milliseconds(background["links_busy_seconds"]),
                  milliseconds(background["compute_seconds"]),
                  milliseconds(background["predicted_iteration_seconds"]),
                  "yes" if good else "**no**"]


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]


def main():
    args = parse_arguments()
    wanted = [word for word in args.rows.split(",") if word]
    results, rows, text, all_good = [], [], [], True
    with tempfile.TemporaryDirectory() as folder:
        for ranks, sizes in ROWS:
            if wanted and f"{ranks}:{sizes}" not in wanted:
                continue
            result = run_zero(args, folder, ranks, sizes)
            results.append(result)
            good, row = zero_row(ranks, sizes, result["answer"])
            rows.append(row)
            all_good = all_good and good
    if rows:
        text += table(["ranks", "sizes", "`none`", "`background`", "ratio",
                       "hidden", "by time", "links busy", "computes", "predicted",
                       "as wanted"], rows)
    if not wanted or "tp" in wanted:
        result = run_exchange(args)
        results.append(result)
        trial = result["answer"]["strategies"][0]
        exposed = 1 - trial["step_hidden_fraction"]
        good = exposed <= MOST_EXPOSED
        all_good = all_good and good
        text += ["", f"Exchange of tp=4: step "
                 f"{milliseconds(trial['step_seconds'])}, exposed "
                 f"{100 * exposed:.1f} % ({'as wanted' if good else 'too much'})"
                 ]
    text += ["", f"{sum(r['seconds'] for r in results):.0f} s in all"]
    print("\n".join(text))
    if args.markdown:
        with open(args.markdown, "w") as file:
            file.write("\n".join(text) + "\n")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results, file, indent=1)
    sys.exit(0 if all_good else 1)


if __name__ == "__main__":
    main()
