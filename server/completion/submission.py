"""One sequence's way into the engine and out of it."""

import asyncio
from typing import TYPE_CHECKING

from engine_ext import EngineBusy, EngineError, SequenceRequest
from server.completion.admission import Ticket
from server.http.errors import ApiError, unavailable

if TYPE_CHECKING:
    from engine_ext import Engine, TokenEvent, TokenStream


class Submission:
    """Waits for its slot and hands the sequence over. Always `close` it: that frees the slot."""

    def __init__(self, engine: "Engine", ticket: Ticket, request: SequenceRequest) -> None:
        self._engine = engine
        self.ticket = ticket
        self._request = request
        self.stream: TokenStream | None = None
        """The engine's events; None while the sequence waits for its slot."""
        self._is_drained = False
        self._is_closed = False
        self._draining: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Hand the sequence to the engine, once, if it has its slot. Raises: ApiError."""
        if self.stream is not None or not self.ticket.is_granted:
            return
        try:
            self.stream = self._engine.submit(self._request)
        except EngineBusy as error:
            raise unavailable(str(error)) from error
        except EngineError as error:
            raise unavailable(str(error)) from error
        except ValueError as error:
            raise ApiError(400, "invalid_request_error", str(error)) from error

    async def started(self) -> None:
        """Wait for the slot, then `start`. Raises: ApiError."""
        await self.ticket.granted()
        self.start()

    async def read(self) -> "list[TokenEvent]":
        """The next events, at least one."""
        assert self.stream is not None
        return await self.stream.read()

    def take(self) -> "list[TokenEvent]":
        """The events that are there."""
        assert self.stream is not None
        return self.stream.take()

    def finished(self) -> str:
        """Its last event was read. Returns why its grammar failed, if it did."""
        assert self.stream is not None
        self._is_drained = True
        return self.stream.grammar_failure

    def close(self) -> None:
        """Cancel what still runs; the slot is free once the engine has let go of it. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self.stream is None or self._is_drained:
            self.ticket.release()
            return
        self.stream.cancel()
        self._draining = asyncio.get_running_loop().create_task(self._drain(self.stream))

    async def _drain(self, stream: "TokenStream") -> None:
        while await stream.read():
            pass
        self.ticket.release()
