"""`unpaced chat` on a real terminal, with a real server and the demo model."""

import json
import os
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.terminal.terminal import CTRL_C, CTRL_D, ENTER, NEW_LINE, TAB, UP, terminal
from tests.support.server import UNPACED, Server, serving

KEY = "terminal-key"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("-c", "2048", "-np", "1", "--api-key", KEY) as running:
        running.client.headers["authorization"] = f"Bearer {KEY}"
        yield running


def flags(server: Server) -> tuple[str, ...]:
    return ("chat", "--url", server.url, "--api-key", KEY)


def run(*arguments: str, given: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(UNPACED), *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "LLAMA_ARG_THREADS": "1", **env},
    )


def test_a_conversation_is_kept_changed_and_saved(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    with terminal(*flags(server), state=tmp_path) as screen:
        screen.until("/help lists the commands")
        screen.input("/set max_tokens 12", ENTER)
        screen.until(r"max_tokens = 12")
        screen.input("/system Tell short stories.", ENTER)
        screen.until("the system message is set")
        screen.input("Tell me", NEW_LINE, "a story", ENTER)  # two lines, one message
        screen.until(r"12 tokens, [\d.]+ tokens/s")
        screen.input("Another\\", ENTER, "one", ENTER)
        screen.until(r"12 tokens, ")
        screen.input(f"/save {file}", ENTER)
        screen.until("saved as")
        screen.input("/sav x", ENTER)
        screen.until("there is no /sav; did you mean /save")
        screen.input(CTRL_D)
        assert screen.end() == 0
    saved = json.loads(file.read_text())
    assert saved["max_tokens"] == 12
    roles = [message["role"] for message in saved["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant"]
    assert saved["messages"][1]["content"] == "Tell me\na story"
    assert saved["messages"][3]["content"] == "Another\none"
    assert all(message["content"] for message in saved["messages"])
    # What was saved is a body.
    assert server.complete("/v1/chat/completions", **saved)["choices"]


def test_ctrl_c_stops_the_answer_and_not_the_chat(server: Server, tmp_path: Path) -> None:
    with terminal(*flags(server), state=tmp_path) as screen:
        screen.input("/set ignore_eos true", ENTER)
        screen.until("ignore_eos = True")
        screen.input("Tell me a story", ENTER)
        server.until(lambda: server.metric("unpaced_requests_running") == 1, 30)
        screen.until("[a-z]{3,} [a-z]{2,} ")
        screen.type(CTRL_C)
        screen.until("stopped")
        server.until(lambda: server.metric("unpaced_requests_running") == 0, 10)
        screen.input(CTRL_C)
        screen.until("Ctrl-D or /quit leaves")
        screen.input("/set ignore_eos", ENTER)
        screen.until("the server's default")
        screen.input("/set max_tokens 5", ENTER)
        screen.input("Go on", ENTER)
        screen.until("5 tokens, ")
        screen.input("/quit", ENTER)
        assert screen.end() == 0


def test_inputs_of_an_earlier_chat_come_back_and_are_nobody_elses(
    server: Server, tmp_path: Path
) -> None:
    for keys in (("/set max_tokens 3", ENTER), (UP, ENTER)):
        with terminal(*flags(server), state=tmp_path) as screen:
            screen.input(*keys)
            screen.until("max_tokens = 3")
            screen.input(CTRL_D)
            assert screen.end() == 0
    file = tmp_path / "unpaced" / "chat_history"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.unlink()
    with terminal(*flags(server), "--no-history", state=tmp_path) as screen:
        screen.input("/sy", TAB)
        screen.until("stem")  # completed to /system
        screen.type(" x", ENTER)
        screen.until("the system message is set")
        screen.input(CTRL_D)
        assert screen.end() == 0
    assert not file.exists()


def test_a_model_given_gets_a_server_that_ends_with_the_chat(tmp_path: Path) -> None:
    env = {"TMPDIR": str(tmp_path), "UNPACED_API_KEY": "not for this one"}
    with terminal("chat", "demo", "-c", "512", state=tmp_path, **env) as screen:
        screen.until("/help lists the commands")
        pid = _child_of(screen.child.pid)
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        assert arguments[arguments.index(b"-c") + 1] == b"512"
        screen.input("/set max_tokens 4", ENTER)
        screen.input("Hello", ENTER)
        screen.until("4 tokens, ")
        screen.input(CTRL_C)  # at the prompt: the server goes on
        screen.until("Ctrl-D or /quit leaves")
        screen.input("Hello", ENTER)
        screen.until("4 tokens, ")
        os.kill(screen.child.pid, signal.SIGKILL)
        _until_gone(pid)


def test_a_pipe_gets_one_answer_and_nothing_else(tmp_path: Path) -> None:
    done = run("chat", "demo", given="Tell me a story", TMPDIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()
    assert "\x1b" not in done.stdout and "tokens/s" not in done.stdout
    assert list(tmp_path.iterdir()) == []  # the server's folder is gone


def test_what_is_wrong_is_said_in_a_line(server: Server, tmp_path: Path) -> None:
    assert "401" in run("chat", "--url", server.url, "--api-key", "wrong", given="x").stderr
    nobody = run("chat", "--url", "http://127.0.0.1:9", given="x")
    assert nobody.returncode == 1
    assert "`unpaced chat MODEL` starts one" in nobody.stderr
    assert "no such file" in run("chat", "none.gguf", given="x").stderr
    assert "did you mean --ctx-size" in run("chat", "demo", "--ctx-siez", "1", given="x").stderr
    assert "names one" in run("chat", "demo", "--url", server.url, given="x").stderr
    assert "unexpected argument '--ctx-size=5'" in run("chat", "--ctx-size=5").stderr
    assert run("chat", "what is this").returncode == 1
    long = "word " * 3000
    refused = run(*flags(server), given=long)
    assert refused.returncode == 1
    assert refused.stderr.startswith("400: ")


def _child_of(parent: int) -> int:
    return int(Path(f"/proc/{parent}/task/{parent}/children").read_text().split()[0])


def _until_gone(pid: int) -> None:
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.05)
