"""What a sequence may be: grammars, compiled for the model's vocabulary."""

import asyncio
import importlib.util
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, Literal, NamedTuple, TypeVar

from engine_ext.base.errors import EngineBusy, EngineError, GrammarError
from engine_ext.threads.fair_threads import FairThreads

if TYPE_CHECKING:
    from engine_ext import _native

LLGUIDANCE_VERSION: Final = "1.9.1"
"""Its C structures are declared in csrc/grammar/llguidance_library.h."""

K = TypeVar("K")
T = TypeVar("T")
GrammarKind = Literal["json_schema", "lark", "regex"]

_N_CACHED: Final = 16
# Bytes of a grammar that compiles in milliseconds, nearly always.
_SHORT_BYTES: Final = 4096
_N_LONG_THREADS: Final = 2


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

    `quiet`: texts around reasoning, in which no trigger counts; `is_quiet`: the text begins there.
    `may_resume`: a trigger that goes on as the grammar cannot does not count; else the
    request fails.
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
    """A compiled grammar, for any number of sequences. `triggers`: what it waits for, if any."""

    native: "_native.Grammar"
    triggers: "_native.CompiledTriggers | None" = None

    def start(self) -> "_native.TokenMask":
        """The grammar of one new sequence, with a thread of its own that computes its masks."""
        return self.native.start(self.triggers)


@dataclass(frozen=True, slots=True)
class GrammarLimits:
    """`compile_s`: what compiling may take; `wait_s`: how long it may wait for a thread;
    `n_waiting_max`: how many may, of each client."""

    compile_s: float
    wait_s: float
    n_waiting_max: int


class GrammarThreads:
    """Where grammars are looked into: short ones have a thread that none of the others gets.

    What takes long to compile is long, with exceptions: then short ones wait for each other.
    """

    def __init__(self, limits: GrammarLimits) -> None:
        self._limits = limits
        self._short = FairThreads("grammars", 1, limits.n_waiting_max)
        self._long = FairThreads("long grammars", _N_LONG_THREADS, limits.n_waiting_max)

    async def run(self, work: Callable[[], T], n_bytes: int) -> T:
        """`work` on a grammar of so many bytes.

        Raises: EngineBusy if it waits too long; GrammarError if it takes too long, then goes on.
        """
        threads = self._short if n_bytes <= _SHORT_BYTES else self._long
        limit_s = self._limits.compile_s
        try:
            return await threads.run(work, wait_s=self._limits.wait_s, limit_s=limit_s)
        except TimeoutError:
            raise GrammarError(f"it takes more than {limit_s:g} s to compile") from None

    def stop(self) -> None:
        """Begin nothing new; what runs is bounded and finishes alone."""
        self._short.stop()
        self._long.stop()


class GrammarCompiler:
    """Compiles grammars on threads of its own. Made ready when the first grammar comes."""

    def __init__(self, engine: "_native.Engine", limits: GrammarLimits) -> None:
        self._native = engine
        self._engine: _native.GrammarEngine | None = None
        self._lock = asyncio.Lock()
        self.threads = GrammarThreads(limits)
        self._compiled: _Kept[tuple[GrammarKind, str], _native.Grammar] = _Kept()
        self._triggers: _Kept[GrammarWait, _native.CompiledTriggers] = _Kept()

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

    async def _make(self, kept: "_Kept[K, T]", key: K, make: Callable[[], T], n_bytes: int) -> T:
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


class _Kept(Generic[K, T]):
    """What was made recently, by what it was made from. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: OrderedDict[K, T] = OrderedDict()

    def get(self, key: K) -> T | None:
        """What was made; None if it was not, or is forgotten."""
        with self._lock:
            if key in self._made:
                self._made.move_to_end(key)
            return self._made.get(key)

    def get_or_make(self, key: K, make: Callable[[], T]) -> T:
        """The same, made where it is missing: kept also if nobody waits for it any more."""
        found = self.get(key)
        if found is not None:
            return found
        made = make()
        with self._lock:
            self._made[key] = made
            if len(self._made) > _N_CACHED:
                self._made.popitem(last=False)
        return made


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
