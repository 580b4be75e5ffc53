"""Control tokens that a request wants to see in its text.

Control tokens have no text in an answer. The marks of a chat format often are such tokens; where a
parser must find them, they are written out for that request.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from engine_ext import Engine

_N_KEPT: Final = 8  # sets of marks; a template has a few


@dataclass(frozen=True, slots=True)
class TokenTexts:
    """Every token's bytes, and which control tokens have theirs."""

    pieces: list[bytes]
    preserved: tuple[int, ...] = ()


class VisibleTokens:
    """The texts of tokens, by the marks that must be seen in them."""

    def __init__(self, engine: "Engine", *, special: bool) -> None:
        self._engine = engine
        self._special = special
        self._texts: dict[tuple[tuple[str, ...], tuple[int, ...]], TokenTexts] = {}

    async def texts(self, marks: tuple[str, ...], preserved: tuple[int, ...] = ()) -> TokenTexts:
        """Texts with the control tokens of `marks`, and those that the request names, written out.

        End tokens in marks stay hidden.
        """
        if self._special:
            return TokenTexts(self._engine.token_pieces_special, preserved)
        key = (marks, preserved)
        found = self._texts.get(key)
        if found is None:
            found = await self._make(marks, preserved)
            while len(self._texts) >= _N_KEPT:
                self._texts.pop(next(iter(self._texts)))
            self._texts[key] = found
        return found

    async def _make(self, marks: tuple[str, ...], preserved: tuple[int, ...]) -> TokenTexts:
        hidden, shown = self._engine.token_pieces, self._engine.token_pieces_special
        tokens: set[int] = set()
        for mark in marks:
            tokens.update(await self._engine.tokenize(mark, add_special=False, parse_special=True))
        tokens -= self._engine.model.eog_tokens
        visible = {token for token in tokens if hidden[token] != shown[token]} | set(preserved)
        if not visible:
            return TokenTexts(hidden)
        pieces = list(hidden)
        for token in visible:
            pieces[token] = shown[token]
        return TokenTexts(pieces, tuple(sorted(visible)))
