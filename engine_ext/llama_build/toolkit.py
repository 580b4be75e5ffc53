"""CUDA's compiler and libraries: the system's if they fit, else the locked packages of NVIDIA."""

import contextlib
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .choice import CUDA
from .driver import Version, dotted
from .errors import BuildError
from .step import relative, run, say

_LOCK = Path(__file__).resolve().parents[2] / "requirements-cuda-build.lock"
_COMPILER = "nvidia-cuda-nvcc"
_FOLDER = "nvidia/cu13"  # of all these packages, in site-packages
_DRIVER_SOURCE = Path(__file__).with_name("cuda_driver.c")


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolkit:
    """`root` as CMake takes it (bin/nvcc, include, lib64), `version` nvcc's own.

    `libraries` is where the programs find its libraries when they run; None: in the packages, which
    lie beside llama_cpp. `driver_library` is what they are linked to in the place of libcuda.
    """

    root: Path
    version: str
    libraries: Path | None
    driver_library: Path

    @property
    def identity(self) -> str:
        """Equal toolkits have equal ones, wherever the checkout lies."""
        linked = hashlib.sha256(_DRIVER_SOURCE.read_bytes()).hexdigest()[:16]
        return f"{self.version} {self.libraries or 'packages'} {linked}"

    @property
    def where(self) -> str:
        return str(self.root) if self.libraries else "NVIDIA's packages"

    def run_path(self, depth: int) -> str:
        """For a library that lies `depth` folders below site-packages."""
        return str(self.libraries or f"$ORIGIN/{'../' * depth}{_FOLDER}/lib")

    def defines(self) -> dict[str, str]:
        """CMake's, for this machine alone."""
        found = {
            "CMAKE_CUDA_COMPILER": str(self.root / "bin" / "nvcc"),
            "CUDAToolkit_ROOT": str(self.root),
            "CUDA_cuda_driver_LIBRARY": str(self.driver_library),
        }
        host = shutil.which(os.environ.get("CUDAHOSTCXX") or os.environ.get("CXX") or "")
        return found | ({"CMAKE_CUDA_HOST_COMPILER": host} if host else {})


def check_compiler(toolkit: Toolkit, architectures: str) -> None:
    """Raises BuildError if nvcc does not compile here: now, and not after minutes.

    Most often the C++ compiler is newer than it knows.
    """
    defines = toolkit.defines()
    host = defines.get("CMAKE_CUDA_HOST_COMPILER")
    number = re.match(r"\d+a?", architectures)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "empty.cu")
        source.write_text("#include <cmath>\n__global__ void empty() {}\n")
        done = subprocess.run(
            [
                *(defines["CMAKE_CUDA_COMPILER"], "-std=c++17", "-c", str(source)),
                *("-o", str(source.with_suffix(".o"))),
                *([f"-arch=sm_{number[0]}"] if number else []),
                *(["-ccbin", host] if host else []),
            ],
            capture_output=True,
            text=True,
        )
    if done.returncode != 0:
        lines = done.stderr.splitlines() or [f"exit {done.returncode}"]
        said = next((line for line in lines if "error" in line), lines[0])
        raise BuildError(
            f"CUDA {toolkit.version} does not compile with this machine's C++ compiler ({said}): "
            "name another one, as in CXX=g++-14 make build."
        )


def find_toolkit(base: Path, *, is_portable: bool, driver: Version | None) -> Toolkit:
    """Installs the packages for this interpreter if there is no other that fits.

    A portable build takes the packages always: their libraries are found on other machines too.
    Raises BuildError.
    """
    system, reason = (None, "") if is_portable else _system(driver)
    if system is not None:
        root, version = system
        library = _driver_library(base, root / "include")
        return Toolkit(
            root=root, version=version, libraries=_libraries(root), driver_library=library
        )
    wanted = _locked()
    if not _installed(wanted):
        say("fetch", f"CUDA {dotted(CUDA)} compiler and libraries, 530 MB" + reason)
        _install(base)
    root = _arrange(base, wanted[_COMPILER])
    library = _driver_library(base, root / "include")
    version = wanted[_COMPILER]
    return Toolkit(root=root, version=version, libraries=None, driver_library=library)


def _system(driver: Version | None) -> tuple[tuple[Path, str] | None, str]:
    """The first toolkit that fits, with its version; else why the first one found does not."""
    reasons = []
    for root in _candidates():
        if not (root / "bin" / "nvcc").is_file():
            continue
        version, reason = _examine(root, driver)
        if not reason:
            return (root, version), ""
        reasons.append(f" ({root} does not fit: {reason})")
    return None, reasons[0] if reasons else ""


