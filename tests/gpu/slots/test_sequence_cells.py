"""KV cells change hands by our short way through llama.cpp's books as by llama.h.

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


def test_cells_change_hands_as_by_llama(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    write_random_model(model, "llama")
    done = subprocess.run(
        [Path(PROGRAMS) / "sequence_cells_test", model],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout[-6000:]}"
