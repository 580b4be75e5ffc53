"""A prompt's text cut into its tokens' parts."""

import pytest

from unpaced.writers.echo import cut_text

BOS, SPACE_A, A, B, MARK, E1, E2 = range(7)
SPECIAL = [b"<s>", b" a", b"a", b"b", b"<m>", b"\xc3", b"\xa9"]
HIDDEN = [b"", b" a", b"a", b"b", b"", b"\xc3", b"\xa9"]


@pytest.mark.parametrize(
    ("text", "tokens", "parts"),
    [
        ("ab", [BOS, SPACE_A, B], [b"", b"a", b"b"]),
        (" ab", [BOS, SPACE_A, B], [b"", b" a", b"b"]),
        ("ab", [SPACE_A, B], [b"a", b"b"]),
        ("<s>ab", [BOS, BOS, SPACE_A, B], [b"<s>", b"", b"a", b"b"]),
        ("b<m>a", [BOS, B, MARK, SPACE_A], [b"", b"b", b"<m>", b"a"]),
        ("b\u00e9", [BOS, B, E1, E2], [b"", b"b", b"\xc3", b"\xa9"]),
        ("b", [BOS, B, MARK], [b"", b"b", b""]),
        ("", [BOS], [b""]),
        ("B", [BOS, B], None),
        ("bb", [BOS, B], None),
    ],
)
def test_the_parts_joined_are_the_text(
    text: str, tokens: list[int], parts: list[bytes] | None
) -> None:
    assert cut_text(text, tokens, HIDDEN, SPECIAL) == parts
    assert parts is None or b"".join(parts) == text.encode()
