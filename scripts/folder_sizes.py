"""Checks that no folder has more than 20 files of code, and says how long files are.

`python scripts/folder_sizes.py [ROOT]`, exit 1 if a folder has more: then it shelves two things.
"""

import sys
from collections import Counter
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("csrc", "deploy", "engine_ext", "scripts", "server", "tests")
SUFFIXES = {".py", ".pyi", ".sh", ".h", ".cpp", ".cu", ".cuh", ".inc"}
N_FILES_MAX = 20
# What still has more, and may not get any more still.
FULL = {"server/completion": 21}


def main() -> int:
    """0, or 1 if a folder is too full; it is printed."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    n_files: Counter[str] = Counter()
    for folder in FOLDERS:
        lengths = {path: n_lines(path) for path in code_files(root / folder)}
        if not lengths:
            continue
        n_files.update(path.parent.relative_to(root).as_posix() for path in lengths)
        longest = max(lengths, key=lambda path: lengths[path])
        print(
            f"{folder}: {len(lengths)} files, of {median(lengths.values()):.0f} lines in the"
            f" median; {longest.relative_to(root)} has {lengths[longest]}"
        )
    too_full = {folder: n for folder, n in n_files.items() if n > FULL.get(folder, N_FILES_MAX)}
    for folder, n in sorted(too_full.items()):
        print(f"{folder}/ has {n} files, more than {N_FILES_MAX}: it needs folders of its own")
    return 1 if too_full else 0


def code_files(folder: Path) -> list[Path]:
    """Files of code under a folder, without the ones that only make it a package."""
    found = (path for path in folder.rglob("*.*") if path.suffix in SUFFIXES)
    return [path for path in found if path.name != "__init__.py"]


def n_lines(path: Path) -> int:
    """Lines of a file."""
    return path.read_text(encoding="utf-8").count("\n")


if __name__ == "__main__":
    sys.exit(main())
