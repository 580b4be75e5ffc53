"""Open WebUI with the settings of deploy/, for who has it: it takes 1.4 GB without torch.

`UNPACED_OPEN_WEBUI=/path/to/bin/open-webui pytest -m packaging tests/e2e/proxies`
"""

import json
import os
import shutil
from collections.abc import Iterator

import httpx
import pytest

from tests.bench.rig.server_process import ServerProcess, free_port
from tests.e2e.proxies.proxy import DEPLOY, changed
from tests.support.patience import patience
from tests.support.server import Server, serving

PROGRAM = os.environ.get("UNPACED_OPEN_WEBUI") or shutil.which("open-webui")
RUNNING = "unpaced_requests_running"
# No account is asked for, and nothing is fetched.
HERE = {"WEBUI_AUTH": "False", "OFFLINE_MODE": "True", "HF_HUB_OFFLINE": "1"}

pytestmark = [
    pytest.mark.packaging,
    pytest.mark.skipif(PROGRAM is None, reason="no open-webui (UNPACED_OPEN_WEBUI names it)"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--alias", "stories", "-c", "2048", "--context-shift") as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder, port = tmp_path_factory.mktemp("open-webui"), free_port()
    deployed = changed(
        DEPLOY / "open-webui" / "unpaced.env", {"127.0.0.1:8080": f"127.0.0.1:{server.port}"}
    )
    lines = [line for line in deployed.splitlines() if line and not line.startswith("#")]
    env = dict(line.split("=", 1) for line in lines) | HERE
    env |= {"DATA_DIR": str(folder), "WEBUI_SECRET_KEY": "for-a-test"}
    command = [str(PROGRAM), "serve", "--host", "127.0.0.1", "--port", str(port)]
    process = ServerProcess(command, env, port, folder / "log")
    try:
        process.wait_healthy()
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as made:
            signed_in = made.post("/api/v1/auths/signin", json={"email": "", "password": ""})
            made.headers["authorization"] = f"Bearer {signed_in.json()['token']}"
            yield made
    finally:
        process.stop()


def question(**fields: object) -> dict[str, object]:
    messages = [{"role": "user", "content": "Tell a story"}]
    return {"model": "stories", "messages": messages, "stream": True} | fields


def test_it_finds_the_model(client: httpx.Client) -> None:
    assert [model["id"] for model in client.get("/api/models").json()["data"]] == ["stories"]


def test_a_chat_streams(server: Server, client: httpx.Client) -> None:
    finished = 'unpaced_completions_finished_total{model="stories",reason="length"}'
    before = server.metric(finished)
    text = ""
    body = question(max_tokens=40)
    with client.stream("POST", "/api/chat/completions", json=body) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                for choice in json.loads(line.removeprefix("data: ")).get("choices", []):
                    text += choice["delta"].get("content") or ""
    assert text
    assert server.metric(finished) == before + 1


def test_who_leaves_is_cancelled_in_the_server(server: Server, client: httpx.Client) -> None:
    body = question(ignore_eos=True, max_tokens=-1)
    with client.stream("POST", "/api/chat/completions", json=body) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("data: ")
        assert server.metric(RUNNING) == 1
    assert server.until(lambda: server.metric(RUNNING) == 0) < patience(2)
    cancelled = 'unpaced_completions_cancelled_total{model="stories",phase="decode"}'
    assert server.metric(cancelled) == 1