def _candidates() -> Iterator[Path]:
    yield from _root_of(os.environ.get("CUDACXX"))
    for variable in ("CUDAToolkit_ROOT", "CUDA_HOME", "CUDA_PATH"):
        if folder := os.environ.get(variable):
            yield Path(folder)
    yield from _root_of(shutil.which("nvcc"))
    yield Path("/usr/local/cuda")
    yield from sorted(Path("/usr/local").glob("cuda-13*"), reverse=True)


def _root_of(compiler: str | None) -> Iterator[Path]:
    """Asked of nvcc itself: what lies on the path may be a script that calls it elsewhere."""
    if compiler is None:
        return
    command = [compiler, "--dryrun", "-x", "cu", "/dev/null"]
    with contextlib.suppress(OSError):
        done = subprocess.run(command, capture_output=True, text=True)
        if found := re.search(r"TOP=(\S+)$", done.stderr + done.stdout, re.MULTILINE):
            yield Path(found[1]).resolve()


def _examine(root: Path, driver: Version | None) -> tuple[str, str]:
    """Its version, and why it does not fit, "" if it does."""
    try:
        done = subprocess.run([root / "bin" / "nvcc", "--version"], capture_output=True, text=True)
    except OSError as error:
        return "", f"nvcc does not run, {error.strerror}"
    found = re.search(r"V((\d+)\.(\d+)\.\d+)", done.stdout)
    if not found:
        return "", "nvcc tells no version"
    version = (int(found[2]), int(found[3]))
    if version[0] != CUDA[0] or version < CUDA:
        return found[1], f"it is CUDA {dotted(version)}"
    if driver is not None and version > driver:
        return found[1], f"CUDA {dotted(version)} is newer than the driver's {dotted(driver)}"
    libraries = _libraries(root)
    needed = (
        root / "include" / "cublas_v2.h",
        root / "include" / "cuda_runtime.h",
        *(libraries / name for name in ("libcublas.so", "libcudart.so", "libcudadevrt.a")),
    )
    missing = [path.name for path in needed if not path.is_file()]
    return found[1], f"it lacks {', '.join(missing)}" if missing else ""


def _libraries(root: Path) -> Path:
    return next((root / it for it in ("lib64", "lib") if (root / it).is_dir()), root / "lib64")


def _locked() -> dict[str, str]:
    """Versions by package."""
    if not _LOCK.is_file():
        raise BuildError(f"{_LOCK} is not there: it names the packages of CUDA.")
    return dict(re.findall(r"^([\w-]+)==([\d.]+)", _LOCK.read_text(), re.MULTILINE))


def _installed(wanted: dict[str, str]) -> bool:
    def version(package: str) -> str:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return ""

    return all(version(package) == it for package, it in wanted.items())


def _install(base: Path) -> None:
    options = ["--no-deps", "--require-hashes", "--requirement", str(_LOCK)]
    run(
        [sys.executable, "-P", "-m", "pip", "install", *options],
        what="installing the packages of CUDA with pip",
        cwd=base,
        log=base / "logs" / "cuda-packages.log",
        env={},
    )


def _arrange(base: Path, version: str) -> Path:
    """A folder of links as a toolkit has them: the packages have no lib64, and no lib*.so."""
    packages = Path(str(importlib.metadata.distribution(_COMPILER).locate_file(_FOLDER))).resolve()
    root = base / "cuda" / version
    mark = root / "made-of"
    if mark.is_file() and mark.read_text() == str(packages):
        return root
    shutil.rmtree(root, ignore_errors=True)
    # bin is a folder of its own: nvcc looks for the rest beside the folder that it was called in.
    for folder in ("bin", "lib64"):
        (root / folder).mkdir(parents=True)
        for path in (packages / folder.removesuffix("64")).iterdir():
            (root / folder / path.name).symlink_to(path)
    for name in ("cublas", "cublasLt", "cudart"):
        library = next((packages / "lib").glob(f"lib{name}.so.*"))
        (root / "lib64" / f"lib{name}.so").symlink_to(library)
    (root / "lib").symlink_to("lib64")
    for folder in ("include", "nvvm"):
        (root / folder).symlink_to(packages / folder)
    mark.write_text(str(packages))
    return root


def _driver_library(base: Path, include: Path) -> Path:
    """cuda_driver.c as a static library. It stands in for libcuda, which only a driver brings."""
    library = base / "cuda" / "driver" / "libcuda.a"
    if library.is_file() and library.stat().st_mtime > _DRIVER_SOURCE.stat().st_mtime:
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    compiled = library.with_suffix(".o")
    compile_it = ["-O2", "-fPIC", "-c", f"-I{include}", str(_DRIVER_SOURCE), "-o", str(compiled)]
    for command in (
        [os.environ.get("CC", "cc"), *compile_it],
        ["ar", "rcs", str(library), str(compiled)],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise BuildError(f"{done.stderr}Failed compiling {relative(_DRIVER_SOURCE)}.")
    return library
