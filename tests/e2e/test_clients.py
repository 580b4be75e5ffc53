"""The clients that people use, each a real process, against one server with a key.

`make test-clients` installs them in environments of their own, in .build/clients. Every program in
tests/e2e/clients takes the server's address and key and exits with 0 if all it asked for was right.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server import Server, serving

HERE = Path(__file__).parent / "clients"
BUILT = Path(__file__).resolve().parents[2] / ".build" / "clients"
PYTHON = BUILT / "python" / "bin" / "python"
NODE = BUILT / "node"
VLLM = BUILT / "vllm_requests.py"
KEY = "secret"

needs_python = pytest.mark.skipif(not PYTHON.exists(), reason="make test-clients installs them")
needs_node = pytest.mark.skipif(
    not (NODE / "node_modules").exists(), reason="make test-clients installs them, if npm is there"
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    # Seeded, as not every client sends one: a drawn text must not decide whether a test passes.
    flags = ("--seed", "42", "-np", "4", "-t", "1", "-c", "4096", "--alias", "demo")
    with serving(*flags, "--api-key", KEY) as running:
        yield running


def run(command: list[str | Path], cwd: Path) -> str:
    """What it printed. A client that cannot reach the server must fail, not wait."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | {"NO_PROXY": "127.0.0.1", "PYTHONWARNINGS": "default"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


@needs_python
@pytest.mark.parametrize(
    "client",
    [
        "openai_python",
        "anthropic_python",
        "litellm_client",
        "langchain_client",
        "instructor_client",
        "lm_eval_tasks",
    ],
)
def test_a_python_client(server: Server, client: str, tmp_path: Path) -> None:
    run([PYTHON, HERE / f"{client}.py", server.url, KEY], tmp_path)


@needs_python
def test_vllms_request_functions(server: Server, tmp_path: Path) -> None:
    run([PYTHON, HERE / "vllm_bench.py", server.url, KEY, VLLM], tmp_path)


@needs_node
@pytest.mark.parametrize("client", ["openai", "ai"])
def test_a_node_client(server: Server, client: str) -> None:
    # Node looks for packages beside the program.
    shutil.copy(HERE / f"{client}.mjs", NODE)
    run(["node", f"{client}.mjs", server.url, KEY], NODE)


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_curl(server: Server, tmp_path: Path) -> None:
    command: list[str | Path] = [
        "curl", "-sS", "--fail-with-body", "-N", "-D", "head",
        "-H", f"Authorization: Bearer {KEY}", "-H", "Content-Type: application/json",
    ]  # fmt: skip
    body = '{"prompt": "Once", "max_tokens": 4, "stream": true, "ignore_eos": true}'
    printed = run([*command, "-d", body, f"{server.url}/v1/completions"], tmp_path)
    frames = printed.split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    assert all(frame.startswith("data: ") for frame in frames[:-1])
    assert "\r" not in printed
    assert "content-type: text/event-stream" in (tmp_path / "head").read_text().lower()
    body = '{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}'
    assert '"choices"' in run([*command, "-d", body, f"{server.url}/v1/chat/completions"], tmp_path)
