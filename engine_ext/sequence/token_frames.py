"""How a stream's tokens become bytes without a Python object a token."""

from dataclasses import dataclass
from enum import IntEnum


class FrameField(IntEnum):
    """What stands between two literals of a frame. Numbers mirror csrc/streams/token_frames.h."""

    TEXT = 0
    """What the token made final, as a JSON string."""
    TOKEN = 1
    """Its id."""
    NUMBER = 2
    """Tokens decoded so far, this one included."""


@dataclass(frozen=True, slots=True)
class FrameTemplate:
    """What every token's frame is made of. `skips_empty`: a token that makes no text final has
    none. `keeps_text`: the text is wanted back."""

    parts: tuple[bytes | FrameField, ...]
    skips_empty: bool = False
    keeps_text: bool = False
