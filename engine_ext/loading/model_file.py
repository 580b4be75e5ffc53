"""What can be said of a model file before llama.cpp reads it."""

from pathlib import Path
from typing import Final

from engine_ext.base.errors import ModelLoadError

_MAGIC: Final = b"GGUF"
_N_NAMED: Final = 3


def check_model_file(path: Path) -> None:
    """Raises: ModelLoadError, one sentence that names `path` and says why it cannot be a model."""
    reason = _why_no_model(path)
    if reason is not None:
        raise ModelLoadError(f"cannot load model {path}: {reason}")


def _why_no_model(path: Path) -> str | None:
    try:
        if path.is_dir():
            return f"is a folder{_models_in(path)}"
        if not path.exists():
            return "no such file"
        if not path.is_file():
            return "is not a regular file"
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if not start:
        return "is empty"
    if start != _MAGIC:
        return "is not a GGUF file: it does not begin with GGUF"
    return None


def _models_in(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir() if entry.suffix == ".gguf")
    if not names:
        return ", and no GGUF file is in it"
    more = f" and {len(names) - _N_NAMED} more" if len(names) > _N_NAMED else ""
    return f"; the model is a file, such as {', '.join(names[:_N_NAMED])}{more} in it"
