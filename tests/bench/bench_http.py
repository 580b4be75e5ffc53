#!/usr/bin/env python3
"""Decode through HTTP streaming, side by side with llama-server and llama-bench, in one run.

Both servers hold the model; in every round each answers one request while the other sleeps, and
llama-bench runs once. Same libraries, model, thread count and sampling on all sides. The client is
pinned away from the decode core. Figures are medians over the rounds.
"""

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.peer import Peer
from tests.bench.rig.results import save_figures
from tests.bench.rig.server_process import ServerProcess, free_port, running, unpaced_command
from tests.bench.rig.sse_client import StreamTiming, stream_completion

DEMO = Path(__file__).resolve().parents[2] / "engine_ext" / "models" / "demo.gguf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One measurement of one server."""

    tokens_per_s: float
    ttft_ms: float
    itl_p50_us: float
    itl_p99_us: float
    front_cpu_us_per_token: float
    """CPU of the process's main thread (ours: the front end) by tokens."""
    decode_cpu_us_per_token: float
    """CPU of the busiest threads, as many as decode: what other programs on the machine change
    least."""
    beside_decode_cpu_us_per_token: float
    """CPU of the whole process less these; comparable."""
    process_cpu_us_per_token: float


def request_body(n_tokens: int, seed: int) -> dict[str, Any]:
    """The same request for both: default chain, a cold prompt, no early end."""
    return {
        "prompt": "Once upon a time there was",
        "n_predict": n_tokens,
        "ignore_eos": True,
        "cache_prompt": False,
        "seed": seed,
        "temperature": 0.8,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.05,
    }


