"""The process that renders: `python -m unpaced.rendering.worker`.

It answers what comes on standard input on standard output (`frames`), and ends with its input. A
timer of CPU time ends it when an answer takes too long, whatever it is doing.
"""

import resource
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

import orjson

from unpaced.rendering.analysis import analyse
from unpaced.rendering.environment import CompiledTemplate, TemplateFailure
from unpaced.rendering.frames import CPU_LIMIT_S, read_frame, write_frame

MEMORY_LIMIT_BYTES: Final = 768 * 2**20


class Worker:
    """Templates by name, and the three things that can be asked of them."""

    def __init__(self) -> None:
        self._templates: dict[str, CompiledTemplate] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """`{"result": ...}` or `{"error": text}`."""
        operations: dict[str, Callable[..., Any]] = {
            "hello": lambda: None,
            "compile": self._compile,
            "analyse": self._analyse,
            "render": self._render,
        }
        try:
            return {"result": operations[request.pop("op")](**request)}
        except TemplateFailure as failure:
            return {"error": str(failure)}
        except MemoryError:
            return {"error": "it needs too much memory"}

    def _compile(self, name: str, source: str) -> None:
        self._templates.pop(name, None)
        self._templates[name] = CompiledTemplate(source)

    def _analyse(self, name: str) -> dict[str, Any]:
        return analyse(self._template(name))

    def _render(self, name: str, context: dict[str, Any]) -> str:
        return self._template(name).render(context)

    def _template(self, name: str) -> CompiledTemplate:
        if name not in self._templates:
            raise TemplateFailure("it could not be compiled")
        return self._templates[name]


def main() -> None:
    """Answer until standard input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    worker = Worker()
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while (data := read_frame(requests)) is not None:
        signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT_S)  # SIGPROF, which nothing handles
        answer = orjson.dumps(worker.answer(orjson.loads(data)))
        signal.setitimer(signal.ITIMER_PROF, 0)
        write_frame(answers, answer)


if __name__ == "__main__":
    main()
