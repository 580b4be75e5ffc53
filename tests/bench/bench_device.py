#!/usr/bin/env python3
"""Decode on an NVIDIA GPU over HTTP, beside llama-server and llama-bench of the same libraries.

Parts, all in one run: `models` (every model, the default chain), `kernels` (a step by ggml's
kernels, by ours, by those that are not slower; with --depth after a prompt of so many tokens),
`chains` (top-k 0, top-k 1000, penalties), `depths` (512 to 32k tokens in the context), `load`
(spinners on every core but the server's two and the client's, then on all) and `soak` (30 000
tokens in one process). Servers hold the model at the same time and answer in turn; the order
alternates. Timing is the client's. Medians of rounds.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench.rig.device_servers import (
    OURS,
    Round,
    all_servers,
    decode_loop,
    gpu_memory_mib,
    measure,
    our_server,
    pause,
    request_body,
)
from tests.bench.rig.hardware import describe_hardware
from tests.bench.rig.peer import Peer
from tests.bench.rig.results import save_figures

CHAINS: dict[str, dict[str, Any]] = {
    "default": {},
    "top-k 0": {"top_k": 0},
    "top-k 1000": {"top_k": 1000},
    "penalties": {"repeat_penalty": 1.1, "frequency_penalty": 0.1, "repeat_last_n": 256},
}
KERNELS = ("ggml", "own", "auto")
DEPTHS = (512, 8192, 32000)
SOAK_REQUESTS = 60
SOAK_TOKENS = 512
SPIN = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


def median_of(rounds: list[Round]) -> dict[str, float]:
    """Field by field."""
    rows = [asdict(one) for one in rounds]
    return {field: statistics.median(row[field] for row in rows) for field in rows[0]}


def summary(rounds: dict[str, list[Round]]) -> dict[str, Any]:
    """Medians by server, and ours by the better llama-server."""
    medians = {name: median_of(measured) for name, measured in rounds.items()}
    result: dict[str, Any] = {"medians": medians}
    theirs = [one["tokens_per_s"] for name, one in medians.items() if name != OURS]
    if theirs and OURS in medians:
        result["by_better_llama_server"] = medians[OURS]["tokens_per_s"] / max(theirs)
    result["rounds"] = {name: [asdict(one) for one in all_] for name, all_ in rounds.items()}
    return result


def run_models(arguments: argparse.Namespace, peer: Peer, scratch: Path) -> list[dict[str, Any]]:
    """Every model with the default chain, llama-bench in every round."""
    results = []
    for model in arguments.model:
        rounds: dict[str, list[Round]] = {}
        bench = []
        with all_servers(peer, model, 4096, scratch) as servers:
            loop = decode_loop(servers[OURS])
            for i in range(arguments.repeats):
                order = list(servers) if i % 2 == 0 else list(servers)[::-1]
                for name in order:
                    pause()
                    one = measure(servers[name], request_body(arguments.n, i))
                    rounds.setdefault(name, []).append(one)
                bench.append(peer.bench_tokens_per_s(model, arguments.n, "-fa", "1", "-ngl", "99"))
        result = {"model": model.name, "loop": loop, **summary(rounds)}
        result["llama_bench_tokens_per_s"] = statistics.median(bench)
        ours = result["medians"][OURS]["tokens_per_s"]
        result["by_llama_bench"] = ours / statistics.median(bench)
        result["llama_bench_rounds"] = bench
        results.append(result)
        print(model.name, json.dumps(result["medians"]), statistics.median(bench), flush=True)
    return results


def run_kernels(arguments: argparse.Namespace, peer: Peer, scratch: Path) -> list[dict[str, Any]]:
    """Every model with --kernels ggml, own and auto, and llama-bench in every round."""
    results = []
    depth = arguments.depth
    n_ctx = max(4096, -(-(depth + arguments.n + 64) // 256) * 256)
    fields: dict[str, Any] = {}
    bench_flags = ["-fa", "1", "-ngl", "99"]
    if depth:
        prompt = [(7 * i + 1) % 1000 for i in range(depth)]
        fields = {"prompt": prompt, "cache_prompt": True}
        bench_flags += ["-d", str(depth)]
    for model in arguments.model:
        rounds: dict[str, list[Round]] = {}
        bench = []
        with contextlib.ExitStack() as stack:
            servers = {}
            for kernels in KERNELS:
                folder = scratch / kernels
                folder.mkdir(exist_ok=True)
                server = our_server(model, n_ctx, folder, "--kernels", kernels)
                servers[kernels] = stack.enter_context(server)
                measure(servers[kernels], request_body(64, 1, **fields))
            loops = {name: decode_loop(server) for name, server in servers.items()}
            for i in range(arguments.repeats):
                for name in KERNELS if i % 2 == 0 else KERNELS[::-1]:
                    pause()
                    one = measure(servers[name], request_body(arguments.n, i, **fields))
                    rounds.setdefault(name, []).append(one)
                bench.append(peer.bench_tokens_per_s(model, arguments.n, *bench_flags))
        medians = {name: median_of(measured) for name, measured in rounds.items()}
        result = {
            "model": model.name,
            "depth": depth,
            "phases": {name: loop["phases"] for name, loop in loops.items()},
            "phase_trials": {name: loop["phase_trials"] for name, loop in loops.items()},
            "medians": medians,
            "by_ggml": {
                name: one["tokens_per_s"] / medians["ggml"]["tokens_per_s"]
                for name, one in medians.items()
            },
            "llama_bench_tokens_per_s": statistics.median(bench),
        }
        results.append(result)
        print(json.dumps(result), flush=True)
    return results


def run_chains(arguments: argparse.Namespace, peer: Peer, scratch: Path) -> list[dict[str, Any]]:
    """Other chains than the default, by the default's speed in the same run."""
    results = []
    for model in arguments.model:
        rounds: dict[str, dict[str, list[Round]]] = {chain: {} for chain in CHAINS}
        with all_servers(peer, model, 4096, scratch) as servers:
            for i in range(arguments.repeats):
                for chain, fields in CHAINS.items():
                    for name, server in servers.items():
                        pause()
                        one = measure(server, request_body(arguments.n, i, **fields))
                        rounds[chain].setdefault(name, []).append(one)
        result: dict[str, Any] = {"model": model.name}
        result["chains"] = {chain: summary(measured) for chain, measured in rounds.items()}
        speeds = {
            chain: one["medians"][OURS]["tokens_per_s"] for chain, one in result["chains"].items()
        }
        result["by_default_chain"] = {
            chain: speed / speeds["default"] for chain, speed in speeds.items()
        }
        results.append(result)
        print(model.name, result["by_default_chain"], flush=True)
    return results


