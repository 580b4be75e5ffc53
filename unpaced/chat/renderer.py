"""Asks the template process, and replaces it where it ended or does not answer.

A template is a program that came with a file from the internet. No sandbox inside this process can
interrupt one expression, so templates run in a process of their own, with a limit on CPU time for
each answer (its own timer ends it), on memory, and on the size of what it returns.
"""

import signal
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import orjson

from engine_ext import FairThreads
from unpaced.chat.template_process import (
    ProcessEnded,
    ProcessSilent,
    ProcessStopped,
    TemplateProcess,
)
from unpaced.rendering.frames import CPU_LIMIT_S

# Of an answer that takes CPU_LIMIT_S at most: this machine may be that busy.
_WALL_LIMIT_S: Final = 20.0
_N_TRIES: Final = 2


class TemplateError(Exception):
    """The template cannot be used or refuses these messages; the text is for the client."""


class RendererFault(Exception):
    """Templates cannot be rendered, whatever they are; the text is for the client.

    `is_passing`: it may be otherwise with the next request.
    """

    def __init__(self, message: str, *, is_passing: bool) -> None:
        super().__init__(message)
        self.is_passing = is_passing


class Renderer:
    """Asks one process, one question at a time; a thread waits, the event loop does not. Clients
    have their turns, and `n_waiting_max` questions of each may wait: else EngineBusy.
    """

    def __init__(self, n_waiting_max: int = 256) -> None:
        self._threads = FairThreads("templates", 1, n_waiting_max)
        self._process: TemplateProcess | None = None
        self._sources: dict[str, str] = {}

    async def start(self) -> None:
        """Have the process ready. Raises: RendererFault."""
        await self._threads.run(self._usable)

    async def compile(self, name: str, source: str) -> None:
        """Give a template a name. Raises: TemplateError, RendererFault."""
        await self._run({"op": "compile", "name": name, "source": source})
        self._sources[name] = source

    async def analyse(self, name: str) -> dict[str, Any]:
        """See `unpaced.rendering.analysis`. Raises: TemplateError, RendererFault."""
        facts: dict[str, Any] = await self._run({"op": "analyse", "name": name})
        return facts

    async def render(self, name: str, context: dict[str, Any]) -> str:
        """The prompt. Raises: TemplateError, RendererFault."""
        text: str = await self._run({"op": "render", "name": name, "context": context})
        return text

    def close(self) -> None:
        """End the process. Idempotent."""
        self._threads.stop()
        self._end()

    async def _run(self, question: dict[str, Any]) -> Any:
        return await self._threads.run(partial(self._answer, question))

    # -- in the thread --------------------------------------------------------------------------

    def _answer(self, question: dict[str, Any]) -> Any:
        try:
            data = orjson.dumps(question)
        except orjson.JSONEncodeError as error:
            raise TemplateError(f"the messages cannot be given to it: {error}") from None
        answer = orjson.loads(self._ask(data))
        if "error" in answer:
            raise TemplateError(answer["error"])
        return answer["result"]

    def _ask(self, data: bytes) -> bytes:
        """The answer of a process that lives. One that was ended by others is replaced, once."""
        ended = 0
        for _ in range(_N_TRIES):
            process = self._usable()
            try:
                return process.ask(data, _WALL_LIMIT_S)
            except ProcessEnded as end:
                self._end()
                ended = end.status
                if ended == -signal.SIGPROF:
                    raise TemplateError(f"it takes more than {CPU_LIMIT_S:g} s") from None
            except ProcessStopped:
                self._end()
                ended = -signal.SIGSTOP
            except ProcessSilent:
                self._end()
                raise _passing(f"gave no answer within {_WALL_LIMIT_S:g} s") from None
        if ended in (-signal.SIGKILL, -signal.SIGSTOP, -signal.SIGTERM):
            raise _passing("was ended from outside")
        raise TemplateError("rendering it ended the process")  # each time

    def _usable(self) -> TemplateProcess:
        """A process that lives and knows all templates. Raises: RendererFault."""
        if self._process is not None and self._process.is_usable:
            return self._process
        self._end()
        try:
            self._process = process = TemplateProcess()
            _ask_all(process.ask, [{"op": "hello"}])
        except (OSError, ProcessEnded, ProcessStopped, ProcessSilent) as error:
            self._end()
            raise RendererFault(
                f"the process that renders chat templates cannot be started: {error}",
                is_passing=False,
            ) from None
        known = [{"op": "compile", "name": n, "source": s} for n, s in self._sources.items()]
        try:
            _ask_all(process.ask, known)
        except (ProcessEnded, ProcessStopped, ProcessSilent):
            self._end()
            raise _passing("did not get to know its templates") from None
        return process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()


def _ask_all(ask: Callable[[bytes, float], bytes], questions: list[dict[str, Any]]) -> None:
    for question in questions:
        ask(orjson.dumps(question), _WALL_LIMIT_S)


def _passing(what: str) -> RendererFault:
    return RendererFault(f"the process that renders chat templates {what}", is_passing=True)
