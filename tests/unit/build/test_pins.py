"""What is pinned in Python and stands elsewhere, too, is the same there."""

import re
from pathlib import Path

from engine_ext.llama_build.choice import OLDEST_DRIVER
from engine_ext.llama_build.pins import LLAMA_COMMIT, VERSION

ROOT = Path(__file__).resolve().parents[3]


def test_the_source_tree_that_cmake_takes_is_the_pinned_one() -> None:
    text = (ROOT / "csrc" / "CMakeLists.txt").read_text()
    assert re.findall(r"llama_cpp_python-([\d.]+\d)", text) == [VERSION]


def test_the_driver_that_is_asked_for_is_the_same_before_a_build_and_at_a_start() -> None:
    text = (ROOT / "csrc" / "engine" / "no_card.h").read_text()
    assert re.findall(r"release (\d+) or newer", text) == [OLDEST_DRIVER]
    for name in ("README.md", "docs/gpu.md", "docs/install.md", "docs/docker.md"):
        text = (ROOT / name).read_text()
        assert set(re.findall(r"(\d{3}) or newer", text)) == {OLDEST_DRIVER}, name


def test_the_pages_name_the_pinned_llama_cpp() -> None:
    for name in ("README.md", "docs/flags.md", "docs/docker.md"):
        found = re.findall(r"(?:llama\.cpp|llama-server) ([0-9a-f]{9})", (ROOT / name).read_text())
        assert set(found) == {LLAMA_COMMIT}, name
