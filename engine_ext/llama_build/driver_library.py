"""What a CUDA build is linked to in the place of the driver's own library."""

import os
import subprocess
from pathlib import Path

from .errors import BuildError
from .step import relative

SOURCE = Path(__file__).with_name("cuda_driver.c")


def compiled(base: Path, include: Path) -> Path:
    """cuda_driver.c as a static library. It stands in for libcuda, which only a driver brings.

    Raises BuildError.
    """
    library = base / "cuda" / "driver" / "libcuda.a"
    if library.is_file() and library.stat().st_mtime > SOURCE.stat().st_mtime:
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    unit = library.with_suffix(".o")
    compile_it = ["-O2", "-fPIC", "-c", f"-I{include}", str(SOURCE), "-o", str(unit)]
    for command in (
        [os.environ.get("CC", "cc"), *compile_it],
        ["ar", "rcs", str(library), str(unit)],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise BuildError(f"{done.stderr}Failed compiling {relative(SOURCE)}.")
    return library
