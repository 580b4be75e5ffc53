"""KV cells change hands by our short way through llama.cpp's books as by llama.h."""

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


def test_cells_change_hands_as_by_llama(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    write_random_model(model, "llama")
    run_gpu_program("sequence_cells_test", model)
