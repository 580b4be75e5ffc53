"""A stream is the same, byte by byte, whoever carries it and whatever befalls it."""

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest
from starlette.applications import Starlette

from engine_ext import FinishReason
from tests.support.scripted.asgi_client import AsgiRequest, post, turns
from tests.support.scripted.fake_engine import FakeEngine, FakeSequence
from tests.support.scripted.server_app import make_app
from unpaced.description.operations import OPERATIONS
from unpaced.routes import chat, completions, infill, messages, responses

pytestmark = pytest.mark.anyio

_TEXT: Final = 'one "two"\n\x01 é€😀 \\ three\n'.encode() + b"\xff\xe2\x82" + b" four"
_MESSAGES: Final = [{"role": "user", "content": "Hi"}]
_CHAT: Final = {"messages": _MESSAGES, "max_tokens": 90}
_USAGE: Final = {"stream_options": {"include_usage": True}}
_THINKS: Final = {
    "chat_template": "{% for m in messages %}{{ m.content }}<think>a</think>{% endfor %}"
    "{% if add_generation_prompt %}<think>\n{% endif %}"
}
_REASONING: Final = b"hm, hm</think>\n\n" + _TEXT
_CALLS: Final = {
    "chat_template": "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
    "{% for call in m.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
}
_CALL: Final = (
    b'Let me see.\n<tool_call>\n{"name": "f", "arguments": {"city": "Paris"}}\n</tool_call>'
)
_SCHEMA: Final = {"type": "object", "properties": {"city": {"type": "string"}}}
_FUNCTION: Final = {"name": "f", "parameters": _SCHEMA}
_TOOLS: Final = {"tools": [{"type": "function", "function": _FUNCTION}]}


@dataclass(frozen=True, slots=True)
class Kind:
    """A request that streams, what the model says, and a text that proves that it was understood.
    `n`: choices."""

    path: str
    body: dict[str, Any]
    proof: str
    text: bytes = _TEXT
    n: int = 1
    settings: dict[str, Any] = field(default_factory=dict)


