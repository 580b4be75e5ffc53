"""Grammars: what a sequence may be, compiled for the model's vocabulary."""

import asyncio
import importlib.util
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from engine_ext.errors import EngineError, GrammarError

if TYPE_CHECKING:
    from engine_ext import _native

LLGUIDANCE_VERSION: Final = "1.9.1"
"""Its C structures are declared in csrc/grammar/llguidance_library.h."""

T = TypeVar("T")
GrammarKind = Literal["json_schema", "lark", "regex"]

_N_CACHED: Final = 16
_N_THREADS: Final = 2


@dataclass(frozen=True, slots=True)
class GrammarTrigger:
    """Switches a lazy grammar on: the token `token`, or else the bytes `word` in the text.

    `inside`: the grammar begins with the trigger, as llama-server's do; else right after it.
    """

    token: int = -1
    word: bytes = b""
    inside: bool = True

    def __post_init__(self) -> None:
        if (self.token < 0) == (not self.word):
            raise ValueError("a trigger is either a token or a word")


@dataclass(frozen=True, slots=True)
class Grammar:
    """A compiled grammar, for any number of sequences. `triggers`: free until one of them comes."""

    native: "_native.Grammar"
    triggers: tuple[GrammarTrigger, ...] = ()

    def start(self) -> "_native.TokenMask":
        """The grammar of one new sequence, with a thread of its own that computes its masks."""
        from engine_ext import _native

        return self.native.start(
            [_native.GrammarTrigger(t.token, t.word, t.inside) for t in self.triggers]
        )


class GrammarCompiler:
    """Compiles grammars on threads of its own. Made ready when the first grammar comes."""

    def __init__(self, engine: "_native.Engine") -> None:
        self._native = engine
        self._engine: _native.GrammarEngine | None = None
        self._lock = asyncio.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._compiled: OrderedDict[tuple[GrammarKind, str], _native.Grammar] = OrderedDict()

    async def compile(self, kind: GrammarKind, text: str) -> Grammar:
        """The grammar `text`. Recently compiled ones are kept.

        Raises: GrammarError with the compiler's message; EngineError if llguidance is missing.
        """
        key = (kind, text)
        if key in self._compiled:
            self._compiled.move_to_end(key)
            return Grammar(self._compiled[key])
        engine = await self._ready()
        try:
            compiled = await self._run(lambda: engine.compile(kind, text.encode()))
        except ValueError as error:
            raise GrammarError(str(error)) from None
        self._compiled[key] = compiled
        if len(self._compiled) > _N_CACHED:
            self._compiled.popitem(last=False)
        return Grammar(compiled)

    def stop(self) -> None:
        """No compiling after this; what runs is bounded and finishes alone."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _ready(self) -> "_native.GrammarEngine":
        async with self._lock:
            if self._engine is None:
                library = str(_library_path())
                self._threads = ThreadPoolExecutor(_N_THREADS, thread_name_prefix="grammar")
                try:
                    self._engine = await self._run(
                        lambda: self._native.make_grammar_engine(library, LLGUIDANCE_VERSION)
                    )
                except (RuntimeError, ValueError) as error:
                    raise EngineError(f"grammars are not available: {error}") from error
        return self._engine

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _library_path() -> Path:
    spec = importlib.util.find_spec("llguidance")
    for folder in (spec.submodule_search_locations if spec is not None else None) or ():
        for path in Path(folder).glob("_lib*.so"):
            return path
    raise EngineError("grammars are not available: llguidance is not installed")
