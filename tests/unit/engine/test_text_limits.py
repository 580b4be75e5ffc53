"""The engine's limits of a text against llama-server's rules written down on whole strings."""

from collections.abc import Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine_ext import FinishReason
from engine_ext.base.native import load_native
from unpaced.request.engine_stops import engine_stops

_native = load_native()

_ATOMS = st.sampled_from(
    [b"a", b"b", b"\n", b" ", b"  ", b"\t", b"\n\n", "é".encode(), b"\xe2", b"\x82", b"\xf0"]
)
_PIECES = st.lists(st.lists(_ATOMS, max_size=5).map(b"".join), max_size=24)
_STOPS = st.lists(
    st.lists(st.sampled_from(["a", "b", "\n", " ", "é"]), min_size=1, max_size=4).map("".join),
    max_size=2,
)

End = tuple[int, int, int]
"""Index of the last token, its reason, the line that is cut off."""


def is_whole(text: bytes) -> bool:
    """llama-server's validate_utf8 (llama.cpp 0c1e57098 tools/server/server-common.cpp:903): no
    beginning of a longer character among the last bytes."""
    for i, byte in enumerate(reversed(text[-4:]), start=1):
        if i < (2 if byte >> 5 == 0b110 else 3 if byte >> 4 == 0b1110 else 0):
            return False
        if byte >> 3 == 0b11110 and i < 4:
            return False
    return True


def expected_end(
    pieces: Sequence[bytes],
    stops: Sequence[bytes],
    n_indent: int,
    t_max_ms: int,
    times_us: Sequence[int],
) -> End:
    """llama-server's process_token (server-context.cpp:1820-1931) on the text so far."""
    text = b""
    n_sent = 0
    saw_new_line = False
    checked = 0  # begin of the line that is looked at
    for i, piece in enumerate(pieces):
        text += piece
        reason, cut = FinishReason.NONE, -1
        sent = piece
        found = [at for at in (text.find(stop) for stop in stops) if at >= 0]
        if found:
            text = text[: min(found)]
            sent = text[n_sent:]
        elif is_whole(text):
            held = any(text.endswith(stop[:n]) for stop in stops for n in range(1, len(stop)))
            sent = b"" if held else text[n_sent:]
            n_sent += len(sent)
        if saw_new_line and n_indent > 0:
            rest = text[checked:]
            body = rest.lstrip(b" \t")
            if checked > 0 and body and len(rest) - len(body) < n_indent:
                reason, cut = FinishReason.INDENT_LIMIT, text[:checked].count(b"\n")
            checked = text.find(b"\n", checked) + 1 or checked
        if b"\n" in sent:
            saw_new_line = True
            if 0 < t_max_ms * 1000 < times_us[i] - times_us[0]:
                reason = FinishReason.TIME_LIMIT
        if reason or found:
            return i, int(reason), cut
    return -1, 0, -1


def our_end(
    pieces: Sequence[bytes],
    stops: Sequence[bytes],
    n_indent: int,
    t_max_ms: int,
    times_us: Sequence[int],
) -> End:
    """The engine's."""
    vocabulary = list(dict.fromkeys(pieces)) or [b""]
    limits = _native.TextLimits(vocabulary, n_indent, t_max_ms)
    compiled = _native.StopStrings(vocabulary, list(stops))
    tokens = [vocabulary.index(piece) for piece in pieces]
    end: End = limits.first_end(compiled, tokens, list(times_us))
    return end


@settings(max_examples=1000, deadline=None)
@given(_PIECES, _STOPS, st.integers(0, 4), st.integers(-1, 3), st.integers(0, 1500))
@example([b"a\n", b"b", b"c", b"d"], [], 1, -1, 0)
@example([b"a\n", b"  b\n", b"  c\n", b" ", b"d", b"e"], [], 2, -1, 0)
@example([b"a\n\n", b"b", b"c"], [], 1, -1, 0)
@example([b"a\nb", b"c", b"\n", b"b"], ["\nb"], 1, -1, 0)
@example([b"a\n", b" ", b"b\n ", b"a"], ["b\n a"], 2, -1, 0)
@example([b"a\n", b"b\n", b"\n", b"c"], ["\n\n"], 0, 1, 600)
@example([b"a\n\xe2", b"\x82", b"\xac"], [], 0, 1, 600)
def test_texts_end_where_llama_server_ends_them(
    pieces: list[bytes], stops: list[str], n_indent: int, t_max_ms: int, step_us: int
) -> None:
    times = [10**9 + i * step_us for i in range(len(pieces))]
    case = (pieces, engine_stops(stops), n_indent, t_max_ms, times)
    assert our_end(*case) == expected_end(*case)


@settings(max_examples=300, deadline=None)
@given(st.lists(_ATOMS, max_size=30).map(b"".join), st.integers(1, 4), st.data())
def test_the_line_that_ends_the_text_does_not_depend_on_the_tokens(
    text: bytes, n_indent: int, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=12)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    # The check lags: a token without text lets it look at one more line.
    n_lines = text.count(b"\n") + 2
    # Nothing is a new line before the character after it is whole.
    pieces += [b"....", *[b""] * n_lines]
    _, reason, line = our_end(pieces, (), n_indent, -1, [0] * len(pieces))
    short = [
        i
        for i, one in enumerate((text + b"....").split(b"\n"))
        if i > 0 and len(one) - len(one.lstrip(b" \t")) < n_indent
    ]
    assert line == (short[0] if short else -1)
    assert reason == (FinishReason.INDENT_LIMIT if short else FinishReason.NONE)


def test_no_time_is_too_long() -> None:
    pieces = [b"a\n"] * 3
    assert our_end(pieces, (), 0, 2**63 - 1, [0, 2**60, 2**62]) == (-1, 0, -1)
    assert our_end(pieces, (), 0, 1, [5, 1005, 1006]) == (2, int(FinishReason.TIME_LIMIT), -1)
