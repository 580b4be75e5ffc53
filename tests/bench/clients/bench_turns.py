#!/usr/bin/env python3
"""Conversations: the time to the first token of each turn, whose prompt goes on from the last one.

A turn is a message of 8 to 64 tokens, drawn anew, behind all turns and answers before it, which the
server has in its cache; an answer has `--answer` tokens. Between two turns somebody reads for
`--pause` seconds. Ours and llama-server hold the model at the same time, with default flags but
those behind `--`, and take turns in turn. Each has its own answers in its conversation.
"""

import argparse
import random
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.bench.bench_http import DEMO
from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.peer import Peer
from tests.bench.rig.results import save_figures
from tests.bench.rig.server_process import ServerProcess, free_port, running, unpaced_command
from tests.bench.rig.sse_client import read_completion, timing_of, tokens_of

SHORTEST, LONGEST = 8, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One answer's beginning: prompt tokens in all, those computed, milliseconds."""

    n_prompt: int
    n_computed: int
    first_token_ms: float
    prompt_ms: float


def take_turn(server: ServerProcess, tokens: list[int], n_answer: int) -> tuple[Turn, list[int]]:
    """The turn, and the answer's tokens."""
    body = {
        "prompt": tokens,
        "n_predict": n_answer,
        "cache_prompt": True,
        "ignore_eos": True,
        "return_tokens": True,
        "seed": 1,
    }
    reads = read_completion(server.port, body)
    timing = timing_of(reads)
    timings = timing.final["timings"]
    turn = Turn(
        n_prompt=len(tokens),
        n_computed=timings["prompt_n"],
        first_token_ms=1e3 * timing.first_token_s,
        prompt_ms=timings["prompt_ms"],
    )
    return turn, tokens_of(reads)


def converse(
    servers: dict[str, ServerProcess], given: argparse.Namespace, rng: random.Random
) -> dict[str, list[Turn]]:
    """One conversation with each server, the same messages to both."""
    turns: dict[str, list[Turn]] = {name: [] for name in servers}
    texts: dict[str, list[int]] = {name: [] for name in servers}
    for _ in range(given.turns):
        n = rng.randint(SHORTEST, LONGEST)
        message = rng.choices(range(100, given.vocab), k=n)
        time.sleep(given.pause)
        for name, server in servers.items():
            turn, answer = take_turn(server, texts[name] + message, given.answer)
            turns[name].append(turn)
            texts[name] += message + answer
    return turns


def row(name: str, turns: list[Turn]) -> str:
    """A line of the table: first turns by themselves, since nothing of theirs is cached."""
    later = [turn.first_token_ms for turn in turns if turn.n_computed < turn.n_prompt]
    first = [turn.first_token_ms for turn in turns if turn.n_computed == turn.n_prompt]
    prompt = statistics.median(turn.prompt_ms for turn in turns)
    return (
        f"| {name} | {statistics.median(first):.1f} ({max(first):.1f}) "
        f"| {statistics.median(later):.1f} ({max(later):.1f}) | {prompt:.1f} |"
    )


def main() -> None:
    """Print a table a model; with --out write results/turns.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, nargs="+", default=[DEMO])
    parser.add_argument("--peer", type=Path, help="folder with llama-server")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--conversations", type=int, default=3)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--answer", type=int, default=120, help="tokens of each answer")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds before each turn")
    parser.add_argument("--vocab", type=int, default=500, help="token ids are drawn below this")
    parser.add_argument("flags", nargs="*", help="of both servers")
    given = parser.parse_args()
    hardware = describe_hardware()
    print(hardware)
    results: list[dict[str, Any]] = []
    for model in given.model:
        turns = measure(given, model)
        print(f"\n{model.name}\n\n| server | first turn ms (worst) | later ones | prompt ms |")
        print("|---|---|---|---|")
        for name, many in turns.items():
            print(row(name, many), flush=True)
        measured = {name: [asdict(turn) for turn in many] for name, many in turns.items()}
        results.append({"model": model.name, "turns": measured})
    if given.out is not None:
        save_figures(given.out, "turns", {"hardware": hardware, "models": results})


def measure(given: argparse.Namespace, model: Path) -> dict[str, list[Turn]]:
    """All conversations, after one that warms up."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port = free_port()
        command = unpaced_command(port, model, *given.flags)
        servers = {
            "unpaced": stack.enter_context(running(command, {}, port, scratch / "unpaced.log"))
        }
        if given.peer is not None:
            peer = Peer(given.peer, scratch / "shim")
            port = free_port()
            command = [*peer.default_command(port, model), *given.flags]
            servers["llama-server"] = stack.enter_context(
                running(command, peer.env(), port, scratch / "peer.log")
            )
        rng = random.Random(1)
        converse(servers, given, rng)
        turns: dict[str, list[Turn]] = {name: [] for name in servers}
        for _ in range(given.conversations):
            for name, many in converse(servers, given, rng).items():
                turns[name] += many
        return turns


if __name__ == "__main__":
    main()
