"""The page at GET / and what editors ask for."""

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import field_validator

from unpaced.settings.options.option import Option
from unpaced.settings.options.option_group import OptionGroup


class PageSettings(OptionGroup):
    """The page at GET / and what editors ask for."""

    group: ClassVar[str] = "Web page and editors"

    ui: Annotated[
        bool,
        Option(
            ("--ui", "--webui"),
            "a page to try the model with, at GET /",
            env="UI",
            off_flags=("--no-ui", "--no-webui"),
        ),
    ] = True
    path: Annotated[
        Path | None,
        Option(
            ("--path",),
            "serve this folder's files at / in place of the page",
            env="STATIC_PATH",
            metavar="FOLDER",
        ),
    ] = None
    spm_infill: Annotated[
        bool,
        Option(("--spm-infill",), "/infill: suffix, prefix, middle, which some models prefer"),
    ] = False

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_dir():
            raise ValueError("must be a folder")
        return path
