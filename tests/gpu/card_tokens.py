"""Texts that a build makes on this machine's card, to be compared with those of another build.

    python -m tests.gpu.card_tokens --out 86.json [MODEL ...]
    python -m tests.gpu.card_tokens --like 86.json [MODEL ...]

Greedy and seeded texts of 100 tokens behind prompts of 1 to 300 tokens, of the demo model, of
random ones and of those that are named. The exit status is 1 if one is another one than in the file
of --like.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

from engine_ext import Engine, EngineConfig, EventKind, SamplingParams, SequenceRequest
from tests.gpu.card_code import DEMO_MODEL
from tests.gpu.random_model import write_random_model

RANDOM = ("llama", "llama-moe", "qwen3", "gemma")
PROMPTS = (1, 2, 7, 8, 9, 33, 300)
N_TOKENS = 100
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0, ignore_eos=True),
    "seeded": SamplingParams(seed=5, ignore_eos=True),
}


async def texts_of(model: Path) -> dict[str, list[int]]:
    """By prompt and sampling."""
    texts = {}
    async with Engine(EngineConfig(model_path=model, n_ctx=1024, n_threads=1)) as engine:
        assert engine.decode_loop.loop == "device", engine.decode_loop.reason
        for n in PROMPTS:
            prompt = [1, *((7 * i) % 500 + 300 for i in range(n - 1))]
            for name, sampling in SAMPLINGS.items():
                request = SequenceRequest(
                    prompt=prompt, sampling=sampling, max_tokens=N_TOKENS, cache_prompt=False
                )
                events = [event async for event in engine.submit(request)]
                texts[f"{n} {name}"] = [e.token for e in events if e.kind == EventKind.TOKEN]
    return texts


async def main() -> int:
    """Make them, write or compare; the exit status."""
    parser = argparse.ArgumentParser(description="Texts of a build.")
    parser.add_argument("models", type=Path, nargs="*")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--like", type=Path)
    arguments = parser.parse_args()
    made: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in RANDOM:
            write_random_model(Path(folder) / name, name)
        for model in (DEMO_MODEL, *(Path(folder) / name for name in RANDOM), *arguments.models):
            found = await texts_of(model)
            made |= {f"{model.name} {which}": text for which, text in found.items()}
    if arguments.out:
        arguments.out.write_text(json.dumps(made))
    if not arguments.like:
        print(f"{len(made)} texts")
        return 0
    others = json.loads(arguments.like.read_text())
    parted = {which: _same(made[which], others[which]) for which in made if which in others}
    parted = {which: n for which, n in parted.items() if n < len(made[which])}
    for which, n in parted.items():
        print(f"{which}: another token after {n}")
    n_compared = len(made.keys() & others.keys())
    print(f"{len(parted)} of {n_compared} texts are others")
    return 1 if parted or n_compared < len(made) else 0


def _same(text: list[int], other: list[int]) -> int:
    """How many tokens both begin with."""
    pairs = zip(text, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(text), len(other)))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
