"""Several choices in one stream, as their events come; sse-starlette carries it."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from server.completion.choice import Choice
from server.http.errors import ApiError, error_frame


class MergedStream:
    """Pumps every choice in a task of its own. Always `close` it.

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
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._pump(choice)) for choice in choices]

    async def started(self) -> None:
        """Wait until a choice has its slot. Raises: ApiError if one fails before."""
        await self._news.wait()
        if self._error is not None:
            raise self._error

    async def frames(self) -> AsyncIterator[bytes]:
        """Events, in pieces of at least one."""
        while True:
            await self._news.wait()
            self._news.clear()
            if self._error is not None:
                self._frames.append(error_frame(self._error))
                self._has_failed = True
            elif self._n_left == 0 and not self._has_failed:
                self._frames.append(self._choices[0].writer.done)
            piece = b"".join(self._frames)
            self._frames.clear()
            if piece:
                yield piece
            if self._has_failed or self._n_left == 0:
                return

    def close(self) -> None:
        """Stop pumping. The choices are closed by their owner."""
        for task in self._tasks:
            task.cancel()

    async def _pump(self, choice: Choice) -> None:
        generation = choice.generation
        try:
            await choice.submit()
            while not generation.is_over:
                frames = await choice.read_frames(progress=self._progress)
                if generation.error is not None and generation.timings.start_us == 0:
                    raise generation.error
                self._frames.append(frames)
                self._news.set()
        except ApiError as error:
            self._error = error
        self._n_left -= 1
        choice.close()
        if generation.error is not None:
            self._has_failed = True
        elif self._error is None:
            writers = [other.writer for other in self._choices]
            self._frames.append(choice.writer.final(writers if self._n_left == 0 else None))
        self._news.set()
