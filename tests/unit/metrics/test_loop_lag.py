"""The event loop's lag."""

import asyncio
import time

import pytest

from unpaced.metrics.loop_lag import LoopLag

pytestmark = pytest.mark.anyio


async def test_a_loop_that_stands_is_seen() -> None:
    lag = LoopLag()
    lag.start()
    time.sleep(0.45)  # noqa: ASYNC251
    await asyncio.sleep(0.05)  # the timer, which is long due
    lag.stop()
    assert lag.histogram.total >= 0.19
    n = sum(lag.histogram.counts)
    await asyncio.sleep(0.4)
    assert sum(lag.histogram.counts) == n
