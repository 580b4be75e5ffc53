"""What a GGUF file says of itself, read in a process of its own: nothing is loaded."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engine_ext.base.build_info import find_llama
from engine_ext.base.errors import EngineBuildError, ModelLoadError
from engine_ext.loading.model_file import check_model_file

_COMMAND: Final = (sys.executable, "-I", "-m", "engine_ext.loading.gguf_reader")
_LIMIT_S: Final = 60.0
_PART: Final = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """The head of a model's file, or of all of its files.

    `metadata`: of the first file, by key; an array is {"n": its length, "first": how it begins}.
    `tensors`: their number by type. `n_bytes_missing`: what the files are too short by; 0 for whole
    ones. Texts are the file's: they may hold anything.
    """

    version: int
    metadata: dict[str, Any]
    tensors: dict[str, int]
    n_parameters: int
    n_bytes: int
    n_bytes_missing: int


def read_gguf_header(path: Path, *, limit_s: float = _LIMIT_S) -> GgufHeader:
    """Read `path`, and its other parts where it is a model in several files.

    Raises: ModelLoadError, one sentence, also where the file hangs or crashes its reader;
    EngineBuildError.
    """
    place = find_llama()
    if place is None:
        raise EngineBuildError("llama-cpp-python is not installed: run `make build`")
    parts = model_parts(path)
    for part in parts:
        check_model_file(part)
    command = [*_COMMAND, str(place.libraries / "libggml-base.so"), *map(str, parts)]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=limit_s, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise ModelLoadError(f"{path}: it could not be read in {limit_s:g} s") from None
    if done.returncode < 0:
        raise ModelLoadError(f"{path}: its reader was ended by signal {-done.returncode}")
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise ModelLoadError(": ".join(lines[-2:]) or f"{path}: it cannot be read")
    return GgufHeader(**json.loads(done.stdout))


def model_parts(path: Path) -> list[Path]:
    """The files of the model that `path` belongs to, in order; `path` alone unless it is split."""
    found = _PART.search(path.name)
    if found is None:
        return [path]
    stem, count = path.name[: found.start()], int(found[2])
    return [path.with_name(f"{stem}-{i:05}-of-{count:05}.gguf") for i in range(1, count + 1)]
