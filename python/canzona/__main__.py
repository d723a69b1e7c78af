"""`python -m canzona`, and the script `canzona`: becomes the program."""

from __future__ import annotations

import os
import sys

from ._errors import UsageError
from ._program import program


def main() -> None:
    try:
        path = os.fspath(program())
        os.execv(path, ["canzona", *sys.argv[1:]])
    except UsageError as error:
        sys.exit(f"canzona: {error}")
    except OSError as error:
        sys.exit(f"canzona: {path} cannot be started: {error.strerror}")


if __name__ == "__main__":
    main()
