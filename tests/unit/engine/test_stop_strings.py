"""The engine's stop strings against the front end's text machine, and the tokens that can complete
one against their definition."""

from collections.abc import Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine_ext.base.native import load_native
from unpaced.completion.text_stream import TextStream
from unpaced.request.engine_stops import engine_stops

_native = load_native()

_CHARACTERS = st.sampled_from(["a", "b", "\n", "é", "€", "😀"])
_ATOMS = st.one_of(
    _CHARACTERS.map(str.encode), st.sampled_from([b"\xe2", b"\x82", b"\xac", b"\xff", b"\xf0"])
)
_PIECES = st.lists(st.lists(_ATOMS, max_size=3).map(b"".join), min_size=1, max_size=8)
_STOPS = st.lists(st.text(_CHARACTERS, max_size=4), max_size=4)


def text_stream_match(pieces: Sequence[bytes], stops: Sequence[str]) -> int:
    """Index of the piece after which TextStream has found a stop string; -1: it finds none."""
    stream = TextStream(stops)
    for i, piece in enumerate(pieces):
        stream.push(piece)
        if stream.stopping_word:
            return i
    return -1


@settings(max_examples=400, deadline=None)
@given(_PIECES, st.lists(st.integers(0, 7), max_size=24), _STOPS)
@example([b"a", b"\xe2", b"\x82\xac"], [1, 0, 1, 2], ["a€", "€"])
@example([b"aab"], [0], ["ab", "aab"])
@example([b"a", b""], [0, 1, 0], ["aa"])
@example([b"a", b"b"], [0, 0, 1], ["aab", "b"])
def test_the_engine_stops_at_text_streams_token(
    pieces: list[bytes], picks: list[int], stops: list[str]
) -> None:
    tokens = [pick % len(pieces) for pick in picks]
    compiled = _native.StopStrings(pieces, list(engine_stops(stops)))
    at = compiled.first_match(tokens)
    assert at == text_stream_match([pieces[token] for token in tokens], stops)
    # The GPU leaves its loop for such tokens only.
    if at >= 0:
        assert compiled.completes(tokens[at])


@settings(max_examples=400, deadline=None)
@given(_PIECES, st.lists(st.binary(min_size=1, max_size=5), max_size=4))
def test_completing_tokens_are_those_that_may_complete(
    pieces: list[bytes], stops: list[bytes]
) -> None:
    compiled = _native.StopStrings(pieces, stops)
    for token, piece in enumerate(pieces):
        expected = any(
            stop in piece or any(piece.startswith(stop[-n:]) for n in range(1, len(stop)))
            for stop in stops
        )
        assert compiled.completes(token) == expected, (piece, stops)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_stops_longer_than_a_machine_word(data: st.DataObject) -> None:
    pieces = [b"a", b"b", b"ab", b"ba", b"aab"]
    words = st.text(st.sampled_from("ab"), min_size=50, max_size=90)
    stops = data.draw(st.lists(words, min_size=1, max_size=4))
    tokens = data.draw(st.lists(st.integers(0, 4), max_size=40))
    # A whole stop string after some text, so that there is something to find.
    tokens += ["ab".index(c) for c in stops[0]]
    compiled = _native.StopStrings(pieces, list(engine_stops(stops)))
    at = compiled.first_match(tokens)
    assert at == text_stream_match([pieces[token] for token in tokens], stops)
    assert at >= 0


def test_what_bytes_do_not_express_is_left_to_text_stream() -> None:
    assert engine_stops(["a", "", "\ufffd", "x\ufffd", "\udc80", "a", "é"]) == (b"a", "é".encode())
    assert engine_stops(["x" * 65536, "y"]) == (b"x" * 65536,)
