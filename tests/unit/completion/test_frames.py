"""Frames that the native code makes of tokens: the same bytes as Python's, token by token."""

import asyncio
import contextlib
import math
import socket
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine_ext import FinishReason, FrameField, TokenFrames
from tests.support.http.chunked_body import body_of
from tests.support.scripted.asgi_client import AsgiRequest, get, post, turns
from tests.support.scripted.fake_engine import EOS, FakeEngine, FakeSequence
from tests.support.scripted.server_app import make_app
from unpaced.completion.text_stream import TextStream
from unpaced.metrics.histogram import Histogram
from unpaced.metrics.metrics import Metrics

_PIECES = [bytes([i]) for i in range(256)] + [b"", "é€".encode(), b"two\nlines", b'"\\\x7f']
_PARTS: list[bytes | int] = [b"<", FrameField.TEXT, b",", FrameField.TOKEN, b";", FrameField.NUMBER]
TEXT = 'one "two"\n\x01 é€😀 \\ three\n'.encode() + b"\xff\xe2\x82" + b" four"
_CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 90}
_WAYS = [
    ("/completion", {"prompt": "hi"}),
    ("/v1/completions", {"prompt": "hi", "stream_options": {"include_usage": True}}),
    ("/v1/chat/completions", _CHAT | {"stream_options": {"include_usage": True}}),
    ("/v1/messages", _CHAT),
]


def make_frames(
    *, skips_empty: bool = False, keeps_text: bool = False, gaps: Histogram | None = None
) -> TokenFrames:
    return TokenFrames(
        _PIECES,
        [*_PARTS, b">"],
        skips_empty=skips_empty,
        keeps_text=keeps_text,
        partial=b"",
        n_decoded=0,
        last_us=0,
        has_new_line=False,
        gaps=Histogram((1.0,)) if gaps is None else gaps,
    )


@pytest.mark.parametrize("skips_empty", [False, True])
@given(tokens=st.lists(st.integers(0, len(_PIECES) - 1)), first=st.binary(max_size=3))
@example(tokens=list(range(256)), first=b"")
@example(tokens=list("é€😀".encode()), first=b"\xf0\x9f")
@example(tokens=[0xA0, 0x61], first=b"\xed")
def test_frames_hold_what_the_text_stream_makes_final(
    tokens: list[int], first: bytes, skips_empty: bool
) -> None:
    frames = make_frames(skips_empty=skips_empty, keeps_text=True)
    oracle = TextStream()
    tokens = [*first, *tokens]
    expected, texts = b"", []
    for n, token in enumerate(tokens, 1):
        frames.add(token, n, n)
        texts.append(oracle.push(_PIECES[token]))
        if texts[-1] or not skips_empty:
            expected += b"<%b,%d;%d>" % (orjson.dumps(texts[-1]), token, n)
        assert frames.partial == oracle.partial
    text = "".join(texts)
    assert frames.has_new_line == ("\n" in text)
    assert (frames.n_decoded, frames.last_us) == (len(tokens), len(tokens))
    chunk = b"%x\r\n%b\r\n" % (len(expected), expected) if expected else b""
    assert frames.take_chunk() == chunk
    assert (frames.take_text().decode(), frames.take_text()) == (text, b"")
    assert frames.take() == frames.take_chunk() == b""


def test_gaps_are_counted_from_the_token_before() -> None:
    gaps = Histogram((0.5, 1.0))
    frames = make_frames(gaps=gaps)
    for n, t_us in enumerate((400_000, 1_400_000, 4_000_000), 1):
        frames.add(65, n, t_us)
    assert gaps.counts == [1, 1, 1]
    assert math.isclose(gaps.total, 4.0)


def test_silence_is_counted_from_the_newest_frame() -> None:
    frames = make_frames(skips_empty=True)
    frames.add(65, 1, 10)
    frames.add(256, 2, 20)
    assert (frames.written_us, frames.last_us) == (10, 20)


def test_a_token_without_a_piece_and_a_field_that_is_none_are_refused() -> None:
    with pytest.raises(IndexError):
        make_frames().add(len(_PIECES), 1, 1)
    with pytest.raises(ValueError, match="no such field"):
        TokenFrames(
            _PIECES,
            [3],
            skips_empty=False,
            keeps_text=False,
            partial=b"",
            n_decoded=0,
            last_us=0,
            has_new_line=False,
            gaps=Histogram(()),
        )


