"""What the server says."""

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel

from server.settings.option import Option


class LogSettings(BaseModel):
    """What the server says."""

    group: ClassVar[str] = "Log"

    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Option(("--log-level",), "debug, info, warning or error", metavar="LEVEL"),
    ] = "info"
    log_format: Annotated[
        Literal["console", "json"],
        Option(("--log-format",), "console or json, one object a line", metavar="FORMAT"),
    ] = "console"
