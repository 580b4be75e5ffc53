"""One choice of a completion: its way into the engine, what comes of it, and its end."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from engine_ext import EngineError, EventKind, SequenceRequest
from unpaced.completion.admission import Ticket
from unpaced.completion.framing import Framing
from unpaced.completion.sequence_text import SequenceText
from unpaced.completion.writer import ChoiceWriter
from unpaced.http.errors import invalid, unavailable

if TYPE_CHECKING:
    from engine_ext import Engine, TokenEvent, TokenStream

_STARTED: Final = int(EventKind.STARTED)
_PREFILL: Final = int(EventKind.PREFILL)
_PROMPT_LOGPROB: Final = int(EventKind.PROMPT_LOGPROB)
_FINISHED: Final = int(EventKind.FINISHED)


class Choice:
    """Waits for its slot, hands the sequence to the engine and has written what comes of it.

    Call `start` or wait for `submit`, and `write_by` before anything else. Always `close` it: that
    frees the slot. `model`: the name that it counts under. `counts_prompt`: it is the first choice
    of its prompt.
    """

    writer: ChoiceWriter
    sequence_text: SequenceText

    def __init__(
        self,
        engine: "Engine",
        ticket: Ticket,
        sequence: SequenceRequest,
        *,
        on_start: Callable[["Choice", "TokenEvent"], None],
        on_end: Callable[["Choice"], None],
        arrived_us: int,
        model: str,
        counts_prompt: bool,
    ) -> None:
        self._engine = engine
        self._sequence = sequence
        self._on_start = on_start
        self._on_end = on_end
        self._stream: TokenStream | None = None  # None: it waits for its slot
        self._is_drained = False
        self._is_closed = False
        self._draining: asyncio.Task[None] | None = None
        self.ticket = ticket
        self.model = model
        self.counts_prompt = counts_prompt
        self.arrived_us = arrived_us  # on the clock of the engine's events
        self._untaken = b""
        self.framing: Framing | None = None
        """Who writes the frames of tokens now; None: `read_frames` and `take_frames`."""

    # -- begin ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Hand the sequence to the engine, once, if it has its slot. Raises: ApiError."""
        if self._stream is not None or not self.ticket.is_granted:
            return
        try:
            self._stream = self._engine.submit(self._sequence)
        except EngineError as error:  # too busy, or at its end
            raise unavailable(str(error)) from error
        except ValueError as error:
            raise invalid(str(error)) from error

    def write_by(self, writer: ChoiceWriter) -> None:
        """What becomes of the sequence is this writer's; call it once."""
        self.writer = writer
        self.sequence_text = writer.sequence_text

    async def submit(self) -> None:
        """Wait for a slot, then hand the sequence to the engine. Raises: ApiError."""
        await self.ticket.granted()
        self.start()

    @property
    def phase(self) -> str:
        """Where it is: queued, prefill, decode or done."""
        if self.sequence_text.is_over:
            return "done"
        if self._stream is None:
            return "queued"
        return "decode" if self.sequence_text.timings.n_decoded else "prefill"

    def end_reasoning(self) -> None:
        """Have the model stop thinking, where it does."""
        if self._stream is not None:
            self._stream.end_reasoning()

    # -- whole ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Generate everything; the writer keeps it. Raises: ApiError."""
        await self.submit()
        sequence_text, writer = self.sequence_text, self.writer
        events = await self._read()
        writer.precompute()
        while True:
            for event in events:
                text = sequence_text.feed(event)
                if text is not None:
                    writer.keep(event, text)
                elif event.kind == _PROMPT_LOGPROB:
                    writer.prompt_logprob(event)
            if sequence_text.is_over:
                break
            events = await self._read()
        if sequence_text.error is not None:
            raise sequence_text.error
        writer.content.append(sequence_text.finish_text())
        if sequence_text.cut_line >= 0:
            writer.cut(sequence_text.cut_line)
        self.close()

    # -- stream ---------------------------------------------------------------------------------

    async def first_frames(self, *, progress: bool) -> bytes:
        """`submit`, then `read_frames`. Raises: ApiError if it fails before its slot starts."""
        await self.submit()
        frames = await self.read_frames(progress=progress)
        if self.sequence_text.error is not None and self.sequence_text.timings.start_us == 0:
            raise self.sequence_text.error
        return frames

    async def read_frames(self, *, progress: bool) -> bytes:
        """The stream events of everything the engine has published, at least one event's worth.

        May be empty (a slot was taken, a prompt chunk is done). Once `sequence_text.is_over` only
        `final` is left to write, unless `sequence_text.error` is set.
        """
        return self._frames_of(await self._read(), progress)

    def take_frames(self, *, progress: bool) -> bytes:
        """Do as `read_frames` does, without waiting: b"" where there is nothing new. `end_framing`
        comes before."""
        assert self._stream is not None
        framed, self._untaken = self._untaken, b""
        frames = self._frames_of(self._note(self._stream.take()), progress)
        return framed + frames if framed else frames

    def listen(self, listener: Callable[[], None] | None) -> None:
        """Have `listener` called when there is something to `take_frames`; None ends it."""
        assert self._stream is not None
        if listener is None:
            self.end_framing()
        self._stream.listen(listener)

    def frame(self, listener: Callable[[], None]) -> None:
        """Where no token need be looked at, have `framing` from here to `end_framing`; `listener`
        is called when it has written some."""
        assert self._stream is not None
        self.framing = Framing.begin(self._stream, self.writer, listener)

    def end_framing(self) -> bytes:
        """Before anybody else writes to the connection: what is to be written first, as it is."""
        framing, self.framing = self.framing, None
        if framing is None:
            return b""
        rest, frames = framing.end()
        self._untaken += frames
        return rest

    def _frames_of(self, events: "list[TokenEvent]", progress: bool) -> bytes:
        sequence_text, writer = self.sequence_text, self.writer
        frames = []
        for event in events:
            text = sequence_text.feed(event)
            if text is not None:
                if sequence_text.timings.n_decoded == 1:
                    frames.append(writer.start())
                frames.append(writer.token(event, text))
                continue
            kind = event.kind
            if kind == _PROMPT_LOGPROB:
                writer.prompt_logprob(event)
            elif progress and kind in (_PREFILL, _STARTED):
                frames.append(writer.progress(event))
        if sequence_text.is_over:
            frames.append(self._last_frames())
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def _last_frames(self) -> bytes:
        sequence_text, writer = self.sequence_text, self.writer
        if sequence_text.error is not None:
            return writer.failure(sequence_text.error)
        rest = sequence_text.finish_text()
        frames = writer.rest(rest) if rest else b""
        return frames if sequence_text.timings.n_decoded else writer.start() + frames

    # -- events ---------------------------------------------------------------------------------

    async def _read(self) -> "list[TokenEvent]":
        assert self._stream is not None
        return self._note(await self._stream.read())

    def _note(self, events: "list[TokenEvent]") -> "list[TokenEvent]":
        if events and events[0].kind == _STARTED:
            self.ticket.started(events[0].slot, events[0].n_cached)
            self._on_start(self, events[0])
        if events and events[-1].kind == _FINISHED:
            assert self._stream is not None
            self._is_drained = True
            self.ticket.finished(events[-1].n_decoded)
            self.sequence_text.grammar_failure = self._stream.grammar_failure
        return events

    # -- end ------------------------------------------------------------------------------------

    def close(self) -> None:
        """Cancel what still runs; the slot is free once the engine has let go of it. Idempotent."""
        if not self._is_closed:
            self._on_end(self)
            self.withdraw()

    def withdraw(self) -> None:
        """Do as `close` does, for a choice that nobody writes or counts."""
        self._is_closed = True
        if self._stream is None or self._is_drained:
            self.ticket.release()
            return
        self._stream.cancel()
        self._draining = asyncio.get_running_loop().create_task(self._drain(self._stream))

    async def _drain(self, stream: "TokenStream") -> None:
        while events := await stream.read():
            if events[-1].kind == _FINISHED:
                self.ticket.finished(events[-1].n_decoded)
        self.ticket.release()
