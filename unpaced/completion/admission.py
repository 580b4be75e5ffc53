"""Who may use a slot: in turn by client, by priority and then first come, first served within one,
and no more waiting than the limits allow.

The engine never gets more sequences than it has slots, so that order and limits are decided here,
as `FairQueue` says. Event loop's thread only.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence

from unpaced.completion.fair_queue import Client, FairQueue, Place, QueueFull, Request
from unpaced.http.errors import ApiError, invalid, unavailable


class Ticket(Place):
    """One sequence's place in the queue, then in a slot. Always `release` it.

    `slot`: the one it has, once the engine has told; else -1.
    """

    __slots__ = (
        "_admission",
        "_entered_us",
        "_granted_us",
        "_refusal",
        "_released",
        "_waiter",
        "slot",
    )

    def __init__(self, admission: "Admission", request: Request, n_prompt: int) -> None:
        super().__init__(request, n_prompt)
        self._admission = admission
        self._waiter: asyncio.Future[None] | None = None
        self._entered_us = time.monotonic_ns() // 1000
        self._granted_us = 0  # 0: not yet
        self._refusal: ApiError | None = None
        self._released = False
        self.slot = -1

    @property
    def is_granted(self) -> bool:
        """Whether it holds a slot."""
        return self._granted_us > 0 and not self._released

    async def granted(self) -> None:
        """Wait for the slot. Raises: ApiError if the server stops first, or the place is lost."""
        if self._refusal is not None:
            raise self._refusal
        if not self._granted_us:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    @property
    def waited_us(self) -> int:
        """Microseconds in the queue, so far or until it got a slot."""
        until_us = self._granted_us or time.monotonic_ns() // 1000
        return until_us - self._entered_us

    def started(self, slot: int, n_cached: int = 0) -> None:
        """The engine has given it this slot, and has so many tokens of its prompt already."""
        self.slot = slot
        self._admission.charge(self, -n_cached)
        self._admission.grant_next()

    def finished(self, n_decoded: int) -> None:
        """The engine has made so many tokens for it, and no more will come."""
        self._admission.charge(self, n_decoded)

    def release(self) -> None:
        """Give the slot back, or leave the queue. Idempotent."""
        if not self._released:
            self._released = True
            self._admission.leave(self, held_slot=self._granted_us > 0)

    def grant(self, *, at_once: bool = False) -> None:
        """For `Admission`. `at_once`: it was in no queue."""
        self._granted_us = self._entered_us if at_once else time.monotonic_ns() // 1000
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def refuse(self, error: ApiError) -> None:
        """For `Admission`."""
        self._refusal = error
        if self._waiter is not None and not self._waiter.done():
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
        self._queue: FairQueue[Ticket] = FairQueue(max_requests, max_tokens)
        self._running: set[Ticket] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def n_waiting(self) -> int:
        """Sequences without a slot."""
        return len(self._queue)

    @property
    def n_tokens_waiting(self) -> int:
        """Prompt tokens of the sequences without a slot."""
        return self._queue.n_tokens

    @property
    def used(self) -> float:
        """Part of the queue's room that is taken, by requests or by tokens; 0 to 1."""
        by_requests = self.n_waiting / self._max_requests if self._max_requests else 0.0
        by_tokens = self.n_tokens_waiting / self._max_tokens if self._max_tokens else 0.0
        return min(1.0, max(by_requests, by_tokens))

    @property
    def n_running(self) -> int:
        """Sequences that hold a slot."""
        return len(self._running)

    @property
    def is_idle(self) -> bool:
        """Nobody runs and nobody waits."""
        return not self._running and not self._queue

    async def idle(self) -> None:
        """Wait until nobody runs and nobody waits."""
        await self._idle.wait()

    def waiting(self) -> Iterator[Ticket]:
        """Those without a slot in the order of their turns, as if any slot would do."""
        return self._queue.in_turn()

    def check_room(self, n_sequences: int = 1, *, client: Client = 0) -> None:
        """Before any work on a request of so many sequences.

        Raises: ApiError: 503 if they could not even wait now, 400 if they never could.
        """
        if n_sequences > self._n_slots + self._max_requests:
            raise invalid(
                f"{n_sequences} completions in one request: {self._n_slots} can run and "
                f"{self._max_requests} may wait (--max-queue-requests)",
                param="prompt",
            )
        try:
            self._queue.check_room(client, max(0, n_sequences - self._n_free))
        except QueueFull as full:
            raise self._full(full) from None

    def _full(self, why: QueueFull) -> ApiError:
        self._on_refusal()
        return unavailable(f"the queue is full: {why}")

    def enter(
        self,
        n_prompt_tokens: Sequence[int],
        *,
        client: Client = 0,
        priority: int = 0,
        wanted: int = -1,
    ) -> list[Ticket]:
        """A ticket for each sequence of one request, all or none; the rest as in `Request`.

        Raises: ApiError (503) if they do not fit in the queue.
        """
        request = Request(client, priority, wanted)
        tickets = [Ticket(self, request, n_prompt) for n_prompt in n_prompt_tokens]
        n_at_once = self._n_at_once(request, len(tickets))
        if n_at_once == len(tickets) and not self._queue:  # nobody is to be asked
            self._idle.clear()
            self._queue.begin(tickets)
            for ticket in tickets:
                self._run(ticket, at_once=True)
            return tickets
        try:
            given_up = self._queue.make_room(client, n_prompt_tokens[n_at_once:])
        except QueueFull as full:
            raise self._full(full) from None
        for other in given_up:
            other.refuse(unavailable("the queue is full, and most of it was this client's"))
        for _ in {other.request for other in given_up}:
            self._on_refusal()
        self._idle.clear()
        self._queue.add(tickets)
        self.grant_next()
        return tickets

    def _n_at_once(self, request: Request, n: int) -> int:
        """Of so many sequences those that need not wait; who waits now waits for other slots."""
        if request.wanted < 0:
            return min(n, self._n_free)
        return 1 if self._n_free > 0 and self._may_have(request.wanted) else 0

    def refuse_waiting(self, error: ApiError) -> None:
        """End every wait with `error`."""
        for ticket in list(self.waiting()):
            ticket.refuse(error)

    def leave(self, ticket: Ticket, *, held_slot: bool) -> None:
        """For `Ticket.release`."""
        if held_slot:
            self._running.remove(ticket)
            self.grant_next()
        elif ticket.is_waiting:
            self._queue.remove(ticket)
        if self.is_idle:
            self._idle.set()

    def charge(self, ticket: Ticket, n_tokens: int) -> None:
        """For `Ticket`."""
        self._queue.charge(ticket.request.client, n_tokens)

    def grant_next(self) -> None:
        """Give the free slots to those whose turn it is."""
        while self._n_free > 0:
            ticket = self._queue.next(self._may_run)
            if ticket is None:
                return
            self._run(ticket)

    def _run(self, ticket: Ticket, *, at_once: bool = False) -> None:
        self._running.add(ticket)
        ticket.grant(at_once=at_once)

    @property
    def _n_free(self) -> int:
        return self._n_slots - len(self._running)

    def _may_run(self, ticket: Ticket) -> bool:
        return ticket.request.wanted < 0 or self._may_have(ticket.request.wanted)

    def _may_have(self, wanted: int) -> bool:
        """False: this slot is taken, or may be."""
        slot = wanted % self._n_slots
        return not any(
            other.slot == slot
            or (
                other.slot < 0
                and (other.request.wanted < 0 or other.request.wanted % self._n_slots == slot)
            )
            for other in self._running
        )
