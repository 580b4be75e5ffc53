"""Checks that no folder has more than 20 files of code, and that no file is too long.

`python scripts/folder_sizes.py [ROOT]` says how long files are; exit 1 if a folder has more files:
then it shelves two things; or if a file has more lines than its limit: then it is two files; or if
the files' median is above its limit: then several are. No limit is above what it was before the
folders were made, but for the median of scripts/, which had six files then.
"""

import sys
from collections import Counter
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
SUFFIXES = {".py", ".pyi", ".sh", ".h", ".cpp", ".cu", ".cuh", ".inc", ".js"}
N_FILES_MAX = 20
# Lines: of the longest file, and of the median.
N_LINES_MAX = {
    "csrc": (355, 70),
    "engine_ext": (415, 83),
    "scripts": (127, 70),
    "unpaced": (300, 100),
    "tests": (500, 132),
}


def main() -> int:
    """0, or 1 if a folder is too full or a file too long; it is printed."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    n_files: Counter[str] = Counter()
    n_too_long = 0
    for folder, (n_max, n_median_max) in N_LINES_MAX.items():
        lengths = {path: n_lines(path) for path in code_files(root / folder)}
        if not lengths:
            continue
        n_files.update(path.parent.relative_to(root).as_posix() for path in lengths)
        longest = max(lengths, key=lambda path: lengths[path])
        print(
            f"{folder}: {len(lengths)} files, of {median(lengths.values()):.0f} lines in the"
            f" median; {longest.relative_to(root)} has {lengths[longest]}"
        )
        for path in (path for path, n in lengths.items() if n > n_max):
            n_too_long += 1
            print(
                f"{path.relative_to(root)} has {lengths[path]} lines, more than {n_max}: it needs a"
                " second file"
            )
        if median(lengths.values()) > n_median_max:
            n_too_long += 1
            print(f"{folder}: a median above {n_median_max} lines: long files need a second one")
    too_full = {folder: n for folder, n in n_files.items() if n > N_FILES_MAX}
    for folder, n in sorted(too_full.items()):
        print(f"{folder}/ has {n} files, more than {N_FILES_MAX}: it needs folders of its own")
    return 1 if too_full or n_too_long else 0


def code_files(folder: Path) -> list[Path]:
    """Files of code under a folder, without the ones that only make it a package."""
    found = (path for path in folder.rglob("*.*") if path.suffix in SUFFIXES)
    return [path for path in found if path.name != "__init__.py"]


def n_lines(path: Path) -> int:
    """Lines of a file."""
    return path.read_text(encoding="utf-8").count("\n")


if __name__ == "__main__":
    sys.exit(main())
