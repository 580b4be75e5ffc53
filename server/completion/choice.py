"""One sequence of a request, from the queue to its last event."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from engine_ext import EventKind
from server.completion.sequence_text import SequenceText
from server.completion.submission import Submission
from server.completion.writer import ChoiceWriter

if TYPE_CHECKING:
    from engine_ext import TokenEvent, TokenFrames

_TOKEN: Final = int(EventKind.TOKEN)
_STARTED: Final = int(EventKind.STARTED)
_PREFILL: Final = int(EventKind.PREFILL)
_PROMPT_LOGPROB: Final = int(EventKind.PROMPT_LOGPROB)
_FINISHED: Final = int(EventKind.FINISHED)


class Choice:
    """Reads what the engine makes of a submission and has it written. Always `close` it."""

    def __init__(
        self,
        submission: Submission,
        writer: ChoiceWriter,
        *,
        on_start: Callable[["Choice", "TokenEvent"], None],
        on_end: Callable[["Choice"], None],
        arrived_us: int,
    ) -> None:
        self._submission = submission
        self.ticket = submission.ticket
        self._on_start = on_start
        self._on_end = on_end
        self._is_closed = False
        self._frames: TokenFrames | None = None
        self.arrived_us = arrived_us  # on the clock of the engine's events
        self.writer = writer
        self.generation: SequenceText = writer.generation

    @property
    def phase(self) -> str:
        """Where it is: queued, prefill, decode or done."""
        if self.generation.is_over:
            return "done"
        if self._submission.stream is None:
            return "queued"
        return "decode" if self.generation.timings.n_decoded else "prefill"

    async def submit(self) -> None:
        """Wait for a slot, then hand the sequence to the engine. Raises: ApiError."""
        await self._submission.started()

    def end_thoughts(self) -> None:
        """Have the model stop thinking, where it does."""
        if self._submission.stream is not None:
            self._submission.stream.end_thoughts()

    async def run(self) -> None:
        """Generate everything; the writer keeps it. Raises: ApiError."""
        await self.submit()
        generation, writer = self.generation, self.writer
        events = await self._read()
        writer.prepare()
        while True:
            for event in events:
                text = generation.feed(event)
                if text is not None:
                    writer.keep(event, text)
                elif event.kind == _PROMPT_LOGPROB:
                    writer.prompt_logprob(event)
            if generation.is_over:
                break
            events = await self._read()
        if generation.error is not None:
            raise generation.error
        writer.content.append(generation.finish_text())
        if generation.cut_line >= 0:
            writer.cut(generation.cut_line)
        self.close()

    async def read_frames(self, *, progress: bool) -> bytes:
        """The stream events of everything the engine has published, at least one event's worth.

        May be empty (a slot was taken, a prompt chunk is done). Once `generation.is_over` only
        `final` is left to write, unless `generation.error` is set.
        """
        return self._frames_of(await self._read(), progress)

    def take_frames(self, *, progress: bool) -> bytes:
        """As `read_frames`, but without waiting: b"" where there is nothing new."""
        framed = self._end_framing()
        frames = self._frames_of(self._note(self._submission.take()), progress)
        return framed + frames if framed else frames

    def listen(self, listener: Callable[[], None] | None) -> None:
        """Have `listener` called when there is something to `take_frames`; None ends it."""
        assert self._submission.stream is not None
        if listener is None:
            self._end_framing()
        self._submission.stream.listen(listener)

    def begin_framing(self, listener: Callable[[], None]) -> "TokenFrames | None":
        """Have the engine write the frames of tokens itself, and call `listener` when there are
        some; until the next `take_frames`. None where each token must be looked at.
        """
        assert self._submission.stream is not None
        template = self.writer.template() if self.generation.allows_frames else None
        if template is not None:
            self._frames = self.generation.begin_frames(template)
            self._submission.stream.begin_frames(self._frames, listener)
        return self._frames

    def _end_framing(self) -> bytes:
        frames, self._frames = self._frames, None
        if frames is None:
            return b""
        assert self._submission.stream is not None
        self._submission.stream.end_frames()
        self.generation.end_frames()
        self.writer.framed(frames.take_text().decode())
        return frames.take()

    def _frames_of(self, events: "list[TokenEvent]", progress: bool) -> bytes:
        generation, writer = self.generation, self.writer
        frames = []
        for event in events:
            text = generation.feed(event)
            if text is not None:
                if generation.timings.n_decoded == 1:
                    frames.append(writer.start())
                frames.append(writer.token(event, text))
                continue
            kind = event.kind
            if kind == _PROMPT_LOGPROB:
                writer.prompt_logprob(event)
            elif progress and kind in (_PREFILL, _STARTED):
                frames.append(writer.progress(event))
        if generation.is_over:
            frames.append(self._last_frames())
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def _last_frames(self) -> bytes:
        generation, writer = self.generation, self.writer
        if generation.error is not None:
            return writer.failure(generation.error)
        rest = generation.finish_text()
        frames = writer.rest(rest) if rest else b""
        return frames if generation.timings.n_decoded else writer.start() + frames

    async def _read(self) -> "list[TokenEvent]":
        return self._note(await self._submission.read())

    def _note(self, events: "list[TokenEvent]") -> "list[TokenEvent]":
        if events and events[0].kind == _STARTED:
            self.ticket.started(events[0].slot)
            self._on_start(self, events[0])
        if events and events[-1].kind == _FINISHED:
            self.generation.grammar_failure = self._submission.finished()
        return events

    def close(self) -> None:
        """Cancel what still runs; the slot is free once the engine has let go of it. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._on_end(self)
        self._submission.close()
