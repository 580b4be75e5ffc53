"""What a library's fat binaries hold, and what a driver takes of it (tests/gpu/card_code.py)."""

import struct

import pytest

from tests.gpu.card_code import LibraryCode, code_of, is_expected

PTX, BINARY = 1, 2


def fat_binary(*entries: tuple[int, int]) -> bytes:
    """Entries are kinds and architectures; each holds some bytes of code."""
    body = b""
    for kind, architecture in entries:
        header = struct.pack("<HHIQ", kind, 0x101, 64, 24).ljust(28, b"\0")
        body += (header + struct.pack("<I", architecture)).ljust(64, b"\0") + b"x" * 24
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def test_every_entry_of_every_fat_binary_is_found() -> None:
    stray = struct.pack("<IHHQ", 0xBA55ED50, 9, 16, 8)  # the same bytes by accident
    data = b"ELF" + stray + fat_binary((PTX, 75), (BINARY, 90)) + b"pad" + fat_binary((PTX, 121))
    assert code_of(data) == LibraryCode(frozenset({75, 121}), frozenset({90}))


def test_a_fat_binary_that_is_cut_off_is_none() -> None:
    assert code_of(fat_binary((PTX, 75))[:-1]) == LibraryCode(frozenset(), frozenset())
    assert code_of(b"") == LibraryCode(frozenset(), frozenset())


@pytest.mark.parametrize(
    ("card", "path"),
    [
        (75, "PTX 7.5"),
        (80, "native 8.0"),
        (86, "native 8.6"),
        (89, "native 8.6"),  # the same instructions but for what is new
        (90, "PTX 8.9"),
        (70, "nothing"),
    ],
)
def test_a_driver_takes_instructions_of_the_cards_kind_before_ptx(card: int, path: str) -> None:
    code = LibraryCode(frozenset({75, 89, 120}), frozenset({80, 86}))
    assert code.taken_by(card) == path


def test_a_path_is_what_was_expected_or_not() -> None:
    assert is_expected("native 9.0", "native")
    assert is_expected("PTX 7.5", "7.5")
    assert not is_expected("PTX 8.0", "7.5")
    assert not is_expected("PTX 7.5", "native")
    assert not is_expected("nothing", "native")
