"""A build that is missing or does not fit is one clear sentence."""

import ctypes
import importlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from engine_ext.base import build_info, llama_checks
from engine_ext.base import native as loader
from engine_ext.base.errors import EngineBuildError
from engine_ext.base.native import load_native
from engine_ext.llama_build.pins import LLAMA_COMMIT
from unpaced.cli.main import main


def fake_native(**changes: Any) -> ModuleType:
    native = {
        "ggml_commit": lambda: LLAMA_COMMIT,
        "abi_sizes": lambda: {"llama_batch": ctypes.sizeof(ctypes.c_int64)},
        **changes,
    }
    return cast(ModuleType, SimpleNamespace(**native))


def fake_llama_cpp() -> ModuleType:
    return cast(ModuleType, SimpleNamespace(llama_batch=ctypes.c_int64))


def test_the_installed_build_loads() -> None:
    assert load_native().ggml_commit()


def test_the_installed_build_has_the_structs_it_was_compiled_with() -> None:
    native = load_native()
    try:
        llama_checks.check_abi(importlib.import_module("llama_cpp"), native)
    finally:  # llama_cpp has put a callback of its own in its place
        native.install_log_sink(loader.LOG_WARN)


def test_another_builds_structs_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []
    monkeypatch.setattr(loader, "check_abi", lambda llama_cpp, _: looked_at.append(llama_cpp))
    load_native()
    assert not looked_at
    monkeypatch.setattr(build_info, "RECORD_NAME", "no_such_record.json")
    load_native()
    assert [module.__name__ for module in looked_at] == ["llama_cpp"]


def test_a_missing_build_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EngineBuildError, match=r"^llama-cpp-python is not installed: run `make"):
        load_native()


@pytest.mark.parametrize(
    ("missing", "remedy"),
    [
        ("libcublas.so.13", "install libcublas.so.13, or name its folder in LD_LIBRARY_PATH"),
        ("libcuda.so.1", "install libcuda.so.1, or name its folder in LD_LIBRARY_PATH"),
        ("libllama.so", "run `make build`"),
        ("libggml-cuda.so", "run `make build`"),
    ],
)
def test_a_library_that_does_not_load_is_named(
    missing: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> ModuleType:
        raise OSError(f"{missing}: cannot open shared object file: No such file or directory")

    monkeypatch.setattr("importlib.import_module", fail)
    with pytest.raises(EngineBuildError) as caught:
        load_native()
    assert str(caught.value).startswith(f"the native libraries cannot be loaded ({missing}: ")
    assert str(caught.value).endswith(f": {remedy}")


@pytest.mark.parametrize("arguments", [["serve"], ["serve", "--dry-run"], ["--list-devices"]])
def test_the_command_says_it_in_one_line(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(rest: Sequence[str]) -> int:
        raise EngineBuildError("llama-cpp-python is not installed: run `make build`")

    monkeypatch.setattr("unpaced.cli.serve.serve", fail)
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert said == "unpaced: error: llama-cpp-python is not installed: run `make build`\n"


def test_another_release_is_refused() -> None:
    with pytest.raises(EngineBuildError, match=r"^llama-cpp-python 0\.3\.35 is installed, not 0"):
        llama_checks.check_version("0.3.35+cpu")


@pytest.mark.parametrize("commit", [LLAMA_COMMIT, LLAMA_COMMIT[:7], LLAMA_COMMIT[:7] + "-dirty"])
def test_the_pinned_commit_is_taken_however_git_wrote_it(commit: str) -> None:
    llama_checks.check_commit(fake_native(ggml_commit=lambda: commit))


@pytest.mark.parametrize("commit", ["unknown", "", "0c1e5", "deadbee"])
def test_another_commit_is_refused(commit: str) -> None:
    with pytest.raises(
        EngineBuildError, match=rf"^the installed libllama is .* not {LLAMA_COMMIT}"
    ):
        llama_checks.check_commit(fake_native(ggml_commit=lambda: commit))


def test_a_struct_of_another_size_is_refused() -> None:
    with pytest.raises(EngineBuildError, match=r"^llama_batch has another size"):
        llama_checks.check_abi(fake_llama_cpp(), fake_native(abi_sizes=lambda: {"llama_batch": 7}))


def test_the_cpu_backends_work_buffer_begins_at_a_cache_line() -> None:
    # The patch of ggml-cpu.cpp gives its elements 64 bytes, and so the library asks for new[] with
    # an alignment: without it attention is slow wherever malloc's address has bad luck.
    place = build_info.find_llama()
    assert place is not None
    libraries = sorted(place.libraries.glob("libggml-cpu*.so"))
    assert libraries
    for library in libraries:
        with library.open("rb") as file:
            symbols = ELFFile(file).get_section_by_name(".dynsym")
            assert isinstance(symbols, SymbolTableSection)
            assert symbols.get_symbol_by_name("_ZnamSt11align_val_t"), library


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a wheel's libraries, with a record and nothing else."""
    (tmp_path / build_info.RECORD_NAME).write_text(
        json.dumps({"profile": "cpu-portable", "llama_cpp_commit": "c0ffee", "cmake_defines": {}})
    )
    monkeypatch.setattr(build_info, "BUNDLE", tmp_path)
    return tmp_path


def test_a_wheels_own_libraries_come_before_an_installed_llama_cpp(bundle: Path) -> None:
    place = build_info.find_llama()
    assert place is not None and place.is_bundled and place.libraries == bundle
    assert build_info.read_build_info().profile == "cpu-portable"
    assert build_info.read_build_info().llama_commit == "c0ffee"


@pytest.mark.usefixtures("bundle")
def test_a_foreign_llama_cpp_that_came_first_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = SimpleNamespace(__version__="0.3.9", __file__="/site/llama_cpp/__init__.py")
    monkeypatch.setitem(sys.modules, "llama_cpp", cast(ModuleType, foreign))
    monkeypatch.delitem(sys.modules, "engine_ext._native", raising=False)
    with pytest.raises(EngineBuildError, match=r"^llama_cpp 0\.3\.9 of /site/llama_cpp/__init__"):
        load_native()


@pytest.mark.usefixtures("bundle")
def test_a_foreign_libllama_is_named() -> None:
    # This process has that of the checkout, which the wheel's is not.
    with pytest.raises(EngineBuildError, match=r"^/.*/libllama\.so is loaded instead of libllama"):
        load_native()


def test_another_llama_cpp_in_the_librarys_path_is_passed_by(tmp_path: Path) -> None:
    (tmp_path / "libllama.so").write_text("no library")
    (tmp_path / "libggml-base.so").write_text("no library")
    subprocess.run(
        [sys.executable, "-c", "from engine_ext.base.native import load_native; load_native()"],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        check=True,
    )
