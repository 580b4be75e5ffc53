"""Choices in one stream, their events as they come."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Self

from unpaced.completion.choice import Choice
from unpaced.http.errors import ApiError


class MergedStream:
    """Async context: pumps every choice in a task of its own; their owner closes them.

    The usage of the whole request is in the event of the choice that ends last. The first choice
    to fail ends the stream, as in llama-server.
    """

    def __init__(self, choices: Sequence[Choice], *, progress: bool) -> None:
        self._choices = choices
        self._progress = progress
        self._frames: list[bytes] = []
        self._news = asyncio.Event()
        self._error: ApiError | None = None
        self._has_failed = False
        self._n_left = len(choices)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._pump(choice)) for choice in self._choices]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()

    async def started(self) -> None:
        """Wait until a choice has its slot. Raises: ApiError if one fails before."""
        await self._news.wait()
        if self._error is not None:
            raise self._error

    async def frames(self) -> AsyncIterator[bytes]:
        """Events, in pieces of at least one; to be asked for the next when one is sent."""
        writer = self._choices[0].writer
        is_over = False
        while not is_over:
            await self._news.wait()
            self._news.clear()
            # Now, not after the piece: choices go on while a slow client is waited for.
            is_over = self._has_failed or self._error is not None or self._n_left == 0
            if self._error is not None:
                self._frames.append(writer.failure(self._error))
            elif is_over and not self._has_failed:
                self._frames.append(writer.done)
            piece = b"".join(self._frames)
            self._frames.clear()
            if piece:
                yield piece

    async def _pump(self, choice: Choice) -> None:
        sequence_text, writer = choice.sequence_text, choice.writer
        try:
            frames = await choice.first_frames(progress=self._progress)
            self._add(frames)
            writer.precompute()
            while not sequence_text.is_over:
                self._add(await choice.read_frames(progress=self._progress))
        except ApiError as error:
            self._error = error
        self._n_left -= 1
        choice.close()
        if sequence_text.error is not None:
            self._has_failed = True
        elif self._error is None:
            writers = [other.writer for other in self._choices]
            self._frames.append(writer.final(writers if self._n_left == 0 else None))
        self._news.set()

    def _add(self, frames: bytes) -> None:
        self._frames.append(frames)
        self._news.set()
