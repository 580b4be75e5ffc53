"""Requests by number: the same seed and number are the same bytes."""

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from tests.fuzz.good_bodies import GOOD_BODIES, kind_of
from tests.fuzz.odd_values import Raw, odd_key, odd_value, to_json

_MAX_FIELDS: Final = 5
_METHODS: Final = ("GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "FOO", "POST")
_TYPES: Final = (
    *("application/json", "text/plain", "multipart/form-data; boundary=x", "", "application/xml"),
    *("application/json; charset=utf-16", "application/x-www-form-urlencoded", "a" * 3000, "é"),
)
_NUMBERS: Final = (
    "0",
    "-1",
    "+5",
    "0x10",
    "5 5",
    "5,5",
    "",
    "9" * 5001,
    "18446744073709551616",
    "٣",
)
_HEADERS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("Content-Type", _TYPES),
    (
        "Content-Encoding",
        ("gzip", "identity", "br", "deflate", "zstd", "GZIP", "gzip, gzip", "\xff"),
    ),
    ("Content-Length", _NUMBERS),
    ("Transfer-Encoding", ("chunked", "gzip, chunked", "identity", "CHUNKED", "", "\xff")),
    ("Authorization", ("Bearer", "Bearer x", "Basic eDp4", "\xff\xfe", "Bearer " + "x" * 9000, "")),
    ("X-Api-Key", ("", "x", "\xff")),
    ("X-Request-Id", ("", "a", "a" * 129, "\xff", "a b", "../..")),
    ("Origin", ("null", "http://a", "http://[::1", "\xff", "http://localhost:99999", "x" * 3000)),
    ("Host", ("", "localhost", "evil.example", "[::1", "a:b:c", "\xff", "x" * 3000)),
    ("Expect", ("100-continue", "200-ok")),
    ("Connection", ("close", "keep-alive", "upgrade", "\xff", "TE, close")),
    ("Upgrade", ("h2c", "websocket", "TLS/1.0")),
    ("Accept", ("text/event-stream", "*/*", "image/png", "\xff")),
    ("Accept-Encoding", ("gzip", "identity;q=0", "*;q=0")),
    ("Range", ("bytes=0-1", "bytes=5-1", "x")),
    ("If-None-Match", ("*", '"x"', "\xff")),
    ("Cookie", ("a=b", "\xff=\x80", ";;;")),
    ("anthropic-version", ("2023-06-01", "", "\xff")),
    ("X-" + "a" * 3000, ("b",)),
    ("Access-Control-Request-Method", ("POST", "\xff")),
    ("Forwarded", ("for=x",)),
    ("X-Forwarded-For", ("1.2.3.4", "\xff")),
)
_TAILS: Final = (
    "/",
    "//",
    "/..",
    "/%2e%2e",
    "%00",
    "%ff",
    "%",
    ";a=b",
    "#x",
    "/é",
    "?",
    "?&=&",
    "\\",
)
_QUERIES: Final = ("action", "queue", "fail_on_no_slot", "conv_id", "model", "a")
_KEPT: Final = {"n_predict": 2, "max_tokens": 2, "max_output_tokens": 2}
"""What keeps an answer short comes back after most mutations: long texts find nothing more."""


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path, as the server describes itself."""

    method: str
    path: str


@dataclass(frozen=True, slots=True)
class OddRequest:
    """`is_framed`: the server can tell where it ends, so that the connection may be used again."""

    route: Route
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    is_framed: bool = True

    def to_bytes(self) -> bytes:
        """As it goes over the wire."""
        names = {name.lower() for name, _ in self.headers}
        headers = list(self.headers)
        if "host" not in names:
            headers.insert(0, ("Host", "127.0.0.1"))
        if (self.body or self.method == "POST") and "content-length" not in names:
            headers.append(("Content-Length", str(len(self.body))))
        head = f"{self.method} {self.target} HTTP/1.1\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers)
        return head.encode("latin-1", "replace") + b"\r\n" + self.body


class OddRequests:
    """`routes`: what is served. `fields`: names of a body's fields; `words`: other names that the
    code knows, to be used as keys and texts."""

    def __init__(
        self, seed: int, routes: Sequence[Route], fields: Sequence[str], words: Sequence[str]
    ) -> None:
        self._seed = seed
        self._posts = [route for route in routes if route.method == "POST"]
        # What answers all alike gets less.
        self._weights = [0.1 if kind_of(post.path) == "other" else 1.0 for post in self._posts]
        self._others = [route for route in routes if route.method != "POST"]
        self._fields = fields
        self._words = words

    def make(self, number: int) -> OddRequest:
        """The request of this number."""
        rng = random.Random(f"{self._seed}:{number}")
        if rng.random() < 0.9:
            (route,) = rng.choices(self._posts, self._weights)
        else:
            route = rng.choice(self._others)
        body = self._body(rng, route) if route.method == "POST" else b""
        request = OddRequest(route, route.method, _target(rng, route), (), body)
        if rng.random() < 0.08:
            request = rng.choice(_ODD_HTTP)(rng, request)
        return request

    def _body(self, rng: random.Random, route: Route) -> bytes:
        kind = kind_of(route.path)
        if rng.random() < 0.03:
            return to_json(odd_value(rng)).encode("utf-8", "surrogatepass")
        body = copy.deepcopy(rng.choice(GOOD_BODIES[kind]))
        n = 1 if rng.random() < 0.7 else rng.randrange(2, _MAX_FIELDS + 1)
        for _ in range(n):
            self._mutate(rng, body)
        if rng.random() < 0.9:
            body |= {name: kept for name, kept in _KEPT.items() if name in GOOD_BODIES[kind][0]}
        if rng.random() < 0.2:
            body["stream"] = True
        text = to_json(body)
        if rng.random() < 0.03:
            text = "{" + f'"{rng.choice(self._words)}":{to_json(odd_value(rng))},' + text[1:]
        data = text.encode("utf-8", "surrogatepass")
        return _damaged(rng, data) if rng.random() < 0.03 else data

    def _mutate(self, rng: random.Random, body: dict[str, Any]) -> None:
        if not body or rng.random() < 0.45:
            known = rng.random() < 0.7
            body[rng.choice(self._fields) if known else self._key(rng)] = self._value(rng)
            return
        node: Any = body
        while True:
            key = rng.choice(list(node) if isinstance(node, dict) else range(len(node)))
            inner = node[key]
            if not isinstance(inner, dict | list) or not inner or rng.random() < 0.25:
                break
            node = inner
        if rng.random() < 0.1:
            del node[key]
        elif isinstance(node, dict) and rng.random() < 0.3:
            node[self._key(rng)] = self._value(rng)
        else:
            node[key] = self._value(rng)

    def _key(self, rng: random.Random) -> str:
        return odd_key(rng) if rng.random() < 0.05 else rng.choice(self._words)

    def _value(self, rng: random.Random) -> Any:
        if rng.random() < 0.15:
            return rng.choice(self._words)
        if rng.random() < 0.1:
            return {rng.choice(self._words): odd_value(rng) for _ in range(rng.randrange(1, 4))}
        return odd_value(rng)


def _damaged(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return rng.choice(
        (
            data[:at],
            data + data,
            data + b"x",
            b"\xef\xbb\xbf" + data,
            b" \n\t" + data + b"\n",
            data.decode("utf-8", "replace").encode("utf-16"),
            data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :],
            data[:at] + b"\xff\xc0\x80" + data[at:],
            data[:at] + b"\0" + data[at:],
            b"",
            b"\0" * 9,
            b"// a comment\n" + data,
        )
    )


def _odd_segment(rng: random.Random) -> str:
    value = odd_value(rng)
    text = value.text if isinstance(value, Raw) else value if isinstance(value, str) else str(value)
    return quote(text[:9000].encode("utf-8", "surrogatepass"), safe="")


def _target(rng: random.Random, route: Route) -> str:
    before, brace, rest = route.path.partition("{")
    path = before
    if brace:
        path += ("0" if rng.random() < 0.3 else _odd_segment(rng)) + rest.partition("}")[2]
    if "slots" in path and rng.random() < 0.7:
        return f"{path}?action={rng.choice(('save', 'restore', 'erase', 'x'))}"
    if rng.random() < 0.03:
        name, value = rng.choice(_QUERIES), _odd_segment(rng)[:2000]
        return f"{path}?{name}={value}" if rng.random() < 0.8 else f"{path}?{name}&%ff={value}&="
    return path


def _odd_method(rng: random.Random, request: OddRequest) -> OddRequest:
    method = rng.choice(_METHODS)
    # An answer to HEAD has a length and no body; the rest is read as it is framed.
    return OddRequest(request.route, method, request.target, (), request.body)


def _odd_path(rng: random.Random, request: OddRequest) -> OddRequest:
    tail = rng.choice((*_TAILS, "/" + _odd_segment(rng)))
    target = request.target + tail.encode("ascii", "replace").decode()
    return OddRequest(request.route, request.method, target, (), request.body)


def _odd_headers(rng: random.Random, request: OddRequest) -> OddRequest:
    chosen = rng.sample(_HEADERS, rng.randrange(1, 4))
    headers = tuple((name, rng.choice(values)) for name, values in chosen)
    return OddRequest(request.route, request.method, request.target, headers, request.body, False)


def _chunked(rng: random.Random, request: OddRequest) -> OddRequest:
    size = rng.choice(("%x", "%X", "0%x", "%x;a=b", "-%x", "%x" + "0" * 20, "zz", "%xx"))
    data = request.body[:5000]
    chunk = (size % len(data) if "%" in size else size).encode() + b"\r\n" + data + b"\r\n0\r\n"
    chunk += rng.choice((b"\r\n", b"A: b\r\n\r\n", b""))
    headers = (("Transfer-Encoding", "chunked"), ("Content-Length", rng.choice(_NUMBERS)))
    kept = headers if rng.random() < 0.3 else headers[:1]
    return OddRequest(request.route, "POST", request.target, kept, chunk, False)


_ODD_HTTP: Final[tuple[Callable[[random.Random, OddRequest], OddRequest], ...]] = (
    _odd_method,
    _odd_path,
    _odd_headers,
    _odd_headers,
    _chunked,
)
