"""Loads the native module after llama_cpp, in the one order that works, and checks the build.

`import llama_cpp` maps libllama and its siblings, and installs a Python log callback, which would
take the GIL for a log line of the decode thread; so the native log sink goes in right after it.
Structs of llama.h are passed by value: their sizes and the commit must be those our module was
compiled with.
"""

import ctypes
import importlib
import importlib.util
from types import ModuleType

from engine_ext.errors import EngineBuildError
from engine_ext.llama_build.pins import LLAMA_COMMIT, VERSION

_REBUILD = "run `make build`"


def load_native() -> ModuleType:
    """Import llama_cpp and engine_ext._native and return the latter.

    Raises: EngineBuildError, one sentence, if either is missing or they do not belong together.
    """
    if importlib.util.find_spec("llama_cpp") is None:
        raise EngineBuildError(f"llama-cpp-python is not installed: {_REBUILD}")
    try:
        llama_cpp = importlib.import_module("llama_cpp")
        native = importlib.import_module("engine_ext._native")
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise EngineBuildError(
            f"the native libraries cannot be loaded ({error}): {_REBUILD}"
        ) from error
    native.install_log_sink(LOG_WARN)
    _check_version(llama_cpp)
    _check_abi(llama_cpp, native)
    return native


LOG_WARN = 3


def _check_version(llama_cpp: ModuleType) -> None:
    version = str(llama_cpp.__version__).partition("+")[0]
    if version != VERSION:
        raise EngineBuildError(
            f"llama-cpp-python {version} is installed, not {VERSION}: {_REBUILD}"
        )


def _check_abi(llama_cpp: ModuleType, native: ModuleType) -> None:
    # git abbreviates to seven digits or more, and marks an unpacked source distribution as dirty.
    commit = native.ggml_commit().removesuffix("-dirty")
    if len(commit) < 7 or not LLAMA_COMMIT.startswith(commit):
        raise EngineBuildError(
            f"the installed libllama is of llama.cpp {commit}, not {LLAMA_COMMIT}: {_REBUILD}"
        )
    for struct, size in native.abi_sizes().items():
        if ctypes.sizeof(getattr(llama_cpp, struct)) != size:
            raise EngineBuildError(
                f"{struct} has another size than it was compiled with: {_REBUILD}"
            )
