"""CONTRIBUTING's ten questions: the folder is in the tree, the file in it, the name in the file."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
TABLE = PAGE.partition("## Ten questions\n")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| (.*\?) \| (.*) \| (.*) \|$", TABLE, re.MULTILINE)


def answered(folder: str, answer: str) -> list[tuple[Path, set[str]]]:
    """Each file of an answer, and what it is said to have: the names up to the next file."""
    found: list[tuple[Path, set[str]]] = []
    for word in re.findall(r"`([^`]+)`", answer):
        if re.fullmatch(r"[\w/]+\.(py|h|cpp)", word):
            found.append((ROOT / word if "/" in word else ROOT / folder / word, set()))
        elif re.fullmatch(r"\w+", word) and found:
            found[-1][1].add(word)
    return found


def test_there_are_ten() -> None:
    assert len(ROWS) == 10


@pytest.mark.parametrize(("question", "folder", "answer"), ROWS, ids=[row[0] for row in ROWS])
def test_the_answer_is_there(question: str, folder: str, answer: str) -> None:
    named = re.search(r"`([\w/]+)`", folder)
    assert named and (ROOT / named[1]).is_dir()
    files = answered(named[1], answer)
    assert files or "](#" in answer, question
    for file, names in files:
        text = file.read_text()
        assert {name for name in names if not re.search(rf"\b{name}\b", text)} == set(), file


def test_a_file_that_has_moved_and_a_name_that_is_gone_are_noticed() -> None:
    ((file, names),) = answered("unpaced/http", "`body.py`: `_too_large`")
    assert file == ROOT / "unpaced/http/body.py" and names == {"_too_large"}
    ((file, _),) = answered("unpaced/http", "`unpaced/nowhere/body.py`: `_too_large`")
    assert not file.exists()
