"""Several sequences in one batch of llama.cpp alone, with weights that the CPU backend rearranges:
logits as with the weights in the file's order.

With AMX that is AMX's kernels, which the build patches. Elsewhere it is what ggml's repacking does
for the processor, if anything, and the test passes.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.random_model import write_random_model

SCRIPT = Path(__file__).parents[1] / "support" / "llama" / "llama_sequences.py"
# 0.03 was seen between kernels; a product that is wrong gives 0.5 and more.
APART_MAX = 0.1


# Weights of three dimensions; recurrent layers with attention; alone, with matrices of 32 columns.
@pytest.mark.parametrize("architecture", ["deepseek2", "lfm2", "mamba"])
def test_rearranged_weights_give_the_same_logits(architecture: str, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    write_random_model(model, architecture)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(model)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    apart = json.loads(done.stdout)
    assert len(apart) == 8
    assert all(value < APART_MAX for value in apart.values()), apart
