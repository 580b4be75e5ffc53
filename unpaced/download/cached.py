"""The models that are on this machine: in Hugging Face's cache and in the one of URLs."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import huggingface_hub
from huggingface_hub.errors import CacheNotFound

from engine_ext import model_parts
from unpaced.download.hugging_face import hub_cache
from unpaced.download.url import url_cache


@dataclass(frozen=True, slots=True)
class CachedModel:
    """`repo`: empty for a file of a URL. `path`: what `-m` takes. `n_bytes`: of all its parts that
    are there. `used_s`: when it was read last, seconds since 1970."""

    repo: str
    path: Path
    n_bytes: int
    used_s: float
    is_whole: bool


def cached_models() -> list[CachedModel]:
    """Every GGUF model in the caches, by repository and file."""
    found = {model.path: model for model in (*_of_hub(), *_of_urls())}
    return sorted(found.values(), key=lambda model: (model.repo == "", model.repo, model.path.name))


def _of_hub() -> Iterator[CachedModel]:
    try:
        cache = huggingface_hub.scan_cache_dir(hub_cache())
    except (CacheNotFound, ValueError):
        return
    for repo in cache.repos:
        for revision in repo.revisions:
            for file in revision.files:
                yield from _model(repo.repo_id, file.file_path)


def _of_urls() -> Iterator[CachedModel]:
    folder = url_cache()
    if folder.is_dir():
        for path in folder.iterdir():
            yield from _model("", path)


def _model(repo: str, path: Path) -> Iterator[CachedModel]:
    """One model for the first of its files; nothing for others and for what is no model."""
    parts = model_parts(path)
    if path.suffix.lower() != ".gguf" or path != parts[0] or not path.is_file():
        return
    there = [part.stat() for part in parts if part.is_file()]
    yield CachedModel(
        repo,
        path,
        sum(entry.st_size for entry in there),
        max(entry.st_atime for entry in there),
        len(there) == len(parts),
    )
