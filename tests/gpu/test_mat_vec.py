"""The mat-vec kernels on the card: ggml's bits, every format, length, end, column and build."""

import pytest

from tests.gpu.test_device_loop import has_device
from tests.support.device.gpu_program import needs_gpu_programs, run_gpu_program

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not has_device(), reason="no NVIDIA device on this machine"),
    needs_gpu_programs,
]


def test_all_formats_have_ggmls_bits() -> None:
    run_gpu_program("mat_vec_test")
