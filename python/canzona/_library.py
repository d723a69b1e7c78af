"""Loads libcanzona.so by ctypes and declares what canzona/c/canzona.h does.

    library = load("cpu")
    library.check(library.canzona_step_end(step))

There are two libraries: libcanzona.so computes on CPUs, libcanzona_cuda.so on
GPUs as well; the latter is loaded when a GPU is first asked for. ctypes lets
other threads of the interpreter run during every call.
"""

from __future__ import annotations

import ctypes
import glob
import importlib.util
import os
import sys
import threading
from pathlib import Path
from typing import Any, Callable

from ._errors import Error, NumericalError, UsageError

ABI = 3
NUMBERS = 16  # of a step, int64 each

_USAGE_ERROR = 1
_NUMERICAL_ERROR = 2
_MEMORY_ERROR = 3

# A file, or a folder that holds libcanzona.so and libcanzona_cuda.so.
_VARIABLE = "CANZONA_LIBRARY"


class Allocator(ctypes.Structure):
    """canzona_allocator"""

    ALLOCATE = ctypes.CFUNCTYPE(
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
    )
    RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    _fields_ = [
        ("allocate", ALLOCATE),
        ("release", RELEASE),
        ("context", ctypes.c_void_p),
    ]


class Memory(ctypes.Structure):
    """canzona_memory; its arrays are addresses, by tensor or by state."""

    _fields_ = [
        ("weights", ctypes.c_void_p),
        ("masters", ctypes.c_void_p),
        ("states", ctypes.c_void_p),
        ("slots", ctypes.c_void_p),
        ("rooms", ctypes.c_void_p),
        ("numbers", ctypes.c_void_p),
    ]


class Rate(ctypes.Structure):
    """canzona_rate"""

    _fields_ = [
        ("number", ctypes.c_double),
        ("live", ctypes.c_void_p),
        ("is_double", ctypes.c_int32),
    ]


class Replay(ctypes.Structure):
    """canzona_replay"""

    _fields_ = [
        ("counts", ctypes.c_void_p),
        ("rates", ctypes.c_void_p),
        ("skipped", ctypes.c_void_p),
        ("refused", ctypes.c_void_p),
        ("limit", ctypes.c_double),
        ("skip", ctypes.c_int32),
    ]


class Outcome(ctypes.Structure):
    """canzona_outcome"""

    _fields_ = [
        ("skipped", ctypes.c_int32),
        ("nonfinite_tensor", ctypes.c_int32),
        ("unlike", ctypes.c_int32),
        ("norm", ctypes.c_double),
    ]


_int, _int32, _int64 = ctypes.c_int, ctypes.c_int32, ctypes.c_int64
_double, _text, _pointer = ctypes.c_double, ctypes.c_char_p, ctypes.c_void_p

# Result and arguments. Handles and arrays are plain addresses.
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "canzona_abi": (_int32, ()),
    "canzona_version": (_text, ()),
    "canzona_error": (_text, ()),
    "canzona_error_kind": (_int32, ()),
    "canzona_rules": (_text, ()),
    "canzona_describe": (_text, (_text,)),
    "canzona_qk_factors": (
        _int,
        (_pointer, _int32, _int32, _double, _double, _int32, _pointer),
    ),
    "canzona_plan_new": (_pointer, (_text, _int64)),
    "canzona_plan_json": (_text, (_pointer,)),
    "canzona_plan_digest": (_text, (_pointer,)),
    "canzona_plan_explain": (_text, (_pointer, _int32)),
    "canzona_plan_html": (_text, (_pointer,)),
    "canzona_plan_free": (None, (_pointer,)),
    "canzona_step_new": (
        _pointer,
        (_pointer, _int32, _text, _pointer, _int32, _pointer),
    ),
    "canzona_step_layout": (_text, (_pointer,)),
    "canzona_step_free": (None, (_pointer,)),
    "canzona_step_bind": (_int, (_pointer, _pointer)),
    "canzona_step_options": (_int, (_pointer, _int32, _text, _int64)),
    "canzona_step_begin": (_int, (_pointer, _pointer, _pointer, _pointer)),
    "canzona_step_look": (_int, (_pointer,)),
    "canzona_step_squares": (_int, (_pointer,)),
    "canzona_step_clip": (_int, (_pointer, _double)),
    "canzona_step_judge": (_int, (_pointer, _int32)),
    "canzona_step_run": (_int, (_pointer, _int32)),
    "canzona_step_needs": (_int, (_pointer, _int32, _int64, _pointer)),
    "canzona_step_end": (_int, (_pointer,)),
    "canzona_step_capture": (_int, (_pointer, _pointer, _pointer)),
    "canzona_step_abandon": (_int, (_pointer,)),
    "canzona_step_outcome": (_int, (_pointer, _pointer)),
}