def run_depths(arguments: argparse.Namespace, peer: Peer, scratch: Path) -> list[dict[str, Any]]:
    """A prompt of each depth, prefilled once and reused."""
    results = []
    for model in arguments.model:
        with all_servers(peer, model, 33280, scratch) as servers:
            for depth in DEPTHS:
                prompt = [(7 * i + 1) % 1000 for i in range(depth)]
                rounds: dict[str, list[Round]] = {}
                for i in range(-1, arguments.repeats):
                    for name, server in servers.items():
                        pause()
                        body = request_body(256, i + 1, prompt=prompt, cache_prompt=True)
                        one = measure(server, body)
                        if i >= 0:  # the first one prefilled
                            rounds.setdefault(name, []).append(one)
                result = {"model": model.name, "depth": depth, **summary(rounds)}
                results.append(result)
                print(model.name, depth, json.dumps(result["medians"]), flush=True)
    return results


@contextlib.contextmanager
def spinning(cores: list[int]) -> Iterator[None]:
    """A busy loop on each core."""
    spinners = [subprocess.Popen([sys.executable, "-S", "-c", SPIN, str(core)]) for core in cores]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def run_load(arguments: argparse.Namespace, peer: Peer, scratch: Path) -> list[dict[str, Any]]:
    """The idle machine's speed against that under spinners."""
    cores = sorted(os.sched_getaffinity(0))
    # Decode thread: last core. Front end and client: the two before.
    loads = {"idle": [], "other cores": cores[:-3], "all cores": cores}
    results = []
    for model in arguments.model:
        result: dict[str, Any] = {"model": model.name}
        with all_servers(peer, model, 4096, scratch) as servers:
            for load, spun in loads.items():
                rounds: dict[str, list[Round]] = {}
                with spinning(spun):
                    for i in range(arguments.repeats):
                        for name, server in servers.items():
                            pause()
                            one = measure(server, request_body(arguments.n, i))
                            rounds.setdefault(name, []).append(one)
                result[load] = summary(rounds)
        for load in ("other cores", "all cores"):
            result[f"by_idle_{load.replace(' ', '_')}"] = {
                name: one["tokens_per_s"] / result["idle"]["medians"][name]["tokens_per_s"]
                for name, one in result[load]["medians"].items()
            }
            print(model.name, load, result[f"by_idle_{load.replace(' ', '_')}"], flush=True)
        results.append(result)
    return results


