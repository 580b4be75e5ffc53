"""The build's command: the wheel that it names, failures of the machine; licenses."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from engine_ext.llama_build import cli, source
from engine_ext.llama_build.choice import choose
from engine_ext.llama_build.cli import build
from engine_ext.llama_build.errors import BuildError
from engine_ext.llama_build.inputs import Inputs
from engine_ext.llama_build.prefix_map import prefix_map
from engine_ext.llama_build.source import Source

ROOT = Path(__file__).resolve().parents[3]


def test_the_wheel_of_these_inputs_is_taken_not_the_newest(tmp_path: Path) -> None:
    state = Source(tmp_path).tree / "unpaced_state"
    state.parent.mkdir(parents=True)
    state.write_text(source._STATE.hexdigest())
    ours = tmp_path / "wheels" / Inputs.collect(choose("cpu-portable"), None).digest / "a.whl"
    other = tmp_path / "wheels" / "of_other_inputs" / "a.whl"
    for age, path in ((60, ours), (0, other)):
        path.parent.mkdir(parents=True)
        path.touch()
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    assert build(tmp_path, "cpu-portable", "", 1) == ours


def test_a_portable_build_may_lie_in_a_folder_with_a_blank(tmp_path: Path) -> None:
    folder = tmp_path / "my models"
    file = folder / "empty.cpp"
    folder.mkdir()
    file.write_text("const char *name = __FILE__;\n")
    # As CMake does: the flags as they are, in a shell's line.
    line = f"c++ {prefix_map(folder, 'CXX')} -S -o - '{file}'"
    made = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True)
    assert '"empty.cpp"' in made.stdout
    assert "my models" not in made.stdout
    flag = f'-Xcompiler="-ffile-prefix-map={folder}/="'  # of which nvcc makes a shell's line
    assert shlex.split(prefix_map(folder, "CUDA")) == [flag]
    assert prefix_map("/src", "CUDA") == "-Xcompiler=-ffile-prefix-map=/src/="


@pytest.mark.parametrize(
    ("profile", "other"), [("cuda", "cpu"), ("cuda-portable", "cpu-portable"), ("cpu", "")]
)
def test_a_build_with_cuda_that_fails_names_the_one_without(
    profile: str, other: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CXX", "/no/such/compiler")
    monkeypatch.setattr(cli, "find_toolkit", lambda base, **_: None)  # half a gigabyte
    with pytest.raises(BuildError) as caught:
        build(tmp_path, profile, "86-real" if other else "", 1)
    first, *rest = str(caught.value).splitlines()
    assert first.startswith("There is no C++ compiler")
    assert rest == ([f"PROFILE={other} builds without CUDA."] if other else [])


def test_what_the_machine_refuses_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "llama.lock").mkdir()  # as where another user's files are in the way
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "engine_ext" / "build_llama.py")),
            *("--profile", "cpu", "--build-dir", str(tmp_path / "build")),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr == (
        f"The build cannot go on: {tmp_path}/build/llama.lock: Is a directory.\n"
    )
