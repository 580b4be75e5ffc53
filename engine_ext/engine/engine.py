"""The engine's Python face: submit, read, cancel. The decode itself runs on a native thread."""

from __future__ import annotations

import asyncio
import contextlib
from array import array
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from engine_ext.base.errors import EngineBusy, EngineError, ModelLoadError
from engine_ext.base.native import load_native
from engine_ext.engine.stats import EngineState, EngineStats
from engine_ext.engine.step_stats import StepStats
from engine_ext.engine.tokenizer import Tokenizer
from engine_ext.loading.config import EngineConfig
from engine_ext.loading.decode_loop import DecodeLoop
from engine_ext.loading.model_file import check_model_file
from engine_ext.loading.model_info import ModelInfo, read_model_info
from engine_ext.loading.native_config import DECODE_LOOPS, native_config
from engine_ext.loading.placement import Placement, place
from engine_ext.loading.rpc import use_rpc_workers
from engine_ext.sequence.events import EventKind, FinishReason
from engine_ext.sequence.grammar import Grammar, GrammarKind, GrammarPart, GrammarWait
from engine_ext.sequence.grammar_compiler import GrammarCompiler
from engine_ext.sequence.grammar_threads import GrammarLimits
from engine_ext.sequence.native_request import NativeRequests
from engine_ext.sequence.request import SequenceRequest
from engine_ext.sequence.sampling_params import SamplingParams
from engine_ext.sequence.slots import Slots
from engine_ext.sequence.token_stream import TokenStream
from engine_ext.threads.front_end_cores import FrontEndCores

if TYPE_CHECKING:
    from engine_ext import _native
else:
    _native = load_native()

T = TypeVar("T")

_FINISHED: Final = int(EventKind.FINISHED)
_TURN_S: Final = 1.0  # what a call on another thread takes beside its work


