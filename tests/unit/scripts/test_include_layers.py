"""scripts/include_layers.py finds includes that go up, run in circles or bring in others' parts."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "include_layers.py"
SOUND = {
    "base/wakeup.h": "#include <atomic>\n",
    "slots/slot.h": '#include "base/wakeup.h"\n',
    "decode/stepper.h": '#include <llama.h>\n\n#include "slots/slot.h"\n',
    "bindings/module.cpp": '#include <nanobind/nanobind.h>\n#include "decode/stepper.h"\n',
    "device/llama/llama_internals.cuh": '#include "llama-graph.h"\n',
}


def check(csrc: Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        path = csrc / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        [sys.executable, SCRIPT, csrc], capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    assert done.returncode == (1 if lines else 0), done.stderr
    return lines


def test_a_sound_tree_passes(tmp_path: Path) -> None:
    assert check(tmp_path, SOUND) == []


@pytest.mark.parametrize(
    ("file", "text", "fault"),
    [
        (
            "base/ring.h",
            '#include "slots/slot.h"',
            "csrc/base/ring.h includes slots/slot.h: slots/ is not below base/",
        ),
        (
            "grammar/mask.h",
            '#  include "slots/slot.h"',  # of the same layer
            "csrc/grammar/mask.h includes slots/slot.h: slots/ is not below grammar/",
        ),
        (
            "decode/thread.cpp",
            "#include <nanobind/stl/string.h>",
            "csrc/decode/thread.cpp includes nanobind/stl/string.h: only bindings/ knows Python",
        ),
        (
            "device/llama/bridge.cu",
            '#include "llama-graph.h"',
            "csrc/device/llama/bridge.cu includes llama-graph.h: llama.cpp's internals are for"
            " device/llama/llama_internals.cuh alone",
        ),
        (
            "kernels/own.cu",
            "",
            "csrc/kernels/own.cu: its folder has no layer in scripts/include_layers.py",
        ),
    ],
)
def test_a_fault_is_named(tmp_path: Path, file: str, text: str, fault: str) -> None:
    assert check(tmp_path, {**SOUND, file: text}) == [fault]


def test_a_circle_within_a_folder_is_found(tmp_path: Path) -> None:
    circle = {
        "slots/a.h": '#include "slots/b.h"',
        "slots/b.h": '#include "slots/c.h"',
        "slots/c.h": '#include "slots/a.h"',
    }
    assert check(tmp_path, {**SOUND, **circle}) == [
        "csrc/slots/a.h includes slots/b.h includes slots/c.h includes slots/a.h"
    ]
