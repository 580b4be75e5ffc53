"""What the engine takes of llama.cpp's libraries, which a portable build has in another shape."""

import runpy
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from engine_ext.base.build_info import find_llama
from engine_ext.base.native import load_native

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts" / "wheels" / "symbols.py"
PROGRAMS = [path for path in ROOT.glob(".build/cpp-*/tests/*_test*") if path.is_file()]
symbols: dict[str, Any] = runpy.run_path(str(SCRIPT))
undefined: Callable[[bytes], set[str]] = symbols["undefined"]
defined: Callable[[bytes], set[str]] = symbols["defined"]
missing: Callable[[Mapping[str, bytes]], Iterator[str]] = symbols["missing"]


@pytest.fixture(scope="module")
def libraries() -> dict[str, bytes]:
    """Those of this build, by name."""
    place = find_llama()
    assert place is not None
    native = Path(load_native().__file__ or "")
    return {path.name: path.read_bytes() for path in (native, *place.libraries.glob("*.so"))}


def native_of(libraries: dict[str, bytes]) -> bytes:
    return next(content for name, content in libraries.items() if name.startswith("_native"))


def test_the_engine_calls_no_function_of_the_cpus_library(libraries: dict[str, bytes]) -> None:
    """A portable build has fourteen of these, none of which it is linked with."""
    if "libggml-cpu.so" not in libraries:
        pytest.skip("a portable build")
    of_the_cpu = defined(libraries["libggml-cpu.so"])
    assert "ggml_threadpool_new" in of_the_cpu
    needed = undefined(native_of(libraries))
    assert "llama_decode" in needed
    assert needed & of_the_cpu == set()


@pytest.mark.skipif(not PROGRAMS, reason="the C++ tests are not compiled here")
def test_no_program_of_the_cpp_tests_does(libraries: dict[str, bytes]) -> None:
    """Those of a portable build would not link."""
    if "libggml-cpu.so" not in libraries:
        pytest.skip("a portable build")
    of_the_cpu = defined(libraries["libggml-cpu.so"])
    needed = {path: undefined(path.read_bytes()) & of_the_cpu for path in PROGRAMS}
    assert {path: functions for path, functions in needed.items() if functions} == {}


def test_this_build_lacks_nothing(libraries: dict[str, bytes]) -> None:
    assert list(missing(libraries)) == []


def test_what_a_library_lacks_is_named(libraries: dict[str, bytes]) -> None:
    without = {name: content for name, content in libraries.items() if name != "libllama.so"}
    native = next(name for name in libraries if name.startswith("_native"))
    found = list(missing(without))
    assert f"{native} needs llama_decode, which no library has that it names" in found
    assert all(fault.startswith((native, "lib")) for fault in found)
