"""`unpaced` and `python -m unpaced`."""

import contextlib
import gc
import os
import sys
from typing import NoReturn

from unpaced.cli.main import main as run


def main() -> NoReturn:
    """Run the command line and end the process.

    At once: taking the interpreter and its modules apart takes longer than an idle server's whole
    shutdown, and frees what the process's end frees anyway. Whatever has to be put in order was,
    before `run` returned.
    """
    _open_standard_streams()
    # The collector would go through a growing heap dozens of times, a fifth of a start, to find
    # 2 % of what imports make. The application turns it on when it is ready.
    gc.disable()
    # pydantic would read what every installed package says of itself, in search of plugins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        status = run()
    except SystemExit as error:  # argparse
        status = error.code if isinstance(error.code, int) else 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def _open_standard_streams() -> None:
    # A closed one would be the next file or client that is opened, and get what is said there.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115


if __name__ == "__main__":
    main()
