"""`unpaced` and `python -m server`."""

import contextlib
import os
import sys
from typing import NoReturn

from server.cli.main import main as run


def main() -> NoReturn:
    """Run the command line and end the process.

    At once: taking the interpreter and its modules apart takes longer than an idle server's whole
    shutdown, and frees what the process's end frees anyway. Whatever has to be put in order was,
    before `run` returned.
    """
    try:
        status = run()
    except SystemExit as error:  # argparse
        status = error.code if isinstance(error.code, int) else 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
