"""The parent's end of the template process: starts it, asks it, ends it when it takes too long.

A template is a program that came with a file from the internet. No sandbox inside this process can
interrupt one expression, so templates run in a process of their own, with a limit on CPU time for
each answer (its own timer ends it), on memory, and on the size of what it returns.
"""

import asyncio
import select
import signal
import subprocess
import sys
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import orjson

from server.chat.rendering.frames import CPU_LIMIT_S, LENGTH

_WALL_LIMIT_S: Final = 20.0
_COMMAND: Final = (sys.executable, "-I", "-m", "server.chat.rendering.worker")


class TemplateError(Exception):
    """The template cannot be used or refuses these messages; the text is for the client."""


class Renderer:
    """Asks one process, one question at a time; a thread waits, the event loop does not."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "templates")
        self._process: subprocess.Popen[bytes] | None = None
        self._finalizer: Any = None
        self._sources: dict[str, str] = {}

    async def start(self) -> None:
        """Have the process ready. Raises: TemplateError."""
        await self._run(self._ensure)

    async def compile(self, name: str, source: str) -> None:
        """Give a template a name. Raises: TemplateError."""
        self._sources[name] = source
        await self._run(self._ask, {"op": "compile", "name": name, "source": source})

    async def analyse(self, name: str) -> dict[str, Any]:
        """See `server.chat.rendering.analysis`. Raises: TemplateError."""
        facts: dict[str, Any] = await self._run(self._ask, {"op": "analyse", "name": name})
        return facts

    async def render(self, name: str, context: dict[str, Any]) -> str:
        """The prompt. Raises: TemplateError."""
        request = {"op": "render", "name": name, "context": context}
        text: str = await self._run(self._ask, request)
        return text

    def close(self) -> None:
        """End the process. Idempotent."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._end()

    async def _run(self, call: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)

    # -- in the thread --------------------------------------------------------------------------

    def _ask(self, request: dict[str, Any]) -> Any:
        if request["op"] != "compile":
            self._ensure()
            return self._exchange(request)
        if self._process is None:
            self._spawn()
        return self._exchange(request)

    def _ensure(self) -> None:
        """A process that knows all templates."""
        if self._process is not None and self._process.poll() is None:
            return
        self._spawn()
        for name, source in self._sources.items():
            self._exchange({"op": "compile", "name": name, "source": source})

    def _spawn(self) -> None:
        self._end()
        try:
            self._process = process = _start()
        except OSError as error:
            raise TemplateError(f"no process for templates can be started: {error}") from None
        self._finalizer = weakref.finalize(self, _stop, process)

    def _exchange(self, request: dict[str, Any]) -> Any:
        process = self._process
        assert process is not None and process.stdin is not None
        data = orjson.dumps(request)
        try:
            process.stdin.write(LENGTH.pack(len(data)) + data)
            process.stdin.flush()
            answer = orjson.loads(self._read_frame(process))
        except (OSError, EOFError):
            raise TemplateError(self._explain_end(process)) from None
        if "error" in answer:
            raise TemplateError(answer["error"])
        return answer["result"]

    def _read_frame(self, process: subprocess.Popen[bytes]) -> bytes:
        deadline = time.monotonic() + _WALL_LIMIT_S
        (length,) = LENGTH.unpack(self._read(process, LENGTH.size, deadline))
        return self._read(process, length, deadline)

    def _read(self, process: subprocess.Popen[bytes], n: int, deadline: float) -> bytes:
        assert process.stdout is not None
        data = bytearray()
        while len(data) < n:
            if not select.select([process.stdout], [], [], deadline - time.monotonic())[0]:
                process.kill()
                raise EOFError
            piece = process.stdout.read(n - len(data))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)

    def _explain_end(self, process: subprocess.Popen[bytes]) -> str:
        self._end()
        if process.returncode in (-signal.SIGPROF, -signal.SIGKILL):
            return f"it takes more than {CPU_LIMIT_S:g} s"
        return "rendering it ended the process"

    def _end(self) -> None:
        self._process = None
        if self._finalizer is not None:
            self._finalizer()


def _start() -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C in a terminal is for the server alone.
    return subprocess.Popen(
        _COMMAND,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
