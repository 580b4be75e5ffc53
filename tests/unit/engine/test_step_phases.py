"""Decode steps, of one request and of several, and short prompts of each architecture in phases.

Which are ours, and that they leave the logits.

The graphs are llama.cpp's own, on the CPU. One program (tests/unit/cpp/device/graph) makes the step
from its phases, with all of them ours, none, and halves of them; the other (device/phases) has
kernels on the CPU do what the GPU's are asked for.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gpu.random_model import write_random_model
from tests.support.device.step_phases import phase_launcher_program, step_phases_program

NORM = "norm: norm"
HEADS = "attention input: products*3 heads"
ATTENTION = "attention: attention rounded"
OUT = "product: products*1+"
FEED_FORWARD = "feed-forward: gated round products*1+"
DENSE = [NORM, HEADS, ATTENTION, OUT, NORM, FEED_FORWARD]
EXPERTS = [
    NORM,
    HEADS,
    ATTENTION,
    OUT,
    NORM,
    "product: products*1",
    "experts' choice: choice",
    "feed-forward: gated round products*1",
    "norm: sum+norm",
    HEADS,
]
# A norm after attention and feed-forward, in one kernel with the next.
GEMMA = [
    NORM,
    HEADS,
    ATTENTION,
    "product: products*1",
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
        "norm: sum+norm",
    ],
}

WITH_EXPERTS = ("llama-moe", "qwen3moe", "gpt-oss")


ModelOf = Callable[[str], Path]


@pytest.fixture(scope="module")
def model_of(tmp_path_factory: pytest.TempPathFactory) -> ModelOf:
    """An architecture's random model, written when it is first asked for."""
    folder = tmp_path_factory.mktemp("models")

    def of(architecture: str) -> Path:
        path = folder / f"{architecture}.gguf"
        if not path.exists():
            write_random_model(path, architecture)
        return path

    return of


@pytest.fixture(scope="module")
def program() -> Path:
    return step_phases_program()


@pytest.fixture(scope="module")
def launcher() -> Path:
    return phase_launcher_program()


def phases_of(
    program: Path, model: Path, cache_type: str = "f16", n_tokens: int = 1, n_outputs: int = 1
) -> list[str]:
    """The lines of all phases, when there are kernels for everything."""
    done = subprocess.run(
        [program, model, cache_type, str(n_tokens), str(n_outputs)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    lines = [line for line in done.stdout.splitlines() if line[0].isdigit() and "-" in line]
    return [line.partition(" ")[2] for line in lines]


@pytest.mark.parametrize("architecture", FIRST_LAYER)
def test_a_step_in_phases(program: Path, architecture: str, model_of: ModelOf) -> None:
    phases = phases_of(program, model_of(architecture))
    assert phases[0].startswith("ggml: GET_ROWS")
    expected = FIRST_LAYER[architecture]
    assert phases[1 : 1 + len(expected)] == expected


# Of one token the choice of the last row is none. Gemma 2 and 3 normalise what was chosen, and
# gpt-oss adds a bias first.
@pytest.mark.parametrize("architecture", sorted(set(FIRST_LAYER) - {"gemma2", "gemma3", "gpt-oss"}))
def test_the_last_layer_is_like_the_others(
    program: Path, architecture: str, model_of: ModelOf
) -> None:
    phases = phases_of(program, model_of(architecture))
    assert phases.count(OUT) == phases.count(ATTENTION) > 1
    assert not any("GET_ROWS; ADD" in phase for phase in phases)


# A prompt has logits of its last token alone, several requests' step those of all.
@pytest.mark.parametrize("n_outputs", [1, 8])
@pytest.mark.parametrize("architecture", FIRST_LAYER)
def test_several_tokens_in_phases(
    program: Path, architecture: str, n_outputs: int, model_of: ModelOf
) -> None:
    phases = phases_of(program, model_of(architecture), n_tokens=8, n_outputs=n_outputs)
    # The phases of a step, but that ggml has attention, whose row it does not round, and experts.
    expected = FIRST_LAYER[architecture]
    if architecture in WITH_EXPERTS:
        expected = expected[: expected.index(ATTENTION) + 2]
    at = expected.index(ATTENTION)
    out = expected[at + 1].replace("product: ", "product: round ")
    expected = [*expected[:at], "ggml: attention of several tokens", out, *expected[at + 2 :]]
    assert phases[1 : 1 + len(expected)] == expected


# More than eight rows have the bits that each has alone, and products by eight of them.
@pytest.mark.parametrize(
    ("n_tokens", "n_outputs", "kind"),
    [(1, 1, ""), (5, 1, ""), (80, 1, ""), (2, 2, ""), (5, 5, ""), (20, 20, ""), (20, 20, "alone")],
)
@pytest.mark.parametrize("architecture", FIRST_LAYER)
def test_kernels_are_asked_for_what_the_step_computes(
    launcher: Path, architecture: str, n_tokens: int, n_outputs: int, kind: str, model_of: ModelOf
) -> None:
    done = subprocess.run(
        [launcher, model_of(architecture), str(n_tokens), str(n_outputs), kind],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def test_a_rotated_cache_leaves_the_heads_to_ggml(program: Path, model_of: ModelOf) -> None:
    # A quantised cache's rows are rotated before they are written.
    phases = phases_of(program, model_of("llama"), "q8_0")
    assert not any(phase.startswith("attention input") for phase in phases)
    assert phases.count("product: products*1") > 3
    assert FEED_FORWARD in phases
