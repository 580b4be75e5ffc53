"""A decode step of each architecture in phases: which are ours, and that they leave its logits.

The graphs are llama.cpp's own, on the CPU. One program (tests/unit/cpp/device/graph) makes the step
from its phases, with all of them ours, none, and halves of them; the other (device/phases) has
kernels on the CPU do what the GPU's are asked for.
"""

import subprocess
from pathlib import Path

import pytest

from tests.gpu.random_model import write_random_model
from tests.support.device.step_phases import phase_launcher_program, step_phases_program

NORM = "norm: norm"
HEADS = "attention input: products*3 heads"
ATTENTION = "ggml: attention"
OUT = "product: round products*1+"
FEED_FORWARD = "feed-forward: gated round products*1+"
DENSE = [NORM, HEADS, ATTENTION, OUT, NORM, FEED_FORWARD]
EXPERTS = [
    NORM,
    HEADS,
    ATTENTION,
    OUT,
    NORM,
    "product: products*1",
    "ggml: SOFT_MAX; ARGSORT; GET_ROWS; SUM_ROWS; CLAMP; DIV",
    "feed-forward: gated round products*1",
    "ggml: MUL; ADD",
]
# A norm after attention and feed-forward, in one kernel with the next.
GEMMA = [
    NORM,
    HEADS,
    ATTENTION,
    "product: round products*1",
    "norm: norm+norm",
    "feed-forward: gated round products*1",
    "norm: norm+norm",
    HEADS,
]
FIRST_LAYER = {
    "llama": DENSE,
    "mistral3": DENSE,
    "qwen2": [NORM, "attention input: products*3+ heads", *DENSE[2:]],
    "qwen3": DENSE,
    "gemma": DENSE,
    "gemma2": GEMMA,
    "gemma3": GEMMA,
    "phi3": [
        NORM,
        "attention input: products*1 heads",
        *DENSE[2:5],
        "feed-forward: products*1 activation products*1+",
    ],
    "llama-moe": EXPERTS,
    "qwen3moe": EXPERTS,
    "gpt-oss": [
        NORM,
        "attention input: products*3+ heads",
        ATTENTION,
        OUT,
        "ggml: ADD",
        NORM,
        "product: products*1+",
        "ggml: ARGSORT; GET_ROWS; SOFT_MAX",
        "feed-forward: gated round products*1+",
        "ggml: MUL; ADD",
    ],
}


@pytest.fixture(scope="module")
def program() -> Path:
    return step_phases_program()


@pytest.fixture(scope="module")
def launcher() -> Path:
    return phase_launcher_program()


def phases_of(program: Path, model: Path, cache_type: str = "f16") -> list[str]:
    """The lines of all phases, when there are kernels for everything."""
    done = subprocess.run(
        [program, model, cache_type], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    lines = [line for line in done.stdout.splitlines() if line[0].isdigit() and "-" in line]
    return [line.partition(" ")[2] for line in lines]


@pytest.mark.parametrize("architecture", FIRST_LAYER)
def test_a_step_in_phases(program: Path, architecture: str, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    write_random_model(model, architecture)
    phases = phases_of(program, model)
    assert phases[0].startswith("ggml: GET_ROWS")
    expected = FIRST_LAYER[architecture]
    assert phases[1 : 1 + len(expected)] == expected


@pytest.mark.parametrize("architecture", FIRST_LAYER)
def test_kernels_are_asked_for_what_the_step_computes(
    launcher: Path, architecture: str, tmp_path: Path
) -> None:
    model = tmp_path / "model.gguf"
    write_random_model(model, architecture)
    done = subprocess.run(
        [launcher, model], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def test_a_rotated_cache_leaves_the_heads_to_ggml(program: Path, tmp_path: Path) -> None:
    # A quantised cache's rows are rotated before they are written.
    model = tmp_path / "model.gguf"
    write_random_model(model, "llama")
    phases = phases_of(program, model, "q8_0")
    assert not any(phase.startswith("attention input") for phase in phases)
    assert phases.count("product: products*1") > 3
    assert FEED_FORWARD in phases
