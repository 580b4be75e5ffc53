"""The host's C++ sources, and what of ours each includes."""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("csrc", "tests")
TESTS = ROOT / "tests"
# Where includes of ours are found.
OURS = (ROOT / "csrc", TESTS / "unit" / "cpp" / "support", TESTS / "gpu" / "cpp")
NOT_EVERYWHERE = ("cooperative_groups", "cublas", "cuda", "relacy/")
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.MULTILINE)


def host_sources() -> list[Path]:
    """Every .cpp file that can be read on any machine."""
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.cpp"))
    return sorted(path for path in found if not needs_more(path))


def needs_more(path: Path) -> bool:
    """Whether a file, or one that it includes, includes a header that is not on every machine."""
    names = (name for file in closure(path) for name in INCLUDE.findall(text_of(file)))
    return any(name.startswith(NOT_EVERYWHERE) for name in names)


def closure(path: Path) -> list[Path]:
    """A file and all of ours that it includes, in a fixed order."""
    found: dict[Path, None] = {}
    todo = [path]
    while todo:
        file = todo.pop()
        if file not in found:
            found[file] = None
            todo += included(file)
    return list(found)


@cache
def included(path: Path) -> list[Path]:
    """Files of ours that a file includes itself."""
    folders = (path.parent, *OURS)
    found = ((folder / name for folder in folders) for name in INCLUDE.findall(text_of(path)))
    firsts = (next(filter(Path.is_file, candidates), None) for candidates in found)
    return [file.resolve() for file in firsts if file is not None]


@cache
def text_of(path: Path) -> str:
    """A file's text."""
    return path.read_text(encoding="utf-8")
