"""Answers of `canzona bench zero` as lines of tables, for zero_numbers.py."""


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


def machine_line(answer):
    machine = answer["machine"]
    return (f"Machine: a rank multiplies "
            f"{machine['gemm_flops_one_rank'] / 1e9:.1f} GFLOP/s alone, "
            f"{machine['gemm_flops_all_ranks'] / 1e9:.1f} beside all others; "
            f"copies {machine['copy_bytes_per_second_one_rank'] / 1e9:.1f} and "
            f"{machine['copy_bytes_per_second_all_ranks'] / 1e9:.1f} GB/s.")


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
            f"{100 * cell['hidden_fraction']:.0f} % | "
            f"{milliseconds(cell['compute_seconds'])} | "
            f"{milliseconds(cell['waited_seconds'])} | "
            f"{milliseconds(cell['link_seconds'])} | "
            f"{100 * cell['edge_fraction']:.1f} % | "
            f"{milliseconds(cell['predicted_seconds'])} |")
    return rows


OVERLAP_HEADER = (
    "| ratio | overlap | iteration, ms (spread) | none : it (limit) | "
    "main : it | hidden | computes, ms | waits, ms | links, ms | edge | "
    "predicted, ms |",
    "|---|---|---|---|---|---|---|---|---|---|---|")


def link_text(link):
    return (f"intra={link['intra_bytes_per_second']:.6g}B/s,"
            f"inter={link['inter_bytes_per_second']:.6g}B/s")
