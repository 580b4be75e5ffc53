"""The stop-string and UTF-8 machine against an oracle, over every split of short byte strings."""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from unpaced.completion.text_stream import TextStream

# Few symbols, so that stops occur, overlap and are cut; bytes of "é", "€", "😀" and stray ones.
_ATOMS = st.sampled_from(
    [
        b"a",
        b"b",
        b"\n",
        "é".encode(),
        "€".encode(),
        "😀".encode(),
        b"\xe2",
        b"\x82",
        b"\xff",
        b"\xf0",
    ]
)
_TEXTS = st.lists(_ATOMS, max_size=9).map(b"".join)
_STOPS = st.lists(
    st.lists(
        st.sampled_from(["a", "b", "\n", "é", "€", "😀", "\ufffd"]), min_size=1, max_size=4
    ).map("".join),
    max_size=3,
)


def splits(data: bytes, n_max: int = 10) -> Iterator[list[bytes]]:
    """Every way to cut the first `n_max` bytes into non-empty pieces; the rest is one piece."""
    head = data[:n_max]
    for n_cuts in range(len(head)):
        for cuts in combinations(range(1, len(head)), n_cuts):
            bounds = [0, *cuts, len(head)]
            pieces = [head[a:b] for a, b in pairwise(bounds)]
            yield [*pieces, data[n_max:]] if len(data) > n_max else pieces


def oracle(pieces: Sequence[bytes], stops: Sequence[str]) -> tuple[str, str]:
    """The text and the stop that ended it, computed on all bytes so far after every piece.

    Whole characters so far: what decodes alike whether or not a continuation byte follows.
    """
    data = b""
    for piece in pieces:
        data += piece
        text = _whole_characters(data)
        found = [(text.index(stop), i) for i, stop in enumerate(stops) if stop in text]
        if found:
            at, i = min(found)
            return text[:at], stops[i]
    text = data.decode(errors="replace")
    found = [(text.index(stop), i) for i, stop in enumerate(stops) if stop in text]
    if found:
        at, i = min(found)
        return text[:at], stops[i]
    return text, ""


def _whole_characters(data: bytes) -> str:
    for n_open in range(min(4, len(data) + 1)):
        end = len(data) - n_open
        # The last n_open bytes are the beginning of a character if some ending makes it one.
        if n_open == 0:
            if not any(_is_open(data[-k:]) for k in (1, 2, 3) if len(data) >= k):
                return data.decode(errors="replace")
        elif _is_open(data[end:]):
            return data[:end].decode(errors="replace")
    return data.decode(errors="replace")


def _is_open(tail: bytes) -> bool:
    """True if `tail` is a proper beginning of one UTF-8 character."""
    endings = [b"\x80", b"\x80\x80", b"\x80\x80\x80", b"\xbf", b"\xbf\x80", b"\xbf\x80\x80"]
    for ending in endings:
        try:
            if len((tail + ending).decode()) == 1 and tail[0] >= 0xC0:
                return True
        except UnicodeDecodeError:
            continue
    return False


def run(pieces: Sequence[bytes], stops: Sequence[str]) -> tuple[list[str], str]:
    """What a stream sends, and the stop that ended it."""
    stream = TextStream(stops)
    sent = []
    for piece in pieces:
        sent.append(stream.push(piece))
        if stream.stopping_word:
            break
    sent.append(stream.finish())
    return sent, stream.stopping_word


@settings(max_examples=120, deadline=None)
@given(_TEXTS, _STOPS)
@example(b"aab", ["ab"])
@example(b"ab", ["b", "ab"])
@example("a😀b".encode(), ["😀b", "b"])
@example(b"a\xf0\x9f\x98", ["\ufffd"])
def test_every_split_gives_the_oracles_text(data: bytes, stops: list[str]) -> None:
    for pieces in splits(data):
        sent, word = run(pieces, stops)
        text, expected_word = oracle(pieces, stops)
        assert ("".join(sent), word) == (text, expected_word), (pieces, stops)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=6), max_size=12), _STOPS)
@example([b"\xed\xa0"], [])
@example([b"\xed\xa0", b"a"], ["\ufffd\ufffda", "\ufffd"])
def test_arbitrary_bytes_give_the_oracles_text(pieces: list[bytes], stops: list[str]) -> None:
    sent, word = run(pieces, stops)
    assert ("".join(sent), word) == oracle(pieces, stops)


@settings(max_examples=200, deadline=None)
@given(_TEXTS)
def test_without_stops_text_is_the_bytes_decoded(data: bytes) -> None:
    for pieces in splits(data):
        sent, _ = run(pieces, ())
        assert "".join(sent) == data.decode(errors="replace")


@settings(max_examples=100, deadline=None)
@given(_TEXTS, _STOPS)
def test_no_more_is_held_back_than_may_become_a_stop(data: bytes, stops: list[str]) -> None:
    for pieces in splits(data):
        stream = TextStream(stops)
        seen, sent = b"", ""
        for piece in pieces:
            seen += piece
            sent += stream.push(piece)
            if stream.stopping_word:
                break
            held = _whole_characters(seen).removeprefix(sent)
            assert held == "" or any(stop.startswith(held) and stop != held for stop in stops)


@pytest.mark.parametrize("character", ["é", "€", "😀", "👩‍👩‍👧", "中文"])
def test_a_character_is_never_cut(character: str) -> None:
    for pieces in splits(character.encode()):
        sent, _ = run(pieces, ())
        assert "".join(sent) == character
        assert not any("\ufffd" in part for part in sent)


def test_a_truncated_character_becomes_one_replacement() -> None:
    assert run(["😀".encode()[:3]], ()) == (["", "\ufffd"], "")


def test_the_first_listed_stop_is_named_where_two_begin_together() -> None:
    assert run([b"x\n\n"], ["\n\n", "\n"])[1] == "\n\n"
    assert run([b"x\n\n"], ["\n", "\n\n"])[1] == "\n"


def test_empty_stops_stop_nothing() -> None:
    assert run([b"abc"], ["", ""]) == (["abc", ""], "")


def test_a_long_stop_costs_no_more_than_its_text() -> None:
    stream = TextStream(["a" * 100_000 + "b"])
    for _ in range(20_000):
        assert stream.push(b"a") == ""
    assert stream.finish() == "a" * 20_000
