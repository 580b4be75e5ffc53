"""Something that is done again and again while something else is looked at."""

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def repeatedly(act: Callable[[], object], every_s: float = 0) -> Iterator[None]:
    """Another thread calls `act`, with pauses of so many seconds before each call."""
    is_over = threading.Event()

    def go_on() -> None:
        while not is_over.wait(every_s):
            act()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
