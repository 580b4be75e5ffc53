"""Servers that are forked from a process which has imported what they need.

The suite starts two hundred, and most of a start is imports. Stands in for subprocess.Popen there:
what a server does from its arguments on is the same.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any


class ForkedServers:
    """The process that forks them; its life is the run's."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def start(self, arguments: Sequence[str], env: dict[str, str], log: str) -> int:
        """The process's number. Its output is appended to the file `log`."""
        pid: int = self._ask({"arguments": arguments, "env": env, "log": log})
        return pid

    def status(self, pid: int) -> int | None:
        """The exit status, as Popen has it, once it has ended."""
        status: int | None = self._ask({"pid": pid})
        return status

    def _ask(self, what: dict[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        return json.loads(self._process.stdout.readline())


class ForkedServer:
    """What the suite uses of a Popen."""

    servers: ForkedServers | None = None

    def __init__(
        self, command: Sequence[str], *, stdout: IO[str], env: dict[str, str], **_: object
    ) -> None:
        if ForkedServer.servers is None:
            ForkedServer.servers = ForkedServers()
        self._servers = ForkedServer.servers
        log = stdout.name if Path(stdout.name).is_file() else os.devnull
        self.pid = self._servers.start(command[1:], env, log)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status, if it has ended."""
        if self.returncode is None:
            self.returncode = self._servers.status(self.pid)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for its end. Raises: subprocess.TimeoutExpired."""
        deadline = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("unpaced", timeout)
            time.sleep(0.005)
        return status

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(15)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(9)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


def fork_as_asked() -> None:
    """A line asks for a server or for the status of one, and is answered by a line."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        asked = json.loads(line)
        if "pid" in asked:
            pid, status = os.waitpid(asked["pid"], os.WNOHANG)
            answer = None if pid == 0 else os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                answers.close()
                become_server(asked["arguments"], asked["env"], asked["log"])
        answers.write(json.dumps(answer) + "\n")


def become_server(arguments: list[str], env: dict[str, str], log: str) -> None:
    """Run `unpaced` with these arguments, and end."""
    from unpaced.cli.main import main

    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    for number, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output), (2, output)):
        os.dup2(file, number)
    os.closerange(3, 256)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["unpaced", *arguments]
    sys.exit(main(arguments))


if __name__ == "__main__":
    import unpaced.cli.flags
    import unpaced.cli.serve
    import unpaced.process.app
    import unpaced.process.process  # noqa: F401

    fork_as_asked()
