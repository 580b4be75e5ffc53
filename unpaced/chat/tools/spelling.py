"""A template's marks as grammars spell them."""

from typing import TYPE_CHECKING

import orjson

from engine_ext import GrammarTrigger
from unpaced.chat.tools.syntax import TAG_BEFORE_TAG
from unpaced.http.errors import invalid_field

if TYPE_CHECKING:
    from engine_ext import Engine


async def mark_trigger(engine: "Engine", mark: str, *, inside: bool) -> GrammarTrigger:
    """A trigger for a mark: its token where it is one control token, else its text."""
    tokens = await engine.tokenize(mark, add_special=False, parse_special=True)
    if len(tokens) == 1 and _is_control(engine, tokens[0]):
        return GrammarTrigger(token=tokens[0], inside=inside)
    return GrammarTrigger(word=mark.encode(), inside=inside)


def quoted(text: str) -> str:
    """A string of Lark's."""
    return orjson.dumps(text).decode()


class Spelling:
    """Marks in Lark: control tokens by their ids, the rest as text. `field`: for whose sake.

    `is_loose`: white space between and around a mark's tags is the model's choice.
    """

    def __init__(
        self, engine: "Engine", field: str = "tool_choice", *, is_loose: bool = False
    ) -> None:
        self._engine = engine
        self._field = field
        self.is_loose = is_loose

    async def of(self, mark: str) -> str:
        """One or more terminals; "" for no mark. Raises: ApiError (400)."""
        if not self.is_loose:
            return await self._exactly(mark)
        parts = [await self._exactly(part) for part in TAG_BEFORE_TAG.split(mark.strip())]
        before = "ws" if mark[:1].isspace() else ""
        after = "ws" if mark.strip() and mark[-1:].isspace() else ""
        return " ".join(filter(None, [before, " ws ".join(filter(None, parts)), after]))

    async def of_tag(self, tag: str) -> str:
        """Do as `of` does, but a tag that is one token of any kind is that token, not its text."""
        tokens = await self._engine.tokenize(tag, add_special=False, parse_special=True)
        return f"<[{tokens[0]}]>" if len(tokens) == 1 else await self.of(tag)

    async def _exactly(self, mark: str) -> str:
        if not mark:
            return ""
        tokens = await self._engine.tokenize(mark, add_special=False, parse_special=True)
        parts = []
        for token in tokens:
            if not _is_control(self._engine, token):
                continue
            text = self._engine.token_pieces_special[token].decode(errors="replace")
            before, found, mark = mark.partition(text)
            if not found:
                raise invalid_field(self._field, f"{text!r} cannot be forced")
            parts += [quoted(before)] if before else []
            parts.append(f"<[{token}]>")
        return " ".join([*parts, quoted(mark)] if mark else parts)


def _is_control(engine: "Engine", token: int) -> bool:
    return engine.token_pieces[token] != engine.token_pieces_special[token]
