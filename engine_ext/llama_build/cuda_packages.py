"""NVIDIA's packages of CUDA's compiler and libraries, as the lock file names them."""

import importlib.metadata
import re
import shutil
import sys
from pathlib import Path

from .errors import BuildError
from .step import run

_LOCK = Path(__file__).resolve().parents[2] / "requirements-cuda-build.lock"
COMPILER = "nvidia-cuda-nvcc"
FOLDER = "nvidia/cu13"
"""Of all these packages, in site-packages."""


def locked() -> dict[str, str]:
    """Versions by package. Raises BuildError."""
    if not _LOCK.is_file():
        raise BuildError(f"{_LOCK} is not there: it names the packages of CUDA.")
    return dict(re.findall(r"^([\w-]+)==([\d.]+)", _LOCK.read_text(), re.MULTILINE))


def are_installed(wanted: dict[str, str]) -> bool:
    """Whether this interpreter has them all."""

    def version(package: str) -> str:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return ""

    return all(version(package) == it for package, it in wanted.items())


def install(base: Path) -> None:
    """With pip, for this interpreter. Raises BuildError."""
    options = ["--no-deps", "--require-hashes", "--requirement", str(_LOCK)]
    run(
        [sys.executable, "-P", "-m", "pip", "install", *options],
        what="installing the packages of CUDA with pip",
        cwd=base,
        log=base / "logs" / "cuda-packages.log",
        env={},
    )


def arrange(base: Path, version: str) -> Path:
    """A folder of links as a toolkit has them: the packages have no lib64, and no lib*.so."""
    packages = Path(str(importlib.metadata.distribution(COMPILER).locate_file(FOLDER))).resolve()
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
