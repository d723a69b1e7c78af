"""read_events.py <folder>: what the tensorboard package finds in it."""

import sys

from tensorboard.backend.event_processing import event_accumulator


def check(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: found {found}, expected {expected}")


def main(folder):
    board = event_accumulator.EventAccumulator(
        folder, size_guidance={event_accumulator.SCALARS: 0})
    board.Reload()
    tags = set(board.Tags()["scalars"])
    expected = {
        "loss/train", "loss/eval", "loss/perplexity", "optimizer/grad_norm",
        "optimizer/learning_rate", "speed/tokens_per_second",
        "speed/optimizer_ms", "speed/comm_ms", "speed/hidden_fraction",
        "memory/bytes",
    }
    check("tags", tags, expected)
    check("version", board.file_version, 2.0)
    loss = board.Scalars("loss/train")
    check("steps", [e.step for e in loss], list(range(1, 301)))
    check("first loss", loss[0].value, 5.0)
    check("wall time", loss[3].wall_time, 1.7e9 + 2)
    check("last loss before", round(loss[199].value, 6), 5.0 / 200)
    check("first loss after", round(loss[200].value, 6), round(4.0 / 201, 6))
    check("loss of step 256", loss[255].value, 4.0 / 256)
    check("steps of evaluations",
          [e.step for e in board.Scalars("loss/eval")], [100, 200, 300])
    print(f"tensorboard read {len(loss)} steps of {len(tags)} scalars")


main(sys.argv[1])
