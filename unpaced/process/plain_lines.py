"""Log lines for people without colours, as structlog's ConsoleRenderer has them, in less time.

A line was the largest part of what a request cost that is only refused.
"""

import re
import time
from collections.abc import Callable
from typing import Any, Final

import structlog

_QUOTED: Final = re.compile(r"[ =\"']")
_RARE: Final = frozenset({"exception", "exc_info", "stack", "logger", "logger_name"})
_LEVEL_WIDTH: Final = len("exception")
_EVENT_WIDTH: Final = 8


class ClockStamps:
    """A structlog processor: the local time of day, which is written out once a second."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._second = -1
        self._text = ""

    def __call__(
        self, _logger: Any, _name: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        """The event with its `timestamp`."""
        second = int(self._clock())
        if second != self._second:
            self._second, self._text = second, time.strftime("%H:%M:%S", time.localtime(second))
        event["timestamp"] = self._text
        return event


class PlainLines:
    """A structlog processor: the last one. Events with a traceback go to structlog's own."""

    def __init__(self) -> None:
        self._whole = structlog.dev.ConsoleRenderer(
            colors=False,
            exception_formatter=structlog.dev.plain_traceback,
            pad_event_to=_EVENT_WIDTH,
            sort_keys=False,
        )

    def __call__(self, logger: Any, name: str, event: structlog.typing.EventDict) -> str:
        """The line, not ended."""
        if not _RARE.isdisjoint(event):
            return self._whole(logger, name, event)
        parts = []
        if "timestamp" in event:
            parts.append(str(event.pop("timestamp")))
        if "level" in event:
            parts.append(f"[{event.pop('level'):{_LEVEL_WIDTH}}]")
        if "event" in event:
            parts.append(f"{event.pop('event')!s:{_EVENT_WIDTH}}")
        for key, value in event.items():
            parts.append(f"{key}={_shown(value) if isinstance(value, str) else repr(value)}")
        return " ".join(parts).rstrip(" ")


def _shown(text: str) -> str:
    return repr(text) if _QUOTED.search(text) or not text.isprintable() else text