class Library:
    """A loaded library; every function of canzona.h is an attribute."""

    def __init__(self, path: Path):
        self.path = path
        self._dll = ctypes.CDLL(os.fspath(path))
        _check_abi(self._dll, path)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = _function(self._dll, name, path)
            function.restype = result
            function.argtypes = arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(f"{self.path} has no function {name}")

    def error(self) -> Exception:
        """The calling thread's last error, as an exception."""
        text = self.canzona_error().decode("utf-8", "replace")
        kind = self.canzona_error_kind()
        if kind == _USAGE_ERROR:
            return UsageError(text)
        if kind == _NUMERICAL_ERROR:
            return NumericalError(text)
        return MemoryError(text) if kind == _MEMORY_ERROR else Error(text)

    def check(self, status: int) -> None:
        """Raises the error that a function's status tells of."""
        if status != 0:
            raise self.error()

    def found(self, result: Any) -> Any:
        """Returns a handle or a text; raises the error if there is none."""
        if result is None:
            raise self.error()
        return result

    def text(self, result: bytes | None) -> str:
        return self.found(result).decode("utf-8")

    def version(self) -> str:
        return self.text(self.canzona_version())

    def rules(self) -> str:
        return self.text(self.canzona_rules())

    def describe(self, device: str = "cpu") -> str:
        return self.text(self.canzona_describe(device.encode()))


def _function(dll: ctypes.CDLL, name: str, path: Path) -> Any:
    try:
        return getattr(dll, name)
    except AttributeError:
        raise Error(
            f"{path} has no function {name}: not a library of "
            "this release of Canzona's"
        ) from None


def _check_abi(dll: ctypes.CDLL, path: Path) -> None:
    abi = _function(dll, "canzona_abi", path)()
    if abi != ABI:
        raise Error(
            f"{path} has version {abi} of the C interface, but this package "
            f"needs {ABI}: they are from different releases; install the "
            f"package again, or let ${_VARIABLE} name another library"
        )


def package_folder() -> Path:
    return Path(__file__).resolve().parent


def source_tree() -> Path | None:
    """The source tree that this package lies in, unless it is installed."""
    root = package_folder().parent.parent
    return root if (root / "CMakePresets.json").is_file() else None


def candidates(device: str) -> list[Path]:
    """Where the library of "cpu" or "cuda" may be, the first choice first."""
    name = "libcanzona_cuda.so" if device == "cuda" else "libcanzona.so"
    named = os.environ.get(_VARIABLE)
    if named:
        path = Path(named)
        return [path / name if path.is_dir() else path]
    places = [package_folder() / "lib" / name]
    tree = source_tree()
    if tree is not None:
        places.append(
            tree / ("build-cuda" if device == "cuda" else "build") / name
        )
    return places


def _refuse_unfit_torch() -> None:
    """The library takes cuBLAS and cuSOLVER from torch, and its stream."""
    version = getattr(sys.modules.get("torch"), "version", None)
    cuda = getattr(version, "cuda", None)
    if cuda is not None and cuda.partition(".")[0] != "13":
        raise UsageError(
            f"this torch ({version.__version__}) is built for CUDA {cuda}; "
            "tensors on a GPU need one for CUDA 13 (PyPI's from 2.11 on: "
            "`pip install 'torch>=2.11'`), tensors on a CPU do not"
        )


def _open(device: str) -> Library:
    if device == "cuda":
        _refuse_unfit_torch()
    places = candidates(device)
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise UsageError(_not_found(device, places))
    try:
        return Library(path)
    except OSError as error:
        if device != "cuda":
            raise Error(f"{path} cannot be loaded: {error}") from error
        reason = error
    # What it needs of CUDA may lie where this process has not looked yet.
    load_cuda_libraries()
    try:
        return Library(path)
    except OSError:
        raise UsageError(
            f"{path} cannot be loaded: {reason}; it needs cuBLAS and cuSOLVER "
            "of CUDA 13, which a PyTorch built with CUDA 13 brings along, else "
            "`pip install nvidia-cublas nvidia-cusolver`"
        ) from reason


def _not_found(device: str, places: list[Path]) -> str:
    looked = " nor ".join(str(place) for place in places)
    text = f"there is no library for {device}: neither {looked} exists"
    if len(places) == 1:
        text = f"there is no library for {device}: {looked} does not exist"
    if os.environ.get(_VARIABLE):
        return f"{text}, which ${_VARIABLE} names"
    if device == "cuda":
        return (
            f"{text}; this package was built without CUDA: install it where "
            "nvcc is (`make python`, or `pip install .` with CANZONA_CUDA=ON)"
        )
    return f"{text}; `make` builds one, `pip install .` brings one along"


def _cuda_folders() -> list[Path]:
    """Folders of NVIDIA's packages and of torch that hold CUDA's libraries."""
    folders: list[Path] = []
    for package in ("nvidia", "torch"):
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            folders += map(Path, glob.glob(f"{place}/*/lib"))
            folders.append(Path(place) / "lib")
    return [folder for folder in folders if folder.is_dir()]


def load_cuda_libraries() -> None:
    """Loads those of CUDA's libraries that lie in Python packages, so that
    libcanzona_cuda.so finds them by name."""
    names = (
        "libnvJitLink.so.13",
        "libcublasLt.so.13",
        "libcublas.so.13",
        "libcusparse.so.12",
        "libcusolver.so.12",
    )
    folders = _cuda_folders()
    for name in names:
        for folder in folders:
            try:
                ctypes.CDLL(os.fspath(folder / name), mode=ctypes.RTLD_GLOBAL)
                break
            except OSError:
                continue


_loaded: dict[str, Library] = {}
_lock = threading.Lock()


def load(device: str = "cpu") -> Library:
    """The library for a device: "cpu", "cuda" or "cuda:3"; loaded once.

    UsageError says why it cannot be.
    """
    kind = device.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise UsageError(f"device '{device}': expected cpu or cuda:N")
    library = _loaded.get(kind)
    if library is None:
        with _lock:
            library = _loaded.get(kind) or _open(kind)
            _loaded[kind] = library
    return library
