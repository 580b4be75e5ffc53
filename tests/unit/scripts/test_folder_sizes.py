"""scripts/folder_sizes.py finds folders with more than 20 files of code, and long files."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "folder_sizes.py"


def check(root: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, SCRIPT, root], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


def test_the_21st_file_is_one_too_many(tmp_path: Path) -> None:
    folder = tmp_path / "unpaced" / "http"
    folder.mkdir(parents=True)
    for i in range(20):
        (folder / f"file_{i}.py").write_text("x = 1\n" * (i + 1))
    for name in ("__init__.py", "page.html", "data.json"):
        (folder / name).write_text("")
    assert check(tmp_path) == (
        0,
        "unpaced: 20 files, of 10 lines in the median; unpaced/http/file_19.py has 20\n",
    )
    (folder / "one_more.pyi").write_text("")
    code, text = check(tmp_path)
    assert code == 1
    assert "unpaced/http/ has 21 files, more than 20" in text


def test_a_file_of_too_many_lines_is_named(tmp_path: Path) -> None:
    file = tmp_path / "unpaced" / "long.py"
    file.parent.mkdir()
    for name in ("short.py", "shorter.py"):
        file.with_name(name).write_text("x = 1\n")
    file.write_text("x = 1\n" * 300)
    assert check(tmp_path)[0] == 0
    file.write_text("x = 1\n" * 301)
    code, text = check(tmp_path)
    assert code == 1
    assert "unpaced/long.py has 301 lines, more than 300: it needs a second file\n" in text


def test_a_median_of_too_many_lines_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "unpaced"
    folder.mkdir()
    for i in range(5):
        (folder / f"file_{i}.py").write_text("x = 1\n" * 101)
    code, text = check(tmp_path)
    assert code == 1
    assert "unpaced: a median above 100 lines: long files need a second one\n" in text
