#!/usr/bin/env python3
"""A million tokens in lanes that requests join and leave by chance, each bit by bit as alone by
ggml's kernels.

Requests of many lengths and chains are decoded by engines that have one slot and ggml's kernels,
`--references` of them at the same time, and by one engine with `--lanes` lanes, our kernels and
`deterministic`, where they come and go by chance and every fifth one is cancelled. Each token and
its log-probability, a sum over all logits of its step, must be the same. Without HTTP. The exit
status is 1 if one differs.
"""

import argparse
import asyncio
import contextlib
import sys
import time
from array import array
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Literal

from engine_ext import Engine, EngineConfig, EventKind, SamplingParams, SequenceRequest
from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.results import save_figures

N_CTX = 2048  # a slot's
FIRST_TOKEN, LAST_TOKEN = 300, 1500  # of prompts; every model has these
CANCELLED = 5  # every so many requests


@dataclass(slots=True)
class Text:
    """What was decoded of one request."""

    tokens: "array[int]" = field(default_factory=lambda: array("i"))
    logprobs: "array[float]" = field(default_factory=lambda: array("f"))

    def begins(self, other: "Text") -> bool:
        """Whether all of it is the other's beginning, by bits."""
        n = len(self.tokens)
        return (
            self.tokens == other.tokens[:n]
            and self.logprobs.tobytes() == other.logprobs[:n].tobytes()
        )


@dataclass(slots=True)
class Counts:
    """What was compared so far."""

    n_requests: int = 0
    n_cancelled: int = 0
    n_tokens: int = 0
    different: list[int] = field(default_factory=list)

    def compare(self, i: int, alone: Text, crowd: Text) -> None:
        """One request's two texts; where it was cancelled the crowd's is shorter."""
        self.n_requests += 1
        self.n_cancelled += len(crowd.tokens) < len(alone.tokens)
        self.n_tokens += len(crowd.tokens)
        if not crowd.begins(alone):
            self.different.append(i)


def request_of(i: int) -> SequenceRequest:
    """The i-th request: the same in each run."""
    random = Random(i)
    n_prompt = min(1024, 1 + int(random.expovariate(1 / 100)))
    sampling = SamplingParams(
        seed=i,
        temperature=0.0 if i % 4 == 0 else random.choice((0.8, 1.2)),
        top_k=random.choice((0, 1, 40, 200)),
        repeat_penalty=random.choice((1.0, 1.0, 1.1)),
        ignore_eos=True,
    )
    return SequenceRequest(
        prompt=[1, *random.choices(range(FIRST_TOKEN, LAST_TOKEN), k=n_prompt)],
        sampling=sampling,
        max_tokens=random.randint(1, N_CTX - n_prompt - 8),
        n_probs=1,
        cache_prompt=False,
    )


async def text_of(engine: Engine, i: int, n_most: int | None = None) -> Text:
    """The i-th request's; cancelled behind n_most tokens."""
    stream = engine.submit(request_of(i))
    text = Text()
    while events := await stream.read():
        for event in events:
            if event.kind == EventKind.TOKEN:
                text.tokens.append(event.token)
                text.logprobs.append(event.logprob)
        if n_most is not None and len(text.tokens) >= n_most:
            stream.cancel()
            n_most = None
    return text


@contextlib.asynccontextmanager
async def engine_of(
    options: argparse.Namespace, kernels: Literal["ggml", "own", "auto"], n_lanes: int
) -> AsyncIterator[Engine]:
    """With n_lanes slots."""
    config = EngineConfig(
        model_path=options.model,
        n_ctx=n_lanes * N_CTX,
        n_slots=n_lanes,
        n_lanes=n_lanes,
        n_threads=1,
        decode_loop=options.loop,
        kernels=kernels,
        deterministic=n_lanes > 1,
    )
    async with Engine(config) as engine:
        yield engine


class Run:
    """Both ways of decoding, request by request, until enough tokens are compared."""

    def __init__(self, n_tokens: int) -> None:
        self.counts = Counts()
        self._n_tokens = n_tokens
        self._alone: dict[int, Text] = {}
        self._crowd: dict[int, Text] = {}
        self._next_alone = 0
        self._next_in_crowd = 0

    def _is_over(self) -> bool:
        return self.counts.n_tokens >= self._n_tokens

    def _compare(self, i: int) -> None:
        if i in self._alone and i in self._crowd:
            self.counts.compare(i, self._alone.pop(i), self._crowd.pop(i))

    async def decode_alone(self, engine: Engine) -> None:
        """One request after the other."""
        while not self._is_over():
            i, self._next_alone = self._next_alone, self._next_alone + 1
            self._alone[i] = await text_of(engine, i)
            self._compare(i)

    async def decode_in_crowd(self, engine: Engine, seed: int) -> None:
        """One lane's requests, with pauses between them."""
        random = Random(-1 - seed)
        while not self._is_over():
            i, self._next_in_crowd = self._next_in_crowd, self._next_in_crowd + 1
            n_most = random.randint(1, 600) if i % CANCELLED == 0 else None
            self._crowd[i] = await text_of(engine, i, n_most)
            self._compare(i)
            await asyncio.sleep(random.choice((0, 0, 0.002, 0.05)))


async def measure(options: argparse.Namespace) -> tuple[Counts, dict[str, object]]:
    """All of it; what was compared, and what the crowd's engine counted."""
    run = Run(options.tokens)
    async with contextlib.AsyncExitStack() as stack:
        crowd = await stack.enter_async_context(engine_of(options, "own", options.lanes))
        told = crowd.decode_loop
        print(f"loop {told.loop}, {told.n_lanes} lanes {told.lanes_why}", flush=True)
        before = crowd.stats()
        begin = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for lane in range(options.lanes):
                tasks.create_task(run.decode_in_crowd(crowd, lane))
            for _ in range(options.references):
                alone = await stack.enter_async_context(engine_of(options, "ggml", 1))
                tasks.create_task(run.decode_alone(alone))
        after = crowd.stats()
        figures: dict[str, object] = {
            "seconds": round(time.monotonic() - begin, 1),
            "loop": told.loop,
            "device": told.device,
            "lanes": told.n_lanes,
            "tokens_of_the_gpu": after.n_tokens_device - before.n_tokens_device,
            "tokens_of_lanes": after.steps.n_lane_tokens - before.steps.n_lane_tokens,
        }
        return run.counts, figures


def main() -> int:
    """Command line. Exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=1_000_000, help="to compare")
    parser.add_argument("--lanes", type=int, default=8)
    parser.add_argument("--references", type=int, default=6, help="engines that decode alone")
    parser.add_argument("--loop", choices=("auto", "host", "ahead", "device"), default="device")
    parser.add_argument("--out", type=Path, help="folder for results/random-lanes.json")
    options = parser.parse_args()
    counts, figures = asyncio.run(measure(options))
    told = {**asdict(counts), "n_different": len(counts.different)}
    report = {"model": options.model.name, **told, **figures}
    print(report)
    if options.out is not None:
        save_figures(options.out, "random-lanes", {"hardware": describe_hardware(), **report})
    return 1 if counts.different else 0


if __name__ == "__main__":
    sys.exit(main())
