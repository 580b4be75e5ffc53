"""The pages about the code: the map is whole and short, and what they name is in the code."""

import re
import runpy
import tomllib
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
    for folder in ("csrc", "unpaced", "engine_ext", "scripts", "tests"):
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


def the_map() -> str:
    text = (DOCS / "architecture.md").read_text()
    return text.partition("## The map\n")[2].partition("\n## ")[0]


def test_the_map_has_60_lines_at_most() -> None:
    assert 0 < len(the_map().splitlines()) <= 60


def test_the_map_has_every_layer() -> None:
    """In the tables, from above, as the linters have them."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = {tuple(c["containers"]): c["layers"] for c in tool["contracts"] if "layers" in c}
    native = runpy.run_path(str(ROOT / "scripts" / "include_layers.py"))["LAYER_OF"]
    wanted = {"csrc": {folder.partition("/")[0] for folder in native}}
    for (package,), names in layers.items():
        wanted[package] = {name for layer in names for name in layer.split(" : ")}
    for package, folders in wanted.items():
        table = the_map().partition(f"| `{package}/`, from above |")[2].partition("\n\n")[0]
        named = "\n".join(line.split("|")[1] for line in table.splitlines() if line.count("|") > 2)
        assert set(re.findall(r"\w+", named.replace("device/{", "device {"))) >= folders, package
