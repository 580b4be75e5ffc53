"""The mat-vec kernels on the card: ggml's bits, every format, length, end, column and build.

UNPACED_GPU_PROGRAMS names the build folder that has the programs of tests/gpu/cpp (CMake option of
the same name).
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.gpu.test_device_loop import has_device

PROGRAMS = os.environ.get("UNPACED_GPU_PROGRAMS", "")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not has_device(), reason="no NVIDIA device on this machine"),
    pytest.mark.skipif(PROGRAMS == "", reason="UNPACED_GPU_PROGRAMS is not set"),
]


def test_all_formats_have_ggmls_bits() -> None:
    done = subprocess.run(
        [Path(PROGRAMS) / "mat_vec_test"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
