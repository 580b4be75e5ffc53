"""Loads the native module and checks the build of llama.cpp that it is linked to.

The module finds libllama and its siblings by itself, in the installed llama_cpp package or, in a
wheel, beside it, and calls them by itself. That package's Python code is not imported: it takes as
long as half a start, and it installs a Python log callback, which would take the GIL for a log line
of the decode thread.
"""

import functools
import importlib
import importlib.metadata
import re
import sys
from pathlib import Path
from types import ModuleType

from engine_ext.base.build_info import LlamaPlace, find_llama
from engine_ext.base.errors import EngineBuildError
from engine_ext.base.llama_checks import (
    REBUILD,
    check_abi,
    check_commit,
    check_libraries,
    check_version,
)

_REINSTALL = "install Unpaced's wheel again"
_MISSING_LIBRARY = re.compile(r"(lib[\w.+-]+\.so[\w.]*): cannot open shared object file")


def load_native() -> ModuleType:
    """Import engine_ext._native, with a quiet log.

    Raises: EngineBuildError, one sentence, if it or llama_cpp is missing or they do not belong
    together.
    """
    place = find_llama()
    if place is None:
        raise EngineBuildError(f"llama-cpp-python is not installed: {REBUILD}")
    remedy = _REINSTALL if place.is_bundled else REBUILD
    _check_nobody_was_first(place)
    try:
        native = importlib.import_module("engine_ext._native")
        is_foreign = place.record is None
        llama_cpp = importlib.import_module("llama_cpp") if is_foreign else None
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise EngineBuildError(
            f"the native libraries cannot be loaded ({error}): {_remedy(str(error), remedy)}"
        ) from error
    _install_handlers(native)
    check_libraries(place, Path(native.llama_library()))
    if not place.is_bundled:
        check_version(importlib.metadata.version("llama-cpp-python"))
    check_commit(native, remedy)
    if llama_cpp is not None:
        check_abi(llama_cpp, native)
    return native


LOG_WARN = 3


@functools.cache
def _install_handlers(native: ModuleType) -> None:
    """Once: modules that are imported later must not undo what NativeLog has set meanwhile."""
    native.install_log_sink(LOG_WARN)
    native.install_abort_handler()


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
