"""`unpaced completion`: the scripts, in the shells that are there."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.server import UNPACED

BASH = r"""
source "$1"; shift
COMP_WORDS=(unpaced "$@"); COMP_CWORD=$#
_shtab_unpaced
printf '%s\n' "${COMPREPLY[@]}"
"""


def script(shell: str, folder: Path) -> Path:
    done = subprocess.run(
        [str(UNPACED), "completion", shell], capture_output=True, text=True, timeout=60, check=True
    )
    path = folder / ("_unpaced" if shell == "zsh" else f"unpaced.{shell}")
    path.write_text(done.stdout)
    return path


def completed(shell: str, code: str, *arguments: str) -> str:
    return subprocess.run(
        [shell, "-c", code, "-", *arguments] if shell == "bash" else [shell, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "HOME": "/nonexistent"},
    ).stdout


def test_bash_completes_commands_flags_and_files(tmp_path: Path) -> None:
    path = str(script("bash", tmp_path))
    commands = completed("bash", BASH, path, "").split()
    assert {"serve", "chat", "pull", "list", "show", "completion"} <= set(commands)
    flags = completed("bash", BASH, path, "serve", "--ctx").split()
    assert "--ctx-size" in flags
    assert completed("bash", BASH, path, "completion", "z").split() == ["zsh"]
    (tmp_path / "model.gguf").touch()
    for words in (("show",), ("serve", "-m"), ("chat",)):
        files = completed("bash", BASH, path, *words, f"{tmp_path}/mod").split()
        assert f"{tmp_path}/model.gguf" in files, words


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
def test_fish_completes_commands_and_flags(tmp_path: Path) -> None:
    path = script("fish", tmp_path)
    for line, word in (("unpaced ", "chat"), ("unpaced serve --ctx", "--ctx-size")):
        said = completed("fish", f"source {path}; complete -C '{line}'")
        assert re.search(rf"^{word}\b", said, re.MULTILINE), said


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
def test_zsh_takes_the_script(tmp_path: Path) -> None:
    path = script("zsh", tmp_path)
    code = f"fpath=({path.parent} $fpath); autoload -Uz compinit; compinit -u -D"
    code += "; echo $_comps[unpaced]"
    assert completed("zsh", code).strip() == "_unpaced"
    subprocess.run(["zsh", "-n", str(path)], check=True, timeout=60)
