"""Stop strings in the engine, on the demo model: nothing is decoded past the token that completes
one, and what follows is as if the client had asked for no more."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine_ext import (
    Engine,
    EngineConfig,
    EventKind,
    FinishReason,
    SamplingParams,
    SequenceRequest,
    TokenEvent,
)

pytestmark = pytest.mark.anyio

DEMO_MODEL = Path(__file__).resolve().parents[2] / "engine_ext" / "models" / "demo.gguf"
ENDLESS = SamplingParams(temperature=0, ignore_eos=True)
N_TOKENS = 60


@contextlib.asynccontextmanager
async def running_engine(n_slots: int = 1, n_ubatch: int = 512) -> AsyncIterator[Engine]:
    config = EngineConfig(model_path=DEMO_MODEL, n_slots=n_slots, n_ubatch=n_ubatch, n_threads=1)
    async with Engine(config) as engine:
        yield engine


async def run(engine: Engine, request: SequenceRequest) -> tuple[list[int], TokenEvent]:
    events = [event async for event in engine.submit(request)]
    return [e.token for e in events if e.kind == EventKind.TOKEN], events[-1]


def first_completion(pieces: list[bytes], stop: bytes) -> int:
    """How many tokens it takes until the text holds the stop string."""
    text = b""
    for n, piece in enumerate(pieces, start=1):
        text += piece
        if stop in text:
            return n
    raise AssertionError(f"{stop!r} is not in the text")


async def test_the_token_that_completes_a_stop_string_is_the_last() -> None:
    # One token a batch: on the cells of the request before the tokens are those of a cold prompt.
    async with running_engine(n_ubatch=1) as engine:
        prompt = await engine.tokenize("Once upon a time")
        tokens, _ = await run(
            engine, SequenceRequest(prompt=prompt, sampling=ENDLESS, max_tokens=N_TOKENS)
        )
        pieces = [engine.token_pieces[token] for token in tokens]
        text = b"".join(pieces)
        for begin in range(0, len(text) - 12, 7):
            for length in (1, 2, 5, 11):
                stop = text[begin : begin + length]
                n = first_completion(pieces, stop)
                n_before = engine.stats().n_tokens_decoded
                found, last = await run(
                    engine,
                    SequenceRequest(
                        prompt=prompt, sampling=ENDLESS, max_tokens=N_TOKENS, stop=(stop,)
                    ),
                )
                assert FinishReason(last.finish_reason) is FinishReason.STOP_STRING
                assert found == tokens[:n]
                assert engine.stats().n_tokens_decoded - n_before == n
                # The last token is not in the KV: nothing was computed after it.
                assert last.n_cells == len(prompt) + n - 1


async def test_a_stop_string_that_does_not_come_changes_nothing() -> None:
    async with running_engine(n_ubatch=1) as engine:  # as above
        prompt = await engine.tokenize("Once upon a time")
        plain = SequenceRequest(prompt=prompt, sampling=ENDLESS, max_tokens=N_TOKENS)
        stopped = SequenceRequest(
            prompt=prompt, sampling=ENDLESS, max_tokens=N_TOKENS, stop=(b"\x01never", b"nor this")
        )
        assert (await run(engine, plain))[0] == (await run(engine, stopped))[0]


async def test_the_prompt_is_not_searched() -> None:
    async with running_engine() as engine:
        prompt = await engine.tokenize("Once upon a time")
        tokens, _ = await run(
            engine, SequenceRequest(prompt=prompt, sampling=ENDLESS, max_tokens=4)
        )
        first = engine.token_pieces[tokens[0]]
        _, last = await run(
            engine,
            SequenceRequest(prompt=prompt, sampling=ENDLESS, max_tokens=4, stop=(b"time" + first,)),
        )
        assert FinishReason(last.finish_reason) is FinishReason.TOKEN_LIMIT


async def test_control_tokens_are_text_where_the_request_shows_them() -> None:
    async with running_engine() as engine:
        prompt = await engine.tokenize("Once upon a time")
        control = next(
            token
            for token in range(engine.model.n_vocab)
            if token not in engine.model.eog_tokens
            and engine.token_pieces_special[token] != b""
            and engine.token_pieces[token] == b""
        )
        stop = engine.token_pieces_special[control][1:-1]
        sure = SamplingParams(temperature=0, logit_bias=((control, 1e6),))

        async def reason(*, special: bool = False, preserved: tuple[int, ...] = ()) -> FinishReason:
            request = SequenceRequest(
                prompt=prompt,
                sampling=sure,
                max_tokens=3,
                stop=(stop,),
                special=special,
                preserved_tokens=preserved,
            )
            await engine.compile_stop((stop,), special=special, preserved_tokens=preserved)
            return FinishReason((await run(engine, request))[1].finish_reason)

        assert await reason() is FinishReason.TOKEN_LIMIT
        assert await reason(special=True) is FinishReason.STOP_STRING
        assert await reason(preserved=(control,)) is FinishReason.STOP_STRING
        assert await reason(preserved=(control + 1,)) is FinishReason.TOKEN_LIMIT
        with pytest.raises(ValueError, match="preserved_tokens"):
            await engine.compile_stop((stop,), preserved_tokens=(engine.model.n_vocab,))


async def test_an_end_token_comes_before_a_stop_string_and_that_before_the_limit() -> None:
    async with running_engine() as engine:
        prompt = await engine.tokenize("Once upon a time")
        eog = min(engine.model.eog_tokens)
        request = SequenceRequest(
            prompt=prompt,
            sampling=SamplingParams(temperature=0, logit_bias=((eog, 1e6),)),
            stop=(engine.token_pieces_special[eog],),
            special=True,
        )
        _, last = await run(engine, request)
        assert FinishReason(last.finish_reason) is FinishReason.EOS
        tokens, _ = await run(
            engine, SequenceRequest(prompt=prompt, sampling=ENDLESS, max_tokens=1)
        )
        request = SequenceRequest(
            prompt=prompt,
            sampling=ENDLESS,
            max_tokens=1,
            stop=(engine.token_pieces[tokens[0]],),
        )
        _, last = await run(engine, request)
        assert FinishReason(last.finish_reason) is FinishReason.STOP_STRING


async def test_slots_stop_each_for_itself() -> None:
    async with running_engine(n_slots=2) as engine:
        prompt = await engine.tokenize("Once upon a time")
        tokens, _ = await run(
            engine,
            SequenceRequest(prompt=prompt, sampling=ENDLESS, max_tokens=20, cache_prompt=False),
        )
        pieces = [engine.token_pieces[token] for token in tokens]
        stop = b"".join(pieces)[-3:]
        n = first_completion(pieces, stop)
        streams = [
            engine.submit(
                SequenceRequest(
                    prompt=prompt,
                    sampling=ENDLESS,
                    max_tokens=20,
                    cache_prompt=False,
                    stop=stops,
                )
            )
            for stops in ((stop,), ())
        ]
        ends = [[event async for event in stream] for stream in streams]
        reasons = [FinishReason(events[-1].finish_reason) for events in ends]
        assert reasons == [FinishReason.STOP_STRING, FinishReason.TOKEN_LIMIT]
        assert [events[-1].n_decoded for events in ends] == [n, 20]


async def test_the_token_that_shows_a_line_too_little_indented_is_the_last() -> None:
    async with running_engine() as engine:
        prompt = await engine.tokenize("Once upon a time")
        text = "if a:\n    b\n  c\n    d"
        grammar = await engine.compile_grammar("regex", text)
        whole, last = await run(
            engine, SequenceRequest(prompt=prompt, sampling=ENDLESS, grammar=grammar)
        )
        assert b"".join(engine.token_pieces[token] for token in whole) == text.encode()
        assert last.cut_line == -1
        # The line is looked at with the first token after the one that lets the check reach it.
        n = next(n for n in range(len(whole)) if has_text(engine, whole[:n], line=2))
        request = SequenceRequest(prompt=prompt, sampling=ENDLESS, grammar=grammar, n_indent=3)
        n_before = engine.stats().n_tokens_decoded
        tokens, last = await run(engine, request)
        assert FinishReason(last.finish_reason) is FinishReason.INDENT_LIMIT
        assert last.cut_line == 2
        assert tokens == whole[: len(tokens)]
        assert n <= len(tokens) <= n + 2 < len(whole)
        assert engine.stats().n_tokens_decoded - n_before == len(tokens)
        assert last.n_cells == len(prompt) + len(tokens) - 1
        for n_indent in (1, 2):
            request = SequenceRequest(
                prompt=prompt, sampling=ENDLESS, grammar=grammar, n_indent=n_indent
            )
            assert (await run(engine, request))[0] == whole


def has_text(engine: Engine, tokens: list[int], *, line: int) -> bool:
    """Whether the line is there with more than its indentation."""
    lines = b"".join(engine.token_pieces[token] for token in tokens).split(b"\n")
    return len(lines) > line and lines[line].strip() != b""


async def test_the_time_limit_ends_a_text_at_a_new_line() -> None:
    async with running_engine() as engine:
        prompt = await engine.tokenize("Once upon a time")
        # A step takes more than 10 us, so that 2000 of them take more than 1 ms by far; and it
        # cannot be the first new line of all, whose token comes with the clock's start.
        grammar = await engine.compile_grammar("regex", "(a\n){2000}")
        limited = SequenceRequest(prompt=prompt, sampling=ENDLESS, grammar=grammar, t_max_ms=1)
        tokens, last = await run(engine, limited)
        assert FinishReason(last.finish_reason) is FinishReason.TIME_LIMIT
        assert b"\n" in engine.token_pieces[tokens[-1]]
        assert last.n_cells == len(prompt) + len(tokens) - 1
        endless = SequenceRequest(
            prompt=prompt, sampling=ENDLESS, max_tokens=50, t_max_ms=2**63 - 1
        )
        _, last = await run(engine, endless)
        assert FinishReason(last.finish_reason) is FinishReason.TOKEN_LIMIT


def test_too_many_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^stop: "):
        SequenceRequest(prompt=[1], stop=(b"x" * 40000, b"y" * 40000))
