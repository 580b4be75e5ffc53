"""What a sequence may be: grammars, compiled for the model's vocabulary, and what they wait for."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from engine_ext import _native

GrammarKind = Literal["json_schema", "lark", "regex"]


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
