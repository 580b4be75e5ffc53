"""What Ray Serve costs a request and a token: a server of one thread, directly and as a replica.

`UNPACED_RAY_BIN=.../bin python -m tests.e2e.cluster.ray_cost`
"""

import statistics
import time

import httpx

from tests.e2e.cluster.ray_cluster import ray_serve
from tests.support.server import serving

N_REQUESTS = 60
N_TOKENS = 64
FLAGS = "-c 4096 -np 2"


def ask(client: httpx.Client, seed: int) -> tuple[float, float]:
    """Seconds to the first event, and from there to the last for each token."""
    body = {"prompt": "Once upon a time", "max_tokens": N_TOKENS, "ignore_eos": True}
    body |= {"stream": True, "seed": seed}
    started = time.perf_counter()
    first = 0.0
    with client.stream("POST", "/v1/completions", json=body) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: ") and not first:
                first = time.perf_counter()
    return first - started, (time.perf_counter() - first) / (N_TOKENS - 1)


def main() -> None:
    """Ask both in turn; print the medians."""
    with (
        serving(*FLAGS.split(), "--no-pin") as server,
        ray_serve(replicas=1, flags=FLAGS) as cluster,
        cluster.client() as through,
    ):
        clients = {"direct": server.client, "Ray Serve": through}
        for client in clients.values():
            for seed in range(5):
                ask(client, seed)
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in clients}
        for seed in range(N_REQUESTS):
            for name, client in clients.items():
                times[name].append(ask(client, seed))
    for name, found in times.items():
        first = statistics.median(first for first, _ in found) * 1e3
        token = statistics.median(token for _, token in found) * 1e6
        print(f"{name}: first event {first:.2f} ms, each token {token:.0f} µs")


if __name__ == "__main__":
    main()
