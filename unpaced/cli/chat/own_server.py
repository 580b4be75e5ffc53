"""A server that one chat starts for itself: on a Unix socket that nobody else reaches."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import httpx

from unpaced.cli.chat.connection import Refused
from unpaced.cli.terminal_text import printable_line

_LOOK_S: Final = 0.1
_STOP_S: Final = 10.0
_N_LINES_TOLD: Final = 5
_PR_SET_PDEATHSIG: Final = 1
_FOLDER_BYTES_MAX: Final = 107 - len("/unpaced-chat-01234567/chat.sock")
# What the environment says of a server for everybody is not for this one.
_PUBLIC: Final = frozenset(
    f"{prefix}_{name}"
    for prefix in ("UNPACED", "LLAMA_ARG", "LLAMA")
    for name in ("API_KEY", "API_KEY_FILE", "API_PREFIX", "SSL_KEY_FILE", "SSL_CERT_FILE", "PORT")
)


@contextlib.contextmanager
def own_server(model: Path, flags: Sequence[str]) -> Iterator[Path]:
    """The socket of `unpaced serve` with this model, ready; it ends with the block, and with this
    process however it ends. Raises: Refused, with what the server said."""
    # For this user alone.
    with tempfile.TemporaryDirectory(prefix="unpaced-chat-", dir=short_folder()) as folder:
        socket, log = Path(folder) / "chat.sock", Path(folder) / "log"
        command = [sys.executable, "-m", "unpaced", "serve", "--model", str(model), *flags]
        command += ["--host", str(socket)]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={key: value for key, value in os.environ.items() if key not in _PUBLIC},
                start_new_session=True,  # Ctrl-C is for the chat
                preexec_fn=_end_with_parent,
            )
        try:
            _wait_until_ready(process, socket, log)
            yield socket
        finally:
            _stop(process)


def short_folder() -> str:
    """Where a socket's path has room: the kernel takes 107 bytes of it, and TMPDIR may be long."""
    usual = tempfile.gettempdir()
    for folder in (usual, os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp", "/var/tmp"):
        has_room = len(os.fsencode(folder)) <= _FOLDER_BYTES_MAX
        if folder and has_room and os.access(folder, os.W_OK | os.X_OK):
            return folder
    return usual


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _wait_until_ready(process: "subprocess.Popen[bytes]", socket: Path, log: Path) -> None:
    transport = httpx.HTTPTransport(uds=str(socket))
    with httpx.Client(transport=transport, timeout=5.0) as client, _Line() as line:
        while True:
            if process.poll() is not None:
                raise Refused(f"the server did not start\n{_last_lines(log)}")
            with contextlib.suppress(httpx.HTTPError, ValueError, LookupError):
                response = client.get("http://unpaced/health/ready")
                if response.status_code == 200:
                    return
                line.show(response.json()["error"]["message"])
            time.sleep(_LOOK_S)


class _Line:
    """One line of progress on a terminal, gone at the end."""

    def __enter__(self) -> "_Line":
        self.show("starting a server")
        return self

    def __exit__(self, *_: object) -> None:
        self.show("")

    def show(self, text: str) -> None:
        """Replace the line."""
        if sys.stderr.isatty():
            print(f"\r\x1b[K{printable_line(text)}", end="", file=sys.stderr, flush=True)


def _last_lines(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()[-_N_LINES_TOLD:]
    return "\n".join(printable_line(line) for line in lines)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
