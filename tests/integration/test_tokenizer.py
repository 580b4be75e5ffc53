"""Text to token ids and back.

A long text is cut at its special tokens before llama.cpp sees it, which its ids do not show.
"""

import ctypes
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import llama_cpp
import pytest

from engine_ext import Engine, EngineConfig, TextError
from tests.support.special_vocabulary import CONTROL, USER_DEFINED, Kind, write_model

pytestmark = pytest.mark.anyio

DEMO: Final = EngineConfig(
    model_path=Path(__file__).resolve().parents[2] / "engine_ext" / "models" / "demo.gguf",
    n_threads=1,
)
CHAT: Final = {"<|user|>": CONTROL, "<|end|>": CONTROL, "<|u": USER_DEFINED, "r|>": USER_DEFINED}
# Texts that overlap each other in every way: inside, across, themselves, and of the same length.
TANGLED: Final = {
    "aba": USER_DEFINED,
    "bab": USER_DEFINED,
    "abab": CONTROL,
    "ab": USER_DEFINED,
    "aaaa": CONTROL,
    "aa": USER_DEFINED,
    "<|x|>": CONTROL,
    "|><|": CONTROL,
    "x|><": USER_DEFINED,
}
BLANKS: Final = {
    "  ": USER_DEFINED,
    "    ": USER_DEFINED,
    "\n\n": USER_DEFINED,
    " \n": USER_DEFINED,
    "<|user|>": CONTROL,
    " <|end|>": CONTROL,
    "a ": USER_DEFINED,
}
VOCABULARIES: Final[list[tuple[Kind, Mapping[str, int], str]]] = [
    ("gpt2", CHAT, "tiny"),
    ("gpt2", TANGLED, "tiny"),
    ("gpt2", BLANKS, "tiny"),
    ("llama", CHAT, "tiny"),
    ("llama", TANGLED, "tiny"),
    ("llama", BLANKS, "tiny"),
    ("llama", CHAT | BLANKS | {"<|endoftext|>": CONTROL}, "phi-3"),
    ("llama", TANGLED | {"<|endoftext|>": CONTROL}, "phi-3"),
    ("t5", CHAT | TANGLED, "tiny"),
    ("bert", CHAT, "tiny"),
]


def random_text(random_: random.Random, special: Mapping[str, int]) -> str:
    """Special texts, parts of them, blanks and words; each text has its own taste."""
    parts = [*special]
    parts += [text[:n] for text in special for n in range(1, len(text))]
    parts += [text[n:] for text in special for n in range(1, len(text))]
    tastes = [
        [*special],
        parts,
        [" ", "  ", "\n", "\t", "a"],
        ["a", "b", "ab", "user", "é", "日本", "x y", "😀"],
    ]
    weights = [random_.random() ** 3 for _ in tastes]
    pieces = []
    n = 0
    while n < 12_000:
        piece = random_.choice(random_.choices(tastes, weights)[0]) * random_.choice((1, 1, 1, 3))
        pieces.append(piece)
        n += len(piece.encode())
    return "".join(pieces)


class Whole:
    """llama.cpp's own tokeniser, in one call."""

    def __init__(self, model: Path) -> None:
        params = llama_cpp.llama_model_default_params()
        params.vocab_only = True
        self._model = llama_cpp.llama_model_load_from_file(str(model).encode(), params)
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        data = text.encode()
        ids = (ctypes.c_int32 * (len(data) + 8))()
        n = llama_cpp.llama_tokenize(
            self._vocab, data, len(data), ids, len(ids), add_special, parse_special
        )
        assert n >= 0
        return list(ids[:n])

    def close(self) -> None:
        llama_cpp.llama_model_free(self._model)


@pytest.mark.parametrize(("kind", "special", "name"), VOCABULARIES)
async def test_ids_are_those_of_the_whole(
    tmp_path: Path, kind: Kind, special: Mapping[str, int], name: str
) -> None:
    model = write_model(tmp_path / "model.gguf", kind, special, name=name)
    whole = Whole(model)
    random_ = random.Random(f"{kind} {sorted(special)} {name}")
    async with Engine(EngineConfig(model_path=model, n_ctx=64, n_threads=1)) as engine:
        for _ in range(12):
            text = random_text(random_, special)
            for flags in ((True, True), (False, True), (True, False)):
                how: dict[str, Any] = dict(
                    zip(("add_special", "parse_special"), flags, strict=True)
                )
                assert await engine.tokenize(text, **how) == whole.tokenize(text, **how)
    whole.close()


async def test_time_is_linear_in_special_tokens(tmp_path: Path) -> None:
    # llama.cpp alone takes 20 s for 640 KB of a chat, and six times that for this.
    model = write_model(tmp_path / "model.gguf", "llama", CHAT)
    async with Engine(EngineConfig(model_path=model, n_ctx=64, n_threads=1)) as engine:
        ids = await engine.tokenize("<|user|>a<|end|>" * 100_000, add_special=False)
    assert len(ids) >= 3 * 100_000


async def test_what_cannot_be_cut_is_refused(tmp_path: Path) -> None:
    # Of "ab" and "ba" in "ababab..." llama.cpp alone knows which comes first.
    model = write_model(tmp_path / "model.gguf", "gpt2", {"ab": CONTROL, "ba": CONTROL})
    async with Engine(EngineConfig(model_path=model, n_ctx=64, n_threads=1)) as engine:
        with pytest.raises(TextError, match="over 8192 special tokens that overlap each other"):
            await engine.tokenize("ab" * 400_000)
        assert len(await engine.tokenize("ab" * 4000, add_special=False)) >= 4000


async def test_text_survives_the_round_trip() -> None:
    async with Engine(DEMO) as engine:
        for text in ("Once upon a time", "", "naïve café — 🦊\n\ttab", "\x00\x7f", "日本語"):
            tokens = await engine.tokenize(text, add_special=False)
            assert (await engine.detokenize(tokens)).decode() == text
            assert b"".join(engine.token_pieces[token] for token in tokens).decode() == text


async def test_a_long_run_of_one_letter_is_tokenised() -> None:
    async with Engine(DEMO) as engine:
        tokens = await engine.tokenize("a" * 200_000, add_special=False)
        assert (await engine.detokenize(tokens)) == b"a" * 200_000


@pytest.mark.parametrize("token", [-1, 10**6, 2**31])
async def test_detokenise_refuses_ids_outside_the_vocabulary(token: int) -> None:
    async with Engine(DEMO) as engine:
        with pytest.raises(ValueError, match=r"^tokens: "):
            await engine.detokenize([token])


async def test_token_ids_are_ints_of_the_vocabulary() -> None:
    async with Engine(DEMO) as engine:
        last = engine.model.n_vocab - 1
        assert engine.are_tokens([0, 1, last])
        assert engine.are_tokens([])
        for wrong in (-1, last + 1, 2**31, 2**63, -(2**63), 2**200, True, 1.0, "1", None, [1]):
            assert not engine.are_tokens([0, wrong, 1])
