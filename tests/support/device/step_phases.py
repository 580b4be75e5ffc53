"""Compiles the programs that take a model's decode step apart (tests/unit/cpp/device).

They go to `.build/tests/`, anew when a source changes, and link the libraries of the installed
llama_cpp package.
"""

import hashlib
import importlib.util
import os
import subprocess
from pathlib import Path

from tests.support.one_at_a_time import one_at_a_time

_ROOT = Path(__file__).resolve().parents[3]
_LLAMA = _ROOT / ".build" / "src" / "llama_cpp_python-0.3.36" / "vendor" / "llama.cpp"
_CPP = _ROOT / "tests" / "unit" / "cpp"
_DEVICE = _ROOT / "csrc" / "device"
_FLAGS = ("-std=c++20", "-O1", "-DUNPACED_CHECK_THREADS=1", '-DUNPACED_DEFAULT_TEST_MODEL=""')


def step_phases_program() -> Path:
    """Makes a step from its phases, which it prints.

    `PROGRAM MODEL CACHE_TYPE [TOKENS [OUTPUTS]]`

    Raises: FileNotFoundError if `make build` is needed first, RuntimeError if it does not compile.
    """
    return _program(_CPP / "device" / "graph" / "step_phases_test.cpp", [])


def phase_launcher_program() -> Path:
    """Runs the kernels of a step's phases on the CPU, by their arguments.

    `PROGRAM MODEL [TOKENS [OUTPUTS]]`

    Raises: as step_phases_program().
    """
    phases = (
        "attention_parts",
        "kernel_arguments",
        "mat_vec_choices",
        "own_kernels",
        "phase_launcher",
    )
    return _program(
        _CPP / "device" / "phases" / "phase_launcher_test.cpp",
        [
            _CPP / "support" / "reference_kernels.cpp",
            _DEVICE / "kernels" / "experts" / "choice_limits.cpp",
            _DEVICE / "kernels" / "limits.cpp",
            *(_DEVICE / "phases" / f"{name}.cpp" for name in phases),
        ],
    )


@one_at_a_time
def _program(main: Path, others: list[Path]) -> Path:
    """Compiled now if it is stale (some ten seconds of CPU)."""
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.origin is None or not (_LLAMA / "include" / "llama.h").is_file():
        raise FileNotFoundError("llama_cpp and its sources are not there; run `make build`")
    libraries = Path(spec.origin).parent / "lib"
    common = [*sorted((_DEVICE / "graph").glob("*.cpp")), _DEVICE / "phases" / "value_places.cpp"]
    common.append(_CPP / "support" / "check.cpp")
    sources = [main, *common, *others]
    headers = [*(_CPP / "support").glob("*.h"), *_DEVICE.rglob("*.h")]
    digest = hashlib.sha256(repr((_FLAGS, libraries)).encode())
    for path in [*sources, *sorted(headers)]:
        digest.update(path.read_bytes())
    target = _ROOT / ".build" / "tests" / f"{main.stem}-{digest.hexdigest()[:16]}"
    if not target.is_file():
        _compile(sources, libraries, target)
        for stale in target.parent.glob(f"{main.stem}-*"):
            if stale != target:
                stale.unlink()
    return target


def _compile(sources: list[Path], libraries: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(f".{os.getpid()}")
    includes = [_ROOT / "csrc", _CPP / "support", _LLAMA / "include", _LLAMA / "ggml" / "include"]
    command = [os.environ.get("CXX", "c++"), *_FLAGS, *(f"-I{path}" for path in includes)]
    link = [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lllama", "-lggml", "-lggml-cpu"]
    done = subprocess.run(
        [*command, *map(str, sources), "-o", str(partial), *link, "-lggml-base"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{target.stem} does not compile:\n{done.stderr}")
    partial.rename(target)
