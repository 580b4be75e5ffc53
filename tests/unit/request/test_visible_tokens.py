"""Control tokens that a chat format's parser must see."""

from typing import Any, cast

import pytest

from engine_ext import Engine
from tests.support.scripted.fake_engine import BOS, EOS, FakeEngine
from unpaced.request.visible_tokens import VisibleTokens

pytestmark = pytest.mark.anyio


class SpecialEngine(FakeEngine):
    """Its control tokens are parsed."""

    async def tokenize(self, text: str, **options: Any) -> list[int]:
        tokens = {"<s>": [BOS], "</s>": [EOS]}.get(text)
        return tokens or await super().tokenize(text, **options)


async def test_marks_are_written_out_and_end_tokens_are_not() -> None:
    engine = SpecialEngine()
    visible = VisibleTokens(cast(Engine, engine), special=False)
    texts = await visible.texts(("<s>", "</s>", "<tool>"))
    assert texts.preserved == (BOS,)
    assert (texts.pieces[BOS], texts.pieces[EOS]) == (b"<s>", b"")
    assert await visible.texts(("<s>", "</s>", "<tool>")) is texts
    assert (await visible.texts(())).pieces is engine.token_pieces
    assert (await visible.texts((), (EOS,))).pieces[EOS] == b"</s>"


async def test_with_special_everything_is_visible() -> None:
    engine = SpecialEngine()
    visible = VisibleTokens(cast(Engine, engine), special=True)
    assert (await visible.texts(("<s>",))).pieces is engine.token_pieces_special
