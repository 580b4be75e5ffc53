"""Streams that decode while another client's long prompt is computed, as one client sees them all.

One thread reads every connection, so that the client takes next to nothing of the server's cores.
"""

import contextlib
import itertools
import json
import selectors
import socket
import statistics
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_N_BEFORE = 12
"""Tokens of every stream before the long prompt is sent, beside which its gaps are judged."""


@dataclass(frozen=True, slots=True)
class LongPrompt:
    """What streams and a long prompt beside them came to. Milliseconds."""

    step_ms: float
    """The middle of the streams' gaps before the prompt."""
    gap_ms: float
    """The longest gap of any stream from sending the prompt to the token after its first one."""
    gap_p50_ms: float
    """The middle of these gaps."""
    tokens_per_s: float
    """Of all streams together meanwhile."""
    alone_ms: float
    """From sending the prompt to its first token, with nobody else there."""
    first_ms: float
    """The same beside the streams."""


class Reading:
    """One stream and when its tokens came, in seconds of the steady clock."""

    def __init__(self, port: int, body: dict[str, Any]) -> None:
        settings = {"stream": True, "cache_prompt": False, "ignore_eos": True}
        payload = json.dumps(body | settings).encode()
        head = (
            "POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Connection: close\r\nContent-Length: {len(payload)}\r\n\r\n"
        )
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=600)
        self.sent = time.perf_counter()
        self.socket.sendall(head.encode() + payload)
        self.times: list[float] = []
        self._has_begun = False

    def read(self) -> None:
        """What is there. Raises: RuntimeError where it is no stream, or the stream is over."""
        chunk = self.socket.recv(1 << 20)
        now = time.perf_counter()
        if not chunk or (not self._has_begun and not chunk.startswith(b"HTTP/1.1 200")):
            raise RuntimeError(f"the stream is over: {chunk[:500]!r}")
        self._has_begun = True
        # llama-server's comments and headers are no tokens.
        self.times += [now] * chunk.count(b'"stop":false')


def measure_long_prompt(port: int, n_streams: int, n_prompt: int) -> LongPrompt:
    """The long prompt alone, then beside `n_streams` streams.

    Raises: ValueError if the server has no slot left for it, which it would wait for.
    """
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/props", timeout=60) as answer:
        n_slots = json.load(answer)["total_slots"]
    if n_slots <= n_streams:
        raise ValueError(f"{n_streams} streams and a prompt need more than {n_slots} slots (-np)")
    # Ids that every vocabulary has; no two prompts begin alike.
    prompts = ([first + i * 7 % 1009 for i in range(n_prompt)] for first in (300, 350))
    alone_body, late_body = ({"prompt": prompt, "n_predict": 8} for prompt in prompts)
    with _reading(port, [alone_body]) as (read_until, (alone,)):
        read_until(lambda: len(alone.times) > 0)
        alone_ms = (alone.times[0] - alone.sent) * 1e3
    time.sleep(0.5)  # the server learns that its client has left
    bodies = [
        {"prompt": [400 + i, 500, 600], "n_predict": 100_000, "seed": i} for i in range(n_streams)
    ]
    with _reading(port, bodies) as (read_until, streams):
        read_until(lambda: all(len(stream.times) > 2 for stream in streams))
        n_known = [len(stream.times) for stream in streams]
        read_until(lambda: min(n_since(streams, n_known)) > _N_BEFORE)
        step_ms = statistics.median(all_gaps_ms(streams, n_known))
        n_before = [len(stream.times) - 1 for stream in streams]
        with (
            _reading(port, [late_body]) as (_, (late,)),
            selectors.DefaultSelector() as selector,
        ):
            for stream in (*streams, late):
                selector.register(stream.socket, selectors.EVENT_READ, stream)
            _read_until(selector, lambda: len(late.times) > 1)
        gaps = all_gaps_ms(streams, n_before)
        # What is not over yet.
        gaps += [(time.perf_counter() - stream.times[-1]) * 1e3 for stream in streams]
        return LongPrompt(
            step_ms=step_ms,
            gap_ms=max(gaps),
            gap_p50_ms=statistics.median(gaps),
            tokens_per_s=sum(n_since(streams, n_before)) / (late.times[1] - late.sent),
            alone_ms=alone_ms,
            first_ms=(late.times[0] - late.sent) * 1e3,
        )


def n_since(streams: list[Reading], n_known: list[int]) -> list[int]:
    """Tokens of each stream beyond those."""
    return [len(stream.times) - n for stream, n in zip(streams, n_known, strict=True)]


def all_gaps_ms(streams: list[Reading], n_known: list[int]) -> list[float]:
    """Milliseconds between tokens of the same stream, from those on."""
    return [
        (b - a) * 1e3
        for stream, n in zip(streams, n_known, strict=True)
        for a, b in itertools.pairwise(stream.times[n:])
    ]


@contextlib.contextmanager
def _reading(
    port: int, bodies: list[dict[str, Any]]
) -> Iterator[tuple[Callable[[Callable[[], bool]], None], list[Reading]]]:
    """Streams of these requests, and what reads them until something holds."""
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        streams = []
        for body in bodies:
            stream = Reading(port, body)
            stack.enter_context(stream.socket)
            selector.register(stream.socket, selectors.EVENT_READ, stream)
            streams.append(stream)
        yield lambda is_over: _read_until(selector, is_over), streams


def _read_until(selector: selectors.BaseSelector, is_over: Callable[[], bool]) -> None:
    while not is_over():
        for key, _ in selector.select(600):
            key.data.read()
