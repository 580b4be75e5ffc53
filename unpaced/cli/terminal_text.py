"""Text of models and files, made safe for a terminal."""

import re
from typing import Final

# C0 but for tab and line feed, DEL, C1, and what turns the direction of text around.
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """`text` without what would steer the terminal: escape sequences become visible characters."""
    return _CONTROLS.sub(_show, text)


def printable_line(text: str) -> str:
    """`printable`, on one line."""
    return printable(text).replace("\n", "\\n").replace("\t", " ")


def _show(found: re.Match[str]) -> str:
    code = ord(found[0])
    # Control pictures: ␛ for an escape.
    return chr(0x2400 + code) if code < 0x20 else "\N{REPLACEMENT CHARACTER}"
