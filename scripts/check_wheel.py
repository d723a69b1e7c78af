#!/usr/bin/env python3
"""check_wheel.py WHEEL... [--cpu]

Fails unless each wheel keeps what its name promises: glibc's symbols are no newer
than its tag, nothing but glibc is needed, undefined names are NVIDIA's alone,
both libraries and the program are inside (--cpu: no CUDA), and it is no larger
than 45 MB. Needs readelf and nm.
"""

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

LARGEST = 45_000_000
NEEDED = re.compile(r"(libc|libm|libdl|librt|libpthread|ld-linux-[\w-]+)\.so\.\d+$")
# Functions that the package finds in torch's libraries before it loads ours.
NVIDIAS = re.compile(r"(cublas|cublasLt|cusolver)[A-Z]\w*$")
FILES = {
    "canzona/lib/libcanzona.so",
    "canzona/lib/libcanzona_cuda.so",
    "canzona/bin/canzona",
}
MACHINES = {"x86_64": "X86-64", "aarch64": "AArch64"}


def said(*command):
    return subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout


def version(text):
    return tuple(int(part) for part in text.split("."))


def faults_of_file(path, newest, machine):
    """What is wrong with a program or a library."""
    header = said("readelf", "-hd", path)
    if MACHINES[machine] not in header:
        yield f"is not for {machine}"
    for needed in re.findall(r"NEEDED.*\[(.*)\]", header):
        if not NEEDED.match(needed):
            yield f"needs {needed}"
    if re.search(r"\((RPATH|RUNPATH)\)", header):
        yield "looks for libraries in folders of its own (RUNPATH)"
    names = said("readelf", "-W", "--dyn-syms", path)
    for found in sorted(set(re.findall(r"@@?(\w+)_([\d.]+)", names))):
        library, number = found
        if library != "GLIBC":
            yield f"needs {library}_{number}"
        elif version(number) > newest:
            where = re.search(rf"(\S+)@GLIBC_{re.escape(number)}\b", names)
            yield f"needs GLIBC_{number} ({where and where.group(1)})"
    for line in names.splitlines():
        words = line.split()
        if "UND" not in words or "WEAK" in words or "@" in line:
            continue
        name = words[-1]
        if name != "UND" and not NVIDIAS.match(name):
            yield f"misses {name}"


def faults(wheel, wanted):
    tag = re.search(r"-py3-none-manylinux_(\d+)_(\d+)_(\w+)\.whl$", wheel.name)
    if not tag:
        yield f"{wheel.name} is not called …-py3-none-manylinux_*.whl"
        return
    newest = int(tag.group(1)), int(tag.group(2))
    if wheel.stat().st_size > LARGEST:
        yield f"{wheel.stat().st_size / 1e6:.1f} MB are more than 45"
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            missing = wanted - set(archive.namelist())
            archive.extractall(folder)
        for name in sorted(missing):
            yield f"has no {name}"
        for name in sorted(wanted - missing):
            for fault in faults_of_file(
                Path(folder, name), newest, tag.group(3)
            ):
                yield f"{name}: {fault}"


def main(words):
    wanted = set(FILES)
    if "--cpu" in words:
        words.remove("--cpu")
        wanted.remove("canzona/lib/libcanzona_cuda.so")
    if not words:
        sys.exit(__doc__)
    status = 0
    for word in words:
        wheel = Path(word)
        found = list(faults(wheel, wanted))
        for fault in found:
            print(f"{wheel.name}: {fault}", file=sys.stderr)
        status = status or bool(found)
        if not found:
            print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, fit")
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
