"""What the process that asks NVML last said; it is ended when it says nothing in time."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import orjson
import structlog

_CHILD: Final = (sys.executable, "-I", "-m", "unpaced.metrics.nvml_child")
_LINE_BYTES_MAX: Final = 1 << 20
_PAUSE_S: Final = 30.0
_LONGEST_PAUSE_S: Final = 600.0
_END_S: Final = 1.0
_log: Final = structlog.stdlib.get_logger("unpaced")

Trouble = Literal["silent", "ended"]
TROUBLES: Final[tuple[Trouble, ...]] = ("silent", "ended")


class GpuWatch:
    """Keeps such a process. Event loop's thread only; nothing here waits for it.

    `every_s`: seconds between two readings. `deadline_s`: how late one may be before the process is
    killed and the GPUs count as lost. A new one is started after a pause, which doubles, and not
    before the old one is dead: one that hangs within the driver cannot be killed.
    """

    def __init__(
        self,
        every_s: float,
        deadline_s: float,
        pause_s: float = _PAUSE_S,
        command: Sequence[str] = _CHILD,
    ) -> None:
        self._every_s = every_s
        self._deadline_s = deadline_s
        self._first_pause_s = self._pause_s = pause_s
        self._command = (*command, str(every_s))
        self._child: subprocess.Popen[bytes] | None = None
        self._dying: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._timer: asyncio.TimerHandle | None = None
        self._starting: asyncio.Task[None] | None = None
        self.gpus: list[dict[str, Any]] = []
        """One object for each GPU ever seen, as `nvml_child` writes it; only `gpu`, and `name` and
        `uuid` where they were known, while NVML does not answer for it."""
        self.is_up = False
        """Whether the last reading is there, in time."""
        self.troubles = dict.fromkeys(TROUBLES, 0)
        """Processes that said nothing in time, or came to an end."""
        self.read_at = 0.0
        """When the last reading came; `time.monotonic`."""

    def start(self) -> None:
        """Start the process, in the background."""
        self._starting = asyncio.get_running_loop().create_task(self._spawn())

    async def stop(self) -> None:
        """Kill the process, if there is one; wait a second for its end. Idempotent."""
        if self._starting is not None:
            self._starting.cancel()
        self._let_go()
        if self._dying is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._dying.wait, _END_S)

    async def _spawn(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            child = await asyncio.to_thread(self._popen)
        except OSError as error:
            _log.warning("no process for the GPUs' metrics", reason=str(error))
            return
        self._child = child
        self._buffer = b""
        assert child.stdout is not None
        os.set_blocking(child.stdout.fileno(), False)
        loop.add_reader(child.stdout.fileno(), self._on_readable)
        self._expect(self._every_s + self._deadline_s)

    def _popen(self) -> "subprocess.Popen[bytes]":
        # A session of its own: Ctrl-C in a terminal is for the server alone.
        return subprocess.Popen(
            self._command,
            bufsize=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _on_readable(self) -> None:
        assert self._child is not None and self._child.stdout is not None
        try:
            piece = os.read(self._child.stdout.fileno(), 1 << 16)
        except BlockingIOError:
            return
        self._buffer += piece
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            self._take(line)
        if not piece or len(self._buffer) > _LINE_BYTES_MAX:
            self._fail("ended")

    def _take(self, line: bytes) -> None:
        reading = orjson.loads(line)
        if isinstance(reading, dict):
            _log.info("no metrics of the GPUs", reason=reading["error"])
            return
        self.gpus = [
            _identity(self._known(gpu["gpu"])) | gpu if "error" in gpu else gpu for gpu in reading
        ]
        self.read_at = time.monotonic()
        self.is_up = True
        self._pause_s = self._first_pause_s
        self._expect(self._every_s + self._deadline_s)

    def _known(self, index: int) -> dict[str, Any]:
        return next((gpu for gpu in self.gpus if gpu["gpu"] == index), {"gpu": index})

    def _expect(self, within_s: float) -> None:
        self._call_later(within_s, lambda: self._fail("silent"))

    def _call_later(self, seconds: float, call: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, call)

    def _fail(self, trouble: Trouble) -> None:
        self.troubles[trouble] += 1
        if trouble == "silent":
            _log.error("NVML does not answer: a GPU or its driver may hang", seconds=self._every_s)
        self.is_up = False
        self.gpus = [_identity(gpu) | {"error": trouble} for gpu in self.gpus]
        self._let_go()
        self._call_later(self._pause_s, self._again)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def _again(self) -> None:
        if self._dying is not None and self._dying.poll() is None:  # it hangs within the driver
            self._call_later(self._pause_s, self._again)
        else:
            self.start()

    def _let_go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        child, self._child = self._child, None
        if child is not None:
            assert child.stdout is not None
            asyncio.get_running_loop().remove_reader(child.stdout.fileno())
            child.stdout.close()
            child.kill()
            self._dying = child


def _identity(gpu: dict[str, Any]) -> dict[str, Any]:
    return {key: gpu[key] for key in ("gpu", "name", "uuid") if key in gpu}
