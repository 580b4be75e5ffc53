"""The servers that a device benchmark compares, and one measured request to one of them."""

import contextlib
import itertools
import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.rig.peer import Peer
from tests.bench.rig.server_process import ServerProcess, free_port, running, unpaced_command
from tests.bench.rig.sse_client import stream_completion

OURS = "unpaced"
PEERS = {"llama-server": [], "llama-server -bs": ["--backend-sampling"]}
DEFAULT_CHAIN = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
SETTLING_TOKENS = 8  # gaps before this token are not counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One streamed request as the client saw it."""

    tokens_per_s: float
    ttft_ms: float
    cpu_us_per_token: float
    """CPU of the whole server process, from sending the request to its last byte, by tokens."""
    itl_p50_us: float
    itl_p90_us: float
    itl_p99_us: float
    itl_max_us: float


def request_body(n_tokens: int, seed: int, **fields: Any) -> dict[str, Any]:
    """The same request for every server: default chain, no early end; `fields` override."""
    return {
        "prompt": "The history of the printing press is long and",
        "n_predict": n_tokens,
        "ignore_eos": True,
        "cache_prompt": False,
        "seed": seed,
        **DEFAULT_CHAIN,
        **fields,
    }


def measure(server: ServerProcess, body: dict[str, Any]) -> Round:
    """One request. Raises: RuntimeError if it ends early."""
    before = sum(server.thread_cpu_s().values())
    timing = stream_completion(server.port, body)
    spent = sum(server.thread_cpu_s().values()) - before
    if timing.n_tokens != body["n_predict"]:
        raise RuntimeError(f"{timing.n_tokens} tokens instead of {body['n_predict']}")
    arrivals = timing.arrivals_s[SETTLING_TOKENS:]
    gaps = sorted((b - a) * 1e6 for a, b in itertools.pairwise(arrivals))
    return Round(
        tokens_per_s=timing.tokens_per_s,
        ttft_ms=timing.first_token_s * 1e3,
        cpu_us_per_token=spent / timing.n_tokens * 1e6,
        itl_p50_us=gaps[len(gaps) // 2],
        itl_p90_us=gaps[int(len(gaps) * 0.9)],
        itl_p99_us=gaps[int(len(gaps) * 0.99)],
        itl_max_us=gaps[-1],
    )


@contextlib.contextmanager
def our_server(model: Path, n_ctx: int, scratch: Path, *arguments: str) -> Iterator[ServerProcess]:
    """Unpaced with every layer on the GPU; it refuses to start without the device's loop."""
    port = free_port()
    flags = ["-c", str(n_ctx), "-np", "1", "-fa", "on", "--require-device", *arguments]
    command = unpaced_command(port, model, *flags)
    with running(command, {}, port, scratch / "unpaced.log") as server:
        yield server


@contextlib.contextmanager
def all_servers(
    peer: Peer, model: Path, n_ctx: int, scratch: Path, *arguments: str
) -> Iterator[dict[str, ServerProcess]]:
    """Ours, llama-server and llama-server with backend sampling, each holding the model."""
    with contextlib.ExitStack() as stack:
        servers = {OURS: stack.enter_context(our_server(model, n_ctx, scratch, *arguments))}
        for i, (name, extra) in enumerate(PEERS.items()):
            port = free_port()
            flags = ["-c", str(n_ctx), "-ngl", "99", "-fa", "on", *extra]
            command = peer.server_command(port, model, *flags)
            log = scratch / f"peer{i}.log"
            servers[name] = stack.enter_context(running(command, peer.env(), port, log))
        for server in servers.values():
            measure(server, request_body(64, 1))
        yield servers


def decode_loop(server: ServerProcess) -> dict[str, Any]:
    """What our server says of its token loop in /props."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/props", timeout=10) as answer:
        props: dict[str, Any] = json.loads(answer.read())
    report: dict[str, Any] = props["unpaced"]["decode_loop"]
    return report


def gpu_memory_mib() -> int:
    """Memory in use on the first GPU, by all processes. Source: nvidia-smi."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"]
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def pause() -> None:
    """Between measurements: what the last request left to do is done."""
    time.sleep(0.2)
