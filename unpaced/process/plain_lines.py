"""Log lines for people without colours, as structlog's ConsoleRenderer has them, in less time.

A line was the largest part of what a request cost that is only refused.
"""

import re
from typing import Any, Final

import structlog

_QUOTED: Final = re.compile(r"[ =\"']")
_RARE: Final = frozenset({"exception", "exc_info", "stack", "logger", "logger_name"})
_LEVEL_WIDTH: Final = len("exception")
_EVENT_WIDTH: Final = 8


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
        parts += [f"{key}={_shown(value)}" for key, value in event.items()]
        return " ".join(parts).rstrip(" ")


def _shown(value: object) -> str:
    if isinstance(value, str):
        return repr(value) if _QUOTED.search(value) or not value.isprintable() else value
    return repr(value)
