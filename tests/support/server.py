"""A real `unpaced serve` for tests, and requests to it."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson

from tests.bench.rig.server_process import ServerProcess, free_port, running, start_process
from tests.support.forked_process import ForkedProcess

UNPACED = Path(sys.executable).with_name("unpaced")


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """`unpaced` with these arguments, to its end, whatever its status."""
    return subprocess.run(
        [str(UNPACED), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **env},
    )


class ReachableServer:
    """A client for the server on this port of 127.0.0.1, whoever started it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.client = httpx.Client(base_url=self.url, timeout=60, trust_env=False)

    def post(self, path: str, body: Any) -> httpx.Response:
        """POST a JSON body, or raw bytes."""
        content = body if isinstance(body, bytes) else orjson.dumps(body)
        return self.client.post(path, content=content)

    def complete(self, path: str = "/completion", **body: Any) -> Any:
        """The decoded answer of a completion that must succeed."""
        response = self.post(path, body)
        assert response.status_code == 200, response.text
        return response.json()

    def stream(self, path: str = "/completion", **body: Any) -> list[Any]:
        """Every event of a stream that must succeed; [DONE] is left out."""
        return [orjson.loads(data) for data in self.raw_stream(path, **body) if data != b"[DONE]"]

    def raw_stream(self, path: str = "/completion", **body: Any) -> list[bytes]:
        """The data of every event."""
        response = self.post(path, body | {"stream": True})
        assert response.status_code == 200, response.text
        assert response.headers["content-type"] == "text/event-stream"
        frames = response.content.split(b"\n\n")
        assert frames.pop() == b""
        return [frame.removeprefix(b"data: ") for frame in frames if not frame.startswith(b":")]

    def metric(self, name: str) -> float:
        """A sample of /metrics by its name with labels, as in the text format."""
        for line in self.client.get("/metrics").text.splitlines():
            if line.startswith(f"{name} "):
                return float(line.rpartition(" ")[2])
        raise KeyError(name)

    def until(self, condition: Callable[[], bool], timeout_s: float = 60) -> float:
        """Seconds until a condition holds. Raises: TimeoutError."""
        started = time.monotonic()
        while not condition():
            if time.monotonic() - started > timeout_s:
                raise TimeoutError
            time.sleep(0.005)
        return time.monotonic() - started

    def open_request(self, path: str, **body: Any) -> socket.socket:
        """A request whose answer nobody reads yet, on a connection of its own."""
        data = orjson.dumps(body)
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
        connection.sendall(head.encode() + data)
        return connection


class Server(ReachableServer):
    """A running server and a client for it."""

    def __init__(self, process: ServerProcess, log: Path) -> None:
        super().__init__(process.port)
        self.process = process
        self.log = log

    def logged(self) -> str:
        """The log with all that was told before this call: lines come later than answers do."""
        path = f"/{uuid.uuid4()}"
        self.client.get(path)  # lines are written in their order
        self.until(lambda: path in self.log.read_text())
        return self.log.read_text()


@contextlib.contextmanager
def serving(
    *arguments: str,
    env: dict[str, str] | None = None,
    is_log_read: bool = True,
    is_child: bool = False,
) -> Iterator[Server]:
    """`unpaced serve` with these flags on a free port, healthy.

    Unless `is_log_read`, its standard output and error are a pipe that nobody reads. It is forked
    from a process that has imported what it needs, unless `env` has more than flags, which may be
    for imports, or it `is_child`, to be waited for.

    With one thread unless told otherwise, or UNPACED_TEST_THREADS says how many: several wait for
    one another by spinning, and other tests may need the cores.
    """
    port = free_port()
    command = [str(UNPACED), "serve", "--port", str(port), *arguments]
    with contextlib.ExitStack() as stack:
        log = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "log"
        if not is_log_read:
            os.mkfifo(log)
            stack.callback(os.close, os.open(log, os.O_RDWR | os.O_NONBLOCK))
        n_threads = os.environ.get("UNPACED_TEST_THREADS", "1")
        env = {"LLAMA_ARG_THREADS": n_threads} | (env or {})
        is_forked = not is_child and all(name.startswith("LLAMA_ARG_") for name in env)
        start = ForkedProcess if is_forked else start_process
        with running(command, env, port, log, start) as process:
            server = Server(process, log)
            try:
                yield server
            finally:
                server.client.close()
