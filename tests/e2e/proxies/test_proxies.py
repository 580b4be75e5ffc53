"""nginx and Caddy, each as deploy/ has it: streams, disconnects, refusals, TLS.

Debian's `nginx-light` and `caddy` are enough; what is missing is skipped.
"""

import contextlib
import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.proxies.held_back import RUNNING, is_idle, streams_at_once
from tests.e2e.proxies.proxy import NAME, Proxy, caddy, nginx
from tests.support.faults.frozen_thread import frozen, thread_of
from tests.support.patience import patience
from tests.support.server import Server, serving

ENDLESS: dict[str, Any] = {"prompt": "Once upon a time", "ignore_eos": True, "max_tokens": -1}
# nginx as it is without the site's lines, with large buffers, and one that is deaf as well.
BUFFERED = {
    "proxy_http_version 1.1;": "proxy_http_version 1.0;",
    "proxy_buffering off;": "proxy_buffering on; proxy_buffer_size 64k; proxy_buffers 8 64k; "
    "proxy_busy_buffers_size 64k;",
}
DEAF = BUFFERED | {"X-Forwarded-Proto $scheme;": "A b; proxy_ignore_headers X-Accel-Buffering;"}


def needs(program: str, package: str) -> None:
    for name in (program, "openssl"):
        if shutil.which(name) is None:
            pytest.skip(f"no {name} on the PATH (Debian: apt-get install {package} openssl)")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    arguments = ["-np", "1", "-c", "1024", "--max-queue-requests", "1", "--stall-timeout", "0"]
    # Each token is written as it comes: none waits in the server for the next one.
    arguments += ["--wake-interval-us", "0", "--context-shift", "--allowed-hosts", NAME]
    with serving(*arguments) as running:
        yield running