async def play(path: str, body: dict[str, Any], *, connected: bool) -> tuple[AsgiRequest, int]:
    """A whole streamed answer, and how many of its tokens were no events."""
    engine = FakeEngine()
    request = post(make_app(engine), path, body | {"stream": True})
    if connected:
        request.connect()
    sequence = await engine.submitted()
    sequence.start()
    sequence.prefill()
    await turns(20)
    sequence.tokens([*TEXT, EOS])
    await turns(20)
    sequence.finish(FinishReason.EOS)
    await request.done()
    return request, sequence.n_framed


def plain_events(request: AsgiRequest) -> list[Any]:
    """Without what differs between two requests of the same."""
    frames = [frame.rpartition("data: ")[2] for frame in request.body.decode().split("\n\n")]
    events = [orjson.loads(frame) for frame in frames if frame and frame != "[DONE]"]
    for event in events:
        for name in ("id", "created", "timings"):
            event.pop(name, None)
        event.get("message", {}).pop("id", None)
    return events


@pytest.mark.anyio
@pytest.mark.parametrize(("path", "body"), _WAYS, ids=[path for path, _ in _WAYS])
async def test_a_stream_is_the_same_whoever_writes_its_frames(
    path: str, body: dict[str, Any]
) -> None:
    native, n_native = await play(path, body, connected=True)
    python, n_python = await play(path, body, connected=False)
    assert n_native >= len(TEXT) - 1
    assert n_python == 0
    assert native.status == python.status == 200
    assert plain_events(native) == plain_events(python)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "extra",
    [{"stop": ["nowhere"]}, {"n_probs": 1}, {"timings_per_token": True}],
    ids=["stop", "probs", "timings"],
)
async def test_where_tokens_must_be_looked_at_they_stay_events(extra: dict[str, Any]) -> None:
    _, n_framed = await play("/completion", {"prompt": "hi"} | extra, connected=True)
    assert n_framed == 0


async def started(engine: FakeEngine, request: AsgiRequest) -> FakeSequence:
    request.connect()
    sequence = await engine.submitted()
    sequence.start()
    await turns(20)
    sequence.tokens(b"a\nb")
    assert sequence.n_framed == 2
    return sequence


@pytest.mark.anyio
async def test_each_token_is_written_at_once_and_alone() -> None:
    engine = FakeEngine()
    request = post(make_app(engine), "/completion", {"prompt": "hi", "stream": True})
    sequence = await started(engine, request)
    n_events = len(request.events)
    for n, letter in enumerate(b"cdef", 1):
        sequence.tokens(bytes([letter]))  # and no turn of the event loop
        assert len(request.events) == n_events + n
        assert request.events[-1]["content"] == chr(letter)
    sequence.finish()
    await request.done()
    assert request.events[-1]["tokens_predicted"] == 7


def calls_of(run: Callable[[], None]) -> list[str]:
    """The Python functions of the engine and the server that `run` has called, in order."""
    calls = []

    def note(frame: FrameType, event: str, _: object) -> None:
        name: str = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith(("unpaced.", "engine_ext.")):
            calls.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.anyio
async def test_a_token_takes_one_call_of_python_up_to_the_connection() -> None:
    engine = FakeEngine()
    request = post(make_app(engine), "/completion", {"prompt": "hi", "stream": True})
    sequence = await started(engine, request)
    assert calls_of(lambda: sequence.tokens(b"c")) == ["DirectStream._on_framed"]
    sequence.finish()
    await request.done()


@pytest.fixture
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A server's socket, and its client's."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(5)
    with ours, theirs:
        yield ours, theirs


def texts_of(chunks: bytes) -> list[str]:
    """Of the events in whole chunks."""
    frames = body_of(chunks).split(b"\n\n")
    return [orjson.loads(frame[6:])["content"] for frame in frames if frame]


async def attached(
    engine: FakeEngine, request: AsgiRequest, ours: socket.socket, *, keeps_up: bool = False
) -> FakeSequence:
    request.connect(ours.fileno(), keeps_up=keeps_up)
    sequence = await engine.submitted()
    sequence.start()
    await turns(20)
    sequence.tokens(b"ab")
    return sequence


