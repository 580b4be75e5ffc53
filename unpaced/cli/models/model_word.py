"""How a command names a model: a file, a repository, a URL, or the demo."""

import re
from pathlib import Path
from typing import Final

DEMO: Final = "demo"
MODEL_HELP: Final = f"GGUF file, USER/REPO[:QUANT] on Hugging Face, or {DEMO}: the built-in model"
_REPO: Final = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")


def is_model_word(word: str) -> bool:
    """Whether a word where a command stands names a model, as in `unpaced model.gguf`."""
    return not word.startswith("-") and bool(source_flags(word))


def source_flags(word: str) -> list[str]:
    """`unpaced serve`'s flags for the model that a word names; none for the demo and for what
    names no model."""
    if word.startswith(("http://", "https://")):
        return ["--model-url", word]
    if word.lower().endswith(".gguf") or (word != DEMO and Path(word).exists()):
        return ["--model", word]
    return ["--hf-repo", word] if is_repo(word) else []


def is_repo(word: str) -> bool:
    """Whether it is USER/REPO or USER/REPO:QUANT."""
    return _REPO.fullmatch(word) is not None


def local_model(word: str) -> Path:
    """The file on this machine that a word names; nothing is downloaded.

    Raises: DownloadError, where it is none or not in the cache.
    """
    from unpaced.download.transfer import DownloadError
    from unpaced.settings.model import DEMO_MODEL

    flag, value = source_flags(word) or ["", word]
    if flag == "--model":
        return Path(value)
    if flag == "--model-url":
        from unpaced.download.url import cache_path

        return cache_path(value)
    if flag == "--hf-repo":
        from unpaced.download.hugging_face import fetch_from_hub

        repo, _, quant = value.partition(":")
        return fetch_from_hub(repo, quant, "", token=None, offline=True)
    if word == DEMO:
        return DEMO_MODEL
    raise DownloadError(f"{word} is no file and no USER/REPO[:QUANT]")


def fetch_model(word: str, file: str = "", token: str = "") -> Path:
    """The file that a word names, downloaded where it is not here yet. Raises: DownloadError."""
    flag, value = source_flags(word) or ["", word]
    if flag == "--hf-repo":
        from unpaced.download.hugging_face import fetch_from_hub

        repo, _, quant = value.partition(":")
        return fetch_from_hub(repo, quant, file, token=token or None, offline=False)
    path = local_model(word)
    if flag == "--model-url":
        from unpaced.download.url import fetch_url

        fetch_url(value, path, token=token, offline=False)
    return path
