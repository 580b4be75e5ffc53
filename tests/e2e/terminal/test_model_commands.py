"""`unpaced pull`, `list`, `show`, and a model where a command stands."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.rig.server_process import free_port, running
from tests.e2e.terminal.terminal import terminal
from tests.support.gguf_files import split_model
from tests.support.hub import Hub, serving_hub
from tests.support.server import UNPACED, Server, run
from unpaced.settings.model import DEMO_MODEL

DEMO = DEMO_MODEL.read_bytes()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    folder = tmp_path / "parts"
    folder.mkdir()
    split_model(folder, 3)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    with serving_hub({"README.md": b"x", "demo-Q8_0.gguf": DEMO, **files}) as running_hub:
        yield running_hub


@pytest.fixture
def env(hub: Hub, tmp_path: Path) -> dict[str, str]:
    return {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "home"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "HF_HUB_DISABLE_XET": "1",
        "NO_PROXY": "127.0.0.1",
        "LLAMA_ARG_THREADS": "1",
    }


def test_what_was_pulled_is_listed_shown_and_served(
    hub: Hub, env: dict[str, str], tmp_path: Path
) -> None:
    assert "no models in the cache" in run("list", **env).stdout
    assert "not in" in run("show", "user/repo", **env).stderr
    pulled = run("pull", "user/repo:Q8_0", **env)
    assert pulled.returncode == 0, pulled.stderr
    path = Path(pulled.stdout.strip())
    assert path.read_bytes() == DEMO
    split = run("pull", "user/repo", "--hf-file", "demo-00001-of-00003.gguf", **env)
    assert split.returncode == 0, split.stderr
    from_url = run("pull", f"{hub.url}/user/repo/resolve/main/demo-Q8_0.gguf", **env)
    assert from_url.returncode == 0, from_url.stderr
    listed = json.loads(run("list", "--json", **env).stdout)
    assert [(model["repo"], model["file"], model["whole"]) for model in listed] == [
        ("user/repo", "demo-00001-of-00003.gguf", True),
        ("user/repo", "demo-Q8_0.gguf", True),
        (None, "demo-Q8_0.gguf", True),
    ]
    assert [model["bytes"] for model in listed[1:]] == [len(DEMO)] * 2
    table = run("list", **env).stdout
    assert re.search(r"^user/repo +demo-Q8_0\.gguf +3\.6 MB +today$", table, re.MULTILINE), table
    shown = run("show", "user/repo:Q8_0", **env).stdout
    assert "architecture  llama" in shown
    assert "3.34 M (3,344,640)" in shown
    parts = json.loads(run("show", listed[0]["path"], "--json", **env).stdout)
    assert parts["n_parameters"] == 3_344_640
    port = free_port()
    hub.shutdown()
    command = [str(UNPACED), "user/repo:Q8_0", "--offline", "--port", str(port)]
    with running(command, env, port, tmp_path / "log") as process:
        server = Server(process, tmp_path / "log")
        assert server.complete(prompt="x", n_predict=2, ignore_eos=True)["tokens_predicted"] == 2
        server.client.close()


def check_says(server: Server, *texts: str) -> None:
    """Its log has them, soon after it answers."""
    server.until(lambda: all(text in server.log.read_text() for text in texts))
    server.client.close()


def test_a_file_where_a_command_stands_is_served(env: dict[str, str], tmp_path: Path) -> None:
    model = tmp_path / "any.gguf"
    model.write_bytes(DEMO)
    port = free_port()
    for number, words in enumerate(((str(model),), ("serve", str(model)))):
        log = tmp_path / f"log{number}"
        command = [str(UNPACED), *words, "-c", "64", "--port", str(port)]
        with running(command, env, port, log) as process:
            check_says(Server(process, log), f"http://127.0.0.1:{port}", str(model))
    folder = run(str(tmp_path), **env)
    assert "is a folder; the model is a file, such as any.gguf in it" in folder.stderr


def test_a_download_shows_a_bar_on_a_terminal_alone(
    hub: Hub, env: dict[str, str], tmp_path: Path
) -> None:
    url = f"{hub.url}/user/repo/resolve/main/demo-Q8_0.gguf"
    with terminal("pull", url, state=tmp_path, **env) as screen:
        screen.until(r"demo-Q8_0\.gguf: 100%\|.*\d+(\.\d)?M?B/s")
        assert screen.end() == 0
    (tmp_path / "cache" / "llama.cpp" / "demo-Q8_0.gguf").unlink()
    assert "%|" not in run("pull", url, **env).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pull", "nothing"), "is not USER/REPO[:QUANT]"),
        (("pull", "user/none"), "Hugging Face has no repository user/none"),
        (("pull", "http://127.0.0.1:9/x.gguf"), "Connection refused"),
        (("pull", "http://h/x.gguf", "--hf-file", "y"), "--hf-file is for a repository"),
        (("show", "none.gguf"), "no such file"),
        (("show", "nothing"), "is no file"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    arguments: tuple[str, ...], message: str, env: dict[str, str]
) -> None:
    done = run(*arguments, **env)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
