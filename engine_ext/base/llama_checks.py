"""Whether the libllama that was loaded is the one that our native module was compiled with.

Structs of llama.h are passed by value: they must be those our module was compiled with. In a build
of ours the commit says so; another one's are compared with what its Python code declares.
"""

import ctypes
from pathlib import Path
from types import ModuleType

from engine_ext.base.build_info import LlamaPlace
from engine_ext.base.errors import EngineBuildError
from engine_ext.llama_build.pins import LLAMA_COMMIT, VERSION

REBUILD = "run `make build`"


def check_libraries(place: LlamaPlace, loaded: Path) -> None:
    """Raises EngineBuildError if LD_PRELOAD or the like has put another libllama in place."""
    if loaded.resolve().parent != place.libraries.resolve():
        raise EngineBuildError(
            f"{loaded} is loaded instead of libllama in {place.libraries}: take it out of "
            "LD_PRELOAD and LD_LIBRARY_PATH"
        )


def check_version(installed: str) -> None:
    """Raises EngineBuildError if another release of llama-cpp-python is installed."""
    version = installed.partition("+")[0]
    if version != VERSION:
        raise EngineBuildError(f"llama-cpp-python {version} is installed, not {VERSION}: {REBUILD}")


def check_commit(native: ModuleType, remedy: str = REBUILD) -> None:
    """Raises EngineBuildError if the loaded libraries are of another commit."""
    # git abbreviates to seven digits or more, and marks an unpacked source distribution as dirty.
    commit = native.ggml_commit().removesuffix("-dirty")
    if len(commit) < 7 or not LLAMA_COMMIT.startswith(commit):
        raise EngineBuildError(
            f"the installed libllama is of llama.cpp {commit}, not {LLAMA_COMMIT}: {remedy}"
        )


def check_abi(llama_cpp: ModuleType, native: ModuleType) -> None:
    """Raises EngineBuildError if a struct of the Python binding has another size than ours."""
    for struct, size in native.abi_sizes().items():
        if ctypes.sizeof(getattr(llama_cpp, struct)) != size:
            raise EngineBuildError(
                f"{struct} has another size than it was compiled with: {REBUILD}"
            )
