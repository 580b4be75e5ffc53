"""Symbols of shared libraries: what one takes from others, what it has for them."""

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from elftools.elf.elffile import ELFFile

# Of llama.cpp; Python's and the system's are there wherever the wheel is.
PREFIXES: Final = ("ggml_", "gguf_", "llama_", "_ZN4ggml", "_ZN5llama")


def undefined(library: bytes) -> set[str]:
    """Names of llama.cpp's that it takes from other libraries."""
    return {name for name, is_here in _symbols(library) if not is_here}


def defined(library: bytes) -> set[str]:
    """Names of llama.cpp's that it has for others."""
    return {name for name, is_here in _symbols(library) if is_here}


def missing(contents: Mapping[str, bytes]) -> Iterator[str]:
    """A sentence for each library of `contents` that lacks one of llama.cpp's symbols.

    It gets them from the libraries that it names, and those that these name. The loader would say
    so only where somebody starts the server.
    """
    libraries = {Path(name).name: text for name, text in contents.items() if _is_library(text)}
    for name, content in libraries.items():
        found: set[str] = set()
        seen, to_see = {name}, [name]
        while to_see:
            library = libraries[to_see.pop()]
            found |= defined(library)
            named = (_needed(library) & libraries.keys()) - seen
            seen |= named
            to_see += named
        for symbol in sorted(undefined(content) - found):
            yield f"{name} needs {symbol}, which no library has that it names"


def _is_library(content: bytes) -> bool:
    return content.startswith(b"\x7fELF")


def _needed(library: bytes) -> set[str]:
    dynamic = ELFFile(io.BytesIO(library)).get_section_by_name(".dynamic")
    return {tag.needed for tag in dynamic.iter_tags() if tag.entry.d_tag == "DT_NEEDED"}


def _symbols(library: bytes) -> Iterator[tuple[str, bool]]:
    table = ELFFile(io.BytesIO(library)).get_section_by_name(".dynsym")
    for symbol in table.iter_symbols():
        if symbol.name.startswith(PREFIXES):
            yield symbol.name, symbol["st_shndx"] != "SHN_UNDEF"
