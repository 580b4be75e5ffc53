"""Compiles grammars, with llguidance."""

import asyncio
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from engine_ext.base.errors import EngineBusy, EngineError, GrammarError
from engine_ext.sequence.grammar import Grammar, GrammarKind, GrammarPart, GrammarWait
from engine_ext.sequence.grammar_threads import GrammarLimits, GrammarThreads
from engine_ext.sequence.recently_made import RecentlyMade

if TYPE_CHECKING:
    from engine_ext import _native

LLGUIDANCE_VERSION: Final = "1.9.1"
"""Its C structures are declared in csrc/grammar/llguidance_library.h."""

K = TypeVar("K")
T = TypeVar("T")


class GrammarCompiler:
    """Compiles grammars on threads of its own. Made ready when the first grammar comes."""

    def __init__(self, engine: "_native.Engine", limits: GrammarLimits) -> None:
        self._native = engine
        self._engine: _native.GrammarEngine | None = None
        self._lock = asyncio.Lock()
        self.threads = GrammarThreads(limits)
        self._compiled: RecentlyMade[tuple[GrammarKind, str], _native.Grammar] = RecentlyMade()
        self._triggers: RecentlyMade[GrammarWait, _native.CompiledTriggers] = RecentlyMade()

    async def compile(
        self, kind: GrammarKind, text: str, parts: Sequence[GrammarPart] = ()
    ) -> Grammar:
        """The grammar `text`. Recently compiled ones are kept.

        `parts`: the same grammar, the root first; masks are then kept, and shared by its sequences.

        Raises: GrammarError with the compiler's message, also for one that takes too long;
        EngineBusy where it waits too long; EngineError if llguidance is missing.
        """
        engine = await self._ready()
        return Grammar(
            await self._make(
                self._compiled,
                (kind, text),
                lambda: engine.compile(kind, text.encode(), native_parts(parts)),
                len(text),
            )
        )

    async def lazy(self, grammar: Grammar, wait: GrammarWait, *, on_host: bool) -> Grammar:
        """The grammar from one of the triggers on. `on_host`: the token loop runs there.

        Raises: as `compile`.
        """
        engine = await self._ready()
        triggers = await self._make(
            self._triggers, wait, lambda: _compile_triggers(engine, wait, not on_host), 0
        )
        return Grammar(grammar.native, triggers)

    async def _make(
        self, kept: RecentlyMade[K, T], key: K, make: Callable[[], T], n_bytes: int
    ) -> T:
        found = kept.get(key)
        if found is not None:
            return found
        try:
            return await self.threads.run(lambda: kept.get_or_make(key, make), n_bytes)
        except GrammarError:
            raise
        except ValueError as error:
            raise GrammarError(str(error)) from None

    def stop(self) -> None:
        """Compile nothing after this."""
        self.threads.stop()

    async def _ready(self) -> "_native.GrammarEngine":
        async with self._lock:
            if self._engine is None:
                library = str(_library_path())
                try:
                    self._engine = await self.threads.run(
                        lambda: self._native.make_grammar_engine(library, LLGUIDANCE_VERSION), 0
                    )
                except EngineBusy:
                    raise
                except (RuntimeError, ValueError) as error:
                    raise EngineError(f"grammars are not available: {error}") from error
        return self._engine


def native_parts(parts: Sequence[GrammarPart]) -> "list[_native.GrammarPart]":
    """The triggers as the native engine takes them."""
    from engine_ext import _native

    return [
        _native.GrammarPart(ranges, choices, low, -1 if high is None else high)
        for ranges, choices, low, high in parts
    ]


def _compile_triggers(
    engine: "_native.GrammarEngine", wait: GrammarWait, lists_tokens: bool
) -> "_native.CompiledTriggers":
    from engine_ext import _native

    triggers = [_native.GrammarTrigger(t.token, t.word, t.inside) for t in wait.triggers]
    return engine.compile_triggers(
        triggers, *wait.quiet, wait.is_quiet, wait.may_resume, lists_tokens
    )


def _library_path() -> Path:
    spec = importlib.util.find_spec("llguidance")
    for folder in (spec.submodule_search_locations if spec is not None else None) or ():
        for path in Path(folder).glob("_lib*.so"):
            return path
    raise EngineError("grammars are not available: llguidance is not installed")
