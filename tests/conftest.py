"""Shared by all tests."""

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Before the engine: it installs a log callback, which the engine's sink then replaces. Imported
# later, by a test module, it would take the messages that other tests look for.
import llama_cpp  # noqa: F401
import pytest

from engine_ext import cpu_library
from unpaced.cli.chat.own_server import short_folder
from unpaced.settings import Settings
from unpaced.settings.options.sources import variable_of

# A portable build has no backend before the engine has chosen one: llama_cpp's code chooses none.
cpu_library()

# What the shell has set for a server of its own is none of the tests'.
for name, field in Settings.model_fields.items():
    while (variable := variable_of(name, field)) is not None:
        del os.environ[variable]

# Under nohup a hangup is ignored, in a shell's background Ctrl-C, and so they would be by every
# program that a test starts.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What is imported and collected stays: no later collection of garbage looks at it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """pytest's, as deep as a checkout may lie: no Unix socket's name has room in it."""
    folder = tmp_path / ("long" * 27)
    folder.mkdir()
    return folder


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    """Where Unix sockets of tests lie, wherever the checkout is."""
    with tempfile.TemporaryDirectory(prefix="unpaced-test-", dir=short_folder()) as name:
        yield Path(name)
