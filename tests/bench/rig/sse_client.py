"""A streaming client that costs little: a raw socket, a time stamp a read, frames counted."""

import contextlib
import http.client
import json
import socket
import time
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTiming:
    """One streamed completion as the client saw it. Times in seconds since the request was sent."""

    n_tokens: int
    first_token_s: float
    last_token_s: float
    arrivals_s: list[float]
    """Arrival of every token frame; frames that share a read share a time."""
    final: dict[str, Any]
    """The last JSON object of the stream."""

    @property
    def tokens_per_s(self) -> float:
        """Decode speed: tokens after the first, by the time between the first and the last."""
        return (self.n_tokens - 1) / (self.last_token_s - self.first_token_s)


def post_json(port: int, path: str, body: dict[str, Any]) -> bytes:
    """The answer to a POST to 127.0.0.1:`port`, on a new connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    with contextlib.closing(connection):
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return connection.getresponse().read()


def completion_request(body: dict[str, Any]) -> bytes:
    """The bytes of a POST /completion with `stream` that closes its connection."""
    payload = json.dumps({**body, "stream": True}).encode()
    return (
        b"POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(payload)
    ) + payload


def stream_completion(port: int, body: dict[str, Any]) -> StreamTiming:
    """POST /completion with `stream` on 127.0.0.1:`port` and read it to the end.

    Raises: RuntimeError for a status other than 200 or a broken stream.
    """
    return timing_of(read_completion(port, body))


def read_completion(port: int, body: dict[str, Any]) -> list[tuple[float, bytes]]:
    """The same request, and what was read when, in seconds since it was sent."""
    request = completion_request(body)
    reads: list[tuple[float, bytes]] = []
    with socket.create_connection(("127.0.0.1", port), timeout=600) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sent = time.perf_counter()
        connection.sendall(request)
        while chunk := connection.recv(1 << 20):
            reads.append((time.perf_counter() - sent, chunk))
    return reads


def tokens_of(reads: list[tuple[float, bytes]]) -> list[int]:
    """The tokens of a stream that was asked for with `return_tokens`."""
    text = b"".join(chunk for _, chunk in reads)
    frames = (json.loads(line[6:]) for line in text.split(b"\n") if line.startswith(b"data: {"))
    return [token for frame in frames if not frame["stop"] for token in frame["tokens"]]


def timing_of(reads: list[tuple[float, bytes]]) -> StreamTiming:
    """From what was read when, in seconds since the request was sent.

    Raises: RuntimeError for a status other than 200 or a broken stream.
    """
    if not reads or not reads[0][1].startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"no stream: {b''.join(chunk for _, chunk in reads)[:500]!r}")
    # Frames may be cut by reads: count each where its end arrives.
    arrivals: list[float] = []
    text = b""
    n_seen = 0
    for at, chunk in reads:
        text += chunk
        n_frames = text.count(b'"stop":false')
        arrivals += [at] * (n_frames - n_seen)
        n_seen = n_frames
    frames = [line[6:] for line in text.split(b"\n") if line.startswith(b"data: {")]
    final = json.loads(frames[-1]) if frames else {}
    if not final.get("tokens_predicted"):
        raise RuntimeError(f"no tokens in the stream: {text[-500:]!r}")
    # Tokens that all end within a UTF-8 sequence have no frame but the last one.
    arrivals = arrivals or [reads[-1][0]]
    return StreamTiming(
        # Not the number of frames: a token that ends within a UTF-8 sequence may have none.
        n_tokens=int(final["tokens_predicted"]),
        first_token_s=arrivals[0],
        last_token_s=arrivals[-1],
        arrivals_s=arrivals,
        final=final,
    )
