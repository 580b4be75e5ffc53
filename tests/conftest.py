"""Shared by all tests."""

# Before the engine: it installs a log callback, which the engine's sink then replaces. Imported
# later, by a test module, it would take the messages that other tests look for.
import llama_cpp  # noqa: F401
import pytest

from engine_ext import cpu_library

# A portable build has no backend before the engine has chosen one: llama_cpp's code chooses none.
cpu_library()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
