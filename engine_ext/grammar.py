"""Grammars: what a sequence may be, compiled for the model's vocabulary."""

import asyncio
import importlib.util
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeVar

from engine_ext.errors import EngineError, GrammarError

if TYPE_CHECKING:
    from engine_ext import _native

LLGUIDANCE_VERSION: Final = "1.9.1"
"""Its C structures are declared in csrc/grammar/llguidance_library.h."""

K = TypeVar("K")
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
class GrammarWait:
    """What a lazy grammar waits for; until then the text is free, and costs next to nothing.

    `quiet`: texts around thoughts, in which no trigger counts; `is_quiet`: the text begins there.
    `may_resume`: a trigger that goes on as the grammar cannot was none; else the request fails.
    """

    triggers: tuple[GrammarTrigger, ...]
    quiet: tuple[bytes, bytes] = (b"", b"")
    is_quiet: bool = False
    may_resume: bool = False


class GrammarPart(NamedTuple):
    """A part of a grammar, which refers to others by their index.

    With `ranges`: one character out of them, first and last code points, ascending. Else one of
    `choices`, parts one after the other, `low` to `high` times; None: without end.
    """

    ranges: tuple[tuple[int, int], ...] = ()
    choices: tuple[tuple[int, ...], ...] = ()
    low: int = 1
    high: int | None = 1


@dataclass(frozen=True, slots=True)
class Grammar:
    """A compiled grammar, for any number of sequences. `plan`: what it waits for, if anything."""

    native: "_native.Grammar"
    plan: "_native.TriggerPlan | None" = None

    def start(self) -> "_native.TokenMask":
        """The grammar of one new sequence, with a thread of its own that computes its masks."""
        return self.native.start(self.plan)


class GrammarCompiler:
    """Compiles grammars on threads of its own. Made ready when the first grammar comes."""

    def __init__(self, engine: "_native.Engine") -> None:
        self._native = engine
        self._engine: _native.GrammarEngine | None = None
        self._lock = asyncio.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._compiled: OrderedDict[tuple[GrammarKind, str], _native.Grammar] = OrderedDict()
        self._plans: OrderedDict[GrammarWait, _native.TriggerPlan] = OrderedDict()

    async def compile(
        self, kind: GrammarKind, text: str, parts: Sequence[GrammarPart] = ()
    ) -> Grammar:
        """The grammar `text`. Recently compiled ones are kept.

        `parts`: the same grammar, the root first; masks are then kept, and shared by its sequences.

        Raises: GrammarError with the compiler's message; EngineError if llguidance is missing.
        """
        engine = await self._ready()
        return Grammar(
            await self._kept(
                self._compiled,
                (kind, text),
                lambda: engine.compile(kind, text.encode(), native_parts(parts)),
            )
        )

    async def lazy(self, grammar: Grammar, wait: GrammarWait, *, on_host: bool) -> Grammar:
        """The grammar from one of the triggers on. `on_host`: the token loop runs there.

        Raises: as `compile`.
        """
        engine = await self._ready()
        plan = await self._kept(self._plans, wait, lambda: _plan(engine, wait, not on_host))
        return Grammar(grammar.native, plan)

    async def _kept(self, kept: OrderedDict[K, T], key: K, make: Callable[[], T]) -> T:
        if key in kept:
            kept.move_to_end(key)
            return kept[key]
        try:
            made = await self._run(make)
        except ValueError as error:
            raise GrammarError(str(error)) from None
        kept[key] = made
        if len(kept) > _N_CACHED:
            kept.popitem(last=False)
        return made

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


def native_parts(parts: Sequence[GrammarPart]) -> "list[_native.GrammarPart]":
    """As the native engine takes them."""
    from engine_ext import _native

    return [
        _native.GrammarPart(ranges, choices, low, -1 if high is None else high)
        for ranges, choices, low, high in parts
    ]


def _plan(
    engine: "_native.GrammarEngine", wait: GrammarWait, lists_tokens: bool
) -> "_native.TriggerPlan":
    from engine_ext import _native

    triggers = [_native.GrammarTrigger(t.token, t.word, t.inside) for t in wait.triggers]
    return engine.plan_triggers(triggers, *wait.quiet, wait.is_quiet, wait.may_resume, lists_tokens)


def _library_path() -> Path:
    spec = importlib.util.find_spec("llguidance")
    for folder in (spec.submodule_search_locations if spec is not None else None) or ():
        for path in Path(folder).glob("_lib*.so"):
            return path
    raise EngineError("grammars are not available: llguidance is not installed")
