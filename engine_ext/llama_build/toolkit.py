"""CUDA's compiler and libraries: the system's if they fit, else the locked packages of NVIDIA."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import cuda_packages, driver_library, system_toolkit
from .choice import CUDA
from .driver import Version, dotted
from .errors import BuildError
from .step import say


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
        linked = hashlib.sha256(driver_library.SOURCE.read_bytes()).hexdigest()[:16]
        return f"{self.version} {self.libraries or 'packages'} {linked}"

    @property
    def where(self) -> str:
        return str(self.root) if self.libraries else "NVIDIA's packages"

    def run_path(self, depth: int) -> str:
        """For a library that lies `depth` folders below site-packages."""
        return str(self.libraries or f"$ORIGIN/{'../' * depth}{cuda_packages.FOLDER}/lib")

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
    system, reason = (None, "") if is_portable else system_toolkit.find(driver)
    if system is not None:
        root, version = system
        library = driver_library.compiled(base, root / "include")
        return Toolkit(
            root=root,
            version=version,
            libraries=system_toolkit.libraries_of(root),
            driver_library=library,
        )
    wanted = cuda_packages.locked()
    if not cuda_packages.are_installed(wanted):
        say("fetch", f"CUDA {dotted(CUDA)} compiler and libraries, 530 MB" + reason)
        cuda_packages.install(base)
    version = wanted[cuda_packages.COMPILER]
    root = cuda_packages.arrange(base, version)
    library = driver_library.compiled(base, root / "include")
    return Toolkit(root=root, version=version, libraries=None, driver_library=library)
