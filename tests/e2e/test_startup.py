"""Starting and ending quickly: bounds that a busy machine keeps, and what may be imported."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.bench_startup import environment, time_server
from tests.bench.rig.server_process import free_port, running


def imported(statement: str) -> set[str]:
    """Top-level packages that a statement loads in a new interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}; import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        (
            "from unpaced.cli.main import main; main(['--version'])",
            {"pydantic", "fastapi", "llama_cpp", "structlog", "numpy", "asyncio", "httpx"},
        ),
        (
            "from unpaced.cli.flags import read_command_line; read_command_line([])",
            {"fastapi", "llama_cpp", "structlog", "numpy", "httpx", "uvicorn", "uvloop"},
        ),
        (
            # A supervisor stays small: it has no engine, and no server.
            "import unpaced.cli.serve, unpaced.supervision.supervisor, unpaced.process.logs, "
            "unpaced.supervision.log_writer, unpaced.http.wire.inherited",
            {"fastapi", "starlette", "uvicorn", "uvloop", "prometheus_client", "httptools",
             "llama_cpp", "numpy", "jinja2", "httpx"},
        ),
        (
            # What serving loads at start: nothing that only some servers or requests need.
            "import unpaced.process.process, unpaced.cli.serve",
            {"fastapi", "llama_cpp", "numpy", "jinja2", "huggingface_hub", "httpx", "httpx2",
             "requests", "openai", "gguf", "torch", "yaml", "tqdm", "transformers", "llguidance",
             "jsonschema", "cryptography"},
        ),
    ],
    ids=["version", "settings", "supervise", "serve"],
)  # fmt: skip
def test_what_is_not_needed_is_not_imported(statement: str, forbidden: set[str]) -> None:
    assert imported(statement) & forbidden == set()


NEVER_AT_START = {
    "rich.console", "attr", "pygments", "fastapi", "llama_cpp", "numpy", "jinja2", "llguidance",
    "huggingface_hub", "httpx", "requests", "openai", "gguf", "yaml", "tqdm", "jsonschema",
    "cryptography",
}  # fmt: skip
"""Some are installed for the tests alone: a library that takes along what it finds is seen here."""


def test_a_server_that_is_ready_has_imported_no_more_than_it_needs(tmp_path: Path) -> None:
    """What a real start imports and in which order, as the interpreter tells it."""
    port, log = free_port(), tmp_path / "log"
    command = [sys.executable, "-X", "importtime", "-m", "unpaced", "--port", str(port)]
    with running(command, {}, port, log):
        lines = log.read_text()
    names = re.findall(r"^import time: +\d+ \| +\d+ \| +(\S+)$", lines, re.MULTILINE)
    assert NEVER_AT_START.isdisjoint(names)
    # A module is told once it is there. The model loads while these are imported.
    place = {name: number for number, name in enumerate(names)}
    beside = ("starlette.applications", "prometheus_client", "unpaced.process.process")
    assert place["unpaced.process.early_load"] < min(place[name] for name in beside)


LONGEST_HOLD = """
import asyncio, sys, time
import unpaced.process.process
from unpaced.routes.chat_modules import import_chat

async def main():
    sys.setswitchinterval(0.0005)  # as the server does
    longest, last = 0.0, time.perf_counter()
    started = last
    work = asyncio.create_task(import_chat())
    while not work.done():
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    print(longest, last - started)
    assert "unpaced.chat.completion" in sys.modules

asyncio.run(main())
"""


def test_the_first_chat_holds_up_no_stream() -> None:
    """The event loop runs on while chat's modules are imported."""
    command = [sys.executable, "-c", LONGEST_HOLD]
    shares = []
    for _ in range(3):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        longest_s, whole_s = map(float, done.stdout.split())
        shares.append(longest_s / whole_s)
    assert min(shares) < 0.5


def cpu_of_imports() -> float:
    """CPU seconds in which a new interpreter imports what every server here is made of."""
    before = os.times()
    subprocess.run(
        [sys.executable, "-c", "import fastapi, uvicorn, prometheus_client"],
        env=environment(),
        check=True,
    )
    after = os.times()
    return sum(after[2:4]) - sum(before[2:4])


def test_start_and_end_are_quick() -> None:
    """The best of three; what a start computes as a multiple of what its libraries cost then and
    there, for seconds are the machine's and its other work's (quiet 1.1, beside four hogs 1.8)."""
    imports, runs = zip(*((cpu_of_imports(), time_server()) for _ in range(3)), strict=True)
    assert min(run["health_cpu_s"] for run in runs) < 4 * min(imports)
    assert min(run["health_s"] for run in runs) < 20
    assert min(run["exit_s"] for run in runs) < 5
