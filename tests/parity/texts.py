"""Strings that tokenisers find hard: Unicode categories, emoji, control tokens, and mixtures."""

import random
import sys
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Final

_WORD_TEXT: Final = (
    "the The quick brown fox don't we'll I'M 3.14 1,000,000 12345678 x=y+1; def f(a): return "
    "https://example.org/a?b=c user@example.org C++ #hash $5 100% naïve Ωμέγα Привет мир שלום "
    "العربية हिन्दी ไทย 日本語 中文字符 한국어 ﬁ ½ ① ℃ Ǆ İstanbul Straße ͏ e\u0301 a\u030a\u0323"
)
_WORDS: Final = tuple(_WORD_TEXT.split())
_EMOJI_TEXT: Final = "😀 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 🇺🇳 ❤️ ☎ ✈️ 🧑🏿‍🚀 #️⃣ 🫠 👁️‍🗨️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ㊗️ 🤷🏼‍♂️"
_EMOJI: Final = tuple(_EMOJI_TEXT.split())
_SPACES: Final = (" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", " \n", "\n ", "\x0b", "\x0c")
_SPACES_MORE: Final = ("\u00a0", "\u2003", "\u3000", "\u2028", "\u2029", "\u200b", "\ufeff", "\x85")
_NOT_SPECIAL: Final = ("<s", "</s", "<|", "|>", "<|endoftext", "[INST]", "<0x41>", "<unk", "▁", "Ġ")


@cache
def _by_category() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for code in range(sys.maxunicode + 1):
        category = unicodedata.category(chr(code))
        if category not in ("Cs", "Cn", "Co"):
            found.setdefault(category, []).append(chr(code))
    found["Cn"] = [chr(code) for code in (0x378, 0x2FE0, 0xFFFE, 0xFFFF, 0x1FFFF, 0x10FFFF)]
    found["Co"] = [chr(code) for code in (0xE000, 0xF8FF, 0xF0000, 0x10FFFD)]
    return found


def _of_category(rng: random.Random) -> str:
    letters = _by_category()[rng.choice(sorted(_by_category()))]
    return "".join(rng.choice(letters) for _ in range(rng.randint(1, 12)))


def _of_any_category(rng: random.Random) -> str:
    categories = _by_category()
    names = sorted(categories)
    return "".join(rng.choice(categories[rng.choice(names)]) for _ in range(rng.randint(1, 12)))


def _control(rng: random.Random) -> str:
    return "".join(chr(rng.choice((*range(32), 127))) for _ in range(rng.randint(1, 6)))


def _number(rng: random.Random) -> str:
    return str(rng.randrange(10 ** rng.randint(1, 15)))


def _run(rng: random.Random) -> str:
    return rng.choice(("a", " ", "\n", "0", "!", "é", "中", "🙂", "=", "\t")) * rng.randint(2, 40)


def make_texts(n: int, specials: tuple[str, ...], seed: int) -> list[str]:
    """`n` strings; `specials` are texts of the vocabulary's control tokens."""
    rng = random.Random(seed)
    sources: tuple[Callable[[random.Random], str], ...] = (
        _of_category,
        _of_any_category,
        _control,
        _number,
        _run,
        lambda r: r.choice(_WORDS),
        lambda r: r.choice(_WORDS),
        lambda r: r.choice(_EMOJI),
        lambda r: r.choice(_SPACES),
        lambda r: r.choice(_SPACES),
        lambda r: r.choice(_SPACES_MORE),
        lambda r: r.choice(_NOT_SPECIAL),
        lambda r: r.choice(specials),
    )
    texts = ["", " ", "  ", "\n", "\x00", "a\x00b", *specials[:8]]
    while len(texts) < n:
        if rng.random() < 0.3:
            source = rng.choice(sources)
            parts = [source(rng) for _ in range(rng.randint(1, 6))]
        else:
            parts = [rng.choice(sources)(rng) for _ in range(rng.randint(1, 14))]
        texts.append(rng.choice(("", "", " ")).join(parts))
    return texts[:n]


def make_token_lists(n: int, n_vocab: int, seed: int) -> list[list[int]]:
    """`n` lists of random tokens: mostly no text at all, often no UTF-8."""
    rng = random.Random(seed)
    return [
        [rng.randrange(min(n_vocab, rng.choice((300, n_vocab)))) for _ in range(rng.randint(0, 12))]
        for _ in range(n)
    ]
