"""Masks of Lark grammars by llguidance itself, without an engine."""

from collections.abc import Sequence
from typing import Any, Final

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

# As in the engine, no token is forced: llguidance would else leave the one token in a mask.
_HEADER: Final = '%llguidance {"no_forcing": true}\n'


class Vocabulary:
    """Tokens by their bytes; the last one ends a text."""

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self.tokens = [*tokens, b"<end>"]
        self.end = len(tokens)
        self.llguidance: Any = LLTokenizer(TokenizerWrapper(_Tokens(self)))

    def start(self, lark: str) -> "Masks":
        """A sequence under a grammar that compiles."""
        matcher: Any = LLMatcher(self.llguidance, LLMatcher.grammar_from_lark(_HEADER + lark))
        assert not matcher.is_error(), matcher.get_error()
        return Masks(matcher)


class _Tokens:
    """What TokenizerWrapper asks for."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.tokens = vocabulary.tokens
        self.eos_token_id = vocabulary.end
        self.bos_token_id = None
        self.special_token_ids = [vocabulary.end]

    def __call__(self, text: str | bytes) -> list[int]:
        return [0]


class Masks:
    """One sequence."""

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def copy(self) -> "Masks":
        return Masks(self._matcher.deep_copy())

    def mask(self) -> bytes | None:
        """A bit a token; None: the grammar became too complex."""
        found = bytes(self._matcher.compute_bitmask())
        return None if self._matcher.is_error() else found

    def accept(self, token: int) -> None:
        assert self._matcher.consume_token(token), self._matcher.get_error()


def tokens_of(mask: bytes) -> list[int]:
    """The tokens whose bits are set."""
    return [i for i in range(len(mask) * 8) if mask[i // 8] >> i % 8 & 1]
