"""Lines without colours are structlog's, character by character."""

from datetime import datetime
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from unpaced.process.plain_lines import ClockStamps, PlainLines

PRINTABLE = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]).filter(str.isprintable))
VALUES = st.one_of(PRINTABLE, st.integers(), st.floats(), st.none(), st.booleans(),
                   st.lists(st.integers()))  # fmt: skip
NAMES = st.from_regex(r"[a-z_]{1,12}", fullmatch=True).filter(
    lambda name: name not in ("exception", "exc_info", "stack", "logger", "logger_name")
)
LEVELS = st.sampled_from(["debug", "info", "warning", "error", "critical"])


def structlogs(event: dict[str, Any]) -> str:
    renderer = structlog.dev.ConsoleRenderer(
        colors=False, exception_formatter=structlog.dev.plain_traceback, pad_event_to=8,
        sort_keys=False,
    )  # fmt: skip
    return renderer(None, "", dict(event))


@given(
    st.dictionaries(NAMES, VALUES, max_size=6),
    st.fixed_dictionaries(
        {"event": PRINTABLE}, optional={"level": LEVELS, "timestamp": st.just("01:02:03")}
    ),
)
def test_lines_are_those_of_structlog(fields: dict[str, Any], known: dict[str, Any]) -> None:
    event = fields | known
    assert PlainLines()(None, "", dict(event)) == structlogs(event)


def test_a_traceback_is_shown() -> None:
    event = {"event": "bad", "level": "error", "exception": "Traceback ...\nValueError: x"}
    assert PlainLines()(None, "", dict(event)) == structlogs(event)


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\x1b[2Jb", "a\u2028b", "\x00"])
def test_a_value_cannot_make_a_line_or_move_the_cursor(text: str) -> None:
    line = PlainLines()(None, "", {"event": "e", "path": text})
    assert line == f"e        path={text!r}"


def test_clock_stamps_are_the_local_time_of_every_second() -> None:
    now = 1_700_000_000.0
    stamp = ClockStamps(lambda: now)
    for step in (0.0, 0.4, 0.7, 1.0, 59.5, 3600.0, -7200.0):
        now += step
        shown = datetime.fromtimestamp(now).astimezone().strftime("%H:%M:%S")
        event = stamp(None, "info", {"level": "info", "event": "said"})
        assert list(event.items())[-1] == ("timestamp", shown)
