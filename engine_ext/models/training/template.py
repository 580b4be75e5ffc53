"""The template language of the plots: `[this|that]`, `<synonym>`, `{slot}`, and sentence case."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .words import SYNONYMS

_CHOICE = re.compile(r"\[([^\[\]]*)\]")  # innermost first, so choices nest
_SYNONYM = re.compile(r"<(\w+)>")
_SLOT = re.compile(r"\{(\w+)\}")
# A sentence starts at the beginning, after a full stop (also one inside closing quotes), and after
# ! ? … outside quotes. After `?" ` the clause goes on ('"Who?" asked Tom.'): templates that start
# a sentence there write the capital themselves.
_SENTENCE_START = re.compile(r'(^"?|[.!?] "?|\." "?)(\w)')

PARAGRAPH = "¶"


@dataclass(frozen=True, slots=True)
class Beat:
    """One step of a plot: equally likely ways to tell it; an optional one is often left out."""

    alternatives: tuple[str, ...]
    optional: bool


def load_beats(path: Path) -> tuple[Beat, ...]:
    """Read a plot: one alternative a line, a blank line between beats, `?` before an optional."""
    beats = []
    for block in path.read_text(encoding="utf-8").strip().split("\n\n"):
        lines = tuple(block.split("\n"))
        optional = lines[0] == "?"
        beats.append(Beat(lines[1:] if optional else lines, optional))
    return tuple(beats)


def article(noun: str) -> str:
    """The noun phrase with its indefinite article; good for every word of `words.py`."""
    vowel = noun[0].lower() in "aeio" or (noun.startswith(("um", "ug", "un")) and noun != "unicorn")
    return f"{'an' if vowel else 'a'} {noun}"


def expand(template: str, rng: random.Random, slot: Callable[[str], str]) -> str:
    """One sentence or several from a template; `slot` gives the text of `{name}`, left to right."""
    text = fill(template, rng, slot)
    return _SENTENCE_START.sub(lambda m: m[1] + m[2].upper(), text)


def fill(template: str, rng: random.Random, slot: Callable[[str], str]) -> str:
    """`expand` without the capital letters, for parts of a sentence."""
    text = template
    while match := _CHOICE.search(text):
        choice = rng.choice(match[1].split("|"))
        text = text[: match.start()] + choice + text[match.end() :]
    text = _SYNONYM.sub(lambda m: rng.choice(SYNONYMS[m[1]].split("|")), text)
    return _SLOT.sub(lambda m: slot(m[1]), text)
