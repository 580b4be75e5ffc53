"""Shared by unit tests."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # a machine that tests without --traces need not have its packages
    from tests.support.monitoring.otlp_receiver import Receiver


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator["Receiver"]:
    """Where an application in the tests' own process sends its spans with `traces=True`.

    Nothing is sent by the clock: a thread that found no collector after the test would repeat for
    seconds, and draw its pauses from `random`'s state, which Hypothesis leaves to nobody else.
    """
    from tests.support.monitoring.otlp_receiver import receiving

    with receiving() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
        yield receiver
