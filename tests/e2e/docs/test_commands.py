"""Every command of the pages that people begin with is run as it stands there, or named here.

What stands for something of the reader's (a port, a model, a repository, a host) gets a real one:
the demo model as model.gguf, a small hub in the place of Hugging Face's, a server on a free port.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.bench.rig.server_process import free_port
from tests.e2e.docs.page_commands import PAGES, ROOT, shown_commands
from tests.support.hub import serving_hub
from tests.support.server import UNPACED, serving
from unpaced.settings.model import DEMO_MODEL

# Why not, for each that is not run. A command that no page shows any more must go from here.
_SYSTEMD = "needs root and systemd as process 1; test_units.py has systemd read the units"
_DOCKER = "needs a container engine and images from a registry; test_image.py builds the image"
NOT_RUN = {
    "make test": "it is what runs this",
    "make test-clients": "half an hour, and 1 GB of clients; .ci/run runs it",
    "make build": "was run before this could be",
    "docker compose -f deploy/compose.yaml up": _DOCKER,
    "docker compose -f deploy/compose.yaml -f deploy/compose.gpu.yaml up": _DOCKER,
    "cp deploy/unpaced.service /etc/systemd/system/": _SYSTEMD,
    "mkdir -p /etc/unpaced && echo UNPACED_MODEL=/var/lib/unpaced/model.gguf"
    " >/etc/unpaced/environment": _SYSTEMD,
    "systemctl daemon-reload && systemctl enable --now unpaced": _SYSTEMD,
    "systemctl status unpaced": _SYSTEMD,
}
# What a reader puts in the place of words; a program's name alone is a mention.
_MENTIONS = {
    "unpaced pull": "unpaced pull user/repo:Q4_K_M",
    "unpaced show": "unpaced show model.gguf",
    "unpaced show --json": "unpaced show --json model.gguf",
}
_PLACEHOLDERS = (
    (" [FLAG ...]", " -c 512"),
    ("YOUR FLAGS", "-c 512 -np 1"),
    ("REPO[:QUANT]", "user/repo:Q4_K_M"),
    ("[MODEL]", "model.gguf"),
    ("MODEL", "model.gguf"),
    ("THAT_FILE", "model.gguf"),
    ("TEXT", "'Once upon a time'"),
)
_REPOSITORIES = ("user/repo", "Qwen/Qwen3-0.6B-GGUF", "Qwen/Qwen3-8B-GGUF")
_QUANTS = ("Q4_K_M", "Q8_0")
_ENDS = re.compile(
    r"unpaced (chat|show|list|pull|health|complete|completion)\b"
    r"|--(help|version|dry-run|print-config)\b"
)


@dataclass
class Desk:
    """Where somebody sits: a folder with a model, a home, and programs in the PATH.

    `port`: of a server that runs meanwhile.
    """

    folder: Path
    port: int
    env: dict[str, str]

    def run(self, command: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """In a shell, to its end."""
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder,
            env=self.env,
            input=given,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("desk")
    for name in ("model.gguf", "new.gguf"):
        shutil.copy(DEMO_MODEL, folder / name)
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "unpaced").symlink_to(UNPACED)
    (folder / "programs").mkdir()
    (folder / "programs" / "unpaced").symlink_to(UNPACED)
    # As README.md says.
    (folder / "programs" / "llama-server").symlink_to(UNPACED)
    (folder / "home").mkdir()
    files = {f"model-{quant}.gguf": DEMO_MODEL.read_bytes() for quant in _QUANTS}
    with serving_hub(files, _REPOSITORIES) as hub, serving("-c", "1024") as server:
        here = Desk(
            folder,
            server.port,
            {
                "PATH": f"{folder / 'programs'}:{os.environ['PATH']}",
                "HOME": str(folder / "home"),
                "HF_ENDPOINT": hub.url,
                "HF_HUB_DISABLE_XET": "1",
                "LLAMA_ARG_THREADS": "1",
                "UNPACED_PORT": str(server.port),  # of commands that name none
                "NO_PROXY": "127.0.0.1,localhost",
            },
        )
        # Something for `git diff` to show.
        author = "-c user.name=a -c user.email=a@example.org"
        made = here.run(
            "git init -q . && echo one > story.txt && git add story.txt"
            f" && git {author} commit -qm story && echo two >> story.txt"
        )
        assert made.returncode == 0, made.stderr
        yield here


def texts(wanted: Callable[[str], bool]) -> list[str]:
    """The commands of a kind that are run, each once."""
    shown = dict.fromkeys(command.text for command in shown_commands())
    return [text for text in shown if text not in NOT_RUN and wanted(text)]


def filled(text: str) -> str:
    """With something in the place of its placeholders."""
    text = _MENTIONS.get(text, text)
    for placeholder, value in _PLACEHOLDERS:
        text = text.replace(placeholder, value)
    return text


def serves(text: str) -> bool:
    """Whether it goes on until somebody stops it."""
    starts = re.match(r"(\.venv/bin/)?(unpaced|llama-server)\s|make serve", text)
    return starts is not None and not _ENDS.search(re.sub(r"\s+", " ", text))


def test_each_page_is_read_and_what_is_left_out_is_there() -> None:
    commands = shown_commands()
    assert {command.page for command in commands} == set(PAGES)
    shown = {command.text for command in commands}
    assert (set(NOT_RUN) | set(_MENTIONS)) - shown == set()
    assert len(texts(serves)) >= 12
    assert len(texts(lambda text: not serves(text))) >= 25


@pytest.mark.parametrize("text", texts(lambda text: not serves(text)))
def test_a_command_that_ends(desk: Desk, text: str) -> None:
    command = filled(text).replace("8080", str(desk.port))
    # A server that is elsewhere.
    command = command.replace("https://host/llm", f"http://127.0.0.1:{desk.port}")
    if command.startswith("export OPENAI_BASE_URL"):  # for any program that speaks OpenAI's API
        ask = "from openai import OpenAI; print(OpenAI().models.list().data[0].id)"
        command += f" && {sys.executable} -c '{ask}'"
    done = desk.run(command, given="Tell me a story\n")
    assert done.returncode == 0, done.stderr
    written = re.search(r"> (~/\S+)$", command)
    if written:
        assert Path(written[1].replace("~", desk.env["HOME"])).stat().st_size > 1000
    elif not command.startswith(("ln ", "mkdir ")):
        assert done.stdout.strip(), done.stderr
    if command.startswith("curl"):
        assert '"error"' not in done.stdout
    if '"stream": true' in command:
        assert done.stdout.count("data: ") > 10 and "data: [DONE]" in done.stdout


@pytest.mark.parametrize("text", texts(serves))
def test_a_command_that_serves(desk: Desk, text: str) -> None:
    command = filled(text)
    if command.startswith("make "):
        command = recipe_of(command)
    port = free_port()
    env = desk.env | {"UNPACED_PORT": str(port)}
    command = command.replace("8080", str(port))
    process = subprocess.Popen(
        ["bash", "-euc", f"exec {command}"],
        cwd=desk.folder,
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not is_healthy(port):
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()[1]
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
        assert process.returncode == 0, log
    finally:
        process.kill()
        process.wait()


def recipe_of(command: str) -> str:
    """What `make serve ARGS=...` runs when everything is built."""
    shown = subprocess.run(
        ["bash", "-c", command.replace("make", "make --dry-run", 1)],
        cwd=ROOT,
        env={**os.environ, "MAKEFLAGS": ""},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (line,) = re.findall(r"^exec (\.venv/bin/unpaced serve.*)$", shown, re.MULTILINE)
    return str(line)


def is_healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return True
    except OSError:
        return False
