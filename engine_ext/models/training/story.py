"""Short stories from the plot files: an opening, the beats of one plot, sometimes a closing."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .cast import Cast, draw_cast
from .template import PARAGRAPH, Beat, expand, load_beats
from .words import ANY_EMOJI, EMOJI

_PLOTS = Path(__file__).parent / "plots"


@cache
def plots() -> dict[str, tuple[Beat, ...]]:
    """Every plot by name; names that start with `_` are shared parts."""
    return {path.stem: load_beats(path) for path in sorted(_PLOTS.glob("*.txt"))}


def plot_names() -> tuple[str, ...]:
    return tuple(name for name in plots() if not name.startswith("_"))


@dataclass(frozen=True, slots=True)
class Story:
    """A finished story; `cast` tells afterwards who was in it."""

    plot: str
    cast: Cast
    text: str


def tell_story(rng: random.Random, *, noun: str | None = None, plot: str | None = None) -> Story:
    """Tell one story. Deterministic for equal `rng` state and arguments."""
    plot = plot or rng.choice(plot_names())
    cast = draw_cast(rng, noun=noun)
    text = ""
    for beat in (*plots()["_opening"], *plots()[plot]):
        if beat.optional and rng.random() < 0.75:
            continue
        template = rng.choice(beat.alternatives)
        if template == PARAGRAPH:
            text += "\n\n" if rng.random() < 0.6 else ""
        else:
            text += _join(text, expand(template, rng, cast.slot))
    return Story(plot, cast, text + _closing(rng, cast))


def _join(text: str, sentence: str) -> str:
    """The sentence with what separates it from the text; a new speaker gets a new paragraph."""
    if not text or text.endswith("\n"):
        return sentence
    new_speaker = text.endswith('"') and sentence.startswith('"')
    return ("\n\n" if new_speaker else " ") + sentence


def _closing(rng: random.Random, cast: Cast) -> str:
    closing = " The end." if rng.random() < 0.2 else ""
    if rng.random() < 0.2:
        emoji = EMOJI.get(cast.hero.noun)
        closing += " " + (emoji if emoji and rng.random() < 0.7 else rng.choice(ANY_EMOJI))
    return closing
