"""Shared by all tests."""

import os
import signal
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

# Before the engine: it installs a log callback, which the engine's sink then replaces. Imported
# later, by a test module, it would take the messages that other tests look for.
import llama_cpp  # noqa: F401
import pytest

from engine_ext import cpu_library
from unpaced.cli.chat.own_server import short_folder

ROOT = Path(__file__).resolve().parents[1]

# A portable build has no backend before the engine has chosen one: llama_cpp's code chooses none.
cpu_library()

# Under nohup a hangup is ignored, in a shell's background Ctrl-C, and so they would be by every
# program that a test starts.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that wait and files that compute take turns where several run at a time.

    The longest comes first, and folders that have a browser stay together.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=_turn)


def _turn(item: pytest.Item) -> tuple[bool, int]:
    path = item.path.parent if item.path.parent.name == "page" else item.path
    return item.path.parent.name != "peer", zlib.crc32(str(path.relative_to(ROOT)).encode())


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
