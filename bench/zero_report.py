"""Answers of `canzona bench zero` as lines of tables, for zero_numbers.py."""
import math


def sizes(cell):
    zero = cell["zero"]
    return f"{zero['z1']},{zero['z2']},{zero['z3']}"


def cells(answer):
    return [cell for cell in answer["cells"] if "error" not in cell]


def find(answer, zero, overlap="background"):
    for cell in cells(answer):
        if sizes(cell) == zero and cell["overlap"] == overlap:
            return cell
    return None


def milliseconds(seconds):
    return f"{1e3 * seconds:.0f}"


def time_text(cell):
    return (f"{milliseconds(cell['iteration_seconds'])} "
            f"({milliseconds(cell['iteration_seconds_spread'])})")


def hidden_text(cell, kind=""):
    """1 - waits / links, and the share of links' time that compute went on."""
    return (f"{100 * cell[kind + 'hidden_fraction']:.0f} % "
            f"({100 * cell[kind + 'covered_fraction']:.0f} %)")


def crossing(points):
    """Finds where a ratio passes 1, between neighbours in (size, ratio), by
    logarithms of both; a text."""
    points = sorted(points)
    for (a, x), (b, y) in zip(points, points[1:]):
        if (x - 1) * (y - 1) < 0:
            part = math.log(x) / (math.log(x) - math.log(y))
            return f"{a * (b / a) ** part:.0f}"
    side = "above" if points[0][1] < 1 else "below"
    edge = points[-1][0] if side == "above" else points[0][0]
    return f"{side} {edge}"


def machine_line(answer):
    machine = answer["machine"]
    return (f"Machine: a rank multiplies "
            f"{machine['gemm_flops_one_rank'] / 1e9:.1f} GFLOP/s alone, "
            f"{machine['gemm_flops_all_ranks'] / 1e9:.1f} beside all others; "
            f"copies {machine['copy_bytes_per_second_one_rank'] / 1e9:.1f} and "
            f"{machine['copy_bytes_per_second_all_ranks'] / 1e9:.1f} GB/s; "
            f"all meet in {1e3 * machine['meeting_seconds_idle']:.2f} ms, "
            f"beside compute in "
            f"{1e3 * machine['meeting_seconds_beside_compute']:.2f} ms.")


def overlap_rows(answer, ratio):
    """One line for each overlap, beside `none` and the limit 1 + ratio."""
    zero = sizes(answer["cells"][0])
    none, main = find(answer, zero, "none"), find(answer, zero, "main")
    limit = 1 + ratio if ratio <= 1 else 1 + 1 / ratio
    rows = []
    for cell in cells(answer):
        seconds = cell["iteration_seconds"]
        rows.append(
            f"| {ratio} | {cell['overlap']} | {time_text(cell)} | "
            f"{none['iteration_seconds'] / seconds:.2f} ({limit:.2f}) | "
            f"{main['iteration_seconds'] / seconds:.3f} | "
            f"{hidden_text(cell)} | "
            f"{milliseconds(cell['compute_seconds'])} | "
            f"{milliseconds(cell['waited_seconds'])} | "
            f"{milliseconds(cell['busy_seconds'])} | "
            f"{100 * cell['edge_fraction']:.1f} % | "
            f"{milliseconds(cell['predicted_seconds'])} |")
    return rows


OVERLAP_HEADER = (
    "| ratio | overlap | iteration, ms (spread) | none : it (limit) | "
    "main : it | hidden (covered) | computes, ms | waits, ms | links, ms | edge | "
    "predicted, ms |",
    "|---|---|---|---|---|---|---|---|---|---|---|")


def link_text(link):
    return (f"intra={link['intra_bytes_per_second']:.6g}B/s,"
            f"inter={link['inter_bytes_per_second']:.6g}B/s")
