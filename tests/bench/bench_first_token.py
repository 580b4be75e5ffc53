#!/usr/bin/env python3
"""Time to the first token as a user meets it: default flags, prompts that differ, idle or not.

Ours and llama-server hold the model at the same time, both started with `-m` and `--port` alone,
and answer in turn. Each prompt is of so many words of a story, drawn anew, so that next to nothing
of it is in any cache. The client's time, from sending the request; medians, with the worst beside.
`prompt ms` is the server's own time for computing the prompt.
"""

import argparse
import random
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.peer import Peer
from tests.bench.rig.results import save_figures
from tests.bench.rig.server_process import ServerProcess, free_port, running, unpaced_command
from tests.bench.rig.sse_client import stream_completion

STORY = (
    "once upon a time there was small dog who lived near the river and liked to sing about moon "
    "with friends every day while old clock kept counting minutes of printing press"
)
WORDS = STORY.split()
N_PREDICT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`n` prompts of `n_words` words, each after `idle_s` seconds without a request."""

    n_words: int
    idle_s: float
    n: int


CASES = (
    Case(n_words=8, idle_s=0.05, n=20),
    Case(n_words=64, idle_s=0.05, n=20),
    Case(n_words=112, idle_s=0.05, n=20),
    Case(n_words=1024, idle_s=0.05, n=8),
    Case(n_words=8, idle_s=2.0, n=4),
    Case(n_words=64, idle_s=2.0, n=4),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One request."""

    first_token_ms: float
    prompt_ms: float
    n_prompt: int


def ask(server: ServerProcess, prompt: str) -> Answer:
    """A short stream."""
    body = {"prompt": prompt, "n_predict": N_PREDICT, "ignore_eos": True, "seed": 1}
    timing = stream_completion(server.port, body)
    timings = timing.final["timings"]
    return Answer(
        first_token_ms=timing.first_token_s * 1e3,
        prompt_ms=timings["prompt_ms"],
        n_prompt=timings["prompt_n"],
    )


def measure(
    servers: dict[str, ServerProcess], case: Case, rng: random.Random
) -> dict[str, list[Answer]]:
    """One case: every server gets every prompt, after the same pause."""
    answers: dict[str, list[Answer]] = {name: [] for name in servers}
    for i in range(case.n):
        prompt = " ".join(rng.choice(WORDS) for _ in range(case.n_words))
        for name in servers if i % 2 else reversed(servers):
            time.sleep(case.idle_s)
            answers[name].append(ask(servers[name], prompt))
    return answers


def row(case: Case, answers: dict[str, list[Answer]]) -> str:
    """A line of the table."""
    cells = []
    for given in answers.values():
        times = [one.first_token_ms for one in given]
        prompt = statistics.median(one.prompt_ms for one in given)
        cells += [f"{statistics.median(times):.1f} ({max(times):.1f})", f"{prompt:.1f}"]
    n_prompt = statistics.median(one.n_prompt for one in next(iter(answers.values())))
    return f"| {case.n_words} | {n_prompt:.0f} | {case.idle_s:g} | " + " | ".join(cells) + " |"


def main() -> None:
    """Print a table a model; with --out write results/first_token.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, nargs="+", required=True)
    parser.add_argument("--peer", type=Path, help="folder with llama-server")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--max-words", type=int, default=1024, help="leave out longer prompts")
    parser.add_argument("--flags", default="", help="more flags for our server")
    given = parser.parse_args()
    hardware = describe_hardware()
    print(hardware)
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        for model in given.model:
            results.append({"model": model.name, "cases": measure_model(given, model, scratch)})
    if given.out is not None:
        report = {"hardware": hardware, "flags": given.flags, "models": results}
        save_figures(given.out, "first_token", report)


def measure_model(given: argparse.Namespace, model: Path, scratch: Path) -> list[dict[str, Any]]:
    """All cases on one model, printed as they come."""
    port = free_port()
    command = unpaced_command(port, model, *given.flags.split())
    with running(command, {}, port, scratch / "unpaced.log") as ours:
        if given.peer is None:
            return run_cases(given, model, {"unpaced": ours})
        peer = Peer(given.peer, scratch / "shim")
        port = free_port()
        command = peer.default_command(port, model)
        with running(command, peer.env(), port, scratch / "peer.log") as theirs:
            return run_cases(given, model, {"unpaced": ours, "llama-server": theirs})


def run_cases(
    given: argparse.Namespace, model: Path, servers: dict[str, ServerProcess]
) -> list[dict[str, Any]]:
    """The cases on servers that are warm."""
    rng = random.Random(1)
    measure(servers, Case(n_words=12, idle_s=0.0, n=4), rng)
    head = " | ".join(f"{name} ms (worst) | prompt ms" for name in servers)
    print(f"\n{model.name}\n\n| words | tokens | idle s | {head} |")
    print("|---" * (3 + 2 * len(servers)) + "|")
    results = []
    for case in (case for case in CASES if case.n_words <= given.max_words):
        answers = measure(servers, case, rng)
        print(row(case, answers), flush=True)
        measured = {name: [asdict(one) for one in many] for name, many in answers.items()}
        results.append({"case": asdict(case), "answers": measured})
    return results


if __name__ == "__main__":
    main()
