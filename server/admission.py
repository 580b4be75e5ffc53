"""Who may use a slot: first come, first served, and no more waiting than the limits allow.

The engine never gets more sequences than it has slots, so that order and limits are decided here.
Event loop's thread only.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

from server.errors import ApiError, unavailable


class Ticket:
    """One sequence's place in the queue, then in a slot. Always `release` it."""

    __slots__ = ("_admission", "_granted", "_released", "_waiter", "n_prompt")

    def __init__(self, admission: "Admission", n_prompt: int) -> None:
        self._admission = admission
        self._waiter: asyncio.Future[None] | None = None
        self._granted = False
        self._released = False
        self.n_prompt = n_prompt

    @property
    def is_granted(self) -> bool:
        """True while it holds a slot."""
        return self._granted and not self._released

    async def granted(self) -> None:
        """Wait for the slot. Raises: ApiError if the server stops first."""
        if not self._granted:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def release(self) -> None:
        """Give the slot back, or leave the queue. Idempotent."""
        if not self._released:
            self._released = True
            self._admission.leave(self, held_slot=self._granted)

    def grant(self) -> None:
        """For `Admission`."""
        self._granted = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def refuse(self, error: ApiError) -> None:
        """For `Admission`."""
        if self._waiter is None:
            self._waiter = asyncio.get_running_loop().create_future()
        if not self._waiter.done():
            self._waiter.set_exception(error)


class Admission:
    """`n_slots` sequences at a time; `max_requests` and `max_tokens` (0: no limit) may wait."""

    def __init__(self, n_slots: int, max_requests: int, max_tokens: int) -> None:
        self._n_free = n_slots
        self._max_requests = max_requests
        self._max_tokens = max_tokens
        self._queue: deque[Ticket] = deque()
        self._n_tokens_waiting = 0
        self._n_running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def n_waiting(self) -> int:
        """Sequences without a slot."""
        return len(self._queue)

    @property
    def n_tokens_waiting(self) -> int:
        """Prompt tokens of the sequences without a slot."""
        return self._n_tokens_waiting

    @property
    def n_running(self) -> int:
        """Sequences that hold a slot."""
        return self._n_running

    @property
    def is_idle(self) -> bool:
        """Nobody runs and nobody waits."""
        return self._n_running == 0 and not self._queue

    async def idle(self) -> None:
        """Wait until nobody runs and nobody waits."""
        await self._idle.wait()

    def check_room(self) -> None:
        """Before any work on a request. Raises: ApiError (503) if it could not even wait."""
        if self._n_free == 0 and len(self._queue) >= self._max_requests:
            raise unavailable(f"the queue is full: {len(self._queue)} requests wait for a slot")

    def enter(self, n_prompt_tokens: Sequence[int]) -> list[Ticket]:
        """A ticket for each sequence of one request, all or none.

        Raises: ApiError (503) if they do not fit in the queue.
        """
        n_waiting = max(0, len(n_prompt_tokens) - self._n_free)
        if n_waiting > 0:
            n_requests = len(self._queue) + n_waiting
            if n_requests > self._max_requests:
                raise unavailable(
                    f"the queue is full: {n_requests} requests would wait, "
                    f"{self._max_requests} may (--max-queue-requests)"
                )
            n_tokens = self._n_tokens_waiting + sum(n_prompt_tokens[-n_waiting:])
            if 0 < self._max_tokens < n_tokens:
                raise unavailable(
                    f"the queue is full: {n_tokens} prompt tokens would wait, "
                    f"{self._max_tokens} may (--max-queue-tokens)"
                )
        self._idle.clear()
        tickets = [Ticket(self, n_prompt) for n_prompt in n_prompt_tokens]
        self._queue.extend(tickets)
        self._n_tokens_waiting += sum(n_prompt_tokens)
        self._grant_next()
        return tickets

    def refuse_waiting(self, error: ApiError) -> None:
        """End every wait with `error`."""
        for ticket in list(self._queue):
            ticket.refuse(error)

    def leave(self, ticket: Ticket, *, held_slot: bool) -> None:
        """For `Ticket.release`."""
        if held_slot:
            self._n_free += 1
            self._n_running -= 1
            self._grant_next()
        else:
            self._queue.remove(ticket)
            self._n_tokens_waiting -= ticket.n_prompt
        if self.is_idle:
            self._idle.set()

    def _grant_next(self) -> None:
        while self._n_free > 0 and self._queue:
            ticket = self._queue.popleft()
            self._n_tokens_waiting -= ticket.n_prompt
            self._n_free -= 1
            self._n_running += 1
            ticket.grant()
