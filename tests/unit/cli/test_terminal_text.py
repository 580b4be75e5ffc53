"""What models and files may say to a terminal."""

import pytest

from unpaced.cli.terminal_text import printable, printable_line


@pytest.mark.parametrize(
    "hostile",
    ["\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\r", "\x08", "\x7f", "\u202e", "\x90q\x9c", "\x0e"],
)
def test_nothing_steers_the_terminal(hostile: str) -> None:
    shown = printable(f"a{hostile}b")
    assert all(char.isprintable() for char in shown)
    assert shown[0] == "a" and shown[-1] == "b"


def test_text_stays_as_it_is() -> None:
    assert printable("é\n\t世界 🎉 👩‍👩‍👧") == "é\n\t世界 🎉 👩‍👩‍👧"
    assert printable_line("a\nb\tc") == "a\\nb c"
