"""--sleep-idle-seconds: the model goes and comes back; nothing else is lost."""

import time
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.server import Server, serving

IDLE_S: Final = 1


def is_asleep(server: Server) -> bool:
    return bool(server.client.get("/props").json()["is_sleeping"])


def assert_awake_after(server: Server, body: dict[str, Any]) -> dict[str, Any]:
    """A request's answer; soon after it the server is awake, unless "soon" took too long here."""
    for _ in range(10):
        started = time.monotonic()
        answer: dict[str, Any] = server.complete(**body)
        if not is_asleep(server):
            return answer
        assert time.monotonic() - started > IDLE_S
    raise AssertionError("this machine is too slow to tell")


@pytest.mark.parametrize("flags", [(), ("--api-key", "k")], ids=["open", "closed"])
def test_an_idle_server_frees_the_model_and_loads_it_for_a_request(flags: tuple[str, ...]) -> None:
    with serving("--sleep-idle-seconds", str(IDLE_S), "-c", "256", *flags) as server:
        if flags:
            server.client.headers["authorization"] = "Bearer k"
        body: dict[str, Any] = {"prompt": "Once upon a time", "n_predict": 8, "temperature": 0}
        before = assert_awake_after(server, body)
        server.until(lambda: is_asleep(server))
        # What only reads does not wake it.
        for path in ("/health", "/health/ready", "/models", "/v1/models", "/metrics", "/nope"):
            server.client.get(path)
        unauthorised = server.client.post("/completion", headers={"authorization": "Bearer x"})
        assert unauthorised.status_code == (401 if flags else 400)
        if flags:
            assert is_asleep(server)
        assert server.client.get("/models").json()["data"][0]["meta"]["n_vocab"] > 0
        after = assert_awake_after(server, body)
        assert after["content"] == before["content"]


def test_a_long_request_keeps_the_server_awake() -> None:
    flags = ("--sleep-idle-seconds", str(IDLE_S), "-c", "256", "--context-shift", "--ignore-eos")
    with serving(*flags) as server:
        with server.open_request("/completion", prompt="x", n_predict=1_000_000, stream=True) as c:
            deadline = time.monotonic() + 2.5
            while time.monotonic() < deadline:
                assert c.recv(1 << 20)
                assert not is_asleep(server)
        server.until(lambda: is_asleep(server))


def test_requests_while_it_falls_asleep_and_wakes_are_all_answered() -> None:
    with serving("--sleep-idle-seconds", str(IDLE_S), "-c", "256") as server:
        for _ in range(3):
            server.until(lambda: is_asleep(server))
            connections = [
                server.open_request("/completion", prompt="x", n_predict=2) for _ in range(8)
            ]
            for connection in connections:
                with connection:
                    assert connection.recv(64).startswith(b"HTTP/1.1 200")
            # Right when the timer fires.
            time.sleep(0.97)
            answer = server.complete(prompt="x", n_predict=2, ignore_eos=True)
            assert answer["tokens_predicted"] == 2


def test_a_model_that_is_gone_is_said_and_can_come_back(tmp_path: Path) -> None:
    from unpaced.settings.model import DEMO_MODEL

    model = tmp_path / "m.gguf"
    model.write_bytes(DEMO_MODEL.read_bytes())
    with serving("--sleep-idle-seconds", str(IDLE_S), "-c", "256", "-m", str(model)) as server:
        server.until(lambda: is_asleep(server))
        model.rename(tmp_path / "away.gguf")
        response = server.post("/completion", {"prompt": "x", "n_predict": 2})
        assert response.status_code == 503
        assert "no such file" in response.json()["error"]["message"]
        (tmp_path / "away.gguf").rename(model)
        assert server.complete(prompt="x", n_predict=2, ignore_eos=True)["tokens_predicted"] == 2
