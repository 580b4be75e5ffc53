"""What the server says."""

from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from unpaced.settings.options.option import Option
from unpaced.settings.options.option_group import OptionGroup

_LEVELS: Final = ("error", "error", "warning", "info", "debug", "debug")


class LogSettings(OptionGroup):
    """What the server says."""

    group: ClassVar[str] = "Log"

    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Option(("--log-level",), "debug, info, warning or error", metavar="LEVEL"),
    ] = "info"
    verbose: Annotated[
        bool, Option(("-v", "--verbose", "--log-verbose"), "the same as --log-level debug")
    ] = False
    verbosity: Annotated[
        int | None,
        Field(ge=0),
        Option(
            ("-lv", "--verbosity", "--log-verbosity"),
            "llama-server's scale for --log-level: 1 errors, 2 warnings, 3 info, 4 and 5 debug",
            env="LOG_VERBOSITY",
            metavar="N",
        ),
    ] = None
    log_format: Annotated[
        Literal["console", "json"],
        Option(("--log-format",), "console or json, one object a line", metavar="FORMAT"),
    ] = "console"
    log_jsonl: Annotated[
        bool,
        Option(
            ("--log-jsonl",),
            "--log-format json on standard output instead of standard error",
            env="LOG_JSONL",
            off_flags=("--no-log-jsonl",),
        ),
    ] = False
    log_file: Annotated[
        Path | None,
        Option(("--log-file",), "write the log to this file too", env="LOG_FILE", metavar="FILE"),
    ] = None
    log_queue_bytes: Annotated[
        int,
        Field(ge=4096),
        Option(
            ("--log-queue-bytes",),
            "log lines that may wait for whoever reads them; beyond, they are dropped and counted",
            metavar="N",
        ),
    ] = 1024 * 1024
    log_disable: Annotated[bool, Option(("--log-disable",), "say nothing")] = False
    log_colors: Annotated[
        Literal["on", "off", "auto"],
        Option(
            ("--log-colors",),
            "on, off, or auto: where standard error is a terminal",
            env="LOG_COLORS",
            metavar="MODE",
            bare="on",
        ),
    ] = "auto"
    log_prefix: Annotated[
        bool,
        Option(
            ("--log-prefix",),
            "begin lines with their level (on by default)",
            env="LOG_PREFIX",
            off_flags=("--no-log-prefix",),
        ),
    ] = True
    log_timestamps: Annotated[
        bool,
        Option(
            ("--log-timestamps",),
            "begin lines with the time (on by default)",
            env="LOG_TIMESTAMPS",
            off_flags=("--no-log-timestamps",),
        ),
    ] = True

    traces: Annotated[
        bool,
        Option(
            ("--traces",),
            "send OpenTelemetry spans of requests by OTLP/HTTP, where the OTEL_* variables say; "
            "needs unpaced[otel]",
            off_flags=("--no-traces",),
        ),
    ] = False

    @property
    def level(self) -> str:
        """The log level in force."""
        if self.verbose:
            return "debug"
        if self.verbosity is not None:
            return _LEVELS[min(self.verbosity, len(_LEVELS) - 1)]
        return self.log_level

    @property
    def logs_json(self) -> bool:
        """Whether lines are JSON objects."""
        return self.log_jsonl or self.log_format == "json"
