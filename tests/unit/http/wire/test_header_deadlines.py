"""One timer serves every connection that waits for headers, each at its own time."""

import asyncio
from typing import Any

import pytest

from unpaced.http.wire.header_deadlines import HeaderDeadlines

pytestmark = pytest.mark.anyio


class Clock:
    """Looks like an event loop whose time the test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Any, tuple[Any, ...]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, call: Any, *arguments: Any) -> object:
        self.timers.append((self.now + delay, call, arguments))
        return object()

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [timer for timer in self.timers if timer[0] <= end]:
            timer = min(due, key=lambda timer: timer[0])
            self.timers.remove(timer)
            self.now = max(self.now, timer[0])
            timer[1](*timer[2])
        self.now = end


class Reader:
    def __init__(self, deadlines: HeaderDeadlines) -> None:
        self.deadlines = deadlines
        self.n_late = 0
        self.is_late = asyncio.Event()

    def on_deadline(self) -> None:
        self.n_late += 1
        self.is_late.set()
        self.deadlines.end(self)


async def test_each_reader_has_its_whole_time_and_no_more() -> None:
    deadlines, clock = HeaderDeadlines(10.0), Clock()
    readers = [Reader(deadlines) for _ in range(4)]
    loop: Any = clock
    for reader in readers:
        deadlines.begin(reader, loop)
        clock.advance(2)
    assert len(clock.timers) == 1
    deadlines.begin(readers[0], loop)  # changes nothing: it was waiting already
    deadlines.end(readers[1])
    clock.advance(1.9)
    assert [reader.n_late for reader in readers] == [0, 0, 0, 0]
    clock.advance(0.2)
    assert [reader.n_late for reader in readers] == [1, 0, 0, 0]
    clock.advance(3.8)
    assert [reader.n_late for reader in readers] == [1, 0, 0, 0]
    clock.advance(0.2)
    assert [reader.n_late for reader in readers] == [1, 0, 1, 0]
    deadlines.end(readers[3])
    clock.advance(100)
    assert [reader.n_late for reader in readers] == [1, 0, 1, 0]
    assert clock.timers == []
    deadlines.begin(readers[1], loop)
    clock.advance(10.01)
    assert readers[1].n_late == 1


async def test_it_works_on_a_real_loop() -> None:
    deadlines = HeaderDeadlines(0.02)
    loop = asyncio.get_running_loop()
    readers = [Reader(deadlines) for _ in range(3)]
    for reader in readers:
        deadlines.begin(reader, loop)
    deadlines.end(readers[1])
    async with asyncio.timeout(5):
        await readers[0].is_late.wait()
        await readers[2].is_late.wait()
    assert [reader.n_late for reader in readers] == [1, 0, 1]
