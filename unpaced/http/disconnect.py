"""Notices that the client has gone, while a request waits, runs or streams."""

import asyncio
from types import TracebackType
from typing import Self

from starlette.types import Receive


class ClientGone(Exception):
    """The client closed the connection; nobody reads a response."""


class Disconnect:
    """Async context: a disconnect cancels what runs inside, which then ends with `ClientGone`.

    Enter it once the body has been read; until the exit nothing else may call `receive`.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._watcher: asyncio.Task[None] | None = None
        self._owner: asyncio.Task[object] | None = None
        self._happened = False

    async def __aenter__(self) -> Self:
        self._owner = asyncio.current_task()
        self._watcher = asyncio.get_running_loop().create_task(self._watch())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._watcher is not None and self._owner is not None
        self._watcher.cancel()
        if self._happened:
            # As asyncio.timeout does: a cancellation from elsewhere stays one.
            if self._owner.uncancel() > 0:
                return
            if kind is None or kind is asyncio.CancelledError:
                raise ClientGone from None

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        assert self._owner is not None
        self._happened = True
        self._owner.cancel()
