"""Finds the model's file: as it is, from Hugging Face, or from a URL."""

from unpaced.download.transfer import DownloadError
from unpaced.settings import Settings
from unpaced.settings.model import DEMO_MODEL


def with_local_model(settings: Settings, *, may_download: bool = True) -> Settings:
    """`settings` whose `model` is a file of this machine, downloaded first where needed.

    Raises: DownloadError.
    """
    if not settings.hf_repo and not settings.model_url:
        return settings
    if settings.hf_repo and settings.model_url:
        raise DownloadError("--hf-repo and --model-url name two models")
    has_path = settings.model != DEMO_MODEL
    if settings.hf_repo and has_path:
        raise DownloadError("--model and --hf-repo name two models")
    offline = settings.offline or not may_download
    if settings.hf_repo:
        from unpaced.download.hugging_face import fetch_from_hub

        repo, _, quant = settings.hf_repo.partition(":")
        path = fetch_from_hub(
            repo, quant, settings.hf_file, token=settings.hf_token or None, offline=offline
        )
    else:
        from unpaced.download.url import cache_path, fetch_url

        path = settings.model if has_path else cache_path(settings.model_url)
        fetch_url(settings.model_url, path, token=settings.hf_token, offline=offline)
    return settings.model_copy(update={"model": path})
