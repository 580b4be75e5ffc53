"""`unpaced` processes that are forked from one which has imported what serving needs.

A test run starts hundreds of servers, and most of a start is imports. What a server does from its
arguments on is the same.
"""

import functools
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn


class ForkedProcess:
    """What tests use of a Popen, for `unpaced` with these arguments."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], output: int) -> None:
        """Start it.

        Args:
            command: the program, of which the name alone matters, and its arguments.
            env: all of its environment.
            output: file descriptor that gets what it prints and logs.
        """
        self._parent = _parent()
        self.pid = self._parent.start(command, env, output)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status, as Popen has it, once it has ended."""
        if self.returncode is None:
            self.returncode = self._parent.status(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises: subprocess.TimeoutExpired."""
        if self.poll() is None:
            watched = os.pidfd_open(self.pid)
            try:
                if not select.select([watched], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired("unpaced", timeout or 0)
            finally:
                os.close(watched)
        status = self.poll()
        assert status is not None
        return status

    def terminate(self) -> None:
        """SIGTERM, unless it has ended."""
        self._send_signal(15)

    def kill(self) -> None:
        """SIGKILL, unless it has ended."""
        self._send_signal(9)

    def _send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class _Parent:
    """The process that forks them; it ends with the one that asks."""

    def __init__(self) -> None:
        self._socket, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with its_end:
            # -P: this folder has names of the standard library's.
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(its_end.fileno())], pass_fds=[its_end.fileno()]
            )

    def start(self, command: Sequence[str], env: Mapping[str, str], output: int) -> int:
        asked = {"command": command, "env": dict(env), "folder": str(Path.cwd())}
        pid: int = self._ask(asked, output)
        return pid

    def status(self, pid: int) -> int | None:
        status: int | None = self._ask({"pid": pid})
        return status

    def _ask(self, what: dict[str, Any], *files: int) -> Any:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(what).encode()], files)
            return json.loads(self._socket.recv(1 << 10))


@functools.cache
def _parent() -> _Parent:
    """This process's."""
    return _Parent()


def fork_as_asked(asker: socket.socket) -> None:
    """A message asks for a process or for the status of one, and is answered by one.

    Those that still run are ended with the asker, which may have been killed: a server that nobody
    asks any more would keep its port from the next run's.
    """
    running: set[int] = set()
    while True:
        message, files, _, _ = socket.recv_fds(asker, 1 << 20, 1)
        if not message:
            return _end(running)
        asked = json.loads(message)
        if "pid" in asked:
            pid, status = os.waitpid(asked["pid"], os.WNOHANG)
            answer = None if pid == 0 else os.waitstatus_to_exitcode(status)
            running.discard(pid)
        else:
            answer = os.fork()
            if answer == 0:
                become(asked["command"], asked["env"], asked["folder"], files[0])
            running.add(answer)
            os.close(files[0])
        asker.send(json.dumps(answer).encode())


def _end(running: set[int]) -> None:
    """SIGTERM, so that supervisors end their servers, too; after ten seconds SIGKILL."""
    for pid in running:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 10
    while running and time.monotonic() < deadline:
        running -= {pid for pid in running if os.waitpid(pid, os.WNOHANG)[0] != 0}
        time.sleep(0.05)
    for pid in running:
        os.kill(pid, signal.SIGKILL)


def become(command: list[str], env: dict[str, str], folder: str, output: int) -> NoReturn:
    """Run `unpaced` as it is called, and end."""
    from unpaced.__main__ import main

    for number, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output), (2, output)):
        os.dup2(file, number)
    os.closerange(3, 256)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = command
    sys.orig_argv = [sys.executable, *command]  # a supervisor starts servers by it
    sys.exit(main())


if __name__ == "__main__":
    # As unpaced/__main__.py has it before it imports.
    gc.disable()
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # All that a server imports, its first chat's modules as well.
    import unpaced.chat.completion
    import unpaced.cli.flags
    import unpaced.cli.serve
    import unpaced.process.app
    import unpaced.process.process
    import unpaced.schemas.messages
    import unpaced.schemas.responses
    import unpaced.writers.anthropic
    import unpaced.writers.responses_api  # noqa: F401

    fork_as_asked(socket.socket(fileno=int(sys.argv[1])))
