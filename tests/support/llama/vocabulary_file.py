"""A GGUF file's vocabulary, by llama.cpp's own reader: gguf-py's takes 15 s for 150 000 tokens."""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import gguf

from engine_ext.base.build_info import find_llama
from engine_ext.loading.gguf_reader import GgufFile

Keys: TypeAlias = dict[str, tuple[gguf.GGUFValueType, Any]]


@cache
def vocabulary_keys(path: Path) -> Keys:
    """Type and value of each tokenizer.* key, in the file's order; arrays are lists.

    Raises: ValueError if llama.cpp cannot read the file.
    """
    place = find_llama()
    assert place is not None
    file = GgufFile(ctypes.CDLL(str(place.libraries / "libggml-base.so")), str(path))
    singles = file.metadata()
    found: Keys = {}
    for i, key in enumerate(file.keys()):
        if key.startswith("tokenizer."):
            kind = gguf.GGUFValueType(file.ask("gguf_get_kv_type", i))
            is_array = kind == gguf.GGUFValueType.ARRAY
            value = file.array(i, file.ask("gguf_get_arr_n", i)) if is_array else singles[key]
            found[key] = kind, value
    return found


def write_keys(writer: gguf.GGUFWriter, keys: Keys) -> int:
    """Put a vocabulary's keys into a new file; returns the number of tokens."""
    for name, (kind, value) in keys.items():
        if kind == gguf.GGUFValueType.ARRAY:
            writer.add_array(name, value)
        else:
            writer.add_key_value(name, value, kind)
    return len(keys["tokenizer.ggml.tokens"][1])
