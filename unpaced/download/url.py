"""A model from any URL, resumed where it was interrupted."""

import os
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import httpx

from unpaced.download.transfer import DownloadError, byte_bar, sha256_of, tell

_ATTEMPTS: Final = 3
_TIMEOUT: Final = httpx.Timeout(30.0)
_HUB: Final = "huggingface.co"


def cache_path(url: str) -> Path:
    """Where a URL's file is kept: in LLAMA_CACHE, or llama.cpp's folder in the user's cache."""
    name = Path(unquote(urlsplit(url).path)).name
    return url_cache() / (name or "model.gguf")


def url_cache() -> Path:
    """The folder of what came from URLs."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("LLAMA_CACHE") or Path(home) / "llama.cpp")


def fetch_url(url: str, path: Path, *, token: str, offline: bool) -> None:
    """Make `path` the file of `url`; a file that is there already stays.

    Raises: DownloadError.
    """
    if path.is_file():
        tell(f"{path}: downloaded before")
        return
    if offline:
        raise DownloadError(f"{path} is not there and may not be downloaded (offline)")
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                _download(url, partial, token)
                break
            except httpx.TransportError as error:
                if attempt == _ATTEMPTS:
                    raise DownloadError(f"{url}: {error or type(error).__name__}") from None
                tell(f"{url}: {error or type(error).__name__}; going on")
        tell(f"{path}: sha256 {sha256_of(partial)}")
        partial.replace(path)
    except OSError as error:
        raise DownloadError(f"{path}: {error.strerror}") from None


def _download(url: str, partial: Path, token: str) -> None:
    """Append what is missing. Raises: DownloadError; httpx.TransportError when it is cut off."""
    tag_file = partial.with_name(partial.name + ".etag")
    n_have = partial.stat().st_size if partial.is_file() and tag_file.is_file() else 0
    headers = {"accept-encoding": "identity"}
    if token and (urlsplit(url).hostname or "").endswith(_HUB):
        headers["authorization"] = f"Bearer {token}"
    if n_have:
        # Only if it is still the same file; else the server sends all of it.
        headers |= {"range": f"bytes={n_have}-", "if-range": tag_file.read_text()}
    with (
        httpx.Client(timeout=_TIMEOUT, follow_redirects=True) as client,
        client.stream("GET", url, headers=headers) as response,
    ):
        if response.status_code not in (200, 206):
            raise DownloadError(f"{url}: the server answers {response.status_code}")
        is_rest = response.status_code == 206
        tag_file.write_text(response.headers.get("etag", ""))
        if not response.headers.get("etag"):
            tag_file.unlink()  # without one nobody can tell whether the file has changed
        n_done = n_have if is_rest else 0
        n_all = n_done + int(response.headers.get("content-length", 0))
        tell(f"{url}: {n_all / 1e6:.1f} MB" + (f", {n_done / 1e6:.1f} there" if n_done else ""))
        mode = "ab" if is_rest else "wb"
        with partial.open(mode) as file, byte_bar(partial.stem, n_all, n_done=n_done) as bar:
            for chunk in response.iter_raw():  # as it comes: what came before a cut is kept
                file.write(chunk)
                n_done += len(chunk)
                bar.update(len(chunk))
    if n_all and n_done != n_all:
        raise httpx.ReadError(f"{n_done} of {n_all} bytes came")
    tag_file.unlink(missing_ok=True)
