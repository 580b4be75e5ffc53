"""A step captured in parts: the kernels and the logits of the step as a whole."""

from pathlib import Path

import pytest

from tests.gpu.random_model import write_random_model
from tests.gpu.test_device_loop import has_device
from tests.support.device.gpu_program import needs_gpu_programs, run_gpu_program

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not has_device(), reason="no NVIDIA device on this machine"),
    needs_gpu_programs,
]


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_a_step_in_parts_is_the_step(architecture: str, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    write_random_model(model, architecture)
    run_gpu_program("step_program_test", model)
