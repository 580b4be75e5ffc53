"""Command line of the build."""

import argparse
import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from . import pins
from .choice import AUTO, Choice, choose
from .errors import BuildError
from .extension import write_extension_cache
from .inputs import Inputs
from .source import Source
from .step import relative, say
from .toolkit import Toolkit, check_compiler, find_toolkit
from .wheel import Wheel, require_tools


def main() -> int:
    """Exit status; a failure is one sentence on stderr, after the end of the log it came from."""
    options = _parse()
    try:
        _make(options)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:  # a full disk, or a folder that root has made
        what = ": ".join(filter(None, (error.filename, error.strerror)))
        print(f"The build cannot go on: {what}.", file=sys.stderr)
        return 1
    return 0


def build(base: Path, profile: str, cuda_archs: str, n_jobs: int) -> Path:
    """The wheel for these inputs, made or found. Takes minutes. Raises BuildError."""
    with _exclusive(base):
        path = _wheel(base, profile, cuda_archs, n_jobs).path
    if path is None:
        raise BuildError("The build has left no wheel.")
    return path


def _make(options: argparse.Namespace) -> None:
    base: Path = options.build_dir.resolve()
    with _exclusive(base):
        wheel = _wheel(base, options.profile, options.cuda_archs, options.jobs)
        installed = options.install and wheel.install()
    if options.stamp is not None and (installed or not options.stamp.exists()):
        options.stamp.touch()
    if not options.install and wheel.path is not None:
        print(relative(wheel.path))


def _wheel(base: Path, profile: str, cuda_archs: str, n_jobs: int) -> Wheel:
    choice = choose(profile, cuda_archs)
    if choice.line:
        print(choice.line, flush=True)
    try:
        inputs = Inputs.collect(choice, _toolkit(base, choice))
        write_extension_cache(base / "extension.cmake", inputs)
        wheel = Wheel(base, inputs)
        _build(base, inputs, wheel, n_jobs)
    except BuildError as error:
        if not choice.profile.is_cuda:
            raise
        # Half a gigabyte to fetch, a compiler that nvcc knows: the CPU's build needs neither.
        other = "cpu-portable" if choice.profile.is_portable else "cpu"
        raise BuildError(f"{error}\nPROFILE={other} builds without CUDA.") from error
    return wheel


def _build(base: Path, inputs: Inputs, wheel: Wheel, n_jobs: int) -> None:
    source = Source(base)
    if wheel.path is not None and source.ready:
        return
    start = time.monotonic()
    name = f"llama.cpp {pins.LLAMA_COMMIT} (llama-cpp-python {pins.VERSION})"
    print(f"{name}, profile {inputs.profile.name}: {inputs.profile.description}", flush=True)
    require_tools()
    source.fetch()
    if wheel.path is None:
        if inputs.toolkit is not None:
            check_compiler(inputs.toolkit, inputs.defines["CMAKE_CUDA_ARCHITECTURES"])
            say("toolkit", f"CUDA {inputs.toolkit.version} in {inputs.toolkit.where}")
            say("cards", inputs.defines["CMAKE_CUDA_ARCHITECTURES"].replace(";", ", "))
        say("compile", f"with {n_jobs} processes: {inputs.compiler}")
        wheel.compile(source, n_jobs)
    say("done", f"in {time.monotonic() - start:.0f} s")


def _toolkit(base: Path, choice: Choice) -> Toolkit | None:
    if not choice.profile.is_cuda:
        return None
    return find_toolkit(base, is_portable=choice.profile.is_portable, driver=choice.driver)


def _parse() -> argparse.Namespace:
    root = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(
        prog="build_llama.py",
        description=f"Builds llama-cpp-python {pins.VERSION} for Unpaced and prints the wheel's "
        "path. A second call with equal inputs finds the wheel.",
    )
    parser.add_argument(
        "--profile",
        default=AUTO,
        help="a file in engine_ext/profiles, or auto: cuda where there is an NVIDIA card, else cpu",
    )
    parser.add_argument(
        "--cuda-archs",
        default="",
        help="cards to compile for instead: CMAKE_CUDA_ARCHITECTURES, such as 86-real;89-real",
    )
    parser.add_argument("--build-dir", type=Path, default=root / ".build", help="(.build)")
    n_cores = len(os.sched_getaffinity(0))
    parser.add_argument("--jobs", type=int, default=n_cores, help="parallel compiler processes")
    parser.add_argument("--install", action="store_true", help="for the Python that runs this")
    parser.add_argument("--stamp", type=Path, help="file to touch after an installation")
    return parser.parse_args()


@contextlib.contextmanager
def _exclusive(base: Path) -> Iterator[None]:
    """One build at a time: a second one waits here, then finds the wheel."""
    base.mkdir(parents=True, exist_ok=True)
    with (base / "llama.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
