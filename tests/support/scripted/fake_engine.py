"""A scripted engine for the server's unit tests: events happen when the test says so.

Token ids below 256 are that byte; 256 is the end-of-generation token, 257 BOS. Every stream is
engine_ext's own TokenStream.
"""

import asyncio
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from engine_ext import (
    DecodeLoop,
    EngineState,
    EngineStats,
    EventKind,
    FinishReason,
    Grammar,
    GrammarError,
    GrammarKind,
    GrammarPart,
    GrammarWait,
    ModelInfo,
    SamplingParams,
    SequenceRequest,
    StepStats,
    TokenFrames,
)
from engine_ext.loading.placement import Placement
from engine_ext.sequence.token_stream import TokenStream

if TYPE_CHECKING:
    from engine_ext import _native

T = TypeVar("T")
EOS, BOS, N_VOCAB = 256, 257, 258


@dataclass(slots=True, kw_only=True)
class FakeEvent:
    """Looks like a native TokenEvent."""

    kind: int
    t_us: int = field(default_factory=lambda: time.monotonic_ns() // 1000)
    request_id: int = 0
    sequence_number: int = 0
    slot: int = 0
    finish_reason: int = 0
    token: int = 0
    logprob: float = 0.0
    n_decoded: int = 0
    n_prompt: int = 0
    n_cached: int = 0
    n_processed: int = 0
    n_cells: int = 0
    n_shifts: int = 0
    n_idle_saved: int = 0
    updated_cache: bool = False
    copy_us: int = 0
    n_kept_copied: int = 0
    n_kept_computed: int = 0
    status: int = 0
    cut_line: int = -1
    cells_us: int = 0
    top_logprobs: list[tuple[int, float]] = field(default_factory=list)


class FakeSequence:
    """One submitted request, played by the test."""

    def __init__(self, request_id: int, request: SequenceRequest, step_us: int = 0) -> None:
        self.request = request
        self._step_us = step_us
        self._t_us = 0
        self.is_cancelled = False
        self.n_reasoning_ended = 0
        self.n_decoded = 0
        self.n_cached = 0
        self.copy_us = self.cells_us = 0  # what it says it has waited for
        self.n_kept_copied = self.n_kept_computed = 0  # what it says host memory had
        self.n_framed = 0  # tokens that were no events
        self._socket = -1  # -1: nobody sends frames by themselves
        self._framed: tuple[TokenFrames, Callable[[], None]] | None = None
        self.stream = TokenStream(
            request_id,
            lambda _: self._cancel(),
            self,
            budget=cast("_native.ReasoningBudget", self) if request.reasoning_budget else None,
        )

    def start(self, n_cached: int = 0) -> None:
        n_prompt = len(self.request.prompt)
        self.n_cached = n_cached
        self._push(
            FakeEvent(
                kind=EventKind.STARTED,
                n_prompt=n_prompt,
                n_cached=n_cached,
                copy_us=self.copy_us,
                n_kept_copied=self.n_kept_copied,
                n_kept_computed=self.n_kept_computed,
            )
        )

    def frame(self, request_id: int, frames: TokenFrames, listener: Callable[[], None]) -> bool:
        """As the native engine."""
        assert request_id == self.stream.request_id
        self._framed = frames, listener
        return True

    def attach(self, request_id: int, socket: int) -> bool:
        """As the native engine."""
        assert request_id == self.stream.request_id
        self._socket = socket
        return self._attach()

    def _attach(self) -> bool:
        if self._framed is None or self._socket < 0:
            return False
        if not self._framed[0].attach(self._socket):
            self._socket = -1
        return self._socket >= 0

    def unframe(self, request_id: int) -> bytes:
        """As the native engine."""
        assert request_id == self.stream.request_id
        if self._framed is not None:
            self._framed[0].attach(-1)
        self._framed, self._socket = None, -1
        return b""  # nobody is behind

    def end_reasoning(self) -> None:
        """As the native budget's."""
        self.n_reasoning_ended += 1

    def prefill(self, n_processed: int | None = None) -> None:
        n_prompt = len(self.request.prompt)
        n = n_prompt if n_processed is None else n_processed
        self._push(
            FakeEvent(
                kind=EventKind.PREFILL,
                n_prompt=n_prompt,
                n_cached=self.n_cached,
                n_processed=n,
            )
        )

    def prompt_logprob(self, token: int, logprob: float, top: list[tuple[int, float]]) -> None:
        self._push(
            FakeEvent(kind=EventKind.PROMPT_LOGPROB, token=token, logprob=logprob, top_logprobs=top)
        )

    def tokens(self, text: bytes | Sequence[int], logprob: float = -0.5) -> None:
        for token in text:
            self.n_decoded += 1
            self._push(
                FakeEvent(
                    kind=EventKind.TOKEN,
                    token=token,
                    n_decoded=self.n_decoded,
                    n_cells=self._n_cells(),
                    logprob=logprob,
                    top_logprobs=[(token, logprob), (65, -9.0)][: self.request.n_probs],
                )
            )

    def finish(
        self,
        reason: FinishReason = FinishReason.TOKEN_LIMIT,
        status: int = 0,
        cut_line: int = -1,
    ) -> None:
        self._push(
            FakeEvent(
                kind=EventKind.FINISHED,
                finish_reason=reason,
                n_decoded=self.n_decoded,
                n_cells=self._n_cells(),
                status=status,
                cut_line=cut_line,
                cells_us=self.cells_us,
            )
        )

    def play(self, text: bytes, reason: FinishReason = FinishReason.TOKEN_LIMIT) -> None:
        """A whole answer at once."""
        self.start()
        self.prefill()
        self.tokens(text)
        self.finish(reason)

    def _n_cells(self) -> int:
        return len(self.request.prompt) + max(0, self.n_decoded - 1)

    def _push(self, event: FakeEvent) -> None:
        if self._step_us:
            self._t_us += self._step_us
            event.t_us = self._t_us
        if self._framed is not None and event.kind == EventKind.TOKEN:
            frames, listener = self._framed
            frames.add(event.token, event.n_decoded, event.t_us)
            self.n_framed += 1
            if not self._attach():
                listener()
            return
        if self.stream.push(event):  # type: ignore[arg-type]
            self.stream.wake()

    def _cancel(self) -> None:
        if not self.is_cancelled:
            self.is_cancelled = True
            # The decode thread answers a step later.
            asyncio.get_running_loop().call_later(0.005, self.finish, FinishReason.CANCELLED)


class FakeSlots:
    """What the slots hold, set by the test."""

    def __init__(self) -> None:
        self.cells = [7] * 256

    def n_cells(self) -> list[int]:
        return self.cells

    def n_cells_shared(self) -> list[int]:
        return [0] * len(self.cells)


class FakeEngine:
    """`sequences` holds what was submitted; `answer`, if set, is played at once for each."""

    def __init__(self, n_ctx: int = 128) -> None:
        self.slots = FakeSlots()
        self.sequences: list[FakeSequence] = []
        self._news = asyncio.Event()
        self.step_us = 0
        """If set, so much lies between a sequence's events, whenever they happen."""
        self.answer: bytes | None = None
        self.grammars: list[tuple[GrammarKind, str]] = []
        self.grammar_error = ""
        self.state = EngineState.READY
        self.load_progress = 1.0
        self.heartbeat_age_s = 0.0
        self.decode_loop = DecodeLoop(
            loop="host",
            reason="scripted",
            device="",
            memory_bytes={"CPU": {"weights": 2000, "kv": 10, "compute": 5}},
            elsewhere=[],
            n_elsewhere=0,
            n_graph_nodes={},
            n_graph_splits=0,
            phases=[],
        )
        self.placement = Placement(
            is_pinned=True,
            decode_cores=[1],
            worker_cores=[[0]],
            front_end_cores=[0],
            n_threads=1,
            n_threads_batch=2,
            n_threads_asked=2,
            short_steps_alone=False,
        )
        self.token_pieces = [bytes([i]) for i in range(256)] + [b"", b""]
        self.token_pieces_special = [bytes([i]) for i in range(256)] + [b"</s>", b"<s>"]
        self.model = ModelInfo(
            path=Path("fake.gguf"),
            name="fake",
            description="fake",
            n_vocab=N_VOCAB,
            vocab_type=1,
            n_ctx=n_ctx,
            n_ctx_train=n_ctx,
            n_embd=8,
            n_layer=1,
            n_params=1000,
            size_bytes=2000,
            ftype="F16",
            bos=BOS,
            eos=EOS,
            eot=-1,
            add_bos=True,
            add_eos=False,
            eog_tokens=frozenset({EOS}),
            suppress_tokens=(),
            chat_template=None,
            bos_piece="<s>",
            eos_piece="</s>",
        )

    async def start(self) -> None:
        self.state = EngineState.READY

    async def stop(self, limit_s: float | None = None) -> None:
        del limit_s
        self.state = EngineState.STOPPED
        for sequence in self.sequences:
            if not sequence.is_cancelled:
                sequence.finish(FinishReason.STOPPED)

    def expect(self) -> None:
        pass

    async def compile_sampling(self, sampling: SamplingParams) -> None:
        del sampling

    async def compile_stop(
        self,
        stop: tuple[bytes, ...],
        *,
        special: bool = False,
        preserved_tokens: tuple[int, ...] = (),
    ) -> None:
        del stop, special, preserved_tokens

    async def compile_grammar(
        self, kind: GrammarKind, text: str, parts: Sequence[GrammarPart] = ()
    ) -> Grammar:
        del parts
        self.grammars.append((kind, text))
        if self.grammar_error:
            raise GrammarError(self.grammar_error)
        return Grammar(cast("_native.Grammar", object()))

    async def look_into_grammar(self, work: Callable[[], T], n_bytes: int) -> T:
        del n_bytes
        return work()

    async def lazy_grammar(self, grammar: Grammar, wait: GrammarWait) -> Grammar:
        assert wait.triggers
        return replace(grammar, triggers=cast("_native.CompiledTriggers", object()))

    def are_tokens(self, items: list[Any]) -> bool:
        return all(type(item) is int and 0 <= item < N_VOCAB for item in items)

    async def tokenize(
        self, text: str, *, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        del parse_special
        return [BOS] * add_special + list(text.encode())

    async def tokenize_array(
        self, text: str, *, add_special: bool = True, parse_special: bool = True
    ) -> "array[int]":
        return array(
            "i", await self.tokenize(text, add_special=add_special, parse_special=parse_special)
        )

    async def tokenize_all(
        self, texts: Sequence[str], *, add_special: bool = True, parse_special: bool = True
    ) -> list[list[int]]:
        return [
            await self.tokenize(text, add_special=add_special, parse_special=parse_special)
            for text in texts
        ]

    def submit(self, request: SequenceRequest) -> TokenStream:
        sequence = FakeSequence(len(self.sequences), request, self.step_us)
        self.sequences.append(sequence)
        self._news.set()
        if self.answer is not None:
            sequence.play(self.answer)
        return sequence.stream

    async def submitted(self, n: int = 1) -> FakeSequence:
        """Wait until `n` requests were submitted in all; the last one of them."""
        async with asyncio.timeout(5):
            while len(self.sequences) < n:
                self._news.clear()
                await self._news.wait()
        return self.sequences[n - 1]

    def stats(self) -> EngineStats:
        return EngineStats(
            state=self.state,
            heartbeat_age_s=self.heartbeat_age_s,
            steps=StepStats(
                n_batches=(3, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1),
                n_batch_tokens=4117,
                n_beside=2,
                n_tokens_beside=14,
                n_tokens_beside_max=8,
                prefill_budget=64,
                decode_us=1500,
                prompt_token_ns=250_000,
                prompt_alone_ns=200_000,
                n_observed=10,
                n_lane_steps=0,
                n_lane_tokens=0,
                n_masked_tokens=0,
                n_late_masks=0,
                gap_us_max=9000,
            ),
            n_steps=10,
            n_busy_slots=12,
            n_tokens_decoded=9,
            n_tokens_device=0,
            n_tokens_prompt=8,
            n_tokens_cached=7,
            n_prefix_waits=0,
            n_tokens_shared=0,
            n_cells_shared=0,
            n_cells_repeated=0,
            n_requests_started=6,
            n_requests_finished=5,
            n_requests_cancelled=4,
            n_requests_failed=3,
            n_requests_host={"shared": 3, "dry": 0},
            n_window_graphs=0,
            n_prompts_graph=0,
            n_prompt_graphs=0,
            n_slots_active=2,
            n_waiting=1,
            n_cache_bytes=0,
            n_cache_early_bytes=0,
            n_cache_states=0,
            n_cache_lost=0,
            n_cache_copied=5,
            n_cache_computed=2,
            n_cache_tried=1,
            cache_cell_ns=4000,
            n_cell_waits=0,
            n_cells_yielded=0,
            cache_turn_us_max=0,
            cache_us=0,
            n_ring_full=0,
            n_ring_most=5,
            n_ring_max=4096,
            cpu_us=1_500_000,
            n_event_writes=11,
        )
