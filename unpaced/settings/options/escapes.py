"""Escapes in a flag's text, as llama-server reads them."""

import re
from typing import Final

_ESCAPE: Final = re.compile(r"\\(?:([nrt'\"\\])|x([0-9a-fA-F]{2}))")
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t"}


def read_escapes(text: str) -> str:
    r"""`text` with \n, \r, \t, \', \", \\ and \xHH replaced by what they stand for.

    \xHH are bytes of UTF-8; any other backslash stays. Source: llama.cpp 0c1e57098
    common/common.cpp:616.
    """

    def replace(match: re.Match[str]) -> str:
        if match[2] is not None:
            # Surrogates keep bytes apart until the whole text is decoded.
            return bytes.fromhex(match[2]).decode("utf-8", "surrogateescape")
        return _ESCAPED.get(match[1], match[1])

    return _ESCAPE.sub(replace, text).encode("utf-8", "surrogateescape").decode(errors="replace")
