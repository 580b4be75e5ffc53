"""The shared sampling arithmetic is valid device code."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[3]


def nvcc() -> str | None:
    """The CUDA compiler, where there is one."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return shutil.which("nvcc") or shutil.which(f"{home}/bin/nvcc")


@pytest.mark.slow
@pytest.mark.skipif(nvcc() is None, reason="needs nvcc")
def test_the_shared_arithmetic_compiles_for_the_device(tmp_path: Path) -> None:
    compiler = nvcc()
    assert compiler is not None
    source = _ROOT / "tests" / "unit" / "cpp" / "sampling" / "sampling_on_device.cu"
    flags = ["-std=c++20", "-arch=sm_90", "--fmad=false", "-Werror=all-warnings"]
    done = subprocess.run(
        [compiler, *flags, f"-I{_ROOT / 'csrc'}", "-c", str(source), "-o", str(tmp_path / "x.o")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
