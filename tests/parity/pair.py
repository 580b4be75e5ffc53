"""Our server and the real llama-server side by side: one model, one set of flags and libraries."""

import contextlib
import http.client
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from tests.bench.rig.peer import Peer
from tests.bench.rig.server_process import free_port, running
from tests.support.llama_source import BUILD_FOLDER, vocabulary
from tests.support.one_at_a_time import one_at_a_time
from tests.support.tiny_model import write_tiny_model

FAMILIES: Final = ("llama-spm", "llama-bpe", "qwen2", "gpt-2")
"""Vocabularies of the source distribution; one SentencePiece, three byte-level BPE kinds."""

UNPACED: Final = Path(sys.executable).with_name("unpaced")


@dataclass(frozen=True, slots=True)
class Answer:
    """A response that does not stream. `body` is decoded JSON, or text where it is none."""

    status: int
    body: Any


class Connection:
    """A kept-alive connection to one server."""

    def __init__(self, port: int, timeout_s: float = 120) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)

    def post(self, path: str, body: Any) -> Answer:
        """POST a JSON body, or raw bytes. A connection closed in between is opened anew."""
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        for attempt in (0, 1):
            try:
                self._http.request("POST", path, data, {"Content-Type": "application/json"})
                response = self._http.getresponse()
                content = response.read()
                break
            except (http.client.HTTPException, ConnectionError):
                self._http.close()
                if attempt:
                    raise
        try:
            return Answer(response.status, orjson.loads(content))
        except orjson.JSONDecodeError:
            return Answer(response.status, content.decode(errors="replace"))

    def close(self) -> None:
        """Idempotent."""
        self._http.close()


@dataclass(frozen=True, slots=True)
class Pair:
    """Connections to both servers."""

    ours: Connection
    peer: Connection

    def post(self, path: str, body: Any) -> tuple[Answer, Answer]:
        """The same request to both; ours first."""
        return self.ours.post(path, body), self.peer.post(path, body)


@contextlib.contextmanager
def serving_ours(model: Path, *flags: str) -> Iterator[Connection]:
    """`unpaced serve` with a model."""
    port = free_port()
    command = [str(UNPACED), "serve", "-m", str(model), "--port", str(port), *flags]
    with (
        tempfile.TemporaryDirectory() as scratch,
        running(command, {}, port, Path(scratch) / "log"),
        contextlib.closing(Connection(port)) as connection,
    ):
        yield connection


@contextlib.contextmanager
def serving_peer(
    folder: Path, model: Path, *flags: str, timeout_s: float = 120
) -> Iterator[Connection]:
    """llama-server of `folder` with our build's libraries and a model."""
    port = free_port()
    with tempfile.TemporaryDirectory() as scratch:
        peer = Peer(folder.resolve(), Path(scratch) / "shim")
        command = peer.server_command(port, model, *flags)
        log = Path(scratch) / "log"
        with (
            running(command, peer.env(), port, log),
            contextlib.closing(Connection(port, timeout_s)) as connection,
        ):
            yield connection


@contextlib.contextmanager
def serving_pair(folder: Path, model: Path, *flags: str) -> Iterator[Pair]:
    """Both servers with the same flags, one slot."""
    with (
        serving_ours(model, "-np", "1", *flags) as ours,
        serving_peer(folder, model, *flags) as peer,
    ):
        yield Pair(ours, peer)


@one_at_a_time
def tiny_model(family: str, *, tags: bool = False) -> Path:
    """A random model with a family's vocabulary, or that of one that thinks; written once."""
    path = BUILD_FOLDER / "peer" / f"tiny-{family}{'-tags' * tags}.gguf"
    if not path.is_file():
        partial = path.with_suffix(f".{os.getpid()}")
        write_tiny_model(partial, vocabulary(family), tags=tags)
        partial.rename(path)
    return path
