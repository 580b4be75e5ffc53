"""Threads for work that would hold the event loop, given to clients in turn."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from engine_ext.base.errors import EngineBusy
from engine_ext.threads.client import turn_taker

T = TypeVar("T")


class FairThreads:
    """`n_threads` pieces of work at a time; of each client `n_waiting_max` may wait.

    Free threads go to the clients in turn, and to the work of one client first come, first served.
    Event loop's thread only.
    """

    def __init__(self, name: str, n_threads: int, n_waiting_max: int) -> None:
        self._name = name
        self._threads = ThreadPoolExecutor(n_threads, thread_name_prefix=name)
        self._n_free = n_threads
        self._n_waiting_max = n_waiting_max
        # By client, in the order of their turns; one without work is not in it.
        self._queues: dict[int | str, deque[asyncio.Future[None]]] = {}

    async def run(
        self, work: Callable[[], T], *, wait_s: float | None = None, limit_s: float | None = None
    ) -> T:
        """Do it on one of the threads. Where nobody waits for it any more it is left out, or goes
        on if it has begun.

        `wait_s`: for how long it may wait for a thread; `limit_s`: how long it may take from there.
        Raises: EngineBusy if it finds no place to wait, or no thread in time; TimeoutError.
        """
        await self._turn(wait_s)
        loop = asyncio.get_running_loop()

        def done(_: object) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(self._give_back)

        try:
            future = self._threads.submit(work)
        except BaseException:
            self._give_back()
            raise
        future.add_done_callback(done)
        async with asyncio.timeout(limit_s):
            return await asyncio.wrap_future(future)

    def stop(self) -> None:
        """Begin nothing new; what runs finishes alone."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _turn(self, wait_s: float | None) -> None:
        if self._n_free > 0:
            self._n_free -= 1
            return
        key = turn_taker.get()
        n_waiting = len(self._queues.get(key, ()))
        if n_waiting >= self._n_waiting_max:
            raise EngineBusy(f"{n_waiting} requests wait for a thread ({self._name})")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(key, deque()).append(turn)
        try:
            async with asyncio.timeout(wait_s):
                await turn
        except TimeoutError:
            self._leave(turn)
            raise EngineBusy(f"no thread became free within {wait_s:g} s ({self._name})") from None
        except asyncio.CancelledError:
            self._leave(turn)
            raise

    def _leave(self, turn: "asyncio.Future[None]") -> None:
        if turn.done() and not turn.cancelled():
            self._give_back()  # the turn came all the same
            return
        for key, queue in self._queues.items():
            if turn in queue:
                queue.remove(turn)
                if not queue:
                    del self._queues[key]
                return

    def _give_back(self) -> None:
        for key in list(self._queues):
            queue = self._queues.pop(key)
            turn = queue.popleft()
            if queue:
                self._queues[key] = queue  # the other clients' turn comes first
            if not turn.done():
                turn.set_result(None)
                return
        self._n_free += 1