@pytest.fixture(scope="module", params=["nginx", "caddy"])
def proxy(
    request: pytest.FixtureRequest, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "nginx":
        needs("nginx", "nginx-light")
        with nginx(server.port, folder) as running:
            yield running
    else:
        needs("caddy", "caddy")
        with caddy(server.port, folder) as running:
            yield running


@pytest.fixture
def client(proxy: Proxy) -> Iterator[httpx.Client]:
    with proxy.client() as made:
        yield made


@contextlib.contextmanager
def other_nginx(
    server: Server, folder: Path, replacements: dict[str, str]
) -> Iterator[httpx.Client]:
    needs("nginx", "nginx-light")
    with nginx(server.port, folder, replacements) as proxy, proxy.client() as client:
        yield client


@contextlib.contextmanager
def slot_taken(server: Server) -> Iterator[None]:
    """Inside, a request of somebody else has the only slot."""
    with server.open_request("/v1/completions", **ENDLESS):
        server.until(lambda: server.metric(RUNNING) == 1)
        yield
    server.until(is_idle(server))


def test_answers_are_the_servers(server: Server, client: httpx.Client) -> None:
    body: dict[str, Any] = {"prompt": "Once upon a time", "n_predict": 40, "seed": 3}
    expected = server.complete(**body)["content"]
    assert client.post("/completion", json=body).json()["content"] == expected
    text = ""
    with client.stream("POST", "/completion", json=body | {"stream": True}) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        for line in answer.iter_lines():
            if line.startswith("data: "):
                text += json.loads(line.removeprefix("data: "))["content"]
    assert text == expected


def test_no_token_is_held_back(server: Server, client: httpx.Client) -> None:
    assert streams_at_once(server, server.process.pid, client, ENDLESS)


def test_the_server_asks_nginx_not_to_buffer(server: Server, tmp_path: Path) -> None:
    with other_nginx(server, tmp_path, BUFFERED) as client:
        assert streams_at_once(server, server.process.pid, client, ENDLESS)


def test_a_proxy_that_buffers_is_noticed(server: Server, tmp_path: Path) -> None:
    with other_nginx(server, tmp_path, DEAF) as client:
        assert not streams_at_once(server, server.process.pid, client, ENDLESS)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_is_cancelled_in_the_server(
    server: Server, client: httpx.Client, *, stream: bool
) -> None:
    server.until(is_idle(server))
    client.timeout = httpx.Timeout(60, read=None if stream else 0.5)
    with (
        contextlib.suppress(httpx.ReadTimeout),
        client.stream("POST", "/v1/completions", json=ENDLESS | {"stream": stream}) as answer,
    ):
        lines = answer.iter_lines()
        assert next(lines).startswith("data: ")
        assert server.metric(RUNNING) == 1
    client.close()
    assert server.until(is_idle(server)) < patience(2)
    assert server.log.read_text().count("Traceback") == 0


def test_a_client_that_leaves_the_queue_is_taken_out(server: Server, client: httpx.Client) -> None:
    waiting = "unpaced_requests_waiting"
    with slot_taken(server):
        client.timeout = httpx.Timeout(60, read=0.5)
        with pytest.raises(httpx.ReadTimeout):
            client.post("/completion", json={"prompt": "Hello", "n_predict": 4})
        client.close()
        assert server.until(lambda: server.metric(waiting) == 0) < patience(2)


def test_refusals_keep_status_text_and_retry_after(server: Server, client: httpx.Client) -> None:
    body = {"prompt": "Hello", "n_predict": 4}
    with slot_taken(server), server.open_request("/completion", **body):
        server.until(lambda: server.metric("unpaced_requests_waiting") == 1)
        for _ in range(20):  # nobody takes the server for dead by it
            answer = client.post("/completion", json=body)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.json()["error"]["type"] == "unavailable_error"
    wrong = client.post("/completion", json={"prompt": "x", "n_predict": "many"})
    assert wrong.status_code == 400 and wrong.json()["error"]["param"] == "n_predict"
    assert client.post("/completion", json=body).status_code == 200


def test_long_bodies_pass_up_to_the_servers_limit(proxy: Proxy, client: httpx.Client) -> None:
    body = {"prompt": "Hello", "n_predict": 1, "unknown": "x" * (2 << 20)}
    assert client.post("/completion", json=body).status_code == 200
    body["unknown"] = "x" * (10 << 20)
    # Caddy notices while it sends already, and may take that for a fault of the server's.
    refusals = (413,) if proxy.name == "nginx" else (413, 502)
    assert client.post("/completion", json=body).status_code in refusals


def test_metrics_are_for_the_own_network(proxy: Proxy, client: httpx.Client) -> None:
    assert "unpaced_" in client.get("/metrics").text
    with proxy.client(local_address="127.0.0.2") as stranger:
        assert stranger.get("/metrics").status_code == 403
        assert stranger.get("/health").status_code == 200


def test_http_2_streams(proxy: Proxy) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl on the PATH (Debian: apt-get install curl)")
    body = json.dumps({"prompt": "Once", "max_tokens": 20, "stream": True, "ignore_eos": True})
    arguments = ("-H", "content-type: application/json", "-d", body, "-w", "%{http_version}")
    command = proxy.curl("/v1/completions", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("data: [DONE]\n\n2")


def ask_in_silence(server: Server, client: httpx.Client) -> int:
    """The status of an answer in one piece before which the server says nothing for 3 s."""
    server.until(is_idle(server))
    answers: list[httpx.Response] = []
    body = {"prompt": "Hello", "n_predict": 4}
    asking = threading.Thread(target=lambda: answers.append(client.post("/completion", json=body)))
    with frozen(thread_of(server.process.pid, "decode")):
        asking.start()
        time.sleep(3)
    asking.join(patience(30))
    (answer,) = answers
    return answer.status_code


def test_an_answer_may_be_silent_for_long(server: Server, client: httpx.Client) -> None:
    # nginx's own limit is a second here, and Caddy has none: the sites' lines are what counts.
    assert ask_in_silence(server, client) == 200


def test_nginx_ends_silent_answers_without_the_sites_limit(server: Server, tmp_path: Path) -> None:
    with other_nginx(server, tmp_path, {"proxy_read_timeout 1h;": ""}) as client:
        assert ask_in_silence(server, client) == 504
