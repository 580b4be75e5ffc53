"""Streams at once in one engine, without HTTP: what the benchmarks of crowds share."""

import argparse
import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Final, get_args

from engine_ext import Engine, EngineConfig, EventKind, Grammar, SamplingParams, SequenceRequest
from tests.gpu.test_device_loop import Loop

PROMPT: Final = [(7 * i + 1) % 1000 for i in range(16)]


def crowd_config(model: Path, loop: Loop, n_streams: int, n_tokens: int) -> EngineConfig:
    """A slot a stream, in cells that they share, and up to eight lanes."""
    return EngineConfig(
        model_path=model,
        n_ctx=max(4096, n_streams * (n_tokens + 256)),
        n_slots=n_streams,
        n_lanes=min(n_streams, 8),
        kv_unified=True,
        n_threads=1,
        decode_loop=loop,
    )


async def _stream(engine: Engine, request: SequenceRequest) -> list[tuple[int, int]]:
    """When each token was published, microseconds, and which it was."""
    return [(e.t_us, e.token) async for e in engine.submit(request) if e.kind == EventKind.TOKEN]


async def crowd(
    engine: Engine,
    n_streams: int,
    n_tokens: int,
    *,
    grammar: Grammar | None = None,
    stop: tuple[bytes, ...] = (),
) -> tuple[float, list[list[int]]]:
    """Tokens a second of all streams together, while all of them decode; each one's tokens."""
    requests = [
        SequenceRequest(
            prompt=[*PROMPT, i + 1],
            sampling=SamplingParams(seed=i, ignore_eos=True),
            max_tokens=n_tokens,
            grammar=grammar,
            stop=stop,
        )
        for i in range(n_streams)
    ]
    seen = await asyncio.gather(*(_stream(engine, request) for request in requests))
    begin, end = max(s[0][0] for s in seen), min(s[-1][0] for s in seen)
    n = sum(sum(begin < t <= end for t, _ in one) for one in seen)
    return n * 1e6 / (end - begin), [[token for _, token in one] for one in seen]


Run = Callable[[Path, Loop, int, int, int], Coroutine[None, None, None]]


def run_crowds(description: str | None, run: Run) -> None:
    """The command line: `run` with model, loop, streams, tokens and runs, an engine each time."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("model", type=Path)
    parser.add_argument("--loops", nargs="+", choices=get_args(Loop), default=["host", "device"])
    parser.add_argument("--streams", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    for loop in args.loops:
        for n_streams in args.streams:
            asyncio.run(run(args.model, loop, n_streams, args.tokens, args.runs))
