"""What is known of a loaded model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """The loaded model.

    `n_ctx` is one slot's; `size_bytes` the tensors' size. `suppress_tokens` are never generated: a
    key of the file says so. `fim_*` are the tokens of fill-in-the-middle prompts, -1 where the
    vocabulary has none. `sampling_metadata`: the file's keys `general.sampling.*`.
    """

    path: Path
    name: str
    description: str
    n_vocab: int
    vocab_type: int
    n_ctx: int
    n_ctx_train: int
    n_embd: int
    n_layer: int
    n_params: int
    size_bytes: int
    ftype: str
    bos: int
    eos: int
    eot: int
    add_bos: bool
    add_eos: bool
    eog_tokens: frozenset[int]
    suppress_tokens: tuple[int, ...]
    fim_prefix: int = -1
    fim_suffix: int = -1
    fim_middle: int = -1
    fim_repo: int = -1
    fim_separator: int = -1
    chat_template: str | None
    bos_piece: str
    eos_piece: str
    chat_template_tool_use: str | None = None
    """A second template, for requests with tools."""
    sampling_metadata: Mapping[str, str] = field(default_factory=dict)
    why_prefixes_are_not_shared: str = ""
    """Empty: slots share the cells of common prefixes."""


def describe(description: str, n_params: int) -> str:
    """llama.cpp's words for a model; it has no size for those that it does not know by name."""
    return description.replace("?B", _short(n_params))


def _short(n: int) -> str:
    """ "3.3M" of 3344640."""
    for unit, size in (("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if n >= size:
            return f"{n / size:.1f}{unit}"
    return str(n)


def read_model_info(
    info: dict[str, Any], path: Path, token_pieces_special: Sequence[bytes]
) -> ModelInfo:
    """The model at `path` from the native engine's `info`, whose texts are bytes."""

    def text(data: bytes | None) -> str | None:
        return None if data is None else data.decode(errors="replace")

    def piece(token: int) -> str:
        known = 0 <= token < len(token_pieces_special)
        return token_pieces_special[token].decode(errors="replace") if known else ""

    sampling = {key: text(value) or "" for key, value in info["sampling_metadata"].items()}
    read = {
        "path": path,
        "name": text(info["name"]),
        "description": describe(text(info["description"]) or "", info["n_params"]),
        "eog_tokens": frozenset(info["eog_tokens"]),
        "suppress_tokens": tuple(info["suppress_tokens"]),
        "sampling_metadata": sampling,
        "chat_template": text(info["chat_template"]),
        "chat_template_tool_use": text(info["chat_template_tool_use"]),
        "bos_piece": piece(info["bos"]),
        "eos_piece": piece(info["eos"]),
    }
    return ModelInfo(**{**info, **read})
