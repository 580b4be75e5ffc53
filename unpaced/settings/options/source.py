"""Where the model comes from if it is not a file yet: Hugging Face or a URL."""

from typing import Annotated, ClassVar, Self

from pydantic import field_validator, model_validator

from unpaced.settings.options.option import Option
from unpaced.settings.options.option_group import OptionGroup


class SourceSettings(OptionGroup):
    """Where the model comes from if it is not a file yet: Hugging Face or a URL."""

    group: ClassVar[str] = "Download"

    hf_repo: Annotated[
        str,
        Option(
            ("-hf", "-hfr", "--hf-repo"),
            "USER/REPO[:QUANT] on Hugging Face; without QUANT Q4_K_M, Q8_0 or the first file",
            env="HF_REPO",
            metavar="REPO",
        ),
    ] = ""
    hf_file: Annotated[
        str,
        Option(("-hff", "--hf-file"), "file of that repository", env="HF_FILE", metavar="FILE"),
    ] = ""
    hf_token: Annotated[
        str,
        Option(
            ("-hft", "--hf-token"),
            "access token for Hugging Face",
            env_name="HF_TOKEN",
            metavar="TOKEN",
            secret=True,
        ),
    ] = ""
    model_url: Annotated[
        str,
        Option(
            ("-mu", "--model-url"),
            "download the model from here, to -m or the cache",
            env="MODEL_URL",
            metavar="URL",
        ),
    ] = ""
    offline: Annotated[
        bool, Option(("--offline",), "use what is downloaded already", env="OFFLINE")
    ] = False

    @model_validator(mode="after")
    def _check_hf_file(self) -> Self:
        if self.hf_file and not self.hf_repo:
            raise ValueError("hf_file: needs --hf-repo")
        return self

    @field_validator("model_url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        if url and not url.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        return url

    @field_validator("hf_repo")
    @classmethod
    def _check_repo(cls, repo: str) -> str:
        name = repo.partition(":")[0]
        if repo and (name.count("/") != 1 or not all(name.split("/"))):
            raise ValueError("must be USER/REPO or USER/REPO:QUANT")
        return repo
