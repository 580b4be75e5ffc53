"""The pages name files that there are, and their links lead somewhere."""

import re
import subprocess
from functools import cache
from itertools import product
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "csrc").rglob("*.md")])
SOURCE = r"(?:py|pyi|h|cpp|cu|cuh|inc|sh|toml|md|yaml|yml|tsv|json|mjs|html|lock)"
# Named, and no file of the checkout: llama.cpp and its headers, and what a build makes.
FOREIGN = {
    "engine_ext/_native",
    "cuda_runtime.h",
    "dist/",
    "engine_ext/lib",
    "generation_config.json",
    "ggml.h",
    "llama.cpp",
    "llama-ext.h",
    "llama.h",
    "openapi.json",
    "tokenizer.json",
}


@cache
def files() -> frozenset[str]:
    """Every file of the checkout, as Git has it or would take it."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return frozenset(name for name in listed.stdout.splitlines() if (ROOT / name).is_file())


def spelled_out(name: str) -> list[str]:
    """`a.{h,cpp}` as `a.h` and `a.cpp`."""
    parts = re.split(r"\{([^}]*)\}", name)
    choices = [part.split(",") if odd % 2 else [part] for odd, part in enumerate(parts)]
    return ["".join(chosen) for chosen in product(*choices)]


def named_paths(text: str) -> set[str]:
    """What stands in backticks and looks like a path of ours.

    It begins with a folder of the checkout, or is a bare file name with a suffix of sources.
    """
    quoted = re.findall(
        r"(?<!`)`([^`\n]+)`(?!`)", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    )
    folders = "|".join(
        path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "."
    )
    ours = re.compile(rf"(?:{folders})/[\w./*{{}},-]*|[\w*{{}},-]+\.{SOURCE}")
    words = {word for quote in quoted for word in quote.split()}
    return {word for word in words if ours.fullmatch(word)} - FOREIGN


def is_file(name: str, tracked: frozenset[str]) -> bool:
    """Whether a file's path is or ends like this, which may be a pattern."""
    if "*" in name:
        return any(Path(path).match(name) for path in tracked)
    return any(f"/{path}".endswith(f"/{name}") for path in tracked)


def is_there(name: str, tracked: frozenset[str]) -> bool:
    """As a file, a folder or a pattern of the checkout; a bare name as a file in any folder."""
    if "/" not in name or "*" in name:
        return is_file(name, tracked)
    return name in tracked or any(path.startswith(name.rstrip("/") + "/") for path in tracked)


def drawn_files(text: str) -> set[str]:
    """What stands in a diagram or a command and looks like a source of ours."""
    fenced = "\n".join(re.findall(r"^```.*?^```", text, flags=re.M | re.S))
    return (
        set(re.findall(r"(?<![\w./*-])(?:\w+/)*\w+\.(?:py|pyi|h|cpp|cu|cuh)\b", fenced)) - FOREIGN
    )


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them of its headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_path_that_a_page_names_is_there(page: Path) -> None:
    tracked = files()
    names = {one for name in named_paths(page.read_text()) for one in spelled_out(name)}
    assert [name for name in sorted(names) if not is_there(name, tracked)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_file_that_a_diagram_shows_is_there(page: Path) -> None:
    tracked = files()
    shown = sorted(drawn_files(page.read_text()))
    assert [name for name in shown if not is_file(name, tracked)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_within_the_checkout_leads_somewhere(page: Path) -> None:
    lost = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name) if name else page
        if not file.exists() or (anchor and anchor not in headings(file)):
            lost.append(target)
    assert lost == []


def test_the_index_has_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    pages -= {"README.md"}
    assert {page for page in pages if f"]({page})" not in index} == set()


def test_a_path_that_is_gone_is_noticed() -> None:
    text = (
        "`unpaced/nowhere.py` and `gone_file.cpp`, `csrc/base/`, "
        "`csrc/base/wakeup.{h,cpp}` `/props`"
    )
    names = named_paths(text)
    assert names == {
        "unpaced/nowhere.py",
        "gone_file.cpp",
        "csrc/base/",
        "csrc/base/wakeup.{h,cpp}",
    }
    missing = {one for name in names for one in spelled_out(name) if not is_there(one, files())}
    assert missing == {"unpaced/nowhere.py", "gone_file.cpp"}


def test_a_file_that_is_gone_from_a_diagram_is_noticed() -> None:
    text = "```\n messages ─▶ plan.py: a prompt\n ─▶ answer/parser.py\n```\n"
    assert drawn_files(text) == {"plan.py", "answer/parser.py"}


def test_contributing_names_every_folder() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    roots = {"csrc", "engine_ext", "unpaced", "tests"}
    parts = [path.split("/") for path in files()]
    folders = {"/".join(names[:2]) for names in parts if names[0] in roots and len(names) > 2}
    assert len(folders) > 30
    assert {folder for folder in folders if f"`{folder}`" not in text} == set()
