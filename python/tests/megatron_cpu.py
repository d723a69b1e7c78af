"""Lets Megatron-Core run on CPUs, for tests of what surrounds a step.

    with on_cpu(): ...

Megatron names the device "cuda" in many places, and asks for the types of CUDA
tensors. Here "cuda" is the CPU, and streams, events and graphs are nothing."""

import contextlib
from unittest import mock

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode


def _is_cuda(value):
    return isinstance(value, (str, torch.device)) and str(value).startswith(
        "cuda"
    )


class _Redirect(TorchFunctionMode):
    """Calls of torch with the CPU in place of "cuda"."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = getattr(function, "__name__", "")
        if name == "cuda" and isinstance(args[0], torch.Tensor):
            return args[0]
        device = kwargs.get("device")
        if _is_cuda(device) or isinstance(device, int):
            kwargs["device"] = "cpu"
        kwargs.pop("non_blocking", None)
        if name == "to":
            args = tuple("cpu" if _is_cuda(a) else a for a in args)
        result = function(*args, **kwargs)
        if name == "type" and isinstance(result, str):
            return result.replace("torch.", "torch.cuda.")
        return result


class _Nothing:
    """A stream, an event or a context."""

    def __init__(self, *_, **__):
        pass

    def __getattr__(self, name):
        return lambda *_, **__: _Nothing()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


@contextlib.contextmanager
def on_cpu():
    nothing = lambda *_, **__: None
    patches = dict(
        current_device=lambda: "cpu",
        set_device=nothing,
        synchronize=nothing,
        empty_cache=nothing,
        current_stream=_Nothing,
        default_stream=_Nothing,
        Stream=_Nothing,
        Event=_Nothing,
        stream=_Nothing,
        manual_seed=torch.manual_seed,
        get_rng_state=lambda *_, **__: torch.get_rng_state(),
        set_rng_state=lambda state, *_, **__: torch.set_rng_state(state),
        default_generators={"cpu": torch.default_generator},
        device=_Nothing,
        nvtx=_Nothing(),
    )
    all_to_all = dist.all_to_all_single

    def plain_all_to_all(got, sent, *splits, **options):
        """Megatron's numbers of tokens stay tensors, which gloo refuses."""
        splits = [None if s is None else list(map(int, s)) for s in splits]
        for name in ("output_split_sizes", "input_split_sizes"):
            if options.get(name) is not None:
                options[name] = list(map(int, options[name]))
        return all_to_all(got, sent, *splits, **options)

    with contextlib.ExitStack() as stack:
        stack.enter_context(
            mock.patch.object(dist, "all_to_all_single", plain_all_to_all)
        )
        for name, value in patches.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        from megatron.core.tensor_parallel import random

        stack.enter_context(
            mock.patch.object(
                random,
                "_get_cuda_rng_state",
                lambda *_, **__: torch.get_rng_state(),
            )
        )
        stack.enter_context(
            mock.patch.object(
                random,
                "_set_cuda_rng_state",
                lambda state, *_, **__: torch.set_rng_state(state),
            )
        )
        stack.enter_context(_Redirect())
        yield
