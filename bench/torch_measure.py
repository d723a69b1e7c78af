"""Times PyTorch on one device: steps of optimizers, products, copies.

On a GPU by CUDA events, with the host free to run ahead as it does in
training; elsewhere by the wall.
"""
import statistics
import time

import torch


class Marks:
    """Points in time on the device; seconds between them."""

    def __init__(self, device):
        self.cuda = torch.device(device).type == "cuda"
        self.points = []

    def mark(self):
        if self.cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
        else:
            event = time.perf_counter()
        self.points.append(event)

    def seconds(self):
        if not self.cuda:
            return [b - a for a, b in zip(self.points, self.points[1:])]
        torch.cuda.synchronize()
        return [a.elapsed_time(b) / 1e3
                for a, b in zip(self.points, self.points[1:])]


def times_of(step, rounds, device):
    """Seconds of each of so many steps, issued one after the other."""
    marks = Marks(device)
    marks.mark()
    for _ in range(rounds):
        step()
        marks.mark()
    return marks.seconds()


def step_seconds(optimizer, rounds, device, warm_ups=3):
    """The median step."""
    times_of(optimizer.step, warm_ups, device)
    return statistics.median(times_of(optimizer.step, rounds, device))


def periodic_seconds(optimizer, period, periods, device):
    """Plain and refresh steps, and their mean over a period. What comes up to
    the first refresh, that included, warms up."""
    while not optimizer.refreshes_next():
        optimizer.step()
    optimizer.step()
    kinds = []

    def step():
        kinds.append(optimizer.refreshes_next())
        optimizer.step()

    seconds = times_of(step, periods * period, device)
    plain, refresh = (statistics.median(
        s for s, kind in zip(seconds, kinds) if kind == wanted)
        for wanted in (False, True))
    return {"plain_seconds": plain, "refresh_seconds": refresh,
            "seconds": ((period - 1) * plain + refresh) / period}


def product_tflops(device, dtype, n=8192):
    """The rate of a plain product of random matrices."""
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    step = lambda: torch.matmul(a, b, out=out)
    times_of(step, 3, device)
    return 2 * n ** 3 / statistics.median(times_of(step, 10, device)) / 1e12


def copy_bytes_per_second(device, size):
    """Bytes read and written."""
    a = torch.ones(size, dtype=torch.uint8, device=device)
    b = torch.empty_like(a)
    step = lambda: b.copy_(a)
    times_of(step, 3, device)
    return 2 * size / statistics.median(times_of(step, 10, device))


def parameters(shapes, device):
    """Weights with a gradient each, in fp32."""
    torch.manual_seed(0)
    made = []
    for shape in shapes:
        parameter = torch.nn.Parameter(0.02 * torch.randn(*shape,
                                                          device=device))
        parameter.grad = torch.randn(*shape, device=device)
        made.append(parameter)
    return made


def free(device):
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
