"""Models from Hugging Face, in its own cache, with the choice of file that llama-server makes."""

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import huggingface_hub
from huggingface_hub import constants
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from huggingface_hub.hf_api import RepoSibling

from unpaced.download.transfer import DownloadError, sha256_of, tell

# Source: llama.cpp 0c1e57098 common/download.cpp:482-693.
_DEFAULT_QUANTS: Final = ("Q4_K_M", "Q8_0")
_NO_MODEL: Final = re.compile(r"mmproj|imatrix|(^|/)(mtp|eagle3|dflash|dspark)-", re.IGNORECASE)
_BUSY: Final = frozenset({429, 500, 502, 503, 504})
_BUSY_PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0)
_LIST_TIMEOUT_S: Final = 10.0
_SPLIT: Final = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)


def fetch_from_hub(repo: str, quant: str, file: str, *, token: str | None, offline: bool) -> Path:
    """The file to load, in the cache; a split model's others are there too.

    `LLAMA_CACHE` (llama.cpp's), `HF_HUB_CACHE` or `HF_HOME` name the cache; `MODEL_ENDPOINT` or
    `HF_ENDPOINT` the server. What was interrupted goes on where it stopped.
    Raises: DownloadError.
    """
    cache = hub_cache()
    if offline or constants.is_offline_mode():
        return _from_cache(cache, repo, quant, file, "offline")
    endpoint = os.environ.get("MODEL_ENDPOINT") or os.environ.get("HF_ENDPOINT")
    try:
        api = huggingface_hub.HfApi(endpoint=endpoint, token=token)
        listed = {entry.rfilename: entry for entry in _list_files(api, repo)}
        chosen = choose_file(list(listed), repo, quant, file)
        for name in split_files(chosen, list(listed)):
            _fetch(repo, name, listed[name], cache, token, endpoint)
        return _cached_path(cache, repo, chosen)
    except GatedRepoError:
        raise DownloadError(f"{repo} is gated: --hf-token or HF_TOKEN must have access") from None
    except (RepositoryNotFoundError, EntryNotFoundError) as error:
        if isinstance(error, LocalEntryNotFoundError):
            return _from_cache(cache, repo, quant, file, "Hugging Face cannot be reached")
        raise DownloadError(f"Hugging Face has no repository {repo}, or not for you") from None
    except HfHubHTTPError as error:
        raise DownloadError(f"{repo}: {str(error).splitlines()[0]}") from None
    except (OfflineModeIsEnabled, OSError) as error:
        return _from_cache(cache, repo, quant, file, f"Hugging Face cannot be reached: {error}")
    except Exception as error:
        # The HTTP library underneath is the hub library's own business; so are its errors.
        if "Connect" in type(error).__name__ or "Timeout" in type(error).__name__:
            return _from_cache(cache, repo, quant, file, f"Hugging Face cannot be reached: {error}")
        raise


def hub_cache() -> Path:
    """The folder of what came from Hugging Face."""
    return Path(os.environ.get("LLAMA_CACHE") or constants.HF_HUB_CACHE)


def _list_files(api: huggingface_hub.HfApi, repo: str) -> Sequence[RepoSibling]:
    """A repository's files with sizes and sums, asked for again where the hub is only busy.

    One that cannot be reached is not: what is in the cache is there to be used, and nobody wants
    to wait for half a minute to be told that the network is down, as the hub's library would have
    it. Raises: HfHubHTTPError, or what the HTTP library does.
    """
    pauses_s = iter(_BUSY_PAUSES_S)
    while True:
        try:
            info = api.model_info(repo, files_metadata=True, timeout=_LIST_TIMEOUT_S)
            return info.siblings or ()
        except HfHubHTTPError as error:
            pause_s = next(pauses_s, None)
            if error.response.status_code not in _BUSY or pause_s is None:
                raise
            tell(f"{repo}: the hub answers {error.response.status_code}; again in {pause_s:g} s")
            time.sleep(pause_s)


def choose_file(paths: Sequence[str], repo: str, quant: str, file: str) -> str:
    """The model among a repository's files; a split one's first. Raises: DownloadError."""
    if file:
        if file not in paths:
            raise DownloadError(f"{repo} has no file {file}")
        return file
    models = [
        path
        for path in paths
        if path.lower().endswith(".gguf") and not _NO_MODEL.search(path) and _part(path) <= 1
    ]
    for name in (quant,) if quant else _DEFAULT_QUANTS:
        for path in models:
            if re.search(re.escape(name) + "[.-]", path, re.IGNORECASE):
                return path
    if quant or not models:
        which = f"{quant} file" if quant else "GGUF file"
        known = f"; there are: {', '.join(models)}" if models else ""
        raise DownloadError(f"{repo} has no {which}{known}")
    return models[0]


def split_files(path: str, paths: Sequence[str]) -> list[str]:
    """All files of the model whose first is `path`, in order."""
    found = _SPLIT.search(path)
    if found is None:
        return [path]
    stem, count = path[: found.start()], int(found[2])
    names = [f"{stem}-{i:05}-of-{count:05}.gguf" for i in range(1, count + 1)]
    missing = [name for name in names if name not in paths]
    if missing:
        raise DownloadError(f"{path}: its part {missing[0]} is missing")
    return names


def _part(path: str) -> int:
    found = _SPLIT.search(path)
    return 0 if found is None else int(found[1])


def _fetch(
    repo: str, name: str, entry: Any, cache: Path, token: str | None, endpoint: str | None
) -> None:
    known = huggingface_hub.try_to_load_from_cache(repo, name, cache_dir=cache)
    sha256 = "" if entry.lfs is None else entry.lfs.sha256
    tell(f"{repo}/{name}: {entry.size / 1e6:.1f} MB, sha256 {sha256 or 'not known'}")
    path = Path(
        huggingface_hub.hf_hub_download(repo, name, cache_dir=cache, token=token, endpoint=endpoint)
    )
    if isinstance(known, str) and Path(known).samefile(path):
        return
    if sha256 and sha256_of(path) != sha256:
        path.resolve().unlink()
        path.unlink()
        raise DownloadError(f"{repo}/{name}: what came has another sha256; it was removed")


def _from_cache(cache: Path, repo: str, quant: str, file: str, why: str) -> Path:
    snapshot = _snapshot(cache, repo)
    paths = []
    if snapshot is not None:
        paths = sorted(
            str(path.relative_to(snapshot)) for path in snapshot.rglob("*") if path.is_file()
        )
    try:
        chosen = choose_file(paths, repo, quant, file)
        split_files(chosen, paths)
    except DownloadError:
        wanted = f"{repo}{f':{quant}' if quant else ''}{f'/{file}' if file else ''}"
        raise DownloadError(f"{wanted} is not in {cache} ({why})") from None
    assert snapshot is not None
    return snapshot / chosen


def _snapshot(cache: Path, repo: str) -> Path | None:
    """The folder of the repository's main branch as it was last seen."""
    folder = cache / ("models--" + repo.replace("/", "--"))
    try:
        return folder / "snapshots" / (folder / "refs" / "main").read_text().strip()
    except OSError:
        return None


def _cached_path(cache: Path, repo: str, name: str) -> Path:
    path = huggingface_hub.try_to_load_from_cache(repo, name, cache_dir=cache)
    if not isinstance(path, str):
        raise DownloadError(f"{repo}/{name} was downloaded and is not in {cache}")
    return Path(path)
