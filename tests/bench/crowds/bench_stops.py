"""Stop strings beside none: tokens/s of one stream and of several, by how many tokens pause.

    python -m tests.bench.crowds.bench_stops MODEL [--loops host device] [--streams 1 8]

A stop string is a byte that no text has and a token of the free texts, so none is ever completed. A
line says how many of the texts' tokens pause, those that begin with the end of a stop string, how
many tokens a second all streams had together while all decoded, the ratio to the same streams
without stop strings, and how many texts are the same with and without.
"""

from pathlib import Path
from typing import Final

from engine_ext import Engine
from tests.bench.crowds.engine_crowd import crowd, crowd_config, run_crowds
from tests.gpu.test_device_loop import Loop

N_STOPS: Final = (2, 8, 32)


async def run(model: Path, loop: Loop, n_streams: int, n_tokens: int, n_runs: int) -> None:
    """One engine's lines."""
    async with Engine(crowd_config(model, loop, n_streams, n_tokens)) as engine:
        await crowd(engine, n_streams, n_tokens)  # graphs are captured
        runs = [await crowd(engine, n_streams, n_tokens) for _ in range(n_runs)]
        free = max(rate for rate, _ in runs)
        print(f"{loop}, {n_streams} streams, no stops: tokens/s {[round(r) for r, _ in runs]}")
        tokens = runs[-1][1]
        pieces = [engine.token_pieces[token] for one in tokens for token in one]
        for n_stops in N_STOPS:
            some = dict.fromkeys(piece for piece in pieces[:: len(pieces) // n_stops] if piece)
            stop = tuple(b"\x01" + piece for piece in some)
            await engine.compile_stop(stop)
            ends = tuple(each[i:] for each in stop for i in range(1, len(each)))
            n_pauses = sum(piece.startswith(ends) for piece in pieces)
            runs = [await crowd(engine, n_streams, n_tokens, stop=stop) for _ in range(n_runs)]
            rates = [rate for rate, _ in runs]
            same = sum(one == before for one, before in zip(runs[-1][1], tokens, strict=True))
            print(
                f"{loop}, {n_streams} streams, {len(stop)} stops:",
                f"{n_pauses / len(pieces):.1%} of the tokens pause,",
                f"tokens/s {[round(rate) for rate in rates]}, {max(rates) / free:.2f} of none;",
                f"texts the same: {same}",
                flush=True,
            )


if __name__ == "__main__":
    run_crowds(__doc__, run)
