"""Requests that cost much more to serve than to send, by name."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import httpx
import orjson

CHAT: Final = "<|user|>a<|end|>"
HELLO: Final[dict[str, Any]] = {"prompt": "a", "n_predict": 1}
_TOOL: Final[dict[str, Any]] = {"type": "function", "function": {"name": "f", "parameters": {}}}
_MESSAGE: Final[dict[str, Any]] = {"role": "user", "content": "a"}


def chat(messages: list[Any], **more: Any) -> dict[str, Any]:
    """A chat completion's body."""
    return {"messages": messages, **more}


def post(port: int, path: str, body: Any, timeout_s: float = 60) -> httpx.Response:
    """POST a JSON body, or raw bytes."""
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    return httpx.post(
        f"http://127.0.0.1:{port}{path}", content=content, timeout=timeout_s, trust_env=False
    )


def nested(key: str, depth: int) -> bytes:
    """A completion's body with a field of so many objects in each other."""
    value = b'{"a":' * depth + b"1" + b"}" * depth
    return orjson.dumps(HELLO)[:-1] + b',"' + key.encode() + b'":' + value + b"}"


def slow_schema(i: int) -> dict[str, Any]:
    """A JSON schema that takes the compiler seconds; a different one for each `i`."""
    properties = {f"p{i}_{j}": {"type": "string"} for j in range(2000)}
    return {"type": "object", "properties": properties}


def several(port: int, path: str, bodies: list[Any]) -> list[httpx.Response]:
    """All at once."""
    with ThreadPoolExecutor(len(bodies)) as threads:
        return list(threads.map(lambda body: post(port, path, body, 120), bodies))


def _each(path: str, body: Any) -> Callable[[int], list[httpx.Response]]:
    # Made when it is sent: some are millions of objects.
    return lambda port: [post(port, path, body() if callable(body) else body)]


ATTACKS: Final[Mapping[str, tuple[Callable[[int], list[httpx.Response]], set[int]]]] = {
    "special tokens": (_each("/tokenize", lambda: {"content": CHAT * 60_000}), {200}),
    "several long texts": (
        lambda port: several(port, "/completion", [{"prompt": CHAT * 40_000}] * 6),
        {400},
    ),
    "pieces": (
        _each("/tokenize", lambda: {"content": "ab " * 600_000, "with_pieces": True}),
        {200},
    ),
    "detokenize": (_each("/detokenize", lambda: {"tokens": [90] * 1_000_000}), {200}),
    "prompts": (_each("/completion", lambda: {"prompt": ["a"] * 40_000, "n": 128}), {400}),
    "strings": (_each("/completion", lambda: {"prompt": ["a"] * 1_300_000}), {400}),
    "ids": (_each("/completion", lambda: {"prompt": [1] * 1_000_000}), {400}),
    "mixed ids": (_each("/completion", lambda: {"prompt": [*([1] * 1_000_000), "a"]}), {400}),
    "biases": (_each("/completion", lambda: HELLO | {"logit_bias": [["a", 1]] * 600_000}), {400}),
    "bias of ids": (
        _each("/completion", lambda: HELLO | {"logit_bias": [[5, 1]] * 30_000}),
        {200},
    ),
    "bias of a text": (
        _each("/completion", lambda: HELLO | {"logit_bias": {"a b " * 500_000: 1}}),
        {400},
    ),
    "messages": (
        _each(
            "/v1/chat/completions",
            lambda: chat([_MESSAGE] * 200_000),
        ),
        {400},
    ),
    "many messages": (
        _each(
            "/v1/chat/completions",
            lambda: chat([_MESSAGE] * 20_000),
        ),
        {400},
    ),
    "tools": (
        _each(
            "/v1/chat/completions",
            lambda: chat([_MESSAGE], tools=[_TOOL] * 12_000),
        ),
        {400},
    ),
    "slow schemas": (
        lambda port: several(
            port, "/completion", [HELLO | {"json_schema": slow_schema(i)} for i in range(4)]
        ),
        {200, 400, 503},
    ),
}
"""What each sends, and the statuses that it may get."""