def run_soak(arguments: argparse.Namespace, _peer: Peer, scratch: Path) -> list[dict[str, Any]]:
    """Many requests to one process: its memory and speed over time."""
    results = []
    for model in arguments.model:
        samples = []
        with our_server(model, 4096, scratch) as server:
            for i in range(SOAK_REQUESTS):
                one = measure(server, request_body(SOAK_TOKENS, i))
                status = Path(f"/proc/{server.pid}/status").read_text()
                rss_kib = int(status.partition("VmRSS:")[2].split()[0])
                samples.append(
                    {
                        "tokens_per_s": one.tokens_per_s,
                        "rss_kib": rss_kib,
                        "gpu_mib": gpu_memory_mib(),
                    }
                )
        half = samples[len(samples) // 2 :]
        result = {
            "model": model.name,
            "n_tokens": SOAK_REQUESTS * SOAK_TOKENS,
            "rss_growth_kib_second_half": half[-1]["rss_kib"] - half[0]["rss_kib"],
            "gpu_growth_mib": samples[-1]["gpu_mib"] - samples[1]["gpu_mib"],
            "speed_last_third_by_first": statistics.median(
                one["tokens_per_s"] for one in samples[-20:]
            )
            / statistics.median(one["tokens_per_s"] for one in samples[:20]),
            "samples": samples,
        }
        results.append(result)
        print({key: value for key, value in result.items() if key != "samples"}, flush=True)
    return results


Part = Callable[[argparse.Namespace, Peer, Path], list[dict[str, Any]]]
PARTS: dict[str, Part] = {
    "models": run_models,
    "kernels": run_kernels,
    "chains": run_chains,
    "depths": run_depths,
    "load": run_load,
    "soak": run_soak,
}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--peer", type=Path, required=True, help="folder of the peer's binaries")
    parser.add_argument("--model", type=Path, nargs="+", required=True)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--n", type=int, default=512, help="tokens a request")
    parser.add_argument("--depth", type=int, default=0, help="tokens of the prompt, in `kernels`")
    parser.add_argument("--out", type=Path, help="folder for results/device-PART.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        peer = Peer(arguments.peer.resolve(), scratch / "shim")
        results = PARTS[arguments.part](arguments, peer, scratch)
    models = " ".join(model.name for model in arguments.model)
    report = {
        "command": f"python -m tests.bench.bench_device {arguments.part} "
        f"--repeats {arguments.repeats} --n {arguments.n} --model {models} --peer PEER",
        "hardware": describe_hardware(),
        "results": results,
    }
    if arguments.out is not None:
        save_figures(arguments.out, f"device-{arguments.part}", report)


if __name__ == "__main__":
    main()
