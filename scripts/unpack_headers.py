"""Unpacks the headers of wheels: what lies below a folder named include.

    python3 scripts/unpack_headers.py <folder of wheels> <folder>
"""

import pathlib
import sys
import zipfile


def unpack(wheel: pathlib.Path, target: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            before, found, below = name.partition("include/")
            if not found or not below or below.endswith("/"):
                continue
            if before not in ("", "nvidia/cudnn/"):
                continue
            path = target / below
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(name))


def main() -> None:
    wheels, target = map(pathlib.Path, sys.argv[1:])
    for wheel in sorted(wheels.glob("*.whl")):
        unpack(wheel, target)


if __name__ == "__main__":
    main()