@contextlib.contextmanager
def off_the_decode_core() -> Iterator[None]:
    """Keep this client off the last core, where the decode thread is pinned."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:-1] or cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def measure(server: ServerProcess, body: dict[str, Any], n_threads: int) -> Round:
    """One streamed request, with the CPU it took."""
    before = server.thread_cpu_s()
    with off_the_decode_core():
        timing = stream_completion(server.port, body)
    after = server.thread_cpu_s()
    if timing.n_tokens != body["n_predict"]:
        raise RuntimeError(f"{timing.n_tokens} tokens instead of {body['n_predict']}")
    gaps = sorted(gaps_us(timing))
    spent = {thread: cpu - before.get(thread, 0.0) for thread, cpu in after.items()}
    writers = [thread for thread, name in server.thread_names().items() if name == "writer"]
    front = spent[server.pid] + sum(spent.get(thread, 0.0) for thread in writers)
    total = sum(spent.values())
    decoding = sum(sorted(spent.values())[-n_threads:])
    return Round(
        tokens_per_s=timing.tokens_per_s,
        ttft_ms=timing.first_token_s * 1e3,
        itl_p50_us=gaps[len(gaps) // 2],
        itl_p99_us=gaps[int(len(gaps) * 0.99)],
        front_cpu_us_per_token=front / timing.n_tokens * 1e6,
        decode_cpu_us_per_token=decoding / timing.n_tokens * 1e6,
        beside_decode_cpu_us_per_token=(total - decoding) / timing.n_tokens * 1e6,
        process_cpu_us_per_token=total / timing.n_tokens * 1e6,
    )


def gaps_us(timing: StreamTiming) -> list[float]:
    """Times between token frames."""
    pairs = zip(timing.arrivals_s, timing.arrivals_s[1:], strict=False)
    return [(b - a) * 1e6 for a, b in pairs]


def median_of(rounds: list[Round]) -> dict[str, float]:
    """Field by field."""
    rows = [asdict(one) for one in rounds]
    return {field: statistics.median(row[field] for row in rows) for field in rows[0]}


def run_model(
    arguments: argparse.Namespace, model: Path, n_threads: int, n_slots: int
) -> dict[str, Any]:
    """All rounds for one model, thread count and number of slots (-1: the default)."""
    flags = ["-c", str(arguments.ctx), "-t", str(n_threads), "-np", str(n_slots)]
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        peer = Peer(arguments.peer.resolve(), scratch / "shim")
        ports = free_port(), free_port()
        ours = stack.enter_context(
            running(unpaced_command(ports[0], model, *flags), {}, ports[0], scratch / "ours.log")
        )
        command = peer.server_command(ports[1], model, *flags)
        theirs = stack.enter_context(running(command, peer.env(), ports[1], scratch / "peer.log"))
        servers = {"unpaced": ours, "llama_server": theirs}
        for server in servers.values():
            measure(server, request_body(64, 1), n_threads)
        rounds: dict[str, list[Round]] = {name: [] for name in servers}
        bench: list[float] = []
        for i in range(arguments.repeats):
            # ABBA: neither side always comes first.
            order = list(servers) if i % 2 == 0 else list(servers)[::-1]
            for name in order:
                time.sleep(arguments.pause)
                rounds[name].append(measure(servers[name], request_body(arguments.n, i), n_threads))
            time.sleep(arguments.pause)
            bench.append(peer.bench_tokens_per_s(model, arguments.n, "-t", str(n_threads)))
    about = {"model": model.name, "n_threads": n_threads, "n_slots": n_slots}
    return {**about, **summarise(rounds, bench)}


def summarise(rounds: dict[str, list[Round]], bench: list[float]) -> dict[str, Any]:
    """Medians and the ratios that count."""
    medians = {name: median_of(measured) for name, measured in rounds.items()}
    tg = statistics.median(bench)
    ours = medians["unpaced"]["tokens_per_s"]
    return {
        "llama_bench_tokens_per_s": tg,
        "medians": medians,
        "unpaced_by_llama_bench": ours / tg,
        "unpaced_by_llama_server": ours / medians["llama_server"]["tokens_per_s"],
        "rounds": {name: [asdict(one) for one in measured] for name, measured in rounds.items()},
        "llama_bench_rounds": bench,
    }


def slots_name(n_slots: int) -> str:
    """A cell of the table."""
    return "4 (default)" if n_slots < 0 else str(n_slots)


def markdown(report: dict[str, Any]) -> str:
    """The table of docs/bench/http.md."""
    lines = [
        "# Decode through HTTP streaming",
        "",
        "Our server, llama-server and llama-bench run on the same libraries in one run; the",
        "program's docstring says how. Figures are medians.",
        "",
        f"    {report['command']}",
        "",
        f"Hardware: {report['hardware']}",
        "",
        "| model | threads | slots | unpaced tok/s | llama-server tok/s | llama-bench tg tok/s "
        "| ÷ llama-server | ÷ llama-bench | decode thread CPU µs/token (peer) "
        "| front-end CPU µs/token | CPU beside decode µs/token (peer) | ITL p50 / p99 µs (peer) |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in report["results"]:
        ours, peer = row["medians"]["unpaced"], row["medians"]["llama_server"]
        lines.append(
            f"| {row['model']} | {row['n_threads']} | {slots_name(row['n_slots'])} "
            f"| {ours['tokens_per_s']:.1f} "
            f"| {peer['tokens_per_s']:.1f} | {row['llama_bench_tokens_per_s']:.1f} "
            f"| {row['unpaced_by_llama_server']:.3f} | {row['unpaced_by_llama_bench']:.3f} "
            f"| {ours['decode_cpu_us_per_token']:.1f} ({peer['decode_cpu_us_per_token']:.1f}) "
            f"| {ours['front_cpu_us_per_token']:.1f} "
            f"| {ours['beside_decode_cpu_us_per_token']:.1f} "
            f"({peer['beside_decode_cpu_us_per_token']:.1f}) "
            f"| {ours['itl_p50_us']:.0f} / {ours['itl_p99_us']:.0f} "
            f"({peer['itl_p50_us']:.0f} / {peer['itl_p99_us']:.0f}) |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", type=Path, required=True, help="folder of the peer's binaries")
    parser.add_argument("--model", type=Path, nargs="+", default=[DEMO])
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument(
        "--slots", type=int, nargs="+", default=[1], help="-np of both; -1: the default, 4"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--n", type=int, default=384, help="tokens a request")
    parser.add_argument(
        "--ctx", type=int, default=512, help="near --n: llama-bench has just that, and it costs"
    )
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between measurements")
    parser.add_argument("--out", type=Path, help="folder for results/http.json and http.md")
    arguments = parser.parse_args()
    results = [
        run_model(arguments, model, n_threads, n_slots)
        for model in arguments.model
        for n_threads in arguments.threads
        for n_slots in arguments.slots
    ]
    threads = " ".join(map(str, arguments.threads))
    slots = " ".join(map(str, arguments.slots))
    models = " ".join(model.name for model in arguments.model)
    report = {
        "command": f"python -m tests.bench.bench_http --repeats {arguments.repeats} "
        f"--n {arguments.n} --ctx {arguments.ctx} --threads {threads} --slots {slots} "
        f"--model {models} --peer PEER",
        "hardware": describe_hardware(),
        "results": results,
    }
    print(markdown(report))
    if arguments.out is not None:
        save_figures(arguments.out, "http", report)
        (arguments.out / "http.md").write_text(markdown(report))


if __name__ == "__main__":
    main()
