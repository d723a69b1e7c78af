#!/usr/bin/env python3
"""rank.py FOLDER COMMAND...: a rank that mpirun or a script has started. Its
lines go to the pipe FOLDER/r<rank>, since mpirun may lose the last ones, and
after them how it has ended. Ends as the command has ended."""

import os
import resource
import signal
import subprocess
import sys
import time

ORDERLY = (4, 130, 143)  # after the loss of another rank, or a signal


def main():
    rank = next(os.environ[name] for name in (
        "OMPI_COMM_WORLD_RANK", "PMI_RANK", "CANZONA_RANK")
                if name in os.environ)
    # mpirun signals this process and the rank.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open(os.path.join(sys.argv[1], "r" + rank), "ab", 0) as lines:
        status = subprocess.Popen(sys.argv[2:], stdout=lines,
                                  stderr=lines).wait()
        shown = status if status >= 0 else 128 - status
        # A rank that died may have left a line without its end.
        lines.write(f"\nended: {shown}\n".encode())
    # mpirun kills all others once a second one has ended: they may have to
    # write the line above.
    if status in ORDERLY:
        time.sleep(1)
    if status < 0:
        number = signal.Signals(-status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(status)


main()
