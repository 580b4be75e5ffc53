"""One sequence while it is generated: the engine's events in, text and figures out."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from engine_ext import EventKind, FinishReason, Histogram, TokenFrames
from unpaced.completion.text_stream import TextStream
from unpaced.completion.timings import Timings
from unpaced.http.errors import ApiError, invalid, server_fault, unavailable

if TYPE_CHECKING:
    from engine_ext import FrameTemplate, TokenEvent

_STARTED: Final = int(EventKind.STARTED)
_PREFILL: Final = int(EventKind.PREFILL)
_TOKEN: Final = int(EventKind.TOKEN)
_PROMPT_LOGPROB: Final = int(EventKind.PROMPT_LOGPROB)
_FINISHED: Final = int(EventKind.FINISHED)
_NO_CELLS: Final = 1  # llama_decode's status where the slots share the cells and none is left
_STOP_TYPES: Final = {
    FinishReason.EOS: "eos",
    FinishReason.GRAMMAR_END: "eos",
    FinishReason.TOKEN_LIMIT: "limit",
    FinishReason.CONTEXT_LIMIT: "limit",
    FinishReason.STOP_STRING: "word",
    FinishReason.INDENT_LIMIT: "limit",
    FinishReason.TIME_LIMIT: "limit",
}


class SequenceText:
    """Feed it every event of its stream, in order; it says what text each one makes final.

    It knows nothing of JSON or of sockets. `is_over` comes with the FINISHED event, or with the
    token that completes a stop string: the engine ends there too, unless the stop string is one
    that bytes do not express; what it decoded beyond that is dropped. With `ends_by_engine` its
    word counts for what ends the text, which is limited in other ways too.
    """

    __slots__ = (
        "_ends_by_engine",
        "_frames",
        "_has_new_line",
        "_inter_token",
        "_pieces",
        "_text",
        "_timings",
        "cut_line",
        "error",
        "failed_by",
        "grammar_failure",
        "index",
        "is_over",
        "n_cells",
        "slot",
        "stop_type",
        "truncated",
    )

    def __init__(
        self,
        index: int,
        pieces: list[bytes],
        stops: Sequence[str],
        inter_token: Histogram,
        *,
        ends_by_engine: bool = False,
    ) -> None:
        self.index = index
        self._pieces = pieces
        self._text = TextStream(stops)
        self._inter_token = inter_token
        self._ends_by_engine = ends_by_engine
        self.slot = -1
        self._timings = Timings()
        self._has_new_line = False
        self._frames: TokenFrames | None = None
        self.truncated = False
        self.stop_type = "none"
        self.cut_line = -1
        """Of the text's lines, counted from 0, the one that is cut off after its indentation; -1:
        none is."""
        self.error: ApiError | None = None
        self.failed_by = FinishReason.NONE
        """What `error` is of."""
        self.grammar_failure = ""  # of the engine, with the end
        self.is_over = False
        self.n_cells = 0
        """Tokens of this sequence that the slot's KV holds: all but the last one, less what context
        shifts dropped."""

    @property
    def timings(self) -> Timings:
        """When what happened, and how many tokens there are."""
        frames = self._frames
        if frames is not None:
            self._timings.n_decoded = frames.n_decoded
            self._timings.last_token_us = frames.last_us
        return self._timings

    @property
    def has_new_line(self) -> bool:
        """Whether the text has more than one line."""
        return self._has_new_line if self._frames is None else self._frames.has_new_line

    @property
    def stopping_word(self) -> str:
        """The stop string that ended the text; empty if none did."""
        return self._text.stopping_word

    @property
    def shows_timings(self) -> bool:
        """Whether the last token completed a stop string: then its event has `timings` unasked."""
        return self.stop_type == "word"

    @property
    def finish_reason(self) -> str:
        """OpenAI's word for the end."""
        return "stop" if self.stop_type in ("eos", "word") else "length"

    def feed(self, event: "TokenEvent") -> str | None:
        """Take one event. Returns a token's final text, "" included; None for other events."""
        kind = event.kind
        if kind == _TOKEN:
            return self._take_token(event)
        if kind == _STARTED:
            self.slot = event.slot
            self._timings.start_us = event.t_us
            self._timings.copy_us = event.copy_us
            self._timings.n_kept_copied = event.n_kept_copied
            self._timings.n_kept_computed = event.n_kept_computed
            self._timings.n_prompt = event.n_prompt
            self._timings.n_cached = self._timings.n_processed = event.n_cached
        elif kind == _PREFILL:
            self._timings.n_cached = event.n_cached  # less, where another request needed the cells
            self._timings.n_processed = event.n_processed
            self._timings.prompt_us = event.t_us
        elif kind == _FINISHED:
            self._timings.cells_us = event.cells_us
            if not self.is_over:
                self._take_finish(FinishReason(event.finish_reason), event)
        return None

    def finish_text(self) -> str:
        """What the stop machine held back; call once, when `is_over`."""
        rest = self._text.finish()
        if "\n" in rest:
            self._has_new_line = True
        return rest

    @property
    def allows_frames(self) -> bool:
        """Whether the next tokens may pass this object by.

        Not before the first, and not where stop strings may cut the text.
        """
        return not (self._text.has_stops or self.is_over or not self._timings.n_decoded)

    def hand_over(self, template: "FrameTemplate") -> TokenFrames:
        """What goes on in this object's place, with its text and figures, until `take_back`."""
        timings = self._timings
        self._frames = TokenFrames(
            self._pieces,
            list(template.parts),
            skips_empty=template.skips_empty,
            keeps_text=template.keeps_text,
            partial=self._text.partial,
            n_decoded=timings.n_decoded,
            last_us=timings.last_token_us,
            has_new_line=self._has_new_line,
            gaps=self._inter_token,
        )
        return self._frames

    def take_back(self) -> None:
        """Go on from where the frames have come to; call it before the next `feed`."""
        frames = self._frames
        if frames is not None:
            self._text.partial = frames.partial
            self._has_new_line = self.has_new_line
            self._timings = self.timings
            self._frames = None

    def _take_token(self, event: "TokenEvent") -> str | None:
        if self.is_over:
            return None
        timings = self._timings
        t_us = event.t_us
        if timings.n_decoded:
            self._inter_token.observe((t_us - timings.last_token_us) * 1e-6)
        else:
            timings.first_token_us = timings.prompt_us = t_us
            timings.n_processed = timings.n_prompt
        timings.last_token_us = t_us
        timings.n_decoded += 1
        text = self._text.push(self._pieces[event.token])
        if "\n" in text:
            self._has_new_line = True
        if self._text.stopping_word and not self._ends_by_engine:
            self._end("word", event)
        return text

    def _end(self, stop_type: str, event: "TokenEvent") -> None:
        self.stop_type = stop_type
        self.is_over = True
        self.n_cells = event.n_cells
        self.truncated = event.n_shifts > 0

    def _take_finish(self, reason: FinishReason, event: "TokenEvent") -> None:
        self._end(_STOP_TYPES.get(reason, "none"), event)
        self.cut_line = event.cut_line
        self.truncated = self.truncated or reason is FinishReason.CONTEXT_LIMIT
        n = self._timings.n_decoded
        if reason is FinishReason.NON_FINITE:
            self.error = server_fault(f"the model's logits are not finite after {n} tokens")
        elif reason is FinishReason.DECODE_FAILED and event.status == _NO_CELLS:
            self.error = server_fault("Context size has been exceeded.")
        elif reason is FinishReason.DECODE_FAILED:
            self.error = server_fault(f"llama_decode failed with {event.status} after {n} tokens")
        elif reason is FinishReason.EXCEPTION:
            self.error = server_fault(f"the engine failed after {n} tokens")
        elif reason is FinishReason.GRAMMAR_FAILED:
            self.error = invalid(f"the grammar failed after {n} tokens: {self.grammar_failure}")
        elif reason is FinishReason.GRAMMAR_DEAD_END:
            self.error = invalid(f"after {n} tokens all that the grammar allows is banned")
        elif reason is FinishReason.STOPPED:
            self.error = unavailable("the server is stopping")
        if self.error is not None:
            self.failed_by = reason
