"""The decode loop without HTTP: speed, CPU by thread, what pauses and grammars cost.

    python -m tests.bench.bench_device_loop MODEL [--loop device] [--engines 2]

Prints one line a measurement. Every line of an engine has the same prompt, seed and tokens, but
those under a grammar. `--engines`: that many engines one after the other in this process.
"""

import argparse
import asyncio
import time
from pathlib import Path
from typing import get_args

from engine_ext import Engine, EngineConfig, EventKind, SamplingParams, SequenceRequest
from engine_ext.sequence.grammar import GrammarKind
from tests.gpu.test_device_loop import Loop

SAMPLED = SamplingParams(seed=1, ignore_eos=True)
PROMPT = [(7 * i + 1) % 1000 for i in range(16)]
GRAMMARS: tuple[tuple[GrammarKind, str], ...] = (
    ("regex", "(.|\n)*"),  # allows nearly every token that is drawn
    ("regex", "([a-z]{1,8} )*"),  # of a random model's tokens hardly any
)


def cpu_ticks() -> dict[str, int]:
    """Hundredths of a second of CPU that this process's threads have had, by name."""
    ticks: dict[str, int] = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            stat = (task / "stat").read_text()
        except OSError:
            continue  # a thread that has ended
        name, _, rest = stat.partition("(")[2].rpartition(")")
        fields = rest.split()
        ticks[name] = ticks.get(name, 0) + int(fields[11]) + int(fields[12])
    return ticks


async def measure(engine: Engine, label: str, request: SequenceRequest, n_runs: int) -> list[int]:
    """Prints tokens/s of each run and each thread's share of a core; the last run's tokens."""
    before, began = cpu_ticks(), time.monotonic()
    speeds, tokens = [], []
    for _ in range(n_runs):
        events = [e async for e in engine.submit(request) if e.kind == EventKind.TOKEN]
        tokens = [event.token for event in events]
        speeds.append((len(events) - 1) * 1e6 / (events[-1].t_us - events[0].t_us))
    seconds = time.monotonic() - began
    shares = {name: (n - before.get(name, 0)) / seconds for name, n in cpu_ticks().items()}
    print(
        f"{label}: tokens/s {[round(speed, 1) for speed in speeds]},",
        "% of a core",
        {name: round(share, 1) for name, share in shares.items() if share > 0},
        flush=True,
    )
    return tokens


async def run_engine(number: int, model: Path, loop: Loop, n_tokens: int, n_runs: int) -> None:
    """Everything on one engine."""
    config = EngineConfig(model_path=model, n_ctx=2048, decode_loop=loop)
    async with Engine(config) as engine:
        print(f"engine {number}, {model.name}, {engine.decode_loop.loop}", flush=True)
        plain = SequenceRequest(prompt=PROMPT, sampling=SAMPLED, max_tokens=n_tokens)
        tokens = await measure(engine, "  plain", plain, n_runs)
        pieces = [engine.token_pieces[token] for token in tokens]
        for n_stops in (4, 16, 64):
            # Each piece may complete one, and none does.
            some = pieces[:: max(1, len(pieces) // n_stops)]
            stop = tuple(b"\x01" + piece for piece in dict.fromkeys(some) if piece)
            n_pauses = sum(any(each[1:].endswith(p) for each in stop) for p in pieces if p)
            began = time.perf_counter()
            await engine.compile_stop(stop)
            label = f"  {len(stop)} stops made in {(time.perf_counter() - began) * 1e3:.1f} ms"
            paused = SequenceRequest(
                prompt=PROMPT, sampling=SAMPLED, max_tokens=n_tokens, stop=stop
            )
            found = await measure(engine, f"{label}, {n_pauses} pauses or more", paused, n_runs)
            assert found == tokens
        for kind, text in GRAMMARS:
            grammar = await engine.compile_grammar(kind, text)
            masked = SequenceRequest(
                prompt=PROMPT, sampling=SAMPLED, max_tokens=n_tokens, grammar=grammar
            )
            await measure(engine, f"  grammar {text!r}", masked, n_runs)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--loop", choices=get_args(Loop), default="device")
    parser.add_argument("--engines", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=700)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    for number in range(1, asked.engines + 1):
        asyncio.run(run_engine(number, asked.model, asked.loop, asked.tokens, asked.runs))


if __name__ == "__main__":
    main()
