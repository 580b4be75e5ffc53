"""Where Python's threads are, for who finds out that a server hangs."""

import faulthandler
import signal
import sys
from typing import Final

STACK_DUMP: Final = signal.SIGRTMIN + 3


def write_stacks_on_signal() -> None:
    """From now on STACK_DUMP has every thread's stack written to standard error; nothing ends."""
    if sys.stderr is not None:
        faulthandler.register(STACK_DUMP, file=sys.stderr)
