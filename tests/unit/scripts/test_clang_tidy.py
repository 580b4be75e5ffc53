"""clang-tidy over many files as one: it finds what it finds in each by itself."""

import shutil
from pathlib import Path

import pytest

from scripts import clang_tidy, cpp_sources

CLEAN = "namespace unpaced {\nint answer() { return 42; }\n}  // namespace unpaced\n"
FAULTY = """namespace unpaced {
namespace {
int lonely() { return 1; }
struct Pair {
  int first() { return 1; }
  int second() { return 2; }
};
}  // namespace
int other() { return Pair().second(); }
}  // namespace unpaced
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository's root with the checks."""
    shutil.copy(cpp_sources.ROOT / ".clang-tidy", tmp_path)
    (tmp_path / "csrc" / "a").mkdir(parents=True)
    monkeypatch.setattr(clang_tidy, "ROOT", tmp_path)
    return tmp_path


def test_files_are_two_groups_but_programs_of_their_own(root: Path) -> None:
    files = ["csrc/a/b.cpp", "csrc/a/c.cpp", "csrc/d/e.cpp"]
    tests = [f"tests/f/{name}.cpp" for name in ("g_test", "h_test", "i_test")]
    (root / "tests" / "f").mkdir(parents=True)
    for test, namespace in zip(tests, ("g_test", "unpaced", "i_test"), strict=True):
        (root / test).write_text(f"namespace {namespace} {{\n}}\n")
    groups = clang_tidy.groups_of(files + tests, 2)
    assert sorted(groups) == sorted(
        [files[:2], [files[2]], [tests[0]], [tests[2]], [tests[1]]],
    )
    assert files in clang_tidy.groups_of(files, 1)
    assert clang_tidy.groups_of([], 2) == []


def test_a_fault_is_found_among_others_and_told_of_its_file(root: Path) -> None:
    for name, text in (("clean", CLEAN), ("faulty", FAULTY)):
        (root / "csrc" / "a" / f"{name}.cpp").write_text(text)
    files = ["csrc/a/clean.cpp", "csrc/a/faulty.cpp"]
    found = dict(clang_tidy.look_at_group(files))
    assert found[files[0]] == ""
    assert "unused-function" in found[files[1]]
    assert "unused-member-function" in found[files[1]]
    (root / files[1]).write_text(CLEAN.replace("answer", "question"))
    assert clang_tidy.look_at_group(files) == [(file, "") for file in files]


def test_a_source_that_includes_a_source_is_found_in_a_group(root: Path) -> None:
    (root / "csrc" / "a" / "part.cpp").write_text(CLEAN)
    (root / "csrc" / "a" / "whole.cpp").write_text('#include "part.cpp"\n')
    (root / "csrc" / "a" / "other.cpp").write_text(CLEAN.replace("answer", "question"))
    found = dict(clang_tidy.look_at_group(["csrc/a/other.cpp", "csrc/a/whole.cpp"]))
    assert found["csrc/a/other.cpp"] == ""
    assert "suspicious-include" in found["csrc/a/whole.cpp"]


def test_a_name_that_two_files_have_is_told(root: Path) -> None:
    files = ["csrc/a/one.cpp", "csrc/a/two.cpp"]
    for file, value in zip(files, (1, 2), strict=True):
        limit = f"namespace {{\nconstexpr int kLimit = {value};\n}}\n"
        text = f"{limit}int get{value}() {{ return kLimit; }}\n"
        (root / file).write_text(f"namespace unpaced {{\n{text}}}\n")
    found = dict(clang_tidy.look_at_group(files))
    assert "redefinition of 'kLimit'" in found[files[0]]
    assert found[files[1]] == ""
