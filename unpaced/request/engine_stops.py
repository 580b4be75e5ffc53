"""Which of a request's stop strings the engine looks for."""

from collections.abc import Sequence

from engine_ext import MAX_STOP_BYTES


def engine_stops(stops: Sequence[str]) -> tuple[bytes, ...]:
    """The stops that the engine finds in the bytes of the tokens exactly where `TextStream` does.

    Not those with U+FFFD, which stands for any bytes that are no UTF-8, nor what no text can hold
    (a lone surrogate), nor more than the engine takes: `TextStream` alone finds those.
    """
    found = []
    n_bytes = 0
    for stop in dict.fromkeys(stops):
        try:
            data = stop.encode()
        except UnicodeEncodeError:
            continue
        n_bytes += len(data)
        if n_bytes > MAX_STOP_BYTES:
            break
        if data and "\ufffd" not in stop:
            found.append(data)
    return tuple(found)
