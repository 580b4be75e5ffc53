"""Runs clang-tidy over the host's C++, with the checks of .clang-tidy; exit 1 if it finds anything.

A file that was clean is not looked at again until it, a header of ours that it includes, the checks
or the tool change: .build/cache/clang-tidy.json has what was clean. The others of csrc/ and of the
tests are looked at as a file for each processor: nearly all of the time goes to headers. So a name
stands once in csrc/, in unnamed namespaces, too. If that is not clean, each is looked at by itself.
Files that need headers which are not on every machine, CUDA's and Relacy's, are left out.
"""

import hashlib
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

import nanobind

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine_ext.llama_build.pins import VERSION
from scripts.cpp_sources import OURS, ROOT, closure, host_sources, text_of

CLEAN = ROOT / ".build" / "cache" / "clang-tidy.json"
LLAMA = ROOT / ".build" / "src" / f"llama_cpp_python-{VERSION}" / "vendor" / "llama.cpp"
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


def main() -> int:
    """0, or 1 if clang-tidy found something; it is printed."""
    clean: dict[str, str] = json.loads(CLEAN.read_text()) if CLEAN.is_file() else {}
    keys = {str(path.relative_to(ROOT)): key_of(path) for path in host_sources()}
    new = [file for file, key in keys.items() if clean.get(file) != key]
    n = len(os.sched_getaffinity(0))
    groups = sorted(groups_of(new, n), key=len, reverse=True)
    with ThreadPoolExecutor(n) as pool:
        found = {file: text for each in pool.map(look_at_group, groups) for file, text in each}
    for file in new:
        print(found[file], end="")
    kept = {file: key for file, key in keys.items() if not found.get(file)}
    CLEAN.parent.mkdir(parents=True, exist_ok=True)
    CLEAN.write_text(json.dumps(kept, indent=1))
    return 1 if len(kept) < len(keys) else 0


def key_of(path: Path) -> str:
    """What the findings in a file depend on, in one word."""
    parts = [version("clang-tidy"), (ROOT / ".clang-tidy").read_text(), *FLAGS]
    parts += [f"{file.relative_to(ROOT)}\n{text_of(file)}" for file in closure(path)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def groups_of(files: list[str], n: int) -> list[list[str]]:
    """The files of csrc/ in `n` parts, the tests in as many; programs of their own alone."""
    several = [file for file in files if is_one_of_several(file)]
    groups = [[file] for file in files if file not in several]
    for _, its in groupby(several, key=lambda file: file.startswith("csrc/")):
        together = list(its)
        size = -(-len(together) // n)
        groups += [together[i : i + size] for i in range(0, len(together), size)]
    return groups


def is_one_of_several(file: str) -> bool:
    """Whether a file can stand beside others: csrc/ has it, or it is a test in its namespace."""
    own = f"namespace {Path(file).stem} {{\n"
    return file.startswith("csrc/") or own in text_of(ROOT / file)


def look_at_group(files: list[str]) -> list[tuple[str, str]]:
    """Each file, and what clang-tidy says of it."""
    if len(files) > 1:
        allowed = "// NOLINT(bugprone-suspicious-include)"
        text = "".join(f'#include "{ROOT / file}"  {allowed}\n' for file in files)
        with tempfile.TemporaryDirectory() as folder:
            all_of_them = Path(folder) / "all.cpp"
            all_of_them.write_text(text)
            of_all = look_at(str(all_of_them))
        found = [(file, look_at(file) if of_all else "") for file in files]
        if of_all and not any(text for _, text in found):  # two have the same name for something
            found[0] = (files[0], of_all)
        return found
    return [(file, look_at(file)) for file in files]


def look_at(file: str) -> str:
    """What clang-tidy says of a file; "" if it is clean."""
    tool = Path(sys.executable).parent / "clang-tidy"
    command = [tool, "--quiet", f"--config-file={ROOT / '.clang-tidy'}", file, "--", *FLAGS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout or done.stderr


if __name__ == "__main__":
    sys.exit(main())
