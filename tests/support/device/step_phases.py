"""Compiles the programs that take a model's decode step apart (tests/unit/cpp/device).

They are C++ tests too, and come from the build tree of those without a sanitizer: after `make
cpp-tests` they are there.
"""

import subprocess
import sys
from pathlib import Path

from tests.support.one_at_a_time import one_at_a_time

_ROOT = Path(__file__).resolve().parents[3]
_LLAMA = _ROOT / ".build" / "src" / "llama_cpp_python-0.3.36" / "vendor" / "llama.cpp"
_TREE = _ROOT / ".build" / "cpp-plain"
# As in the Makefile.
_OPTIONS = ("CMAKE_BUILD_TYPE=RelWithDebInfo", "UNPACED_BUILD_PYTHON=OFF", "UNPACED_BUILD_TESTS=ON")


def step_phases_program() -> Path:
    """Makes a step from its phases, which it prints.

    `PROGRAM MODEL CACHE_TYPE [TOKENS [OUTPUTS]]`

    Raises: FileNotFoundError if `make build` is needed first, RuntimeError if it does not compile.
    """
    return _program("step_phases_test")


def phase_launcher_program() -> Path:
    """Runs the kernels of a step's phases on the CPU, by their arguments.

    `PROGRAM MODEL [TOKENS [OUTPUTS [alone]]]`

    Raises: as step_phases_program().
    """
    return _program("phase_launcher_test")


@one_at_a_time
def _program(target: str) -> Path:
    """Compiled now if it is stale: seconds, a minute if the tree is new."""
    if not (_LLAMA / "include" / "llama.h").is_file():
        raise FileNotFoundError(f"{_LLAMA} is not there; run `make build`")
    tools = Path(sys.executable).parent
    if not (_TREE / "build.ninja").is_file():
        defines = [f"CMAKE_MAKE_PROGRAM={tools / 'ninja'}", f"Python_EXECUTABLE={sys.executable}"]
        options = [f"-D{define}" for define in (*defines, *_OPTIONS)]
        _run([tools / "cmake", "-S", _ROOT / "csrc", "-B", _TREE, "-G", "Ninja", *options])
    _run([tools / "cmake", "--build", _TREE, "--target", target])
    return _TREE / "tests" / target


def _run(command: list[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[-1]} does not compile:\n{done.stdout[-4000:]}{done.stderr}")
