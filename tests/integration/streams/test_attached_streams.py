"""Streams whose frames the engine's own thread sends, as the engine itself has them: whatever ends
them, the reader hears of it, and every token is either sent or left."""

import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest

from engine_ext import (
    Engine,
    EngineConfig,
    EventKind,
    FinishReason,
    FrameField,
    Histogram,
    SamplingParams,
    SequenceRequest,
    TokenFrames,
    TokenStream,
)
from tests.support.http.chunked_body import body_of

pytestmark = pytest.mark.anyio

DEMO_MODEL = Path(__file__).resolve().parents[3] / "engine_ext" / "models" / "demo.gguf"
ENDLESS = SamplingParams(temperature=0, ignore_eos=True)


@contextlib.asynccontextmanager
async def running_engine() -> AsyncIterator[Engine]:
    config = EngineConfig(model_path=DEMO_MODEL, n_slots=2, n_threads=1, n_ctx=4096)
    async with Engine(config) as engine:
        yield engine


@pytest.fixture
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A server's socket, and its client's."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(20)
    with ours, theirs:
        yield ours, theirs


async def attached(
    engine: Engine, ours: socket.socket, n: int = 2000
) -> tuple[TokenStream, TokenFrames]:
    """A stream whose frames are its tokens' numbers, from the second token on."""
    request = SequenceRequest(prompt=[1, 5, 9], sampling=ENDLESS, max_tokens=n)
    stream = engine.submit(request)
    n_seen = 0
    while n_seen == 0:
        n_seen += sum(event.kind == EventKind.TOKEN for event in await stream.read())
    frames = TokenFrames(
        engine.token_pieces,
        [FrameField.NUMBER, b"\n"],
        skips_empty=False,
        keeps_text=False,
        partial=b"",
        n_decoded=n_seen,
        last_us=0,
        has_new_line=False,
        gaps=Histogram([]),
    )
    while not stream.frame(frames, lambda: None):
        n_seen += sum(event.kind == EventKind.TOKEN for event in await stream.read())
    assert stream.attach(ours.fileno())
    return stream, frames


async def end_of(stream: TokenStream) -> FinishReason:
    """Of a stream that has no further tokens to read."""
    with anyio.fail_after(20):
        events = await stream.read()
    assert events[-1].kind == EventKind.FINISHED
    return FinishReason(events[-1].finish_reason)


async def test_a_stop_of_the_engine_ends_them(
    connection: tuple[socket.socket, socket.socket],
) -> None:
    for wait_ms in (0, 1, 3, 10):
        async with running_engine() as engine:
            stream, _ = await attached(engine, connection[0])
            await anyio.sleep(wait_ms / 1e3)
            await engine.stop()
            assert await end_of(stream) is FinishReason.STOPPED


async def test_an_engine_that_is_given_up_ends_them(
    connection: tuple[socket.socket, socket.socket],
) -> None:
    async with running_engine() as engine:
        stream, _ = await attached(engine, connection[0])
        engine.abandon("the test has given it up")
        assert await end_of(stream) is FinishReason.EXCEPTION


async def test_what_is_cancelled_has_sent_or_left_every_token(
    connection: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = connection
    async with running_engine() as engine:
        for wait_ms in (0, 1, 5, 20):
            stream, frames = await attached(engine, ours)
            await anyio.sleep(wait_ms / 1e3)
            stream.cancel()
            assert await end_of(stream) is FinishReason.CANCELLED
            assert stream.unframe() == b""
            left = [int(line) for line in frames.take().split()]
            theirs.setblocking(False)
            sent = b""
            with contextlib.suppress(BlockingIOError):
                while True:
                    sent += theirs.recv(65536)
            found = [int(line) for line in body_of(sent).split()] + left
            if found:
                assert found == [*range(found[0], frames.n_decoded + 1)]


async def test_two_of_them_end_by_themselves_one_after_the_other(
    connection: tuple[socket.socket, socket.socket],
) -> None:
    async with running_engine() as engine:
        first, _ = await attached(engine, connection[0], 100)
        second, _ = await attached(engine, connection[0], 300)
        assert await end_of(first) is FinishReason.TOKEN_LIMIT
        first.unframe()
        assert await end_of(second) is FinishReason.TOKEN_LIMIT
        second.unframe()
        plain = engine.submit(SequenceRequest(prompt=[1, 5], sampling=ENDLESS, max_tokens=9))
        kinds = [event.kind async for event in plain]
        assert kinds.count(EventKind.TOKEN) == 9
