"""The pages about the code: the map stays short, and what they name is in the code."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PAGES = [DOCS / "architecture.md", *sorted((DOCS / "internals").glob("*.md"))]
SOURCES = {".py", ".pyi", ".h", ".cpp", ".cu", ".cuh", ".inc", ".toml"}
# prometheus_client adds the ending.
FOREIGN = {"unpaced_decode_loop_info"}


@cache
def words_of_the_code() -> set[str]:
    files = [ROOT / "pyproject.toml", ROOT / "Makefile"]
    for folder in ("csrc", "server", "engine_ext", "scripts", "tests"):
        files += [path for path in (ROOT / folder).rglob("*.*") if path.suffix in SOURCES]
    return {word for file in files for word in re.findall(r"\w+", file.read_text())}


def names(text: str) -> set[str]:
    """Of types, functions and constants, such as `SlotKeeper`, `Engine.submit`, `kStarted`."""
    quoted = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    quoted = [quote for quote in quoted if "." + quote.rpartition(".")[2] not in SOURCES]
    dotted = [
        quote for quote in quoted if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(\(\))?", quote)
    ]
    return {name for quote in dotted for name in re.findall(r"\w+", quote)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_names_is_in_the_code(page: Path) -> None:
    assert names(page.read_text()) - words_of_the_code() - FOREIGN == set()


def test_a_name_that_is_gone_is_noticed() -> None:
    gone = "Completions" + "Factory"
    assert names(f"`{gone}.make` and `Engine.submit()`") - words_of_the_code() == {gone}


def test_the_map_has_60_lines_at_most() -> None:
    text = (DOCS / "architecture.md").read_text()
    the_map = text.partition("## The map\n")[2].partition("\n## ")[0]
    assert 0 < len(the_map.splitlines()) <= 60
