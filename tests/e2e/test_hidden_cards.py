"""A build with CUDA where there is no card: hidden ones, or none and no driver either."""

import os
import subprocess

import pytest

from engine_ext.base.build_info import read_build_info
from tests.support.server import UNPACED, serving

pytestmark = pytest.mark.skipif(
    not read_build_info().profile.startswith("cuda"), reason="llama.cpp is built without CUDA"
)


@pytest.fixture(autouse=True)
def hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.mark.parametrize("choice", [("-ngl", "0"), ("-dev", "none")])
def test_without_layers_on_the_gpu_it_serves(choice: tuple[str, str]) -> None:
    with serving("-t", "1", "-np", "1", *choice) as server:
        assert server.complete(prompt="Once", n_predict=4)["tokens_predicted"] == 4


def test_otherwise_it_ends_with_one_sentence() -> None:
    done = subprocess.run(
        [str(UNPACED), "serve", "--port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    assert len(errors) == 1
    assert errors[0].endswith("-ngl 0 serves on the CPU")
    # Why, as far as the process can see: a driver and its cards are another matter on each machine.
    assert any(
        why in errors[0] for why in ("no NVIDIA driver here", "CUDA_VISIBLE_DEVICES is ''", "/dev/")
    )
    assert "Traceback" not in done.stderr
