"""Writes docs/files.md from the first sentence of every file.

`python scripts/architecture_files.py` rewrites the page; `--check` only says whether it is up to
date (exit 1 if not).
"""

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "files.md"
INTRO = """# Files

Written by `scripts/architecture_files.py` from the first sentence of every file. What happens to a
request and to a token is in [architecture.md](architecture.md).
"""
FOLDERS = ("csrc", "engine_ext", "unpaced")
C_LIKE = {".h", ".cpp", ".cu", ".cuh", ".inc", ".js"}
OTHERS = "vendor"  # what is there as its package has it


def first_sentence(path: Path) -> str:
    """Of the file's leading comment or docstring, without its full stop."""
    text = path.read_text(encoding="utf-8")
    if path.suffix in C_LIKE:
        lines = re.match(r"(?:// ?.*\n)*", text)
        comment = re.sub(r"^// ?", "", lines[0] if lines else "", flags=re.MULTILINE)
    else:
        comment = ast.get_docstring(ast.parse(text)) or ""
    paragraph = " ".join(comment.split("\n\n")[0].split())
    return re.split(r"(?<=[.:;])\s", paragraph)[0].rstrip(".:;").replace("|", "\\|")


def described_files() -> dict[str, dict[str, str]]:
    """Folder -> file -> what it is. A .cpp or .cu that has a header of its name shares its row."""
    paths = [path.relative_to(ROOT) for name in FOLDERS for path in (ROOT / name).rglob("*.*")]
    tables: dict[str, dict[str, str]] = defaultdict(dict)
    for path in paths:
        is_source = path.suffix in C_LIKE or path.suffix == ".py"
        if not is_source or path.name == "__init__.py" or OTHERS in path.parts:
            continue
        header = path.with_suffix(".h")
        if path.suffix in {".cpp", ".cu"} and header in paths:
            continue
        name = path.name
        for suffix in (".cpp", ".cu"):
            if path.suffix == ".h" and path.with_suffix(suffix) in paths:
                name = f"{path.stem}.{{h,{suffix[1:]}}}"
        tables[path.parent.as_posix()][name] = first_sentence(ROOT / path)
    return tables


def render() -> str:
    """The whole page."""
    parts = [INTRO]
    for folder, files in sorted(described_files().items()):
        rows = "".join(f"| `{name}` | {what} |\n" for name, what in sorted(files.items()))
        parts.append(f"\n## `{folder}/`\n\n| file | what |\n|---|---|\n{rows}")
    return "".join(parts)


def main() -> int:
    """0; 1 if a file does not say what it is, or with --check if the page is not up to date."""
    silent = [
        f"{folder}/{name}"
        for folder, files in described_files().items()
        for name, what in files.items()
        if not what
    ]
    for file in silent:
        print(f"{file} does not say what it is: its first lines are a comment or docstring")
    if silent:
        return 1
    made = render()
    if "--check" in sys.argv[1:]:
        if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != made:
            print("docs/files.md is not up to date: run python scripts/architecture_files.py")
            return 1
        return 0
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
