"""Byte-level BPE as llama.cpp runs its "gpt2" tokenizer model with the "gpt-2" pre-tokenizer.

Text is cut into words by GPT-2's pattern, a word into UTF-8 bytes, and pairs are merged in the
order in which they were learnt. Every byte is a token, so every text has tokens.
Sources: Radford et al. 2019 (GPT-2); llama.cpp 0c1e57098, src/unicode.cpp and src/llama-vocab.cpp.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

_CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")
# Only these characters outside ASCII are ever merged. The others stay two to four byte tokens each,
# so that this model's streams hold characters that arrive in parts, as those of large models do.
_MERGED = frozenset("é—…")

Pair = tuple[bytes, bytes]


def byte_characters() -> tuple[str, ...]:
    """GPT-2's printable stand-in for each byte, as GGUF writes byte-level tokens."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in table)
    table |= {byte: chr(0x100 + index) for index, byte in enumerate(others)}
    return tuple(table[byte] for byte in range(256))


def _kind(character: str) -> str:
    """ "L" letter, "N" number, " " white space, "x" anything else."""
    if character.isspace():
        return " "
    category = unicodedata.category(character)[0]
    return category if category in "LN" else "x"


def split_words(text: str) -> Iterator[str]:
    """GPT-2's pattern: contractions; a run of letters, numbers or others with one space before it;
    white space, whose last character goes to the word that follows if it is a space."""
    start, end = 0, len(text)
    while start < end:
        stop = next((start + len(c) for c in _CONTRACTIONS if text.startswith(c, start)), 0)
        if not stop:
            first = start + (text[start] == " " and start + 1 < end)
            if _kind(text[first]) == " ":
                first = start
            stop = _run_end(text, first)
            if _kind(text[first]) == " " and stop < end and stop - start > 1:
                stop -= 1
        yield text[start:stop]
        start = stop


def _run_end(text: str, start: int) -> int:
    kind, stop = _kind(text[start]), start + 1
    while stop < len(text) and _kind(text[stop]) == kind:
        stop += 1
    return stop


def learn_merges(texts: Iterable[str], n_merges: int) -> list[Pair]:
    """The `n_merges` best merges for these texts; ties go to the smaller pair, so it is stable."""
    counts = Counter(word for text in texts for word in split_words(text))
    words = {
        tuple(bytes([byte]) for byte in word.encode()): count
        for word, count in counts.items()
        if all(character.isascii() or character in _MERGED for character in word)
    }
    merges: list[Pair] = []
    while len(merges) < n_merges:
        pairs: Counter[Pair] = Counter()
        for parts, count in words.items():
            for pair in pairwise(parts):
                pairs[pair] += count
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        words = {_merge(parts, best): count for parts, count in words.items()}
    return merges


def _merge(parts: tuple[bytes, ...], pair: Pair) -> tuple[bytes, ...]:
    if pair[0] not in parts:
        return parts
    merged: list[bytes] = []
    for part in parts:
        # A part that has just been merged is longer than pair[0], so it is not merged again.
        if merged and (merged[-1], part) == pair:
            merged[-1] += part
        else:
            merged.append(part)
    return tuple(merged)


@dataclass(slots=True)
class Tokenizer:
    """Token ids: control tokens first, then the 256 bytes, then the merges in order."""

    control: tuple[str, ...]
    merges: list[Pair]
    pieces: list[bytes] = field(init=False)
    _ranks: dict[Pair, int] = field(init=False)
    _ids: dict[bytes, int] = field(init=False)
    _words: dict[str, list[int]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._ranks = {pair: rank for rank, pair in enumerate(self.merges)}
        single = [bytes([byte]) for byte in range(256)]
        merged = [left + right for left, right in self.merges]
        self.pieces = [b"" for _ in self.control] + single + merged
        first = len(self.control)
        self._ids = {piece: first + index for index, piece in enumerate(single + merged)}

    @property
    def n_vocab(self) -> int:
        return len(self.pieces)

    def control_id(self, text: str) -> int:
        return self.control.index(text)

    def encode(self, text: str) -> list[int]:
        """Plain text to ids; control tokens are not looked for."""
        return [token for word in split_words(text) for token in self._encode_word(word)]

    def _encode_word(self, word: str) -> list[int]:
        known = self._words.get(word)
        if known is not None:
            return known
        parts = tuple(bytes([byte]) for byte in word.encode())
        while len(parts) > 1:
            pairs = list(pairwise(parts))
            best = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            parts = _merge(parts, best)
        tokens = [self._ids[part] for part in parts]
        self._words[word] = tokens
        return tokens

    def decode(self, tokens: Iterable[int]) -> bytes:
        """The bytes of these tokens; control tokens give nothing."""
        return b"".join(self.pieces[token] for token in tokens)
