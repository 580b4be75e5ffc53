"""Stop strings beside none: tokens/s of one stream and of several, by how many tokens pause.

    python -m tests.bench.crowds.bench_stops MODEL [--loops device] [--streams 1 8]

A stop string is a byte that no text has and a token of the free texts, so none is ever completed. A
line says how many of the texts' tokens pause, those that begin with the end of a stop string, how
many tokens a second all streams had together while all decoded, the ratio to the same streams
without stop strings, and how many texts are the same with and without.
"""

import argparse
import asyncio
from pathlib import Path
from typing import Final, get_args

from engine_ext import Engine, EngineConfig, EventKind, SamplingParams, SequenceRequest
from tests.gpu.test_device_loop import Loop

PROMPT: Final = [(7 * i + 1) % 1000 for i in range(16)]
N_STOPS: Final = (2, 8, 32)


async def stream(engine: Engine, request: SequenceRequest) -> list[tuple[int, int]]:
    """Each token, and when it was published, microseconds."""
    return [(e.t_us, e.token) async for e in engine.submit(request) if e.kind == EventKind.TOKEN]


async def streams(
    engine: Engine, stop: tuple[bytes, ...], n_streams: int, n_tokens: int
) -> tuple[float, list[list[int]]]:
    """Tokens a second of all together, while all of them decode; each one's tokens."""
    requests = [
        SequenceRequest(
            prompt=[*PROMPT, i + 1],
            sampling=SamplingParams(seed=i, ignore_eos=True),
            max_tokens=n_tokens,
            stop=stop,
        )
        for i in range(n_streams)
    ]
    seen = await asyncio.gather(*(stream(engine, request) for request in requests))
    begin, end = max(s[0][0] for s in seen), min(s[-1][0] for s in seen)
    n = sum(sum(begin < t <= end for t, _ in one) for one in seen)
    return n * 1e6 / (end - begin), [[token for _, token in one] for one in seen]


async def run(model: Path, loop: Loop, n_streams: int, n_tokens: int, n_runs: int) -> None:
    """One engine's lines."""
    config = EngineConfig(
        model_path=model,
        n_ctx=max(4096, n_streams * (n_tokens + 256)),
        n_slots=n_streams,
        n_lanes=min(n_streams, 8),
        kv_unified=True,
        n_threads=1,
        decode_loop=loop,
    )
    async with Engine(config) as engine:
        await streams(engine, (), n_streams, n_tokens)  # graphs are captured
        runs = [await streams(engine, (), n_streams, n_tokens) for _ in range(n_runs)]
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
            runs = [await streams(engine, stop, n_streams, n_tokens) for _ in range(n_runs)]
            rates = [rate for rate, _ in runs]
            same = sum(one == before for one, before in zip(runs[-1][1], tokens, strict=True))
            print(
                f"{loop}, {n_streams} streams, {len(stop)} stops:",
                f"{n_pauses / len(pieces):.1%} of the tokens pause,",
                f"tokens/s {[round(rate) for rate in rates]}, {max(rates) / free:.2f} of none;",
                f"texts the same: {same}",
                flush=True,
            )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--loops", nargs="+", choices=get_args(Loop), default=["device"])
    parser.add_argument("--streams", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    for loop in args.loops:
        for n_streams in args.streams:
            asyncio.run(run(args.model, loop, n_streams, args.tokens, args.runs))


if __name__ == "__main__":
    main()
