"""Threads that clients get in turn."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from engine_ext import EngineBusy
from engine_ext.threads.client import turn_taker
from engine_ext.threads.fair_threads import FairThreads

pytestmark = pytest.mark.anyio


@pytest.fixture
async def threads() -> AsyncIterator[FairThreads]:
    made = FairThreads("test", 1, 3)
    yield made
    made.stop()


class Blocker:
    """Holds the one thread until it is let go."""

    def __init__(self, threads: FairThreads) -> None:
        self._begun, self._ends = asyncio.Event(), threading.Event()
        self._loop = asyncio.get_running_loop()
        self.task = asyncio.create_task(threads.run(self._work))

    def _work(self) -> None:
        self._loop.call_soon_threadsafe(self._begun.set)
        assert self._ends.wait(30)

    async def begun(self) -> None:
        await self._begun.wait()

    async def end(self) -> None:
        self._ends.set()
        await asyncio.wait([self.task])


async def test_clients_have_their_turns(threads: FairThreads) -> None:
    blocker = Blocker(threads)
    await blocker.begun()
    done: list[str] = []

    async def ask(client: int, name: str) -> None:
        turn_taker.set(client)
        await threads.run(lambda: done.append(name))

    async with asyncio.TaskGroup() as group:
        for client, name in ((1, "a"), (1, "b"), (1, "c"), (2, "d"), (3, "e")):
            group.create_task(ask(client, name))
            await asyncio.sleep(0)
        await blocker.end()
    assert done == ["a", "d", "e", "b", "c"]


async def test_so_many_of_one_client_may_wait(threads: FairThreads) -> None:
    blocker = Blocker(threads)
    await blocker.begun()
    waiting = [asyncio.create_task(threads.run(lambda: 1)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(EngineBusy, match="3 requests wait"):
        await threads.run(lambda: 1)
    turn_taker.set(5)
    other = asyncio.create_task(threads.run(lambda: 2))
    await asyncio.sleep(0)
    waiting[0].cancel()  # its place is free again
    await asyncio.sleep(0)
    await blocker.end()
    assert await other == 2
    assert [await task for task in waiting[1:]] == [1, 1]
    assert await threads.run(lambda: 3) == 3


async def test_waiting_and_working_have_limits_of_their_own(threads: FairThreads) -> None:
    blocker = Blocker(threads)
    await blocker.begun()
    with pytest.raises(EngineBusy, match=r"no thread became free within 0\.01 s"):
        await threads.run(lambda: 1, wait_s=0.01, limit_s=30)
    await blocker.end()
    ends = threading.Event()
    with pytest.raises(TimeoutError):
        await threads.run(lambda: ends.wait(30), limit_s=0.01)
    late = asyncio.create_task(threads.run(lambda: 2, wait_s=30))  # the thread is still at work
    await asyncio.sleep(0.05)
    assert not late.done()
    ends.set()
    assert await late == 2


async def test_an_error_gives_the_thread_back(threads: FairThreads) -> None:
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 // 0)
    assert await threads.run(lambda: 1) == 1
