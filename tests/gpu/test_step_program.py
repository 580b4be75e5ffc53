"""A step captured in parts: the kernels and the logits of the step as a whole.

UNPACED_GPU_PROGRAMS names the build folder that has the programs of tests/gpu/cpp (CMake option of
the same name).
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.gpu.random_model import write_random_model
from tests.gpu.test_device_loop import has_device

PROGRAMS = os.environ.get("UNPACED_GPU_PROGRAMS", "")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not has_device(), reason="no NVIDIA device on this machine"),
    pytest.mark.skipif(PROGRAMS == "", reason="UNPACED_GPU_PROGRAMS is not set"),
]


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_a_step_in_parts_is_the_step(architecture: str, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    write_random_model(model, architecture)
    done = subprocess.run(
        [Path(PROGRAMS) / "step_program_test", model],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout[-6000:]}"
