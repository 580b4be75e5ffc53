"""Servers under test as processes: ours and the peer, started, watched, stopped."""

import contextlib
import os
import random
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol


def free_port() -> int:
    """A port nobody listens on now, and no outgoing connection gets: those have 32768 and above."""
    for port in random.SystemRandom().sample(range(10240, 32768), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no free port")


class Process(Protocol):
    """What is used of a Popen."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


def start_process(command: Sequence[str], env: dict[str, str], output: int) -> Process:
    """Start it with this environment; what it prints goes to a file descriptor."""
    return subprocess.Popen(command, env=env, stdout=output, stderr=subprocess.STDOUT)


Start = Callable[[Sequence[str], dict[str, str], int], Process]


class ServerProcess:
    """One server process; use `running`."""

    def __init__(
        self,
        command: Sequence[str],
        env: dict[str, str],
        port: int,
        log: Path,
        start: Start = start_process,
    ) -> None:
        self.port = port
        self._log = log
        with log.open("wb") as output:
            self._process = start(command, {**os.environ, **env}, output.fileno())

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def wait_healthy(self, timeout_s: float = 300) -> None:
        """Return once GET /health is 200. Raises: RuntimeError with the log's end."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self._process.poll() is None:
            if self._is_healthy():
                return
            time.sleep(0.05)
        raise RuntimeError(f"the server did not start:\n{self._log.read_text()[-3000:]}")

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def wait(self, timeout_s: float) -> int:
        """Exit status, of a process that ends by itself. Raises: subprocess.TimeoutExpired."""
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after 10 s."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def thread_cpu_s(self) -> dict[int, float]:
        """CPU seconds of each thread so far, by thread id. Source: /proc/PID/task/TID/schedstat."""
        cpu: dict[int, float] = {}
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                cpu[int(task.name)] = int((task / "schedstat").read_text().split()[0]) / 1e9
        return cpu

    def thread_names(self) -> dict[int, str]:
        """By thread id. Source: /proc/PID/task/TID/comm."""
        names: dict[int, str] = {}
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                names[int(task.name)] = (task / "comm").read_text().strip()
        return names


@contextlib.contextmanager
def running(
    command: Sequence[str],
    env: dict[str, str],
    port: int,
    log: Path,
    start: Start = start_process,
) -> Iterator[ServerProcess]:
    """Start the server, wait until it is healthy, stop it at the end."""
    process = ServerProcess(command, env, port, log, start)
    try:
        process.wait_healthy()
        yield process
    finally:
        process.stop()


def unpaced_command(port: int, model: Path, *arguments: str) -> list[str]:
    """`unpaced serve` of this environment, installed or not."""
    command = [sys.executable, "-m", "unpaced", "serve"]
    return [*command, "-m", str(model), "--port", str(port), *arguments]
