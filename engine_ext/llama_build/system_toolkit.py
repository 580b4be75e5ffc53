"""The CUDA toolkit that is installed on this machine, if there is one that fits."""

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from .choice import CUDA
from .driver import Version, dotted


def find(driver: Version | None) -> tuple[tuple[Path, str] | None, str]:
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
    libraries = libraries_of(root)
    needed = (
        root / "include" / "cublas_v2.h",
        root / "include" / "cuda_runtime.h",
        *(libraries / name for name in ("libcublas.so", "libcudart.so", "libcudadevrt.a")),
    )
    missing = [path.name for path in needed if not path.is_file()]
    return found[1], f"it lacks {', '.join(missing)}" if missing else ""


def libraries_of(root: Path) -> Path:
    """The folder of its libraries."""
    return next((root / it for it in ("lib64", "lib") if (root / it).is_dir()), root / "lib64")
