"""Runs clang-tidy over the host's C++, with the checks of .clang-tidy; exit 1 if it finds anything.

A file that was clean is not looked at again until it, a header of ours that it includes, the checks
or the tool change: .build/cache/clang-tidy.json has what was clean. Files that need headers which
are not on every machine, CUDA's and Relacy's, are left out.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.metadata import version
from pathlib import Path

import nanobind

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine_ext.llama_build.pins import VERSION

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("csrc", "tests")
CLEAN = ROOT / ".build" / "cache" / "clang-tidy.json"
LLAMA = ROOT / ".build" / "src" / f"llama_cpp_python-{VERSION}" / "vendor" / "llama.cpp"
TESTS = ROOT / "tests"
OURS = (ROOT / "csrc", TESTS / "unit" / "cpp" / "support", TESTS / "gpu" / "cpp")
OTHERS = (
    LLAMA / "include",
    LLAMA / "ggml" / "include",
    LLAMA / "src",
    Path(nanobind.include_dir()),
    Path(sysconfig.get_path("include")),
)
FLAGS = (
    *("-std=c++20", "-Wall", "-Wextra", "-Wunused-member-function", "-Wunused-template"),
    *("-Wno-missing-designated-field-initializers", "-Wno-for-loop-analysis"),
    '-DUNPACED_DEFAULT_TEST_MODEL=""',
    *(f"-I{folder}" for folder in OURS),
    *(f"-isystem{folder}" for folder in OTHERS),
)
NOT_EVERYWHERE = ("cooperative_groups", "cublas", "cuda", "relacy/")
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.MULTILINE)


def main() -> int:
    """0, or 1 if clang-tidy found something; it is printed."""
    clean: dict[str, str] = json.loads(CLEAN.read_text()) if CLEAN.is_file() else {}
    keys = {str(path.relative_to(ROOT)): key_of(path) for path in host_sources()}
    new = [file for file, key in keys.items() if clean.get(file) != key]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(new, pool.map(look_at, new), strict=True))
    for text in found.values():
        print(text, end="")
    kept = {file: key for file, key in keys.items() if not found.get(file)}
    CLEAN.parent.mkdir(parents=True, exist_ok=True)
    CLEAN.write_text(json.dumps(kept, indent=1))
    return 1 if len(kept) < len(keys) else 0


def host_sources() -> list[Path]:
    """Every .cpp file that can be read on any machine."""
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.cpp"))
    return sorted(path for path in found if not needs_more(path))


def needs_more(path: Path) -> bool:
    """Whether a file, or one that it includes, includes a header that is not on every machine."""
    names = (name for file in closure(path) for name in INCLUDE.findall(text_of(file)))
    return any(name.startswith(NOT_EVERYWHERE) for name in names)


def key_of(path: Path) -> str:
    """What the findings in a file depend on, in one word."""
    parts = [version("clang-tidy"), (ROOT / ".clang-tidy").read_text(), *FLAGS]
    parts += [f"{file.relative_to(ROOT)}\n{text_of(file)}" for file in closure(path)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


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


def look_at(file: str) -> str:
    """What clang-tidy says of a file; "" if it is clean."""
    tool = Path(sys.executable).parent / "clang-tidy"
    done = subprocess.run(
        [tool, "--quiet", file, "--", *FLAGS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stdout or done.stderr


if __name__ == "__main__":
    sys.exit(main())
