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
    verbose: Annotated[
        bool, Option(("-v", "--verbose", "--log-verbose"), "the same as --log-level debug")
    ] = False
    log_format: Annotated[
        Literal["console", "json"],
        Option(("--log-format",), "console or json, one object a line", metavar="FORMAT"),
    ] = "console"

    @property
    def level(self) -> str:
        """The log level in force."""
        return "debug" if self.verbose else self.log_level
