"""A build that is missing or does not fit is one clear sentence."""

import ctypes
import importlib
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from engine_ext.base import native as loader
from engine_ext.base.errors import EngineBuildError
from engine_ext.base.native import load_native
from engine_ext.llama_build.pins import LLAMA_COMMIT
from server.cli.main import main


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
        loader._check_abi(importlib.import_module("llama_cpp"), native)
    finally:  # llama_cpp has put a callback of its own in its place
        native.install_log_sink(loader.LOG_WARN)


def test_another_builds_structs_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []
    monkeypatch.setattr(loader, "_check_abi", lambda llama_cpp, _: looked_at.append(llama_cpp))
    load_native()
    assert not looked_at
    monkeypatch.setattr(loader, "RECORD_NAME", "no_such_record.json")
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

    monkeypatch.setattr("server.cli.serve.serve", fail)
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert said == "unpaced: error: llama-cpp-python is not installed: run `make build`\n"


def test_another_release_is_refused() -> None:
    with pytest.raises(EngineBuildError, match=r"^llama-cpp-python 0\.3\.35 is installed, not 0"):
        loader._check_version("0.3.35+cpu")


@pytest.mark.parametrize("commit", [LLAMA_COMMIT, LLAMA_COMMIT[:7], LLAMA_COMMIT[:7] + "-dirty"])
def test_the_pinned_commit_is_taken_however_git_wrote_it(commit: str) -> None:
    loader._check_commit(fake_native(ggml_commit=lambda: commit))


@pytest.mark.parametrize("commit", ["unknown", "", "0c1e5", "deadbee"])
def test_another_commit_is_refused(commit: str) -> None:
    with pytest.raises(
        EngineBuildError, match=rf"^the installed libllama is .* not {LLAMA_COMMIT}"
    ):
        loader._check_commit(fake_native(ggml_commit=lambda: commit))


def test_a_struct_of_another_size_is_refused() -> None:
    with pytest.raises(EngineBuildError, match=r"^llama_batch has another size"):
        loader._check_abi(fake_llama_cpp(), fake_native(abi_sizes=lambda: {"llama_batch": 7}))


def test_the_cpu_backend_takes_its_buffers_from_the_modules_new() -> None:
    # In a process of its own: here llama_cpp has loaded the libraries before.
    done = subprocess.run(
        [sys.executable, "-c", "from engine_ext.base.native import load_native; load_native()"],
        env={**os.environ, "LD_DEBUG": "bindings", "LD_BIND_NOW": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    bindings = [line for line in done.stderr.splitlines() if "symbol `_Znam'" in line]
    taken = [line for line in bindings if re.search(r"libggml-cpu\.so.* to .*_native\.", line)]
    assert taken, bindings