@pytest.mark.anyio
async def test_where_there_is_a_socket_tokens_need_no_python(
    connection: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = connection
    engine = FakeEngine()
    request = post(make_app(engine), "/completion", {"prompt": "hi", "stream": True})
    sequence = await attached(engine, request, ours)
    assert [event["content"] for event in request.events] == ["a"]
    assert texts_of(theirs.recv(4096)) == ["b"]
    assert calls_of(lambda: sequence.tokens(b"cd")) == []
    assert texts_of(theirs.recv(4096)) == ["c", "d"]
    sequence.finish()
    await request.done()
    assert [event["content"] for event in request.events] == ["a", ""]
    assert request.events[-1]["tokens_predicted"] == 4
    theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        theirs.recv(1)


@pytest.mark.anyio
async def test_a_stream_with_a_socket_that_falls_silent_is_pinged_and_goes_on(
    connection: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = connection
    engine = FakeEngine()
    app = make_app(engine, sse_ping_interval=1)
    request = post(app, "/completion", {"prompt": "hi", "stream": True})
    sequence = await attached(engine, request, ours)
    theirs.recv(4096)
    await request.until(lambda r: b"\n\n:\n\n" in r.body)
    sequence.tokens(b"cd")
    assert texts_of(theirs.recv(4096)) == ["c", "d"]
    sequence.finish()
    await request.done()
    assert [event["content"] for event in request.events] == ["a", ""]


@pytest.mark.anyio
async def test_nobody_else_writes_while_a_ping_waits_for_the_client(
    connection: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = connection
    engine = FakeEngine()
    app = make_app(engine, sse_ping_interval=1)
    request = post(app, "/completion", {"prompt": "hi", "stream": True})
    sequence = await attached(engine, request, ours, keeps_up=True)
    theirs.recv(4096)
    request.stop_reading()
    await asyncio.sleep(1.5)
    sequence.tokens(b"cd")
    assert [event["content"] for event in request.events] == ["a", "c", "d"]
    request.read_on()
    await request.until(lambda r: b"\n\n:\n\n" in r.body)
    await turns()
    sequence.tokens(b"e")
    assert texts_of(theirs.recv(4096)) == ["e"]
    sequence.finish()
    await request.done()


@pytest.mark.anyio
async def test_what_a_client_that_is_behind_has_not_got_of_a_chunk_comes_first(
    connection: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = connection
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
    frames = make_frames()
    assert frames.attach(ours.fileno())
    n = 0
    while True:
        n += 1
        frames.add(65, n, n)
        if not frames.attach(ours.fileno()):  # sends what there is
            break
    frames.add(66, n + 1, n + 1)
    theirs.setblocking(False)
    received = b""
    with contextlib.suppress(BlockingIOError):
        while True:
            received += theirs.recv(65536)
    assert received  # and then what could not be sent, as it is
    received += frames.take_chunk()
    expected = [b'<"A",65;%d>' % i for i in range(1, n + 1)] + [b'<"B",66;%d>' % (n + 1)]
    assert received == b"".join(b"%x\r\n%b\r\n" % (len(frame), frame) for frame in expected)


@pytest.mark.anyio
async def test_figures_are_up_to_date_while_frames_are_written() -> None:
    engine = FakeEngine()
    app = make_app(engine)
    request = post(app, "/completion", {"prompt": "hi", "stream": True})
    sequence = await started(engine, request)
    slots = await get(app, "/slots").done()
    (item,) = slots.json[0]["next_token"]
    assert (item["n_decoded"], item["has_new_line"]) == (3, True)
    metrics: Metrics = app.state.metrics
    assert sum(metrics.inter_token("demo.gguf").counts) == 2
    sequence.finish()
    await request.done()


@pytest.mark.anyio
async def test_a_client_that_is_behind_gets_everything_later() -> None:
    engine = FakeEngine()
    app = make_app(engine, send_timeout=30)
    request = post(app, "/completion", {"prompt": "hi", "stream": True})
    sequence = await started(engine, request)
    request.stop_reading()
    sequence.tokens(b"cd")  # the first one is still written, the second one waits
    await turns(20)
    assert sequence.n_framed == 3
    request.read_on()
    await turns(20)
    sequence.tokens(b"ef")
    sequence.finish()
    await request.done()
    assert "".join(event["content"] for event in request.events) == "a\nbcdef"
    assert request.events[-1]["tokens_predicted"] == 7


@pytest.mark.anyio
async def test_a_client_that_leaves_ends_the_request() -> None:
    engine = FakeEngine()
    request = post(make_app(engine), "/completion", {"prompt": "hi", "stream": True})
    sequence = await started(engine, request)
    request.hang_up()
    await request.done()
    assert sequence.is_cancelled


@pytest.mark.anyio
async def test_a_stream_of_frames_that_falls_silent_is_pinged() -> None:
    engine = FakeEngine()
    app = make_app(engine, sse_ping_interval=1)
    request = post(app, "/completion", {"prompt": "hi", "stream": True})
    sequence = await started(engine, request)
    await request.until(lambda r: b"\n\n:\n\n" in r.body)
    sequence.finish()
    await request.done()
