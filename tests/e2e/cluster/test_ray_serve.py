"""Two replicas behind Ray Serve, as deploy/ has them: streams, refusals, deaths.

Ray takes 0.5 GB: `pip install "ray[serve]"`, then `pytest -m packaging tests/e2e/cluster`.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.cluster.ray_cluster import HAS_HA_PROXY, Cluster, ray_serve, why_no_ray
from tests.support.faults.frozen_thread import CannotFreeze, frozen, thread_of
from tests.support.patience import patience
from tests.support.server import serving

PATH = "/v1/completions"
TEXT: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 40, "seed": 5}
LONG: dict[str, Any] = {"prompt": "Once upon a time", "ignore_eos": True, "max_tokens": 1800}

pytestmark = [pytest.mark.packaging, pytest.mark.skipif(bool(why_no_ray()), reason=why_no_ray())]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    flags = "-c 4096 -np 2 --stall-timeout 3"
    with ray_serve(queue=4, sessions=not HAS_HA_PROXY, flags=flags) as running:
        yield running
        assert running.replicas()


@pytest.fixture
def client(cluster: Cluster) -> Iterator[httpx.Client]:
    with cluster.client() as made:
        yield made


def until(condition: Any, timeout_s: float) -> float:
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < timeout_s, "it took too long"
        time.sleep(0.02)
    return time.monotonic() - started


class Stream(threading.Thread):
    """A stream of somebody else, read to its end or its fault."""

    def __init__(self, cluster: Cluster, session: str) -> None:
        super().__init__(daemon=True)
        self._cluster, self._session = cluster, session
        self.n_events = 0
        self.is_whole = False
        self.last = ""
        self.fault: Exception | None = None
        self.status = 0
        self.start()

    def run(self) -> None:
        headers = {"x-session-id": self._session}
        try:
            with (
                self._cluster.client() as client,
                client.stream("POST", PATH, json=LONG | {"stream": True}, headers=headers) as it,
            ):
                self.status = it.status_code
                for line in it.iter_lines():
                    self.last = line or self.last
                    self.n_events += line.startswith("data: ")
                    self.is_whole = line == "data: [DONE]" or (self.is_whole and not line)
        except httpx.HTTPError as error:
            self.fault = error


def test_answers_are_those_of_one_server(client: httpx.Client) -> None:
    with serving("-c", "4096") as server:
        expected = server.complete(PATH, **TEXT)["choices"][0]["text"]
    texts = [client.post(PATH, json=TEXT).json()["choices"][0]["text"] for _ in range(6)]
    assert texts == [expected] * 6
    with client.stream("POST", PATH, json=TEXT | {"stream": True}) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        lines = [line for line in answer.iter_lines() if line]
    assert len(lines) > 30 and lines[-1] == "data: [DONE]"
    assert client.post(PATH, json={"prompt": "x", "max_tokens": "many"}).status_code == 400


def process_of(client: httpx.Client, **headers: str) -> str:
    """Which replica answered: when it was started."""
    text = client.get("/metrics", headers=headers).text
    (line,) = [one for one in text.splitlines() if one.startswith("process_start_time_seconds ")]
    return line.split()[1]


@pytest.mark.skipif(HAS_HA_PROXY, reason="HAProxy knows no sessions")
def test_a_session_stays_with_its_replica(client: httpx.Client) -> None:
    homes = {
        name: {process_of(client, **{"x-session-id": name}) for _ in range(4)}
        for name in map(str, range(16))
    }
    assert all(len(home) == 1 for home in homes.values())
    assert len(set.union(*homes.values())) == 2


def is_cancelled(cluster: Cluster, session: str, before: float) -> bool:
    with cluster.client() as client:
        return n_cancelled(client, session) > before


def n_cancelled(client: httpx.Client, session: str) -> float:
    text = client.get("/metrics", headers={"x-session-id": session}).text
    samples = [one for one in text.splitlines() if "cancelled_total{" in one]
    (line,) = [one for one in samples if 'phase="decode"' in one]
    return float(line.rpartition(" ")[2])


def test_a_client_that_leaves_is_cancelled_in_the_replica(
    cluster: Cluster, client: httpx.Client
) -> None:
    before = n_cancelled(client, "a")
    with cluster.client() as leaving:
        headers = {"x-session-id": "a"}
        with leaving.stream("POST", PATH, json=LONG | {"stream": True}, headers=headers) as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("data: ")
    until(lambda: is_cancelled(cluster, "a", before), patience(5))


def test_a_full_queue_is_a_503_with_retry_after(cluster: Cluster, client: httpx.Client) -> None:
    streams = [Stream(cluster, str(number)) for number in range(12)]
    for stream in streams:
        stream.join(patience(30))
    refused = [stream for stream in streams if stream.status == 503]
    served = [stream for stream in streams if stream.is_whole]
    assert refused and len(served) >= 4 and len(refused) + len(served) == len(streams)
    busy = [Stream(cluster, str(number)) for number in range(12)]
    answers = [client.post(PATH, json=TEXT) for _ in range(3)]
    for stream in busy:
        stream.join(patience(30))
    for answer in answers:
        assert answer.status_code in (200, 503)
        assert answer.status_code == 200 or answer.headers["retry-after"] == "1"


def is_answered(client: httpx.Client) -> bool:
    try:
        return client.post(PATH, json=TEXT | {"max_tokens": 4}).status_code == 200
    except httpx.RemoteProtocolError:
        return False


def test_a_killed_replica_takes_its_own_streams_along_and_no_others(cluster: Cluster) -> None:
    until(lambda: len(cluster.replicas()) == 2, patience(60))
    streams = [Stream(cluster, str(number)) for number in range(4)]
    until(lambda: all(stream.n_events > 0 for stream in streams), patience(10))
    victim = min(cluster.replicas())
    os.kill(victim, signal.SIGKILL)
    killed_s = time.monotonic()
    with cluster.client() as client:
        if HAS_HA_PROXY:  # a request that meets the dead replica before HAProxy knows is lost
            until(lambda: is_answered(client), patience(2))
        for _ in range(5):
            assert client.post(PATH, json=TEXT | {"max_tokens": 4}).status_code == 200
    assert time.monotonic() - killed_s < patience(5)
    for stream in streams:
        stream.join(patience(30))
    broken = [stream for stream in streams if stream.fault is not None]
    assert broken and all("incomplete" in str(stream.fault) for stream in broken)
    assert all(stream.is_whole for stream in streams if stream not in broken)
    until(lambda: len(cluster.replicas() - {victim}) == 2, patience(60))


def test_a_replica_whose_decode_thread_hangs_is_replaced(cluster: Cluster) -> None:
    until(lambda: len(cluster.replicas()) == 2, patience(60))
    victim = min(cluster.replicas())
    streams = [Stream(cluster, str(number)) for number in range(4)]
    until(lambda: all(stream.n_events > 0 for stream in streams), patience(10))
    try:
        with frozen(thread_of(victim, "decode")):
            # Those of the other replica come to their end.
            for stream in streams:
                stream.join(patience(60))
            until(lambda: victim not in cluster.replicas(), patience(90))
    except CannotFreeze as error:
        pytest.skip(f"no ptrace here: {error}")
    told = [stream for stream in streams if "the engine failed" in stream.last]
    assert told and all(stream.is_whole for stream in streams if stream not in told)
    assert all(stream.n_events > 1 for stream in told)
    until(lambda: len(cluster.replicas()) == 2, patience(60))
