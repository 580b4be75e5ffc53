"""Every file of deploy/ has a row in deploy/README.md, whose tests are there and read the file."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]
DEPLOY: Final = ROOT / "deploy"


def rows() -> list[tuple[list[str], list[Path]]]:
    """Of each row its patterns of files, below deploy/, and its tests."""
    found = []
    for line in (DEPLOY / "README.md").read_text().splitlines():
        cells = line.strip("|").split("|")
        patterns = re.findall(r"`([^`]+)`", cells[0])
        if len(cells) == 4 and patterns:
            tests = re.findall(r"`(tests/[^`]+\.py)`", cells[3])
            found.append((patterns, [ROOT / test for test in tests]))
    return found


def files() -> list[str]:
    """The files of deploy/, as Git has them or would take them."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "."]
    listed = subprocess.run(command, cwd=DEPLOY, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.splitlines() if name != "README.md"]


def matches(file: str, pattern: str) -> bool:
    """`**` at the end stands for all that is below."""
    if pattern.endswith("/**"):
        return file.startswith(pattern.removesuffix("**"))
    return len(PurePosixPath(file).parts) == pattern.count("/") + 1 and PurePosixPath(file).match(
        pattern
    )


def source(test: Path) -> str:
    """The test's text and that of the modules of tests/ that it imports."""
    text = test.read_text()
    modules = [
        ROOT.joinpath(*str(node.module).split(".")).with_suffix(".py")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("tests.")
    ]
    return text + "".join(module.read_text() for module in modules)


def names(text: str, file: str) -> Iterator[str]:
    """What of the file's path a text has in quotes: its name, or the folder that is read whole."""
    path = PurePosixPath(file)
    for part in (path.name, *(parent.name for parent in path.parents if parent.name)):
        if re.search(rf"[\"'/]{re.escape(part)}[\"'/]", text):
            yield part


@pytest.mark.parametrize("file", files())
def test_a_file_has_a_test_that_reads_it(file: str) -> None:
    tests = [
        test
        for patterns, named in rows()
        for test in named
        if any(matches(file, pattern) for pattern in patterns)
    ]
    assert tests, f"deploy/README.md says of no test that it reads deploy/{file}"
    for test in tests:
        assert any(names(source(test), file)), f"{test.name} does not name deploy/{file}"


def test_every_row_is_of_files_and_tests_that_there_are() -> None:
    assert len(rows()) > 10
    for patterns, tests in rows():
        assert tests and all(test.is_file() for test in tests), patterns
        for pattern in patterns:
            assert any(matches(file, pattern) for file in files()), pattern


def test_a_file_without_a_row_would_be_seen() -> None:
    patterns = [pattern for row, _ in rows() for pattern in row]
    assert not any(matches("nginx/other.conf", pattern) for pattern in patterns)
    assert not any(matches("kubernetes/base/deep/other.yaml", pattern) for pattern in patterns)
    assert not any(names("somewhere('nginx.conf')", "nginx/unpaced.conf"))