class Engine:
    """Owns the decode thread. Use as an async context manager, or `start` and `stop`.

    Every method is for the event loop's thread. One engine a process.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        cores = _native.group_by_physical_core(_native.allowed_cores())
        self._placement = place(config, cores)
        self._front_end_cores = FrontEndCores(self._placement.front_end_cores)
        try:
            self._native = _native.Engine(native_config(config, self._placement))
        except RuntimeError as error:  # a thread cannot be made
            raise EngineError(f"the engine has not enough memory: {error}") from None
        self._grammars = GrammarCompiler(
            self._native,
            GrammarLimits(config.grammar_limit_s, config.grammar_wait_s, config.n_work_waiting_max),
        )
        self._tokenizer = Tokenizer(
            self._native, config.n_tokenizer_threads, config.n_work_waiting_max
        )
        self._streams: dict[int, TokenStream] = {}
        self.slots = Slots(self._native, config.n_slots, self._streams, self._new_id)
        self._next_id = 1
        self._requests = NativeRequests(self._native, config)
        self._model: ModelInfo | None = None
        self._decode_loop: DecodeLoop | None = None
        self._pieces: list[bytes] = []
        self._pieces_special: list[bytes] = []
        self._is_loading = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._state_changed = asyncio.Event()
        self._stop_task: asyncio.Task[None] | None = None
        self._is_lost = False

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    # -- life ---------------------------------------------------------------------------------

    def begin_load(self) -> None:
        """Have the decode thread load the model from now on; `start` waits for it.

        Needs no event loop yet, so that a program may load its own modules at the same time.
        Raises: ModelLoadError, one sentence naming the file; EngineError naming an RPC worker.
        """
        if self._is_loading:
            raise EngineError("the engine was started before")
        check_model_file(self.config.model_path)
        use_rpc_workers(self.config.options.rpc_workers)
        self._is_loading = True
        self._native.start()

    async def start(self) -> None:
        """Load the model on the decode thread and wait until it can serve.

        Raises: ModelLoadError, one sentence naming the file.
        """
        if self._loop is not None:
            raise EngineError("the engine was started before")
        if not self._is_loading:
            self.begin_load()
        path = self.config.model_path
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._native.fileno(), self._on_readable)
        self._on_readable()
        while self.state is EngineState.LOADING:
            self._state_changed.clear()
            await self._state_changed.wait()
        if self.state is not EngineState.READY:
            raise ModelLoadError(self.error or f"cannot load model {path}")
        if self._placement.is_pinned:
            self._front_end_cores.confine()
        # It shares cores with ggml's workers, and a token that it forwards takes microseconds.
        _native.take_front_end_slice()
        self._pieces = self._native.token_pieces(special=False)
        self._pieces_special = self._native.token_pieces(special=True)
        self._model = read_model_info(self._native.model_info(), path, self._pieces_special)
        report = self._native.decode_loop()
        names = {number: name for name, number in DECODE_LOOPS.items()}
        self._decode_loop = DecodeLoop.of_report(report, names[report["loop"]])

    async def stop(self, limit_s: float | None = None) -> None:
        """End every request with STOPPED, free the model. Idempotent; safe while loading.

        Where the decode thread does not come to an end within `limit_s` (None: the configuration's
        `stop_timeout_s`), it is given up, and `is_lost` says so.
        """
        if self._stop_task is None:
            limit_s = self.config.stop_timeout_s if limit_s is None else limit_s
            self._stop_task = asyncio.create_task(self._stop(limit_s))
        await asyncio.shield(self._stop_task)

    async def _stop(self, limit_s: float) -> None:
        self._grammars.stop()
        self._tokenizer.stop()
        is_stopped = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s + _TURN_S):  # no thread may be free to ask it
                is_stopped = await asyncio.to_thread(self._native.stop_within, limit_s)
        if not is_stopped:
            why = f"the decode thread did not come to an end within {limit_s:g} s"
            self._abandon(why, FinishReason.STOPPED)
        elif self._loop is not None and not self._is_lost:
            # It ended by itself before, and left behind what cannot be freed.
            has_failed = self.state is EngineState.FAILED
            self._is_lost = has_failed and (self._model is not None or self._native.is_lost())
            self._on_readable()
            self._loop.remove_reader(self._native.fileno())
        self._front_end_cores.release()

    def abandon(self, why: str) -> None:
        """Give the decode thread up, whatever it hangs in: every request ends with EXCEPTION, the
        state is FAILED with `why` as its error unless there is one already, and `stop` has nothing
        to wait for any more.

        The thread may still hold the model and cores: soon after this the process should end, by
        `os._exit`, since Python and CUDA wait for threads at an ordinary end.
        """
        self._abandon(why, FinishReason.EXCEPTION)

    def _abandon(self, why: str, reason: FinishReason) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._native.abandon(why.encode(), int(reason))
        if self._loop is not None:
            self._on_readable()
            self._loop.remove_reader(self._native.fileno())

    @property
    def is_lost(self) -> bool:
        """Whether the decode thread was given up."""
        return self._is_lost

    @property
    def progress(self) -> int | None:
        """Another number whenever the decode thread has moved, within a long step too; None while
        it has nothing to do."""
        number = self._native.progress()
        return None if number < 0 else number

    @property
    def state(self) -> EngineState:
        """Where the engine is in its life."""
        return EngineState(self._native.state())

    @property
    def error(self) -> str:
        """Text of the last failure of the decode thread; empty if there was none."""
        return self._native.error().decode(errors="replace")

    @property
    def load_progress(self) -> float:
        """Fraction of the model loaded, 0 to 1."""
        return self._native.load_progress()

    @property
    def gpu_test(self) -> tuple[float, bool]:
        """Seconds of the GPU's test at hand as it loads (0: none); if the driver compiles in it."""
        return self._native.gpu_test_age_us() / 1e6, self._native.gpu_test_compiles()

    @property
    def placement(self) -> Placement:
        """Cores and thread counts in use."""
        return self._placement

    @property
    def model(self) -> ModelInfo:
        """The loaded model. Raises: EngineError before it is."""
        if self._model is None:
            raise EngineError("the model is not loaded")
        return self._model

    @property
    def decode_loop(self) -> DecodeLoop:
        """Where the token loop runs, and why. Raises: EngineError before the model is loaded."""
        if self._decode_loop is None:
            raise EngineError("the model is not loaded")
        return self._decode_loop

    def stats(self) -> EngineStats:
        """Counters of the decode thread; reading them costs it nothing."""
        counters = self._native.counters()
        steps = StepStats(**counters.pop("steps"))
        return EngineStats(state=self.state, steps=steps, **counters)

    # -- requests -----------------------------------------------------------------------------

    def submit(self, request: SequenceRequest) -> TokenStream:
        """Hand a request to the decode thread; its events come from the stream returned.

        Raises: EngineBusy if all slots and waiting places are taken; EngineError if the engine is
        not ready; ValueError, its text beginning with the field's name, for a token id outside the
        vocabulary or a prompt that does not fit the context.
        """
        self._check_ready()
        spec = self._requests.spec(request, self._new_id(), self.model)
        if not self._native.submit(spec):
            raise EngineBusy("every slot and every waiting place is taken")
        stream = TokenStream(spec.id, self._cancel, self._native, spec.mask, spec.reasoning_budget)
        self._streams[spec.id] = stream
        return stream

    def expect(self) -> None:
        """A `submit` is about to follow: the decode thread may wake up for it."""
        self._native.expect()

    async def compile_sampling(self, sampling: SamplingParams) -> None:
        """Compile what `submit` would otherwise have to wait for: DRY breakers in token form, the
        order of the tokens' texts for infill.

        Raises: ValueError, its text beginning with the field's name.
        """
        await self._requests.compile_sampling(sampling)

    async def compile_stop(
        self,
        stop: tuple[bytes, ...],
        *,
        special: bool = False,
        preserved_tokens: tuple[int, ...] = (),
    ) -> None:
        """Do as `compile_sampling` does, for a request's stop strings.

        It takes milliseconds where the GPU runs the loop.

        Raises: ValueError, its text beginning with the field's name.
        """
        await self._requests.compile_stop((stop, special, preserved_tokens))

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    async def compile_grammar(
        self, kind: GrammarKind, text: str, parts: Sequence[GrammarPart] = ()
    ) -> Grammar:
        """A grammar for requests: a JSON schema, llguidance's Lark, or a regular expression.

        `parts`: the same grammar, the root first; masks are then kept, and shared by its sequences.

        Raises: GrammarError with the compiler's message, also for one that takes too long;
        EngineBusy where it waits too long; EngineError if the engine is not ready or llguidance is
        not there.
        """
        self._check_ready()
        return await self._grammars.compile(kind, text, parts)

    async def look_into_grammar(self, work: Callable[[], T], n_bytes: int) -> T:
        """`work` on a grammar's text of so many bytes, on the threads where grammars are compiled.

        Raises: EngineBusy if it waits too long; GrammarError if it takes too long.
        """
        return await self._grammars.threads.run(work, n_bytes)

    async def lazy_grammar(self, grammar: Grammar, wait: GrammarWait) -> Grammar:
        """The same grammar, but the text is free until a trigger of `wait` comes.

        Raises: as `compile_grammar`.
        """
        on_host = self.decode_loop.loop == "host"
        return await self._grammars.lazy(grammar, wait, on_host=on_host)

    def _cancel(self, request_id: int) -> None:
        if request_id in self._streams and not self._native.cancel(request_id):
            # The command ring is full: the decode thread will have emptied it a step later.
            assert self._loop is not None
            self._loop.call_later(0.001, self._cancel, request_id)

    def _on_readable(self) -> None:
        native = self._native
        is_parked = False
        while not is_parked:
            events, listeners = native.drain()
            if events:
                self._hand_out(events)
            for listener in listeners:
                listener()
            is_parked = native.park()
        if self._model is None and not self._state_changed.is_set():
            self._state_changed.set()

    def _hand_out(self, events: list[_native.TokenEvent]) -> None:
        streams = self._streams
        with_news: list[TokenStream] = []
        for event in events:
            stream = streams[event.request_id]
            if stream.push(event):
                with_news.append(stream)
            if event.kind == _FINISHED:
                del streams[event.request_id]
        for stream in with_news:
            stream.wake()

    # -- text ---------------------------------------------------------------------------------

    async def tokenize(
        self, text: str, *, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        """Token ids of `text`. `add_special`: BOS and the like as the model wants them;
        `parse_special`: control tokens written in the text become one token.

        Raises: TextError for a text that cannot be tokenised; EngineBusy where too many wait;
        EngineError if the engine is not ready.
        """
        self._check_ready()
        return await self._tokenizer.tokenize(
            text, add_special=add_special, parse_special=parse_special
        )

    async def tokenize_array(
        self, text: str, *, add_special: bool = True, parse_special: bool = True
    ) -> array[int]:
        """Do as `tokenize` does, without a list: one of millions of tokens takes long to make."""
        self._check_ready()
        return await self._tokenizer.tokenize_array(
            text, add_special=add_special, parse_special=parse_special
        )

    async def tokenize_all(
        self, texts: Sequence[str], *, add_special: bool = True, parse_special: bool = True
    ) -> list[list[int]]:
        """Do as `tokenize` does, for many texts at once. Raises: the same."""
        self._check_ready()
        return await self._tokenizer.tokenize_all(
            texts, add_special=add_special, parse_special=parse_special
        )

    def _check_ready(self) -> None:
        if self._stop_task is not None:
            raise EngineError("the engine is stopping")
        if self.state is not EngineState.READY:
            raise EngineError("the engine is not ready")

    def are_tokens(self, items: list[Any]) -> bool:
        """Whether all of them are ints, each the id of one of the model's tokens."""
        return _native.are_tokens(items, self.model.n_vocab)

    async def detokenize(self, tokens: Sequence[int], *, special: bool = True) -> bytes:
        """The tokens' text as bytes, which may end or begin within a UTF-8 sequence.

        Raises: ValueError for an id outside the vocabulary.
        """
        return await self._tokenizer.detokenize(tokens, self.model.n_vocab, special=special)

    @property
    def token_pieces(self) -> list[bytes]:
        """Text of every token, by id; control tokens are empty. Not to be changed."""
        return self._pieces

    @property
    def token_pieces_special(self) -> list[bytes]:
        """Text of every token, by id; control tokens are spelled out. Not to be changed."""
        return self._pieces_special