KINDS: Final = {
    "native": Kind("/completion", {"prompt": "hi"}, '"tokens_cached"'),
    "progress": Kind("/completion", {"prompt": "hi", "return_progress": True}, "prompt_progress"),
    "timings": Kind("/completion", {"prompt": "hi", "timings_per_token": True}, "predicted_ms"),
    "stop string": Kind(
        "/completion",
        {"prompt": "hi", "stop": ["STOP"]},
        '"stopping_word":"STOP"',
        b"one STO two STOP three",
    ),
    "native, several": Kind("/completion", {"prompt": ["hi", "you"]}, '"index":1', n=2),
    "probabilities": Kind("/completion", {"prompt": "hi", "n_probs": 2}, "top_logprobs"),
    "chosen fields": Kind(
        "/completion",
        {"prompt": "hi", "response_fields": ["generation_settings/seed"]},
        '"generation_settings/seed"',
    ),
    "native, by its other name": Kind("/completions", {"prompt": "hi"}, '"tokens_cached"'),
    "completion": Kind("/v1/completions", {"prompt": "hi"} | _USAGE, "[DONE]"),
    "logprobs": Kind(
        "/v1/completions", {"prompt": "hi", "logprobs": 2, "echo": True}, "token_logprobs"
    ),
    "logprobs, several": Kind(
        "/v1/completions", {"prompt": "hi", "n": 2, "logprobs": 1}, "token_logprobs", n=2
    ),
    "several": Kind("/v1/completions", {"prompt": "hi", "n": 3} | _USAGE, '"index":2', n=3),
    "chat": Kind("/v1/chat/completions", _CHAT | _USAGE, '"delta":{"content":"o"}'),
    "chat, logprobs": Kind(
        "/v1/chat/completions", _CHAT | {"logprobs": True, "top_logprobs": 1}, "top_logprobs"
    ),
    "chat, several": Kind("/v1/chat/completions", _CHAT | {"n": 2}, '"index":1', n=2),
    "chat, stop string": Kind(
        "/v1/chat/completions",
        _CHAT | {"stop": "STOP"},
        '"finish_reason":"stop"',
        b"one STO two STOP three",
    ),
    "reasoning": Kind(
        "/v1/chat/completions", _CHAT, '"reasoning_content":"h"', _REASONING, settings=_THINKS
    ),
    "tools": Kind(
        "/v1/chat/completions", _CHAT | _TOOLS, '"tool_calls":[', _CALL, settings=_CALLS
    ),
    "reasoning, several": Kind(
        "/v1/chat/completions",
        _CHAT | {"n": 2},
        '"reasoning_content":"h"',
        _REASONING,
        n=2,
        settings=_THINKS,
    ),
    "tools, several": Kind(
        "/v1/chat/completions",
        _CHAT | _TOOLS | {"n": 2},
        '"tool_calls":[',
        _CALL,
        n=2,
        settings=_CALLS,
    ),
    "messages": Kind("/v1/messages", _CHAT, "event: message_stop"),
    "messages, thinking": Kind(
        "/v1/messages", _CHAT, "thinking_delta", _REASONING, settings=_THINKS
    ),
    "messages, tools": Kind(
        "/v1/messages",
        _CHAT | {"tools": [{"name": "f", "input_schema": _SCHEMA}]},
        "input_json_delta",
        _CALL,
        settings=_CALLS,
    ),
    "responses": Kind("/v1/responses", {"input": "Hi"}, "response.completed"),
    "responses, reasoning": Kind(
        "/v1/responses",
        {"input": "Hi"},
        "response.reasoning_text.delta",
        _REASONING,
        settings=_THINKS,
    ),
    "responses, tools": Kind(
        "/v1/responses",
        {"input": "Hi", "tools": [{"type": "function", **_FUNCTION}]},
        "function_call_arguments",
        _CALL,
        settings=_CALLS,
    ),
    "infill": Kind("/infill", {"input_prefix": "a", "input_suffix": "z"}, '"tokens_cached"'),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Half:
    """A stream of which one half is told; `text` is the other one."""

    request: AsgiRequest
    sequences: list[FakeSequence]
    text: bytes

    async def tell(self) -> None:
        """The other half, sequence by sequence."""
        for sequence in self.sequences:
            sequence.tokens(self.text[:5])
            await turns(20)
            sequence.tokens(self.text[5:])
            sequence.finish()
            await turns(20)

    async def body(self) -> bytes:
        """Once the response is over."""
        await self.request.done()
        assert self.request.status == 200
        return self.request.body


Fate = Callable[[Half], Awaitable[bytes]]
_WAYS: Final = (True, False)  # whether direct


async def is_read(half: Half) -> bytes:
    await half.tell()
    return await half.body()


async def is_read_slowly(half: Half) -> bytes:
    half.request.stop_reading()
    await half.tell()
    assert not half.request.task.done()
    half.request.read_on()
    return await half.body()


async def falls_silent(half: Half) -> bytes:
    n_bytes = len(half.request.body)
    await half.request.until(lambda request: len(request.body) > n_bytes)
    await half.tell()
    return await half.body()


async def fails(half: Half) -> bytes:
    half.sequences[0].finish(FinishReason.EXCEPTION)
    return await half.body()


async def is_left(half: Half) -> bytes:
    half.request.hang_up()
    body = await half.body()
    assert all(sequence.is_cancelled for sequence in half.sequences)
    return body


@pytest.fixture(autouse=True)
def _no_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random names and the time of day are the same for every answer."""
    monkeypatch.setattr(secrets, "token_bytes", bytes)
    monkeypatch.setattr(secrets, "token_hex", lambda n: "00" * n)
    monkeypatch.setattr(secrets, "choice", lambda letters: letters[0])
    monkeypatch.setattr(time, "time", lambda: 1.79e9)


def scripted(kind: Kind) -> tuple[FakeEngine, Starlette]:
    engine = FakeEngine(n_ctx=512)
    engine.step_us = 1000
    engine.model = replace(engine.model, fim_prefix=1, fim_suffix=2, fim_middle=3)
    return engine, make_app(engine, parallel=40, **kind.settings)


async def begun(
    engine: FakeEngine, app: Starlette, kind: Kind, *, direct: bool, ping_s: int = -1
) -> Half:
    """`direct`: served as by our own protocol class, which can be written to past ASGI.
    `ping_s`: seconds of silence before a ping; -1: never."""
    n_before = len(engine.sequences)
    body = kind.body | {"stream": True, "sse_ping_interval": ping_s}
    request = post(app, kind.path, body)
    if direct:
        request.connect()
    await engine.submitted(n_before + kind.n)
    sequences = engine.sequences[n_before:]
    n_half = len(kind.text) // 2
    for sequence in sequences:
        sequence.start()
        sequence.prefill()
        await turns(20)
        sequence.tokens(kind.text[:n_half])
        await turns(20)
    return Half(request, sequences, kind.text[n_half:])


async def both_ways(kind: Kind, *fates: Fate) -> list[bytes]:
    """The bodies of streams to which this happens, all at the same time."""
    engine, app = scripted(kind)
    halves = []
    for fate in fates:
        halves += [(fate, await begun(engine, app, kind, direct=direct)) for direct in _WAYS]
    bodies = await asyncio.gather(*(fate(half) for fate, half in halves))
    assert bodies[::2] == bodies[1::2]
    return bodies[::2]


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
async def test_a_stream_is_the_same_whoever_carries_it(kind: Kind) -> None:
    read, slow, failed, left = await both_ways(kind, is_read, is_read_slowly, fails, is_left)
    assert kind.proof in read.decode()
    assert slow == read
    assert 0 < len(left) < len(read)
    assert read.startswith(left)
    assert failed.startswith(left)
    assert b"the engine failed after" in failed[len(left) :]


async def pinged(kind: Kind) -> tuple[bytes, ...]:
    """A stream that is read, then one that falls silent each way."""
    engine, app = scripted(kind)
    read = await is_read(await begun(engine, app, kind, direct=True))
    halves = [await begun(engine, app, kind, direct=direct, ping_s=1) for direct in _WAYS]
    return read, *await asyncio.gather(*map(falls_silent, halves))


async def test_a_ping_is_the_same_whoever_sends_it_and_nothing_else_is_new() -> None:
    for kind, bodies in zip(
        KINDS.values(), await asyncio.gather(*map(pinged, KINDS.values())), strict=True
    ):
        read, *ways = bodies
        is_anthropic = kind.path == "/v1/messages"
        ping = b'event: ping\ndata: {"type":"ping"}\n\n' if is_anthropic else b":\n\n"
        for body in ways:  # a slow machine has time for several, and for some first
            assert b"\n\n" + ping in body
            assert re.sub(rb"(?:\A|(?<=\n\n))(?:" + re.escape(ping) + rb")+", b"", body) == read


async def test_a_choice_is_the_same_alone_and_beside_others() -> None:
    alone = KINDS["native"]
    beside = KINDS["native, several"]
    bodies = []
    for kind in (alone, beside):
        engine, app = scripted(kind)
        bodies.append(await is_read(await begun(engine, app, kind, direct=True)))
    frames = bodies[1].split(b"\n\n")
    mine = [frame for frame in frames if frame.startswith(b'data: {"index":0,')]
    assert b"\n\n".join([*mine, b""]) == bodies[0]


async def test_an_error_before_the_first_token_is_the_same_and_no_stream() -> None:
    apps: dict[str, tuple[FakeEngine, Starlette]] = {}
    for kind in KINDS.values():
        answers = []
        if str(kind.settings) not in apps:  # making one takes longer than asking it
            apps[str(kind.settings)] = scripted(kind)
        engine, app = apps[str(kind.settings)]
        for direct in _WAYS:
            n_before = len(engine.sequences)
            request = post(app, kind.path, kind.body | {"stream": True})
            if direct:
                request.connect()
            await engine.submitted(n_before + kind.n)
            engine.sequences[n_before].finish(FinishReason.EXCEPTION)
            await request.done()
            answers.append((request.status, request.headers, request.body))
        assert answers[0] == answers[1]
        assert answers[0][0] == 500


def test_every_route_that_streams_is_here() -> None:
    streaming = {
        handler.__name__
        for handler, operation in OPERATIONS.items()
        if operation.events is not None
    }
    paths = {kind.path for kind in KINDS.values()}
    here = {
        endpoint.handler.__name__
        for module in (chat, completions, infill, messages, responses)
        for endpoint in module.routes.endpoints
        if endpoint.path in paths
    }
    assert here == streaming
