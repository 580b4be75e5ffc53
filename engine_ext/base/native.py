"""Loads the native module and checks the build of llama.cpp that it is linked to.

The module finds libllama and its siblings by itself, in the installed llama_cpp package or, in a
wheel, beside it, and calls them by itself. That package's Python code is not imported: it takes as
long as half a start, and it installs a Python log callback, which would take the GIL for a log line
of the decode thread.

Structs of llama.h are passed by value: they must be those our module was compiled with. In a build
of ours the commit says so; another one's are compared with what its Python code declares.
"""

import ctypes
import importlib
import importlib.metadata
import re
import sys
from pathlib import Path
from types import ModuleType

from engine_ext.base.build_info import LlamaPlace, find_llama
from engine_ext.base.errors import EngineBuildError
from engine_ext.llama_build.pins import LLAMA_COMMIT, VERSION

_REBUILD = "run `make build`"
_REINSTALL = "install Unpaced's wheel again"
_MISSING_LIBRARY = re.compile(r"(lib[\w.+-]+\.so[\w.]*): cannot open shared object file")


def load_native() -> ModuleType:
    """Import engine_ext._native, with a quiet log.

    Raises: EngineBuildError, one sentence, if it or llama_cpp is missing or they do not belong
    together.
    """
    place = find_llama()
    if place is None:
        raise EngineBuildError(f"llama-cpp-python is not installed: {_REBUILD}")
    remedy = _REINSTALL if place.is_bundled else _REBUILD
    _check_nobody_was_first(place)
    try:
        native = importlib.import_module("engine_ext._native")
        is_foreign = place.record is None
        llama_cpp = importlib.import_module("llama_cpp") if is_foreign else None
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise EngineBuildError(
            f"the native libraries cannot be loaded ({error}): {_remedy(str(error), remedy)}"
        ) from error
    native.install_log_sink(LOG_WARN)
    native.install_abort_handler()
    _check_libraries(place, Path(native.llama_library()))
    if not place.is_bundled:
        _check_version(importlib.metadata.version("llama-cpp-python"))
    _check_commit(native, remedy)
    if llama_cpp is not None:
        _check_abi(llama_cpp, native)
    return native


LOG_WARN = 3


def _remedy(error: str, ours: str) -> str:
    missing = _MISSING_LIBRARY.search(error)
    if missing is None or missing[1].startswith(("libllama", "libggml")):
        return ours
    return f"install {missing[1]}, or name its folder in LD_LIBRARY_PATH"


def _check_nobody_was_first(place: LlamaPlace) -> None:
    """The loader gives a library's name to whoever came first: theirs would be ours as well."""
    llama_cpp = sys.modules.get("llama_cpp")
    if place.is_bundled and llama_cpp is not None and "engine_ext._native" not in sys.modules:
        raise EngineBuildError(
            f"llama_cpp {getattr(llama_cpp, '__version__', '')} of {llama_cpp.__file__} is loaded, "
            "and its libllama would take the place of Unpaced's: import engine_ext before it, or "
            "use a process for each"
        )


def _check_libraries(place: LlamaPlace, loaded: Path) -> None:
    """Raises EngineBuildError if LD_PRELOAD or the like has put another libllama in place."""
    if loaded.resolve().parent != place.libraries.resolve():
        raise EngineBuildError(
            f"{loaded} is loaded instead of libllama in {place.libraries}: take it out of "
            "LD_PRELOAD and LD_LIBRARY_PATH"
        )


def _check_version(installed: str) -> None:
    version = installed.partition("+")[0]
    if version != VERSION:
        raise EngineBuildError(
            f"llama-cpp-python {version} is installed, not {VERSION}: {_REBUILD}"
        )


def _check_commit(native: ModuleType, remedy: str = _REBUILD) -> None:
    # git abbreviates to seven digits or more, and marks an unpacked source distribution as dirty.
    commit = native.ggml_commit().removesuffix("-dirty")
    if len(commit) < 7 or not LLAMA_COMMIT.startswith(commit):
        raise EngineBuildError(
            f"the installed libllama is of llama.cpp {commit}, not {LLAMA_COMMIT}: {remedy}"
        )


def _check_abi(llama_cpp: ModuleType, native: ModuleType) -> None:
    for struct, size in native.abi_sizes().items():
        if ctypes.sizeof(getattr(llama_cpp, struct)) != size:
            raise EngineBuildError(
                f"{struct} has another size than it was compiled with: {_REBUILD}"
            )
