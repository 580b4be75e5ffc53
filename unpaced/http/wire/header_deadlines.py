"""Until when connections may take to send a request's headers: one timer for all of them."""

import asyncio
from typing import Protocol


class HeaderReader(Protocol):
    """Who waits for headers."""

    def on_deadline(self) -> None:
        """They have not come in time."""


class HeaderDeadlines:
    """Every deadline is `timeout_s` after its `begin`, so that the oldest one is the next.

    A timer of its own for each request would be made and undone before nearly every one is even
    read.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._deadlines: dict[HeaderReader, float] = {}  # in order
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, reader: HeaderReader, loop: asyncio.AbstractEventLoop) -> None:
        """Headers are awaited from now on, unless they were already."""
        self._deadlines.setdefault(reader, loop.time() + self._timeout_s)
        if self._timer is None:
            self._timer = loop.call_later(self._timeout_s, self._look, loop)

    def end(self, reader: HeaderReader) -> None:
        """They have come, or nobody waits for them any more. Idempotent."""
        self._deadlines.pop(reader, None)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        late = [reader for reader, deadline in self._deadlines.items() if deadline <= now]
        for reader in late:
            self.end(reader)
            reader.on_deadline()
        oldest = next(iter(self._deadlines.values()), None)
        if oldest is not None:
            self._timer = loop.call_later(max(0.001, oldest - now), self._look, loop)
