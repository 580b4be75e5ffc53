"""What every download does: fail, tell how it goes, and check what came."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tqdm import tqdm

_PIECE_BYTES: Final = 1 << 20
_QUICK_BYTES: Final = 1 << 28  # summed in a fraction of a second


class DownloadError(Exception):
    """The model cannot be had; the text says which and why."""


def tell(text: str) -> None:
    """Say how the download goes; the log is not set up yet."""
    print(f"unpaced: {text}", file=sys.stderr, flush=True)


def byte_bar(what: str, n_all: int, *, n_done: int = 0) -> "tqdm[None]":
    """A progress bar over bytes on a terminal's standard error; elsewhere it shows nothing."""
    from tqdm import tqdm

    return tqdm(
        desc=what,
        total=n_all or None,
        initial=n_done,
        unit="B",
        unit_scale=True,
        disable=not sys.stderr.isatty(),
    )


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    import hashlib

    n_bytes = path.stat().st_size
    with path.open("rb") as file:
        if n_bytes < _QUICK_BYTES:
            return hashlib.file_digest(file, "sha256").hexdigest()
        digest = hashlib.sha256()
        with byte_bar("sha256", n_bytes) as bar:
            while piece := file.read(_PIECE_BYTES):
                digest.update(piece)
                bar.update(len(piece))
    return digest.hexdigest()
