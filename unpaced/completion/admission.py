"""Who may use a slot: in turn by API key, first come, first served within a key, and no more
waiting than the limits allow.

The engine never gets more sequences than it has slots, so that order and limits are decided here.
Event loop's thread only.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from unpaced.http.errors import ApiError, invalid, unavailable


class Ticket:
    """One sequence's place in the queue, then in a slot. Always `release` it.

    `key`: the index of the client's API key. `wanted`: the slot it must have, modulo their number,
    or -1. `slot`: the one it has, once the engine has told; else -1.
    """

    __slots__ = (
        "_admission",
        "_granted",
        "_released",
        "_waiter",
        "key",
        "n_prompt",
        "slot",
        "wanted",
    )

    def __init__(self, admission: "Admission", n_prompt: int, key: int, wanted: int) -> None:
        self._admission = admission
        self._waiter: asyncio.Future[None] | None = None
        self._granted = False
        self._released = False
        self.n_prompt = n_prompt
        self.key = key
        self.wanted = wanted
        self.slot = -1

    @property
    def is_granted(self) -> bool:
        """Whether it holds a slot."""
        return self._granted and not self._released

    async def granted(self) -> None:
        """Wait for the slot. Raises: ApiError if the server stops first."""
        if not self._granted:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def started(self, slot: int) -> None:
        """The engine has given it this slot."""
        self.slot = slot
        self._admission.grant_next()

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
    """`n_slots` sequences at a time; `max_requests` and `max_tokens` (0: no limit) may wait.

    `on_refusal` is called for each request that finds no room.
    """

    def __init__(
        self,
        n_slots: int,
        max_requests: int,
        max_tokens: int,
        on_refusal: Callable[[], None] = lambda: None,
    ) -> None:
        self._n_slots = n_slots
        self._on_refusal = on_refusal
        self._max_requests = max_requests
        self._max_tokens = max_tokens
        # By API key, in the order of their turns; a key without tickets is not in it.
        self._queues: dict[int, deque[Ticket]] = {}
        self._n_tokens_waiting = 0
        self._running: set[Ticket] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def n_waiting(self) -> int:
        """Sequences without a slot."""
        return sum(map(len, list(self._queues.values())))

    @property
    def n_tokens_waiting(self) -> int:
        """Prompt tokens of the sequences without a slot."""
        return self._n_tokens_waiting

    @property
    def used(self) -> float:
        """Part of the queue's room that is taken, by requests or by tokens; 0 to 1."""
        by_requests = self.n_waiting / self._max_requests if self._max_requests else 0.0
        by_tokens = self._n_tokens_waiting / self._max_tokens if self._max_tokens else 0.0
        return min(1.0, max(by_requests, by_tokens))

    @property
    def n_running(self) -> int:
        """Sequences that hold a slot."""
        return len(self._running)

    @property
    def is_idle(self) -> bool:
        """Nobody runs and nobody waits."""
        return not self._running and not self._queues

    async def idle(self) -> None:
        """Wait until nobody runs and nobody waits."""
        await self._idle.wait()

    def waiting(self) -> Iterator[Ticket]:
        """Those without a slot in the order of their turns, as if any slot would do."""
        queues = [list(queue) for queue in self._queues.values()]
        for i in range(max(map(len, queues), default=0)):
            for queue in queues:
                if i < len(queue):
                    yield queue[i]

    def check_room(self, n_sequences: int = 1) -> None:
        """Before any work on a request of so many sequences.

        Raises: ApiError: 503 if they could not even wait now, 400 if they never could.
        """
        if n_sequences > self._n_slots + self._max_requests:
            raise invalid(
                f"{n_sequences} completions in one request: {self._n_slots} can run and "
                f"{self._max_requests} may wait (--max-queue-requests)",
                param="prompt",
            )
        n_waiting = self.n_waiting + max(0, n_sequences - self._n_free)
        if n_waiting > self._max_requests:
            raise self._full(f"{self.n_waiting} requests wait for a slot")

    def _full(self, why: str) -> ApiError:
        self._on_refusal()
        return unavailable(f"the queue is full: {why}")

    def enter(
        self, n_prompt_tokens: Sequence[int], *, key: int = 0, wanted: int = -1
    ) -> list[Ticket]:
        """A ticket for each sequence of one request, all or none; `key`, `wanted` as in `Ticket`.

        Raises: ApiError (503) if they do not fit in the queue.
        """
        tickets = [Ticket(self, n_prompt, key, wanted) for n_prompt in n_prompt_tokens]
        n_waiting = max(0, len(tickets) - self._n_free)
        if n_waiting == 0 and wanted < 0 and not self._queues:  # nobody is to be asked
            self._idle.clear()
            for ticket in tickets:
                self._run(ticket)
            return tickets
        if n_waiting > 0:
            n_requests = self.n_waiting + n_waiting
            if n_requests > self._max_requests:
                raise self._full(
                    f"{n_requests} requests would wait, "
                    f"{self._max_requests} may (--max-queue-requests)"
                )
            n_tokens = self._n_tokens_waiting + sum(n_prompt_tokens[-n_waiting:])
            if 0 < self._max_tokens < n_tokens:
                raise self._full(
                    f"{n_tokens} prompt tokens would wait, "
                    f"{self._max_tokens} may (--max-queue-tokens)"
                )
        self._idle.clear()
        self._queues.setdefault(key, deque()).extend(tickets)
        self._n_tokens_waiting += sum(n_prompt_tokens)
        self.grant_next()
        return tickets

    def refuse_waiting(self, error: ApiError) -> None:
        """End every wait with `error`."""
        for ticket in list(self.waiting()):
            ticket.refuse(error)

    def leave(self, ticket: Ticket, *, held_slot: bool) -> None:
        """For `Ticket.release`."""
        if held_slot:
            self._running.remove(ticket)
            self.grant_next()
        else:
            self._take(ticket)
        if self.is_idle:
            self._idle.set()

    def grant_next(self) -> None:
        """Give the free slots to those whose turn it is."""
        while self._n_free > 0:
            ticket = next(filter(self._may_run, self.waiting()), None)
            if ticket is None:
                return
            self._take(ticket)
            if ticket.key in self._queues:  # the other keys' turn comes first
                self._queues[ticket.key] = self._queues.pop(ticket.key)
            self._run(ticket)

    def _run(self, ticket: Ticket) -> None:
        self._running.add(ticket)
        ticket.grant()

    @property
    def _n_free(self) -> int:
        return self._n_slots - len(self._running)

    def _take(self, ticket: Ticket) -> None:
        queue = self._queues[ticket.key]
        queue.remove(ticket)
        if not queue:
            del self._queues[ticket.key]
        self._n_tokens_waiting -= ticket.n_prompt

    def _may_run(self, ticket: Ticket) -> bool:
        """False: the slot it must have is taken, or may be."""
        if ticket.wanted < 0:
            return True
        slot = ticket.wanted % self._n_slots
        return not any(
            other.slot == slot
            or (other.slot < 0 and (other.wanted < 0 or other.wanted % self._n_slots == slot))
            for other in self._running
        )
