#!/usr/bin/env python3
"""A stream beside slot actions: its longest gap while another slot is saved, restored, comes back.

Slot 0 holds a prompt of `--tokens` tokens; a stream runs in slot 1. Meanwhile slot 0 is saved to a
file; restored from it; and another prompt takes slot 0 over, then the first one comes back. For
each the stream's longest time between two reads before it and while it lasts, and how long it
lasts. `--flags` are the server's, such as `-np 2` or `-np 2 -kvu`; idle slots keep their cells.
"""

import argparse
import itertools
import json
import random
import shlex
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench.bench_http import DEMO
from tests.bench.bench_mixed_load import longest_turn_ms
from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.results import save_figures
from tests.bench.rig.server_process import free_port, running, unpaced_command
from tests.bench.rig.sse_client import post_json, stream_completion

SETTLING_S = 0.7  # the stream's, before what is measured


def tokens_of(n: int, seed: int) -> list[int]:
    """A prompt of ordinary tokens."""
    return random.Random(seed).choices(range(300, 1000), k=n)


def fill(port: int, prompt: list[int]) -> int:
    """Slot 0 has the prompt. Returns how much of it was reused. Raises: RuntimeError."""
    body = {"prompt": prompt, "n_predict": 1, "id_slot": 0, "ignore_eos": True}
    answer = json.loads(post_json(port, "/completion", body))
    if "timings" not in answer:
        raise RuntimeError(str(answer))
    return int(answer["timings"]["cache_n"])


def act(port: int, action: str, n_tokens: int) -> None:
    """Slot 0, which holds so many tokens, is saved or restored. Raises: RuntimeError if not."""
    answer = json.loads(post_json(port, f"/slots/0?action={action}", {"filename": "state"}))
    if answer.get(f"n_{action}d") != n_tokens:
        raise RuntimeError(str(answer))


def beside_a_stream(port: int, n_stream: int, work: Callable[[], Any]) -> dict[str, float]:
    """Milliseconds: the longest gap before `work` and while it lasts, and how long that is."""
    arrivals: list[float] = []

    def stream() -> None:
        begin = time.perf_counter()
        body = {
            "prompt": tokens_of(8, 1),
            "n_predict": n_stream,
            "id_slot": 1,
            "ignore_eos": True,
            "cache_prompt": False,
        }
        timing = stream_completion(port, body)
        arrivals.extend(begin + at for at in timing.arrivals_s)

    thread = threading.Thread(target=stream)
    thread.start()
    time.sleep(SETTLING_S)
    begin = time.perf_counter()
    work()
    end = time.perf_counter()
    thread.join()
    if arrivals[-1] < end:
        raise RuntimeError("the stream was over first: give it more tokens (--stream)")
    gaps = [(a, b) for a, b in itertools.pairwise(arrivals[8:]) if b > a]
    return {
        "gap_before_ms": 1e3 * max(b - a for a, b in gaps if b < begin),
        "gap_ms": 1e3 * max(b - a for a, b in gaps if b > begin and a < end),
        "lasts_ms": 1e3 * (end - begin),
    }


def measure(port: int, arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Each kind of work once."""
    prompt, other = tokens_of(arguments.tokens, 2), tokens_of(64, 3)
    fill(port, prompt)
    results = {
        action: beside_a_stream(port, arguments.stream, partial(act, port, action, len(prompt)))
        for action in ("save", "restore")
    }
    if fill(port, prompt) < arguments.tokens - 1:
        raise RuntimeError("the slot was not restored")
    fill(port, other)
    time.sleep(SETTLING_S)  # its copy is complete
    cached: list[int] = []
    results["comes back"] = beside_a_stream(
        port, arguments.stream, lambda: cached.append(fill(port, prompt))
    )
    if cached[0] < arguments.tokens - 1:
        raise RuntimeError(f"{cached[0]} tokens came back")
    return results


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=DEMO)
    parser.add_argument("--tokens", type=int, default=4096, help="in slot 0")
    parser.add_argument("--stream", type=int, default=400, help="tokens of the stream")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--flags", default="-c 16384", help="the server's")
    parser.add_argument("--out", type=Path, help="folder for results/slot_actions.json")
    arguments = parser.parse_args()
    report: dict[str, Any] = {"hardware": describe_hardware(), "flags": arguments.flags}
    print("| what | lasts | gap before | gap |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        port = free_port()
        flags = [*shlex.split(arguments.flags), "--no-cache-idle-slots"]
        flags += ["--slot-save-path", scratch]
        command = unpaced_command(port, arguments.model, *flags)
        with running(command, {}, port, Path(scratch) / "log") as server:
            for _ in range(arguments.rounds):
                result = measure(server.port, arguments)
                report.setdefault("rounds", []).append(result)
                for what, figures in result.items():
                    columns = (figures["lasts_ms"], figures["gap_before_ms"], figures["gap_ms"])
                    print(
                        f"| {what} | " + " | ".join(f"{value:.0f}" for value in columns) + " |",
                        flush=True,
                    )
            report["turn_ms"] = longest_turn_ms(server.port)
            print(f"longest turn: {report['turn_ms']:.1f} ms")
    if arguments.out is not None:
        save_figures(arguments.out, "slot_actions", report)


if __name__ == "__main__":
    main()
