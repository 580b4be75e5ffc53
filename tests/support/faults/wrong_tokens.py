"""Compiles wrong_tokens.c, which makes an assertion within ggml fail in a process that loads it."""

import os
import subprocess
from pathlib import Path

from engine_ext.llama_build import pins

_SOURCE = Path(__file__).with_suffix(".c")
_BUILD = Path(__file__).resolve().parents[3] / ".build"
_INCLUDE = _BUILD / f"src/llama_cpp_python-{pins.VERSION}/vendor/llama.cpp/ggml/include"


def wrong_tokens_environment(library: Path, switch: Path, n_tokens: int) -> dict[str, str]:
    """Of a process in which batches of so many tokens or more fail while the file `switch` is
    there."""
    return {
        "LD_PRELOAD": str(library),
        "UNPACED_WRONG_TOKENS": str(switch),
        "UNPACED_WRONG_TOKENS_FROM": str(n_tokens),
    }


def wrong_tokens_library(folder: Path) -> Path:
    """Compile it there. Raises: subprocess.CalledProcessError."""
    target = folder / "wrong_tokens.so"
    compiler = os.environ.get("CC", "cc")
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{_INCLUDE}"]
    subprocess.run([*command, str(_SOURCE), "-o", str(target), "-ldl"], check=True, timeout=60)
    return target
