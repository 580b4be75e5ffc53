"""Tiny models with vocabularies of llama.cpp's kinds and special tokens of a test's choice."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import gguf

from tests.support.tiny_model import finish_tiny_model

Kind = Literal["gpt2", "llama", "bert", "t5"]
NORMAL: Final = int(gguf.TokenType.NORMAL)
UNKNOWN: Final = int(gguf.TokenType.UNKNOWN)
CONTROL: Final = int(gguf.TokenType.CONTROL)
USER_DEFINED: Final = int(gguf.TokenType.USER_DEFINED)
BYTE: Final = int(gguf.TokenType.BYTE)

_WORDS: Final = ("a", "b", "ab", "aba", "<", "|", ">", "<|", "|>", "x", "user", "end", "é", "日")
_SPACE: Final = "\u2581"  # SentencePiece's


def write_model(
    out: Path, kind: Kind, special: Mapping[str, int], *, name: str = "tiny", space: bool = True
) -> Path:
    """`special`: text -> type. `name`: llama.cpp knows families by it whose tokens strip blanks."""
    tokens = {**_tokens_of(kind), **special}
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_name(name)
    writer.add_tokenizer_model(kind)
    writer.add_token_list(list(tokens))
    writer.add_token_types(list(tokens.values()))
    writer.add_token_scores(
        [0.0 if each != NORMAL else -float(i) for i, each in enumerate(tokens.values())]
    )
    if kind == "gpt2":
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_merges(["a b", "ab a", "< |", "| >"])
    ids = list(tokens)
    writer.add_bos_token_id(ids.index("<s>"))
    writer.add_eos_token_id(ids.index("</s>"))
    writer.add_unk_token_id(ids.index("<unk>"))
    writer.add_sep_token_id(ids.index("</s>"))
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(kind != "llama")
    writer.add_add_space_prefix(space)
    finish_tiny_model(writer, len(tokens))
    return out


def _tokens_of(kind: Kind) -> dict[str, int]:
    tokens = {"<unk>": UNKNOWN, "<s>": CONTROL, "</s>": CONTROL}
    words: Sequence[str] = _WORDS
    if kind == "gpt2":
        tokens |= {character: NORMAL for character in _byte_characters()}
        words = [word for word in _WORDS if word.isascii()]
    elif kind == "llama":
        tokens |= {f"<0x{byte:02X}>": BYTE for byte in range(256)}
    if kind in ("llama", "t5", "bert"):
        tokens |= {_SPACE + word: NORMAL for word in ("", *words)}
    return tokens | {word: NORMAL for word in words if word not in tokens}


def _byte_characters() -> list[str]:
    """GPT-2's characters for bytes, in the order of the bytes."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = iter(range(256, 512))
    return [chr(byte if byte in shown else next(hidden)) for byte in range(256)]
