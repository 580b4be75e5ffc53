"""The events of one request, as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Protocol

from engine_ext.sequence.events import EventKind

if TYPE_CHECKING:
    from engine_ext._native import ReasoningBudget, TokenEvent, TokenFrames, TokenMask

_FINISHED = int(EventKind.FINISHED)


class Framer(Protocol):
    """Who makes frames of a request's tokens: the native engine."""

    def frame(self, request_id: int, frames: TokenFrames, listener: Callable[[], None]) -> bool:
        """See `TokenStream.frame`."""

    def attach(self, request_id: int, socket: int) -> bool:
        """See `TokenStream.attach`."""

    def unframe(self, request_id: int) -> bytes:
        """See `TokenStream.unframe`."""


class TokenStream:
    """Made by `Engine.submit`; one reader, on the event loop's thread."""

    __slots__ = (
        "_budget",
        "_cancel",
        "_events",
        "_finished",
        "_framer",
        "_listener",
        "_mask",
        "_waiter",
        "request_id",
    )

    def __init__(
        self,
        request_id: int,
        cancel: Callable[[int], None],
        framer: Framer,
        mask: TokenMask | None = None,
        budget: ReasoningBudget | None = None,
    ) -> None:
        self.request_id = request_id
        self._mask = mask
        self._budget = budget
        self._cancel = cancel
        self._framer = framer
        self._events: list[TokenEvent] = []
        self._finished = False
        self._waiter: asyncio.Future[None] | None = None
        self._listener: Callable[[], None] | None = None

    @property
    def grammar_failure(self) -> str:
        """Why the grammar could not go on; empty unless FINISHED came with GRAMMAR_FAILED."""
        return "" if self._mask is None else self._mask.failure.decode(errors="replace")

    async def read(self) -> list[TokenEvent]:
        """Every event that is there now, at least one, in order; [] once FINISHED was returned."""
        if not self._events:
            if self._finished:
                return []
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        events, self._events = self._events, []
        return events

    async def __aiter__(self) -> AsyncIterator[TokenEvent]:
        """Every event of the request; the last one is FINISHED."""
        while events := await self.read():
            for event in events:
                yield event

    def cancel(self) -> None:
        """Asks the decode thread to end the request within a step; FINISHED follows. Idempotent."""
        if not self._finished:
            self._cancel(self.request_id)

    def end_reasoning(self) -> None:
        """Asks for the end of the model's reasoning, at its next token.

        Nothing happens where it is not reasoning then, or its request has no reasoning budget.
        """
        if self._budget is not None:
            self._budget.end_reasoning()

    def take(self) -> list[TokenEvent]:
        """Every event that is there now, in order, without waiting; often none."""
        events, self._events = self._events, []
        return events

    def listen(self, listener: Callable[[], None] | None) -> None:
        """Have `listener` called, with nothing awaited, whenever there are new events to `take`.

        For the token path: it spares a turn of the event loop and a task switch a token. The
        listener must not raise. None ends it; `read` works again from then on.
        """
        self._listener = listener

    def frame(self, frames: TokenFrames, listener: Callable[[], None]) -> bool:
        """Have the request's tokens go to `frames`, and no events made of them; `listener`, which
        must not raise, is called where there are new ones to take. Other events come as ever.

        Call it when all events have been taken, so that no token is passed over. False, and nothing
        has happened: there are more already.
        """
        return self._framer.frame(self.request_id, frames, listener)

    def attach(self, socket: int) -> bool:
        """Have a thread that needs no Python send the frames on the connection's `socket`, those
        that are there first. False: the client is behind, so take them and wait for it.

        Everything written before must have left this process, and who writes to the connection
        next calls `unframe` first. The thread gives up a client that does not read: then the
        listener is called as before.
        """
        return self._framer.attach(self.request_id, socket)

    def unframe(self) -> bytes:
        """Have tokens come as events again. Idempotent. Returns what is to be written next, as it
        is: what a client that was behind has not got of a chunk."""
        return self._framer.unframe(self.request_id)

    def push(self, event: TokenEvent) -> bool:
        """For the engine: append the next event. True: the reader has no others, so `wake` it."""
        events = self._events
        events.append(event)
        if event.kind == _FINISHED:
            self._finished = True
        return len(events) == 1

    def wake(self) -> None:
        """For the engine: there are new events."""
        if self._listener is not None:
            self._listener()
            return
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
