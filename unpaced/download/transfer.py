"""What every download does: fail, tell how it goes, and check what came."""

import sys
from pathlib import Path


class DownloadError(Exception):
    """The model cannot be had; the text says which and why."""


def tell(text: str) -> None:
    """Say how the download goes; the log is not set up yet."""
    print(f"unpaced serve: {text}", file=sys.stderr, flush=True)


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
