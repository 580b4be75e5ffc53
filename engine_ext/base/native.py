"""Loads the native module and checks the build of llama.cpp that it is linked to.

The module finds libllama and its siblings in the installed llama_cpp package by itself, and calls
them by itself. That package's Python code is not imported: it takes as long as half a start, and it
installs a Python log callback, which would take the GIL for a log line of the decode thread.

Structs of llama.h are passed by value: they must be those our module was compiled with. In a build
of ours the commit says so; another one's are compared with what its Python code declares.
"""

import ctypes
import importlib
import importlib.metadata
import importlib.util
import re
from pathlib import Path
from types import ModuleType

from engine_ext.base.build_info import RECORD_NAME
from engine_ext.base.errors import EngineBuildError
from engine_ext.llama_build.pins import LLAMA_COMMIT, VERSION

_REBUILD = "run `make build`"
_MISSING_LIBRARY = re.compile(r"(lib[\w.+-]+\.so[\w.]*): cannot open shared object file")


def load_native() -> ModuleType:
    """Import engine_ext._native, with a quiet log.

    Raises: EngineBuildError, one sentence, if it or llama_cpp is missing or they do not belong
    together.
    """
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or not spec.submodule_search_locations:
        raise EngineBuildError(f"llama-cpp-python is not installed: {_REBUILD}")
    is_ours = (Path(spec.submodule_search_locations[0]) / RECORD_NAME).is_file()
    try:
        native = importlib.import_module("engine_ext._native")
        llama_cpp = None if is_ours else importlib.import_module("llama_cpp")
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise EngineBuildError(
            f"the native libraries cannot be loaded ({error}): {_remedy(str(error))}"
        ) from error
    native.install_log_sink(LOG_WARN)
    native.install_abort_handler()
    _check_version(importlib.metadata.version("llama-cpp-python"))
    _check_commit(native)
    if llama_cpp is not None:
        _check_abi(llama_cpp, native)
    return native


LOG_WARN = 3


def _remedy(error: str) -> str:
    missing = _MISSING_LIBRARY.search(error)
    if missing is None or missing[1].startswith(("libllama", "libggml")):
        return _REBUILD
    return f"install {missing[1]}, or name its folder in LD_LIBRARY_PATH"


def _check_version(installed: str) -> None:
    version = installed.partition("+")[0]
    if version != VERSION:
        raise EngineBuildError(
            f"llama-cpp-python {version} is installed, not {VERSION}: {_REBUILD}"
        )


def _check_commit(native: ModuleType) -> None:
    # git abbreviates to seven digits or more, and marks an unpacked source distribution as dirty.
    commit = native.ggml_commit().removesuffix("-dirty")
    if len(commit) < 7 or not LLAMA_COMMIT.startswith(commit):
        raise EngineBuildError(
            f"the installed libllama is of llama.cpp {commit}, not {LLAMA_COMMIT}: {_REBUILD}"
        )


def _check_abi(llama_cpp: ModuleType, native: ModuleType) -> None:
    for struct, size in native.abi_sizes().items():
        if ctypes.sizeof(getattr(llama_cpp, struct)) != size:
            raise EngineBuildError(
                f"{struct} has another size than it was compiled with: {_REBUILD}"
            )
